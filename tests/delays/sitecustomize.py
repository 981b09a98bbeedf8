"""Delays at random, as on a machine that does much else, for all that Python runs.

    PYTHONPATH=tests/delays pytest -n 6 tests/ui tests/e2e -m "slow or not slow"

What depends on a thread, a child process or an event loop that is quick fails in one such run or
two. Python imports this module by its name, in the tests and in the programs that they start.
"""

from __future__ import annotations

import os
import random
import time
from asyncio.base_events import BaseEventLoop
from asyncio.base_subprocess import BaseSubprocessTransport
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

LATEST_THREAD, LATEST_END, LATEST_TURN = 0.6, 0.8, 0.12
"""Seconds at most: of a thread's work, of the news of a child's end, and of a turn of the loop."""
_random = random.Random(f"{os.getpid()} {time.time()}")  # noqa: S311 - no secret
_pool: Any = ThreadPoolExecutor
_transport: Any = BaseSubprocessTransport
_loop: Any = BaseEventLoop
_submit, _exited, _run_once = _pool.submit, _transport._process_exited, _loop._run_once


def _mostly_short(most: float) -> float:
    return most * _random.random() ** 3


def _submit_late(self: Any, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
    def late() -> Any:
        time.sleep(_mostly_short(LATEST_THREAD))
        found = work(*arguments, **named)
        time.sleep(_mostly_short(LATEST_THREAD / 2))
        return found

    return _submit(self, late)


def _exited_late(self: Any, status: int) -> None:
    self._loop.call_later(_mostly_short(LATEST_END), _exited, self, status)


def _run_once_late(self: Any) -> None:
    chance = _random.random()
    if chance < 0.1:
        time.sleep(_random.random() * LATEST_TURN if chance < 0.01 else 0.005)
    _run_once(self)


_pool.submit = _submit_late
_transport._process_exited = _exited_late
_loop._run_once = _run_once_late
