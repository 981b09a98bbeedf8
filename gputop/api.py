"""Python API: snapshots of the devices for scripts, notebooks and tests.

A child process calls NVML, so a driver that hangs or crashes does not affect the caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import warnings
import weakref
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TypeVar

from gputop.agent.problem import Problem, ProblemError
from gputop.agent.process_limit import (
    process_limit_problem,
    says_process_limit,
)
from gputop.agent.times import DEFAULT_INTERVAL
from gputop.health.idle_devices import Amount, Requirements, parse_amount
from gputop.stream import child as streams
from gputop.stream.child import (
    ANSWER_SECONDS,
    Snapshot,
    StreamChild,
    first_snapshot,
)
from gputop.stream.launch import StreamOptions

T = TypeVar("T")


def snapshot(*, demo: bool = False) -> Snapshot:
    """Return the devices and their current readings, as soon as each device has answered.

    Readings that need two samples, such as `sm_active_percent`, are None; use `snapshots` for them.
    Raises `ProblemError` if the driver does not answer within 15 seconds. If the driver is missing,
    the reason is in `inventory.problem`.
    """
    found = streams.snapshots(_child(0.5, demo=demo))
    return _run(first_snapshot(found, complete=True))


def snapshots(
    interval: float = DEFAULT_INTERVAL, *, demo: bool = False
) -> Stream:
    """Return snapshots for `for` or `async for`, one every `interval` seconds (0.25 to 60)."""
    return Stream(interval, demo=demo)


def pick(
    count: int = 1,
    *,
    min_free: str | int | None = None,
    max_busy: float | None = None,
    wait: float = 0.0,
    demo: bool = False,
) -> list[str]:
    """Return the UUIDs of the least busy devices over a second with the most free memory.

    Use them for CUDA_VISIBLE_DEVICES. If that variable is set already, only its devices are
    considered. The list is empty if fewer than `count` devices fit within `wait` seconds.
    `min_free` is memory such as "20GiB", "80%" or a number of bytes. `max_busy` is a mean
    utilization in percent. Nothing is reserved.

    Raises `ValueError` for an invalid `min_free`, a `count` under 1 or an ambiguous
    CUDA_VISIBLE_DEVICES, and `ProblemError` if there is no driver or no device.
    """
    from gputop.commands.pick import INTERVAL_SECONDS, look

    if not (hasattr(count, "__index__") and count >= 1):
        raise ValueError(f"the count is {count!r}. Give a whole number from 1")
    least = None
    if isinstance(min_free, str):
        least = parse_amount(min_free)
    elif min_free is not None:
        least = Amount(int(min_free))
    needs = Requirements(least, max_busy)
    found = streams.snapshots(_child(INTERVAL_SECONDS, demo=demo))
    outcome = _run(look(found, count, needs, wait, lambda _: None))
    if outcome.note is not None:
        warnings.warn(outcome.note, stacklevel=2)
    return [each.device.uuid for each in outcome.picked]


class Stream(
    Iterator[Snapshot],
    AsyncIterator[Snapshot],
    AbstractContextManager["Stream"],
):
    """A stream of snapshots. The sampler starts at the first `next` or `latest`.

    Only the newest snapshot is kept, so a slow caller never gets old ones. The sampler ends with
    `close`, at the end of a `with` block, or when the object is garbage-collected.
    """

    def __init__(
        self, interval: float = DEFAULT_INTERVAL, *, demo: bool = False
    ) -> None:
        """Set the seconds between samples, and `demo` for simulated devices."""
        if not (hasattr(interval, "__float__") and 0.25 <= interval <= 60):
            raise ValueError(
                f"the interval is {interval!r}. Give seconds from 0.25 to 60"
            )
        self._follower = _Follower(
            _child(interval, demo=demo), ANSWER_SECONDS + interval
        )
        self._end = weakref.finalize(self, self._follower.close)
        # The sampler ends with this process anyway.
        self._end.atexit = False

    def __next__(self) -> Snapshot:
        """Wait for the next snapshot. Raises `ProblemError` after 15 s + interval."""
        found = self._follower.next()
        if found is None:
            raise StopIteration
        return found

    async def __anext__(self) -> Snapshot:
        """Wait for the next snapshot without blocking the event loop."""
        with _threads_needed():
            found = await asyncio.to_thread(self._follower.next)
        if found is None:
            raise StopAsyncIteration
        return found

    def __exit__(self, *_: object) -> None:
        self.close()

    def latest(self) -> Snapshot | None:
        """Return the newest snapshot without waiting, or None if there is none yet."""
        return self._follower.latest()

    def close(self) -> None:
        """End the sampler. After that there are no more snapshots."""
        self._end()


class _Follower:
    """Reads the stream in a thread with its own event loop, and keeps the newest snapshot."""

    def __init__(self, child: StreamChild, patience: float) -> None:
        self._child, self._patience = child, patience
        self._changed = threading.Condition()
        self._newest: Snapshot | None = None
        self._is_new = False
        self._problem = Problem(
            "No sample came", "the sampler is silent", "Try again"
        )
        self._ended = self._failed = False
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._follow()), daemon=True
        )
        self._reading: asyncio.Task[None] | None = None

    def latest(self) -> Snapshot | None:
        """Return the newest snapshot, or None."""
        with self._changed:
            self._start()
            return self._newest

    def next(self) -> Snapshot | None:
        """Wait for a new snapshot and return it, or None after `close`."""
        with self._changed:
            self._start()
            self._changed.wait_for(
                lambda: self._is_new or self._ended or self._failed,
                self._patience,
            )
            if self._ended:
                return None
            if not self._is_new:
                raise ProblemError(self._problem)
            self._is_new = False
            return self._newest

    def _start(self) -> None:
        if self._thread.ident is None and not self._ended:
            with _threads_needed():
                self._thread.start()

    def close(self) -> None:
        """End the child and the thread."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
            if self._reading is not None and not self._failed:
                self._reading.get_loop().call_soon_threadsafe(
                    self._reading.cancel
                )
        if self._thread.ident is not None:
            self._thread.join()

    async def _follow(self) -> None:
        with self._changed:
            if self._ended:
                return
            self._reading = asyncio.current_task()
        try:
            async with contextlib.aclosing(
                streams.snapshots(self._child)
            ) as found:
                async for each in found:
                    with self._changed:
                        if isinstance(each, Snapshot):
                            self._newest, self._is_new = each, True
                            self._changed.notify_all()
                        else:
                            self._problem = each.problem
        except ProblemError as error:
            with self._changed:
                self._problem, self._failed = error.problem, True
                self._changed.notify_all()
        except asyncio.CancelledError:
            # `close` cancelled the task.
            pass


def _child(interval: float, *, demo: bool) -> StreamChild:
    return StreamChild(StreamOptions(interval, demo=demo).command, interval)


def _run(work: Coroutine[None, None, T]) -> T:
    """Run a coroutine in a new thread, because a notebook's thread already runs an event loop."""
    with ThreadPoolExecutor() as thread:
        try:
            with _threads_needed():
                result = thread.submit(asyncio.run, work)
        except ProblemError:
            # Otherwise, Python warns that it was never awaited.
            work.close()
            raise
        return result.result()


@contextlib.contextmanager
def _threads_needed() -> Iterator[None]:
    """Raise `ProblemError` if no thread can be started in the block."""
    try:
        yield
    except RuntimeError as error:
        if not says_process_limit(error):
            raise
        raise ProblemError(
            process_limit_problem("No snapshot was taken")
        ) from None
