"""Start the sampler and other children, so that each ends with its parent however that dies.

The kernel kills a child whose parent ends. The end of its standard input tells a child the same,
where it listens: one that was stopped, or hangs in a call of the driver's, does not. This module is
light: a sampler starts while asyncio is loaded.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from gputop.agent.options import AgentOptions

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


def module_command(module: str) -> list[str]:
    """Return the words that run a module in this interpreter.

    `-P` leaves the working directory out of the path: a file there may have the name of a module.
    """
    return [sys.executable, "-P", "-m", module]


class StreamOptions(AgentOptions):
    """Options of `gputop stream`, and the words of its command line."""

    @property
    def flags(self) -> list[str]:
        """Options as words: those that are not as usual."""
        wanted = {
            "--control": self.control,
            "--no-gpm": self.control or not self.gpm,
            "--demo": self.demo,
            "--only-visible": self.only_visible,
            "--unmasked": self.secrets,
        }
        flags = ["--interval", f"{self.interval:g}"]
        if self.count is not None:
            flags += ["--count", str(self.count)]
        flags += [flag for flag in wanted if wanted[flag]]
        if self.ids:
            flags += ["--id", ",".join(self.ids)]
        return flags

    @property
    def words(self) -> list[str]:
        """Command `stream` and its options."""
        return ["stream", *self.flags]

    @property
    def command(self) -> list[str]:
        """Command line of this gputop's own stream, whatever is on the PATH."""
        return [*module_command("gputop"), *self.words]


def launch(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a child with pipes to all its streams. It ends when its standard input closes.

    It also ends with the thread that starts it. Raises `OSError` if it cannot be started.
    """
    if (
        arguments[0] != sys.executable
    ):  # another program, such as `ssh`, bound to this process
        import shutil  # takes milliseconds, and most children are gputop's own

        if shutil.which(arguments[0]) is None:
            raise FileNotFoundError(
                errno.ENOENT, os.strerror(errno.ENOENT), arguments[0]
            )
        arguments = [
            sys.executable,
            "-S",
            "-I",
            "-c",
            _BECOME,
            str(os.getpid()),
            *arguments,
        ]
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
    # The `ssh` to a jump host has no options of ours: it must not ask for a password in a window.
    ask_nothing = {"SSH_ASKPASS_REQUIRE": "never"}
    return {**os.environ, PARENT: str(os.getpid()), **ask_nothing}


def is_child_of_gputop() -> bool:
    """Return True if this process was started with `child_environment`."""
    return os.environ.get(PARENT) == str(os.getppid())


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, if the parent asked for that."""
    import ctypes

    parent = os.environ.pop(PARENT, None)
    if parent != str(os.getppid()):
        return  # started by hand, or through another program that may end first
    with contextlib.suppress(AttributeError, OSError):  # a system without it
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent != str(os.getppid()):
        os._exit(0)
