"""History of a stream: series of the last minutes on one time axis.

A series is a ring of numbers, not objects: 64 devices with 20 series of 1,200 samples take 12 MB.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping

from gputop.agent.device import DeviceSample
from gputop.agent.snapshot import Sample
from gputop.schema.catalogue import CATALOGUE
from gputop.schema.derived import DERIVED, derive

CAPACITY = 1200
"""Samples to keep: twenty minutes at one per second."""
KEPT = tuple(
    reading.name for reading in CATALOGUE.values() if reading.in_history
)
"""Names of the readings that charts draw or rules compare over time."""
MOST_GONE = 64
"""Maximum number of kept devices that are missing in the newest sample."""
FINE_CAPACITY = 720
"""Numbers kept per device: two minutes at six per second, in 16 kB."""


class FineSeries:
    """The driver's own samples of *busy*, several for each of our samples."""

    __slots__ = ("_many", "_pieces")

    def __init__(self) -> None:
        self._pieces: deque[tuple[int, bytes]] = deque()
        self._many = 0

    def add(self, number: int, piece: tuple[int, ...]) -> None:
        """Add the values of one of our samples. If any value is impossible, all are left out."""
        if min(piece) < 0 or max(piece) > 100:
            return
        self._pieces.append((number, bytes(piece)))
        self._many += len(piece)
        while self._many > FINE_CAPACITY:
            self._many -= len(self._pieces.popleft()[1])

    def since(self, number: int) -> bytes:
        """Return the values of all samples after `number`, oldest first."""
        return b"".join([piece for at, piece in self._pieces if at > number])


class _Device:
    """History of one device."""

    def __init__(
        self,
        number: int,
        nothing: array[float],
    ) -> None:
        self.first = self.newest = number
        """Numbers of the first and the newest sample with this device."""
        self.rings = dict.fromkeys((*KEPT, *DERIVED), nothing)
        """Rings by name. Readings without any number yet share one ring of gaps."""
        self.fine = FineSeries()
        self._nothing = nothing

    def write(
        self,
        place: int,
        readings: DeviceSample,
        derived: Mapping[str, float | None],
    ) -> None:
        """Write the readings at index `place` of the rings."""
        for name, ring in self.rings.items():
            value = (
                derived[name] if name in derived else getattr(readings, name)
            )
            if value is not None and ring is self._nothing:
                ring = self.rings[name] = ring[:]  # noqa: PLW2901 - now a copy of its own
            if ring is not self._nothing:
                ring[place] = math.nan if value is None else value


class History:
    """Recent readings by device and name. Devices are identified by UUID.

    A missing device has gaps. It is removed once the series have no reading of it any more.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._devices: dict[str, _Device] = {}
        self._nothing = array("d", [math.nan]) * capacity
        self._times, self._seconds = self._nothing[:], self._nothing[:]
        self._newest: Sample | None = None
        self.elapsed = 0.0
        """Seconds from the first to the newest sample, unaffected by changes of the clock."""
        self.count = 0
        """Number of samples ever added."""

    def add(self, sample: Sample) -> None:
        """Add a sample. Devices missing in it get a gap."""
        number, self.count = self.count, self.count + 1
        place = number % self._capacity
        elapsed = (
            0.0 if self._newest is None else _between(self._newest, sample)
        )
        self._newest = sample
        self._times[place] = sample.time
        self.elapsed += elapsed
        self._seconds[place] = self.elapsed
        derived = derive(sample)
        for readings in sample.devices:
            if readings.uuid not in self._devices:
                self._devices[readings.uuid] = _Device(number, self._nothing)
            device = self._devices[readings.uuid]
            device.newest = number
            device.write(place, readings, derived[readings.uuid])
            if readings.gpu_utilization_samples_percent:
                device.fine.add(
                    number, readings.gpu_utilization_samples_percent
                )
        missing = [
            pair
            for pair in reversed(self._devices.items())
            if pair[1].newest != number
        ]
        for gone, (uuid, device) in enumerate(missing, 1):
            for ring in device.rings.values():
                # The shared ring of gaps stays as it is.
                ring[place] = math.nan
            if number - device.newest >= self._capacity or gone > MOST_GONE:
                del self._devices[uuid]

    def series(self, uuid: str, name: str) -> list[float | None]:
        """Return the readings of that name up to the newest sample, oldest first."""
        numbers = self.last(uuid, name, self.count)
        return [number if number == number else None for number in numbers]

    def newest(self, uuid: str, name: str) -> float | None:
        """Return the reading of that name in the newest sample."""
        numbers = self.last(uuid, name, 1)
        if not numbers or math.isnan(numbers[0]):
            return None
        return numbers[0]

    def last(
        self,
        uuid: str,
        name: str,
        many: int,
    ) -> array[float]:
        """Return up to `many` last numbers of that name, NaN if missing. Faster than `series`."""
        device = self._devices.get(uuid)
        if device is None or name not in device.rings:
            return array("d")
        start = max(device.first, self._oldest, self.count - many)
        return _cut(device.rings[name], start, self.count)

    def busy_samples(self, uuid: str, many: int) -> bytes:
        """Return the driver's own samples of *busy* in %, after the first of `many` last samples.

        They are evenly spaced unless some are missing. The caller can tell from their number.
        """
        device = self._devices.get(uuid)
        return device.fine.since(self.count - many) if device else b""

    def samples_within(self, seconds: float) -> int:
        """Return the number of samples in the last `seconds` up to the newest one."""
        axis = self.seconds
        return len(axis) - bisect_left(axis, self.elapsed - seconds)

    @property
    def times(self) -> array[float]:
        """Times of the samples in Unix seconds. They are out of order if the clock was set back."""
        return _cut(self._times, self._oldest, self.count)

    @property
    def seconds(self) -> array[float]:
        """Seconds from the first sample to each sample, unaffected by changes of the clock."""
        return _cut(self._seconds, self._oldest, self.count)

    def span(self, samples: int) -> float:
        """Return the seconds between the first and the last of the newest `samples` samples."""
        axis = self.seconds
        return (
            self.elapsed - axis[-samples] if 0 < samples <= len(axis) else 0.0
        )

    @property
    def _oldest(self) -> int:
        return max(0, self.count - self._capacity)


def _between(before: Sample, after: Sample) -> float:
    first, last = before.uptime_seconds, after.uptime_seconds
    if first is not None and last is not None and last >= first:
        return last - first
    # If the clock was set back, count no time instead of a negative time.
    return max(0.0, after.time - before.time)


def _cut(
    ring: array[float],
    start: int,
    stop: int,
) -> array[float]:
    """Return the samples `start` to `stop` of a ring. Sample numbers do not wrap around."""
    many, size = stop - start, len(ring)
    first = start % size
    piece = ring[first : first + many]
    return piece if len(piece) == many else piece + ring[: many - len(piece)]
