"""Delays at random, as on a machine that does much else, for all that Python runs.

    PYTHONPATH=tests/delays pytest -n 6 tests/ui tests/e2e -m "slow or not slow"

What depends on a thread, a child process or an event loop that is quick fails in one such run or
two. Python imports this module by its name, in the tests and in the programs that they start. What
is delayed is changed as it is imported: nothing is imported that would not be.
"""

from __future__ import annotations

import importlib.util
import os
import random
import sys
import time
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec

LATEST_THREAD, LATEST_END, LATEST_TURN = 0.6, 0.8, 0.12
"""Seconds at most: of a thread's work, of the news of a child's end, and of a turn of the loop."""
_random = random.Random(f"{os.getpid()} {time.time()}")  # noqa: S311 - no secret


def _mostly_short(most: float) -> float:
    return most * _random.random() ** 3


def _delay_threads(module: Any) -> None:
    submit = module.ThreadPoolExecutor.submit

    def submit_late(self: Any, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        def late(*arguments: Any, **named: Any) -> Any:
            time.sleep(_mostly_short(LATEST_THREAD))
            found = work(*arguments, **named)
            time.sleep(_mostly_short(LATEST_THREAD / 2))
            return found

        return submit(self, late, *arguments, **named)

    module.ThreadPoolExecutor.submit = submit_late


def _delay_ends(module: Any) -> None:
    exited = module.BaseSubprocessTransport._process_exited

    def exited_late(self: Any, status: int) -> None:
        self._loop.call_later(_mostly_short(LATEST_END), exited, self, status)

    module.BaseSubprocessTransport._process_exited = exited_late


def _delay_turns(module: Any) -> None:
    run_once = module.BaseEventLoop._run_once

    def run_once_late(self: Any) -> None:
        chance = _random.random()
        if chance < 0.1:
            time.sleep(_random.random() * LATEST_TURN if chance < 0.01 else 0.005)
        run_once(self)

    module.BaseEventLoop._run_once = run_once_late


class DelayingFinder(MetaPathFinder):
    """Changes these modules as they are imported."""

    def __init__(self) -> None:
        self._changes = {
            "concurrent.futures.thread": _delay_threads,
            "asyncio.base_subprocess": _delay_ends,
            "asyncio.base_events": _delay_turns,
        }

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        change = self._changes.pop(name, None)
        spec = importlib.util.find_spec(name) if change is not None else None
        if spec is None or spec.loader is None or change is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_change(module: Any) -> None:
            execute(module)
            change(module)

        spec.loader.exec_module = execute_and_change  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, DelayingFinder())
