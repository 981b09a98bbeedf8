"""Ring buffers over a stream: what a device read in the last minutes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gputop.telemetry.snapshot import Sample

CAPACITY = 1200
"""Samples kept: twenty minutes at one a second."""
KEPT = (
    "gpu_utilization_percent",
    "memory_used_bytes",
    "power_watts",
    "temperature_celsius",
    "sm_clock_mhz",
)
"""The readings that are drawn over time."""


class History:
    """The last readings by device and name, oldest first; None where one was absent."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._series: dict[tuple[str, str], deque[float | None]] = {}
        self.count = 0
        """Samples ever added: places the newest one in a chart that does not scroll."""

    def add(self, sample: Sample) -> None:
        """Takes in a sample; devices that it does not have get a gap."""
        self.count += 1
        for uuid in {uuid for uuid, _ in self._series} - {d.uuid for d in sample.devices}:
            for name in KEPT:
                self._series[uuid, name].append(None)
        for device in sample.devices:
            for name in KEPT:
                self._of(device.uuid, name).append(getattr(device, name))

    def _of(self, uuid: str, name: str) -> deque[float | None]:
        key = uuid, name
        if key not in self._series:
            self._series[key] = deque(maxlen=self._capacity)
        return self._series[key]

    def series(self, uuid: str, name: str) -> Sequence[float | None]:
        """The readings of that name, oldest first."""
        return self._series.get((uuid, name), ())
