"""Calls that may hang, in threads that a program does not wait for at its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def call_in_thread(function: Callable[[], T]) -> Future[T]:
    """Call the function in a daemon thread, and return its future result."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # who waits may be cancelled, the thread is not

    def run() -> None:
        try:
            future.set_result(function())
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
