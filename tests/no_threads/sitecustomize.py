"""A user whose limit on threads and processes (`ulimit -u`) is nearly used up.

Python imports this module by its name. `MORE_THREADS` and `MORE_PROCESSES` are how many each
program may still start. Root has no such limit, so the real one is of no use in tests.
"""

from __future__ import annotations

import errno
import os
import subprocess
import threading
from typing import Any

_left = {name: int(os.environ.get(name, "1000")) for name in ("MORE_THREADS", "MORE_PROCESSES")}
_start_thread, _start_process = threading.Thread.start, subprocess.Popen._execute_child  # type: ignore[attr-defined]


def _take(name: str, refusal: Exception) -> None:
    if not _left[name]:
        raise refusal
    _left[name] -= 1


def _start(self: threading.Thread) -> None:
    _take("MORE_THREADS", RuntimeError("can't start new thread"))
    _start_thread(self)


def _execute_child(self: Any, *arguments: Any) -> None:
    _take("MORE_PROCESSES", BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
    _start_process(self, *arguments)


threading.Thread.start = _start  # type: ignore[method-assign]
subprocess.Popen._execute_child = _execute_child  # type: ignore[attr-defined]
