"""Opening the driver: it is started, its devices are chosen, and it is started again once gone."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gputop.agent.device import Device
from gputop.agent.interface import Driver, DriverError, ReplacedError
from gputop.agent.problem import Problem, ProblemError
from gputop.agent.reading import Read, ReadingThreads, Slot
from gputop.agent.snapshot import EVENTS, DriverState, Event
from gputop.agent.times import IDENTIFY_SECONDS

if TYPE_CHECKING:
    from gputop.agent.selection import Selection

RETRY_SECONDS = 2.0
"""Seconds between attempts to start a driver that could not be used: it may be loaded meanwhile."""


def pause(seconds: float, cut_short: threading.Event | None = None) -> bool:
    """Sleep that long, or until the event. Return True if the event came."""
    return (cut_short or threading.Event()).wait(max(0.0, seconds))


class Opened(NamedTuple):
    """Result of starting the driver so far."""

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
        self.opened = Opened()
        self._events: deque[Event] = deque(maxlen=EVENTS)
        self._start = start
        self._selection = selection
        self._read = read
        self._hurry = hurry

    def begin(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="driver", daemon=True).start()

    def take_events(self) -> tuple[Event, ...]:
        """Return the events since the last call."""
        events = []
        while self._events:
            events.append(self._events.popleft())
        return tuple(events)

    def _run(self) -> None:
        """Start the driver, however long that takes, and again while it cannot be used.

        Raises `ReplacedError` if one that worked has come back as another.
        """
        worked = False
        while True:
            try:
                driver = self._start()
                opened = self._choose(driver)
            except DriverError as error:
                if worked and error.mismatch:
                    raise ReplacedError("the NVIDIA driver was replaced") from None
                self._set(Opened(problem=error.problem))
                pause(RETRY_SECONDS)
                continue
            worked = True
            self._set(opened)
            threads = opened.threads
            assert threads is not None
            threading.Thread(
                target=self._listen, args=(driver, threads), name="events", daemon=True
            ).start()
            self._set(Opened(problem=threads.wait_for_end()))
            driver.close()

    def _set(self, opened: Opened) -> None:
        """Note the state of the driver, and send it at once if it has changed."""
        has_changed = opened.state is not self.opened.state
        self.opened = opened
        if has_changed:
            self._hurry.set()

    def _listen(self, driver: Driver, threads: ReadingThreads) -> None:
        while threads.problem is None:
            self._events += driver.events()

    def _choose(self, driver: Driver) -> Opened:
        """Start to read the chosen devices. Raises `DriverError` without any."""
        selection = self._selection
        identifies = selection is not None and selection.needs_identities
        threads = ReadingThreads(driver.readers(), self._read, identifies=identifies)
        slots = threads.slots
        if selection is None or not slots:
            threads.choose(dict.fromkeys(slots))
            return Opened(driver, threads)
        if identifies:
            threads.identify(lambda: _is_enough(selection, slots), IDENTIFY_SECONDS)
        while True:
            with threads.changed:
                silent = [slot for slot in slots if slot.identity is None]
                devices = _devices_of(slots)
            try:
                chosen = selection.among(devices, driver.pci_addresses)
            except ProblemError as error:
                problem = error.problem
            else:
                instances = {}
                for slot in slots:
                    uuid = _devices_of([slot])[0].uuid
                    if uuid in chosen:
                        instances[slot] = chosen[uuid]
                threads.choose(instances)
                return Opened(driver, threads, left_out=len(slots) - len(instances))
            if not silent:
                threads.choose({})
                driver.close()
                raise DriverError(problem)
            # A new start of the driver could not help a device that hangs: wait for it instead.
            self._set(Opened(problem=problem))
            threads.identify(partial(_is_any_identified, silent), math.inf)


def _devices_of(slots: Iterable[Slot]) -> list[Device]:
    """Return GPUs and MIG instances; a placeholder for a GPU that is not identified."""
    devices: list[Device] = []
    for slot in slots:
        devices += slot.identity or (slot.reader.device,)
    return devices


def _is_enough(selection: Selection, slots: Sequence[Slot]) -> bool:
    """Return True if the selection does not depend on further answers."""
    if all(slot.identity for slot in slots):
        return True
    return selection.is_certain(_devices_of(slots))


def _is_any_identified(slots: Sequence[Slot]) -> bool:
    return any(slot.identity for slot in slots)
