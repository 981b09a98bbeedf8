"""Calls that may hang, in threads that a program does not wait for at its end."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

_starting = threading.Lock()
# Until Python 3.12, a thread that starts while the program ends may crash it: then none starts.
atexit.register(_starting.acquire)


def start_daemon(function: Callable[..., object], *arguments: object) -> None:
    """Call the function in a thread that the program does not wait for at its end."""
    with _starting:
        threading.Thread(target=function, args=arguments, daemon=True).start()


def call_in_thread(function: Callable[[], T]) -> Future[T]:
    """Call the function in a daemon thread, and return its future result."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # who waits may be cancelled, the thread is not

    def run() -> None:
        try:
            future.set_result(function())
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            future.set_exception(error)

    start_daemon(run)
    return future
