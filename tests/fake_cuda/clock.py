"""A clock that goes on only where something waits for it, so that a run is the same each time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

READING_SECONDS = 1e-4
"""What a look at the clock takes, so that work that needs no time is not timed without end."""


def install(watch: Callable[[], object]) -> None:
    """Give this process such a clock. `watch` is called after each sleep."""
    now = 1000.0
    wait_for_event = threading.Event.wait

    def go_on(seconds: float) -> None:
        nonlocal now
        now += seconds

    def read() -> float:
        if threading.current_thread() is threading.main_thread():
            go_on(READING_SECONDS)
        return now

    def sleep(seconds: float) -> None:
        go_on(seconds)
        watch()

    def wait(event: threading.Event, timeout: float | None = None) -> Any:
        if timeout is None:
            return wait_for_event(event)
        if not event.is_set():
            sleep(timeout)
        return event.is_set()

    time.time = time.monotonic = time.perf_counter = read
    time.sleep, threading.Event.wait = sleep, wait  # type: ignore[assignment,method-assign]
