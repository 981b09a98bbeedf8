"""Calls that may hang, in threads that a program does not wait for at its end."""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future
from functools import partial
from typing import Generic, TypeVar

K = TypeVar("K")
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


class SlowResults(Generic[K, T]):
    """Results of a function that may hang, by its argument; used by one thread.

    Each call has a thread of its own. One that hangs keeps its thread, and delays no other call.
    """

    def __init__(
        self, function: Callable[[K], T], patience: float, most: int = 64
    ) -> None:
        """Call the function for at most `most` arguments at the same time.

        `patience` are the seconds that `get` waits for a call that it has just started.
        """
        self._function = function
        self._patience = patience
        self._most = most
        self._calls: dict[K, Future[T]] = {}

    def get(self, key: K) -> T | None:
        """Return the result, or None until there is one. Raises what the function raised."""
        call = self._calls.get(key)
        if call is None:
            if sum(not each.done() for each in self._calls.values()) >= self._most:
                return None
            call = self._calls[key] = call_in_thread(partial(self._function, key))
            with contextlib.suppress(futures.TimeoutError):
                return call.result(self._patience)
        return call.result() if call.done() else None

    def take(self, key: K) -> T | None:
        """Do the same as `get`, but call the function again the next time."""
        try:
            return self.get(key)
        finally:
            self.forget(key)

    def forget(self, key: K) -> None:
        """Drop the result for this argument, unless the call is still running."""
        call = self._calls.get(key)
        if call is not None and call.done():
            del self._calls[key]
