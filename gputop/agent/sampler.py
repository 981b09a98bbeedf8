"""The loop behind `gputop stream`: read all devices and make a sample at each interval.

The loop waits briefly for the readings, then makes the sample on time. A device with a late reading
keeps its last one, with its age.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.agent import __version__
from gputop.agent.device import (
    Absence,
    Device,
    DeviceSample,
    DeviceState,
    without_readings,
)
from gputop.agent.interface import (
    DeviceReading,
    Driver,
    LookUp,
    Reader,
    unanswered_process,
)
from gputop.agent.lines import rounded
from gputop.agent.linux.host import (
    CPU_SAMPLE_SECONDS,
    WINDOW_SECONDS,
    HostReader,
)
from gputop.agent.linux.machine import cpu_name
from gputop.agent.opening import OpenedDriver, Opening, pause
from gputop.agent.owner_thread import OwnerThread
from gputop.agent.reading import KnownGpu, ReaderSlot, ReadingThreads
from gputop.agent.snapshot import Inventory, Process, Record, Sample, Source

if TYPE_CHECKING:
    from gputop.agent.selection import Selection

PATIENCE = 0.15
"""Part of the interval for which a sample waits for readings and owners. So a reading that misses
its sample is older in the next one by at most this part."""
LONGEST_PATIENCE = 1.0
"""Longest wait of a sample in seconds. The first sample with devices waits this long."""


class Sampler:
    """Yields the records of this machine's stream forever, on time."""

    def __init__(
        self,
        start: Callable[[], Driver],
        interval: float,
        source: Source = Source.NVML,
        *,
        owners: LookUp,
        gpm: bool = True,
        selection: Selection | None = None,
        simulate: Callable[
            [Mapping[str, tuple[float, float]]], None
        ] = lambda _: None,
    ) -> None:
        """Set how the driver starts.

        `owners` looks up the owners of processes. `selection` says which devices are read; None
        means all. `simulate` puts simulated devices under load, by their UUIDs.
        """
        self._simulate = simulate
        self._interval = interval
        self._gpm = gpm
        self._source = source
        self._host = HostReader()
        self._owners = OwnerThread(owners)
        self._hurry = threading.Event()
        """Set to make the next tick come at once."""
        self._opening = Opening(start, selection, self._read, self._hurry)
        self._hostname = socket.gethostname()
        self._cpu_name = cpu_name()

    def records(self) -> Iterator[Record]:
        """Yield an inventory, then samples. A changed inventory comes before the sample that needs
        it."""
        self._opening.begin()
        sent: Inventory | None = None
        for opened in self._ticks():
            # Take both at the same moment, because a read may change the
            # device in between.
            devices, sample = self._current(opened)
            inventory = self._inventory(opened, devices)
            if sent is None or replace(inventory, time=sent.time) != sent:
                sent = inventory
                yield inventory
            yield sample

    def set_interval(self, seconds: float) -> None:
        """Change the interval from now on."""
        self._interval = seconds
        self._hurry.set()

    def set_gpm(self, *, wanted: bool) -> None:
        """Switch GPM on or off. It costs the devices more than all other readings."""
        begins = wanted and not self._gpm
        self._gpm = wanted
        # The first value takes two ticks.
        if begins:
            self._hurry.set()

    def simulate(self, loads: Mapping[str, tuple[float, float]]) -> None:
        """Put exactly these devices under load if they are simulated."""
        self._simulate(loads)
        self._hurry.set()

    def _read(self, reader: Reader) -> tuple[DeviceReading, ...]:
        return reader.read(gpm=self._gpm)

    def _ticks(self) -> Iterator[OpenedDriver]:
        """Read all devices at each interval, and as soon as the driver has answered.

        Yields the driver that was read at that tick, because another one may open at any moment. If
        it is gone at the end of the tick, yields the problem.
        """
        pause(WINDOW_SECONDS)
        due = time.monotonic()
        read: ReadingThreads | None = None
        while True:
            self._hurry.clear()
            opened = self._opening.opened
            threads = opened.threads
            patience = LONGEST_PATIENCE
            if threads is read:
                patience = min(LONGEST_PATIENCE, PATIENCE * self._interval)
            read = threads
            self._read_all(threads, patience)
            if threads is not None and threads.problem is not None:
                opened = OpenedDriver(problem=threads.problem)
            yield opened
            due += self._interval
            hurried = self._pause_until(due)
            now = time.monotonic()
            # Skip the ticks that were missed while this process was suspended
            # or its output blocked.
            if hurried or now - due > self._interval / 2:
                due = now

    def _pause_until(self, due: float) -> bool:
        """Wait until then, and measure the CPU meanwhile. Return True if the wait was cut short."""
        while due - time.monotonic() >= 1.5 * CPU_SAMPLE_SECONDS:
            if pause(CPU_SAMPLE_SECONDS, self._hurry):
                return True
            self._host.note_cpu()
        return pause(due - time.monotonic(), self._hurry)

    def _read_all(
        self, threads: ReadingThreads | None, patience: float
    ) -> None:
        """Read all devices, and look up the owners of their processes."""
        if threads is None:
            return
        end = time.monotonic() + patience
        threads.read_all(patience)
        listed: list[Process] = []
        with threads.changed:
            for slot in threads.slots:
                listed += slot.known.processes
        self._owners.look_up(listed, end - time.monotonic())

    def _inventory(
        self, opened: OpenedDriver, devices: Sequence[Device]
    ) -> Inventory:
        driver = opened.driver
        return Inventory(
            time=time.time(),
            source=self._source,
            driver_state=opened.state,
            interval_seconds=self._interval,
            driver_version=driver.driver_version if driver else None,
            cuda_version=driver.cuda_version if driver else None,
            problem=opened.problem,
            devices=tuple(devices),
            hostname=self._hostname,
            cpu_name=self._cpu_name,
            gputop_version=__version__,
            devices_left_out=opened.left_out or None,
            unlisted_gpus=driver.unlisted_gpus() if driver else (),
        )

    def _current(self, opened: OpenedDriver) -> tuple[list[Device], Sample]:
        """Return the devices and a sample of them."""
        devices: list[Device] = []
        samples: list[DeviceSample] = []
        processes: list[Process] = []
        for known in self._known(opened.threads):
            devices += known.devices
            samples += known.samples
            processes += map(self._owners.complete, known.processes)
        sample = Sample(
            rounded(time.time()),
            self._host.read(),
            tuple(samples),
            tuple(processes),
            self._opening.take_events(),
            uptime_seconds=rounded(time.clock_gettime(time.CLOCK_BOOTTIME)),
        )
        return devices, sample

    def _known(self, threads: ReadingThreads | None) -> list[KnownGpu]:
        """Return the current state of each GPU, once per UUID."""
        if threads is None:
            return []
        found: dict[str, KnownGpu] = {}
        with threads.changed:
            now = time.monotonic()
            for slot in threads.slots:
                # Indices move when a device is lost, so two readers may have
                # found the same device.
                known = _current(slot, now, self._interval)
                found.setdefault(known.devices[0].uuid, known)
        return [*found.values()]


def _current(
    slot: ReaderSlot,
    now: float,
    interval: float,
) -> KnownGpu:
    """Return the devices of a slot with their last reading, or the reason why there is none."""
    age = rounded(now - (slot.read_at or slot.heard_at))
    known = slot.known
    devices = slot.devices
    if slot.is_hung(now, interval):
        state = DeviceState.NOT_RESPONDING
        hung = []
        for device in devices:
            hung.append(
                without_readings(device.uuid, state, Absence.TIMED_OUT, age)
            )
        processes = tuple(map(unanswered_process, known.processes))
        return KnownGpu(devices, tuple(hung), processes)
    if not known.devices:
        uuid = devices[0].uuid
        new = without_readings(uuid, DeviceState.OK, Absence.NO_DATA_YET, None)
        return KnownGpu(devices, (new,))
    samples = [sample.aged(age) for sample in slot.take().samples]
    return KnownGpu(devices, tuple(samples), known.processes)
