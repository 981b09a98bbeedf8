"""Children end with their parent, however it dies and whatever they do: the kernel sees to it.

The end of its standard input tells a child the same, where it listens: one that was stopped, or
hangs in a call of the driver's, does not.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from signal import SIGKILL
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PARENT = "GPUTOP_PARENT"
"""Variable with the pid of the parent that a child of gputop's own is to end with."""
PR_SET_PDEATHSIG = 1
# It becomes the other program: what the kernel was told stays so.
_BECOME = f"""
import ctypes, os, sys
ctypes.CDLL(None).prctl({PR_SET_PDEATHSIG}, {int(SIGKILL)})
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""


def environment() -> Mapping[str, str]:
    """Of a child that calls `end_with_parent`; the thread that starts it has to outlive it."""
    return {**os.environ, PARENT: str(os.getpid())}


def end_with_parent() -> None:
    """Has this process killed when its parent ends, where that is the one that asks for it."""
    parent = os.environ.pop(PARENT, None)
    if parent != str(os.getppid()):
        return  # started by hand, or through another program, which may end before it
    import ctypes

    with contextlib.suppress(AttributeError, OSError):  # a system without it
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
    if parent != str(os.getppid()):
        os._exit(0)


def bound(arguments: Sequence[str]) -> list[str]:
    """The command line by which another program, such as `ssh`, ends with this process.

    Raises `FileNotFoundError` where there is no such program.
    """
    import shutil  # takes milliseconds, and most children are gputop's own

    if shutil.which(arguments[0]) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), arguments[0])
    return [sys.executable, "-S", "-P", "-c", _BECOME, str(os.getpid()), *arguments]
