"""Calls that may hang, in threads that do not delay the end of the program."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Container
from concurrent import futures
from concurrent.futures import Future
from functools import partial
from typing import Generic, TypeVar

K = TypeVar("K")
T = TypeVar("T")

_starting = threading.Lock()
# Until Python 3.12, starting a thread while the program ends may crash it. So
# none starts then.
atexit.register(_starting.acquire)


def start_daemon(function: Callable[..., object], *arguments: object) -> None:
    """Call the function in a thread that does not delay the end of the program."""
    with _starting:
        threading.Thread(
            target=function,
            args=arguments,
            daemon=True,
        ).start()


def call_in_thread(function: Callable[[], T]) -> Future[T]:
    """Call the function in a daemon thread, and return its future result."""
    future: Future[T] = Future()
    # A waiting caller may be cancelled, but the thread cannot.
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(function())
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            future.set_exception(error)

    start_daemon(run)
    return future


class SlowResults(Generic[K, T]):
    """Results of a function that may hang, by argument. For one thread.

    Each call has its own thread. A hung call keeps its thread and does not delay others.
    """

    def __init__(
        self,
        function: Callable[[K], T],
        patience: float,
        most: int = 64,
    ) -> None:
        """Call the function for at most `most` arguments at the same time.

        `patience` is the time in seconds that `get` waits for a call it has just started.
        """
        self._function = function
        self._patience = patience
        self._most = most
        self._running: set[K] = set()
        self._results: dict[K, T] = {}

    def get(self, key: K, *, again: bool = False) -> T | None:
        """Return the newest result, or None if there is none yet.

        With `again`, the function is called again for a newer one.
        """
        is_wanted = again or key not in self._results
        is_running = key in self._running
        if is_wanted and not is_running and len(self._running) < self._most:
            self._running.add(key)
            call = call_in_thread(partial(self._call, key))
            futures.wait([call], self._patience)
        return self._results.get(key)

    def keep(self, keys: Container[K]) -> None:
        """Drop the results of all other arguments."""
        for key in [*self._results]:
            if key not in keys:
                del self._results[key]

    def _call(self, key: K) -> None:
        try:
            self._results[key] = self._function(key)
        finally:
            self._running.discard(key)
