"""Start the sampler and other children, so that each ends with its parent however that dies.

The kernel kills a child whose parent ends. The end of its standard input tells a child the same,
where it listens: one that was stopped, or hangs in a call of the driver's, does not. This module is
light: a sampler starts while asyncio is loaded.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from signal import SIGKILL
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PARENT = "GPUTOP_PARENT"
"""Variable with the pid of the parent that a child of gputop's own ends with."""
PR_SET_PDEATHSIG = 1
# It becomes the other program: what the kernel was told stays so.
_BECOME = f"""
import ctypes, os, sys
ctypes.CDLL(None).prctl({PR_SET_PDEATHSIG}, {int(SIGKILL)})
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""


def command(
    *,
    interval: float,
    count: int | None = None,
    demo: bool = False,
    gpm: bool = True,
    control: bool = False,
    secrets: bool = False,
) -> list[str]:
    """Return the command line of this gputop's own `stream`, whatever is on the PATH."""
    # -P: a file named psutil.py in the working directory is not the one that is meant.
    words = [sys.executable, "-P", "-m", "gputop"]
    words += stream_words(interval=interval, gpm=gpm, control=control)
    if count is not None:
        words += ["--count", str(count)]
    if demo:
        words.append("--demo")
    return [*words, "--unmasked"] if secrets else words


def stream_words(*, interval: float, gpm: bool = True, control: bool = False) -> list[str]:
    """Return the words of the `stream` command that any gputop, also on another host, knows."""
    words = ["stream", "--interval", f"{interval:g}"]
    if control:  # who can ask for GPM will do so when it is shown
        words.append("--control")
    return words if gpm and not control else [*words, "--no-gpm"]


def launch(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a child with pipes to all its streams. It ends when its standard input closes.

    It also ends with the thread that starts it. Raises `OSError` if it cannot be started.
    """
    ours = arguments[0] == sys.executable
    process = subprocess.Popen(
        arguments if ours else _bound_to_parent(arguments),
        env=child_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl+C in the terminal is for the dashboard
    )
    assert process.stdin is not None
    os.set_blocking(process.stdin.fileno(), False)
    return process


def _bound_to_parent(arguments: Sequence[str]) -> list[str]:
    """Return the command line by which another program, such as `ssh`, ends with this process.

    Raises `FileNotFoundError` if there is no such program.
    """
    import shutil  # takes milliseconds, and most children are gputop's own

    if shutil.which(arguments[0]) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), arguments[0])
    return [sys.executable, "-S", "-P", "-c", _BECOME, str(os.getpid()), *arguments]


def child_environment() -> Mapping[str, str]:
    """Return the environment of a child that calls `end_with_parent`.

    The thread that starts the child must outlive it.
    """
    return {**os.environ, PARENT: str(os.getpid())}


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, if the parent asked for that."""
    parent = os.environ.pop(PARENT, None)
    if parent != str(os.getppid()):
        return  # started by hand, or through another program, which may end before it
    import ctypes

    with contextlib.suppress(AttributeError, OSError):  # a system without it
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
    if parent != str(os.getppid()):
        os._exit(0)
