"""Opening the driver: starting it, choosing its devices, and starting it again when it is gone."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from gputop.agent.interface import Driver, DriverError, ReplacedError
from gputop.agent.problem import Problem, ProblemError
from gputop.agent.reading import Read, ReadingThreads
from gputop.agent.snapshot import EVENTS, DriverState, Event
from gputop.agent.times import IDENTIFY_SECONDS

if TYPE_CHECKING:
    from gputop.agent.selection import Selection

RETRY_SECONDS = 2.0
"""Seconds between attempts to start an unusable driver, which may be loaded in the meantime."""


def pause(seconds: float, cut_short: threading.Event | None = None) -> bool:
    """Sleep for this long or until the event. Return True if the event occurred."""
    return (cut_short or threading.Event()).wait(seconds)


class OpenedDriver(NamedTuple):
    """State of the driver's start."""

    driver: Driver | None = None
    threads: ReadingThreads | None = None
    problem: Problem | None = None
    left_out: int = 0
    """Number of GPUs that were not chosen."""

    @property
    def state(self) -> DriverState:
        if self.driver is not None:
            return DriverState.OK
        if self.problem is not None:
            return DriverState.UNAVAILABLE
        return DriverState.STARTING


class Opening:
    """Keeps a driver open, in a thread named `driver`."""

    def __init__(
        self,
        start: Callable[[], Driver],
        selection: Selection | None,
        read: Read,
        hurry: threading.Event,
    ) -> None:
        """Set how the driver starts, which devices are chosen (None: all), and how one is read.

        `hurry` is set when the state of the driver changes.
        """
        self.opened = OpenedDriver()
        self._events: deque[Event] = deque(maxlen=EVENTS)
        self._start = start
        self._selection = selection
        self._read = read
        self._hurry = hurry

    def begin(self) -> None:
        """Start the thread."""
        threading.Thread(
            target=self._run,
            name="driver",
            daemon=True,
        ).start()

    def take_events(self) -> tuple[Event, ...]:
        """Return the events since the last call."""
        events = []
        while self._events:
            events.append(self._events.popleft())
        return tuple(events)

    def _run(self) -> None:
        """Start the driver, however long that takes, and try again while it cannot be used.

        Raises `ReplacedError` if a driver that worked comes back as another version.
        """
        worked = False
        while True:
            try:
                driver = self._start()
                opened = self._choose(driver)
            except DriverError as error:
                if worked and error.mismatch:
                    raise ReplacedError(
                        "the NVIDIA driver was replaced"
                    ) from None
                self._set(OpenedDriver(problem=error.problem))
                pause(RETRY_SECONDS)
                continue
            worked = True
            self._set(opened)
            threads = opened.threads
            assert threads is not None
            threading.Thread(
                target=self._listen,
                args=(driver, threads),
                name="events",
                daemon=True,
            ).start()
            self._set(OpenedDriver(problem=threads.wait_for_end()))
            driver.close()

    def _set(self, opened: OpenedDriver) -> None:
        """Store the state of the driver. If it changed, request a sample at once."""
        has_changed = opened.state is not self.opened.state
        self.opened = opened
        if has_changed:
            self._hurry.set()

    def _listen(self, driver: Driver, threads: ReadingThreads) -> None:
        while threads.problem is None:
            self._events += driver.events()

    def _choose(self, driver: Driver) -> OpenedDriver:
        """Start reading the chosen devices. Raises `DriverError` if there are none."""
        threads = ReadingThreads(driver.readers(), self._read)
        selection = self._selection
        if selection is None or not threads.slots:
            return OpenedDriver(driver, threads)
        patience = IDENTIFY_SECONDS
        while True:
            is_silent = False
            if selection.needs_identities:
                threads.read_all(
                    patience, lambda: selection.is_decided(threads.devices())
                )
                is_silent = any(not slot.read_at for slot in threads.slots)
            left_out = len(threads.slots)
            try:
                threads.keep(selection.among(threads.devices()))
            except ProblemError as error:
                if threads.problem is not None or not is_silent:
                    threads.end(error.problem)
                    driver.close()
                    raise DriverError(error.problem) from None
                # Restarting the driver would not help a hung device, so wait
                # for the device.
                self._set(OpenedDriver(problem=error.problem))
                patience = RETRY_SECONDS
            else:
                left_out -= len(threads.slots)
                return OpenedDriver(driver, threads, left_out=left_out)
