"""The worker ends with its parent, also where it was stopped, or torch holds up all its threads."""

from __future__ import annotations

import contextlib
import os
from signal import SIGKILL

PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Has the kernel kill this process when its parent ends, where that is the one that asks."""
    parent = os.environ.pop("GPUTOP_PARENT", None)
    if parent != str(os.getppid()):
        return  # through a program that may end before it
    with contextlib.suppress(ImportError, AttributeError, OSError):  # a system without it
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
    if parent != str(os.getppid()):
        os._exit(1)
