"""Start the sampler and other children, so that each ends with its parent however that dies.

The kernel kills a child whose parent ends. The end of its standard input tells a child the same,
where it listens: one that was stopped, or hangs in a call of the driver's, does not. This module is
light: a sampler starts while asyncio is loaded.

The first sampler of the dashboard is forked from it while it is still small: a fork does without
the start of an interpreter and without loading again what both need, and the two share its memory.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from gputop.compat import module_command

PARENT = "GPUTOP_PARENT"
"""Variable with the pid of the parent that a child of gputop's own ends with."""
PR_SET_PDEATHSIG = 1
# It becomes the other program: what the kernel was told stays so.
_BECOME = f"""
import ctypes, os, sys
ctypes.CDLL(None).prctl({PR_SET_PDEATHSIG}, {int(signal.SIGKILL)})
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Options of `gputop stream`."""

    interval: float
    """Seconds between samples."""
    count: int | None = None
    """Samples of a settled driver after which it ends."""
    demo: bool = False
    gpm: bool = True
    control: bool = False
    """True if the reader sends requests on standard input: it then asks for GPM, too."""
    secrets: bool = False
    """True if command lines are sent unmasked, too."""
    ids: tuple[str, ...] = ()
    """Indices, PCI addresses or starts of UUIDs of the GPUs that are wanted; all if empty."""
    only_visible: bool = False
    """True if only GPUs are wanted that CUDA_VISIBLE_DEVICES leaves visible."""
    smi: tuple[str, ...] = ()
    """Names of nvidia-smi's whose values are read, too: a request, and not among the words, which
    an older gputop would refuse."""

    @property
    def words(self) -> list[str]:
        """Words of the command: those of each option that is not as usual."""
        words = ["stream", "--interval", f"{self.interval:g}"]
        if self.control:
            words.append("--control")
        if self.control or not self.gpm:
            words.append("--no-gpm")
        if self.count is not None:
            words += ["--count", str(self.count)]
        if self.demo:
            words.append("--demo")
        if self.ids:
            words += ["--id", ",".join(self.ids)]
        if self.only_visible:
            words.append("--only-visible")
        return [*words, "--unmasked"] if self.secrets else words

    @property
    def command(self) -> list[str]:
        """Command line of this gputop's own stream, whatever is on the PATH."""
        return [*module_command("gputop"), *self.words]


def launch(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a child with pipes to all its streams. It ends when its standard input closes.

    It also ends with the thread that starts it. Raises `OSError` if it cannot be started.
    """
    if arguments[0] != sys.executable:  # another program, such as `ssh`, bound to this process
        import shutil  # takes milliseconds, and most children are gputop's own

        if shutil.which(arguments[0]) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), arguments[0])
        arguments = [sys.executable, "-S", "-I", "-c", _BECOME, str(os.getpid()), *arguments]
    process = subprocess.Popen(
        arguments,
        env=child_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl+C in the terminal is for the dashboard
    )
    assert process.stdin is not None
    os.set_blocking(process.stdin.fileno(), False)
    return process


def child_environment() -> Mapping[str, str]:
    """Return the environment of a child that calls `end_with_parent`.

    The thread that starts the child must outlive it.
    """
    return {**os.environ, PARENT: str(os.getpid())}


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, if the parent asked for that."""
    parent = os.environ.pop(PARENT, None)
    if parent == str(os.getppid()):  # else by hand, or through another program that may end first
        die_with(int(parent))


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent, of that pid, ends."""
    import ctypes

    with contextlib.suppress(AttributeError, OSError):  # a system without it
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent != os.getppid():
        os._exit(0)


def can_fork() -> bool:
    """Return True if this process has a single thread, as a fork copies no others."""
    try:
        return len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208 - pathlib is slower
    except OSError:
        return False


class Forked:
    """A forked child, with what is used of a `subprocess.Popen`."""

    def __init__(self, work: Callable[[], None], title: Sequence[str]) -> None:
        """Start a child that does `work` and ends. Raises `OSError` if it cannot be started.

        Its standard streams are pipes. It appears as `title` in lists of processes.
        """
        self.returncode: int | None = None
        parent, pipes = os.getpid(), list[int]()
        try:
            for _ in range(3):
                pipes += os.pipe()
            self.pid = os.fork()
        except OSError:
            for each in pipes:
                os.close(each)
            raise
        read_input, write_input, read_output, write_output, read_errors, write_errors = pipes
        if self.pid == 0:
            _run(work, title, parent, (read_input, write_output, write_errors))
        for each in (read_input, write_output, write_errors):
            os.close(each)
        os.set_blocking(write_input, False)
        self.stdin = os.fdopen(write_input, "wb", 0)
        self.stdout, self.stderr = (os.fdopen(each, "rb", 0) for each in (read_output, read_errors))

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal, or None while it runs."""
        if self.returncode is None:
            # Another thread may wait, too: then that one is told.
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for its end. Raises `subprocess.TimeoutExpired`."""
        deadline, pause = time.monotonic() + timeout, 0.0005
        while (status := self.poll()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired("the sampler", timeout)
            pause = min(2 * pause, left, 0.05)
            time.sleep(pause)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended: its pid may be another's by now."""
        if self.poll() is None:
            os.kill(self.pid, number)


def _run(
    work: Callable[[], None], title: Sequence[str], parent: int, streams: Sequence[int]
) -> NoReturn:
    """Do the work in the child, with nothing of the parent's but its memory."""
    status = 1
    try:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        os.setsid()  # Ctrl+C in the terminal is for the dashboard
        for target, each in enumerate(streams):
            os.dup2(each, target)
        os.closerange(3, 1 + max(map(int, os.listdir("/proc/self/fd"))))  # noqa: PTH208
        with contextlib.suppress(OSError):
            # As with -P, nothing is imported from here: its psutil.py is not the one that is meant.
            safe = getattr(sys.flags, "safe_path", False)
            if not safe and sys.path[:1] in ([""], [os.getcwd()]):  # noqa: PTH109
                del sys.path[0]
        die_with(parent)
        _show_title(title)
        gc.freeze()  # what was loaded before is shared as long as nobody touches it
        gc.enable()
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - what the parent does next must not run here
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _show_title(words: Sequence[str]) -> None:
    """Replace the command line that the kernel shows of this process, as far as there is room."""
    import ctypes

    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123 - pathlib is slower
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        title = b"\0".join(os.fsencode(each) for each in words)[: end - start - 1]
        if 0 < start < end:
            ctypes.memmove(start, title.ljust(end - start, b"\0"), end - start)
