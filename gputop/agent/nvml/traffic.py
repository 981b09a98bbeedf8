"""PCIe and NVLink traffic: rates from counters of bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from gputop.agent.device import Absence
from gputop.agent.nvml.bindings import nvml
from gputop.agent.nvml.fields import (
    Asked,
    FieldKey,
    FieldReading,
    FieldValues,
    first_reason,
)
from gputop.agent.nvml.query import AGAIN, EARLY, EVERY_10_SECONDS, Clock
from gputop.agent.nvml.values import UNAVAILABLE, absence_or_lost

SHORTEST_SECONDS = 0.25
"""Shortest time between two readings of a counter that gives a rate."""
MOST_UNSURE = 1.25
"""Largest ratio of the times between two readings, from question to question and from answer to
answer. It is larger if one of the two took long: nobody knows when the driver read the counter."""


class RateCounter:
    """Bytes per second from a counter in units of `scale` bytes, at most `fastest`.

    Some counters are returned in 64 bits and counted in 32. So each one is taken to be 32 bits wide
    until it exceeds that. There is no rate if it may have wrapped unseen.
    """

    def __init__(self, scale: int, fastest: float) -> None:
        self._scale = scale
        self._fastest = fastest
        self._wide = False
        self.ambiguous = False
        """True if it may have wrapped between its last two values, any number of times."""
        self._before: tuple[float, Asked] | None = None

    def rate(self, value: float | Absence, asked: Asked) -> int | Absence:
        """Return the rate since the previous call, or `no_data_yet` at first and if uncertain."""
        if isinstance(value, Absence):
            return value
        previous, self._before = self._before, (value, asked)
        self._wide = self._wide or value >= 1 << 32
        if previous is None:
            return Absence.NO_DATA_YET
        before, asked_before = previous
        shorter, longer = sorted(
            (asked.began - asked_before.began, asked.ended - asked_before.ended)
        )
        span = math.inf if self._wide else 1 << 32
        self.ambiguous = span * self._scale <= self._fastest * longer
        if shorter < SHORTEST_SECONDS or longer > MOST_UNSURE * shorter:
            return Absence.NO_DATA_YET
        rate: float = (value - before) * self._scale / ((shorter + longer) / 2)
        # A counter that goes backwards has wrapped or was reset: nobody knows which.
        if self.ambiguous or not 0 <= rate <= self._fastest:
            return Absence.NO_DATA_YET
        return round(rate)


_PCIE_FASTEST = 256e9
"""Bytes per second in one direction: above generation 7 with 16 lanes."""
_PCIE_MEASURED = {
    FieldKey(nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES): nvml.NVML_PCIE_UTIL_RX_BYTES,
    FieldKey(nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES): nvml.NVML_PCIE_UTIL_TX_BYTES,
}
"""Counters, with the driver's own measurement in their place."""


class Pcie(FieldReading):
    """PCIe traffic from the byte counters, or else from the driver's own measurement.

    The measurement takes 20 ms per direction. So it is made seldom, and only of a direction whose
    counter is missing or may have wrapped unseen.
    """

    names = "pcie_rx_bytes_per_second pcie_tx_bytes_per_second"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counters = {key: RateCounter(1, _PCIE_FASTEST) for key in _PCIE_MEASURED}
        self._needed: set[FieldKey] = set()
        """Counters whose rate has to be measured."""
        self._measured_at = -math.inf
        self._due = -math.inf
        self._measured: dict[FieldKey, int | Absence] = {}

    @property
    def oldest(self) -> float:
        """Time of the measurement in place of a counter; infinite if there is none."""
        for key in self._needed:
            if (
                self._measured.get(key, Absence.NOT_SUPPORTED)
                is not Absence.NOT_SUPPORTED
            ):
                return self._measured_at
        return math.inf

    def keys(self, found: FieldValues) -> Iterable[FieldKey]:  # noqa: ARG002 - a `FieldReading`
        return self._counters

    def values(
        self,
        found: FieldValues,
        handle: Any,
        asked: Asked,
    ) -> Sequence[Any]:
        rates = {}
        self._needed = set()
        for key, counter in self._counters.items():
            rates[key] = counter.rate(found[key], asked)
            if found[key] is Absence.NOT_SUPPORTED or counter.ambiguous:
                self._needed.add(key)
        self._measure_due(handle)
        for key in self._needed:
            if self._measured[key] is not Absence.NOT_SUPPORTED:
                rates[key] = self._measured[key]
        return [*rates.values()]

    def _measure_due(self, handle: Any) -> None:
        now = self._clock()
        is_new = not self._needed <= self._measured.keys()
        if self._needed and (is_new or now >= self._due):
            self._measured_at = now
            self._measured = {key: _measure(handle, key) for key in self._needed}
            self._due = now + EVERY_10_SECONDS - EARLY
            if Absence.NOT_SUPPORTED in self._measured.values():
                self._due = now + AGAIN


def _measure(handle: Any, key: FieldKey) -> int | Absence:
    """Return the bytes per second in the last 20 ms; "not available" is a number here, too."""
    try:
        measured = nvml.nvmlDeviceGetPcieThroughput(handle, _PCIE_MEASURED[key]) * 1024
    except nvml.NVMLError as error:
        return absence_or_lost(error.value)
    if measured // 1024 in UNAVAILABLE:
        return Absence.NOT_SUPPORTED
    return measured if 0 <= measured <= _PCIE_FASTEST else Absence.ERROR


_NVLINK_FASTEST = 2e12
"""Bytes per second in one direction: above all links of NVLink 6 together."""
_LINK_FASTEST = 200e9
"""Bytes per second in one direction: above one link."""
_MOST_LINKS = 256
_ALL_LINKS = 0xFFFF_FFFF
_LINK_COUNT = FieldKey(nvml.NVML_FI_DEV_NVLINK_LINK_COUNT)


class _Direction:
    """One direction of NVLink, by one family of counters."""

    def __init__(self, field: int, scale: int) -> None:
        """Set the field, and its unit in bytes."""
        self._field = field
        self._scale = scale
        self._counters: dict[FieldKey, RateCounter] = {}

    def keys(self, links: int) -> list[FieldKey]:
        """Return the counters of each link, and last that of all together."""
        return [FieldKey(self._field, link) for link in (*range(links), _ALL_LINKS)]

    def is_counted(self, found: FieldValues, links: int) -> bool:
        """Return True if a link has a counter of this family."""
        return any(isinstance(found[key], int) for key in self.keys(links)[:-1])

    def rates(
        self,
        found: FieldValues,
        links: int,
        asked: Asked,
    ) -> tuple[Any, Any]:
        """Return the total rate, and that of each link: None for one that is down."""
        *keys, all_links = self.keys(links)
        each = [self._rate(key, _LINK_FASTEST, found, asked) for key in keys]
        total = self._rate(all_links, _NVLINK_FASTEST, found, asked)
        reason = first_reason(each)
        rates: list[int | None] = []
        counted = 0
        for key, rate in zip(keys, each):
            if isinstance(rate, Absence):
                rates.append(None)
            else:
                rates.append(rate)
                counted += found[key]
        is_silent = reason is not Absence.NOT_SUPPORTED  # a link, at this moment
        if is_silent or not any(rate is not None for rate in rates):
            return (reason if isinstance(total, Absence) else total), reason
        if isinstance(total, Absence):
            total = sum(rate or 0 for rate in rates)
        elif counted > 1.5 * found[all_links]:
            # The driver ignores the link number, and returns the sum for each.
            return total, Absence.NOT_SUPPORTED
        return total, tuple(rates)

    def _rate(
        self, key: FieldKey, fastest: float, found: FieldValues, asked: Asked
    ) -> int | Absence:
        counter = self._counters.get(key)
        if counter is None:
            counter = self._counters[key] = RateCounter(self._scale, fastest)
        return counter.rate(found[key], asked)


class NvLink(FieldReading):
    """NVLink traffic of the device, in total and of each link."""

    names = (
        "nvlink_rx_bytes_per_second nvlink_tx_bytes_per_second"
        " nvlink_link_rx_bytes_per_second nvlink_link_tx_bytes_per_second"
    )

    def __init__(self) -> None:
        self._links = 0
        # Up to NVLink 4 in KiB, since NVLink 5 in bytes.
        self._families = [
            (
                _Direction(nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, 1024),
                _Direction(nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 1024),
            ),
            (
                _Direction(nvml.NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES, 1),
                _Direction(nvml.NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES, 1),
            ),
        ]

    def keys(self, found: FieldValues) -> Iterable[FieldKey]:
        """Yield the number of links, until it is known, and the counters of each."""
        if not self._links:
            yield _LINK_COUNT
            count = found.get(_LINK_COUNT)
            if isinstance(count, int) and 0 < count <= _MOST_LINKS:
                self._links = count
        if self._links:
            for family in self._families:
                for direction in family:
                    yield from direction.keys(self._links)

    def values(
        self,
        found: FieldValues,
        handle: Any,  # noqa: ARG002 - a `FieldReading`
        asked: Asked,
    ) -> Sequence[Any]:
        """Return the totals received and sent, then the same of each link."""
        if not self._links:
            count = found[_LINK_COUNT]
            return [count if isinstance(count, Absence) else Absence.NOT_SUPPORTED] * 4
        received, sent = self._counted(found)
        total_received, each_received = received.rates(found, self._links, asked)
        total_sent, each_sent = sent.rates(found, self._links, asked)
        return total_received, total_sent, each_received, each_sent

    def _counted(self, found: FieldValues) -> tuple[_Direction, _Direction]:
        """Return the first family that a link counts by, which stays, or the first."""
        for family in self._families:
            if any(direction.is_counted(found, self._links) for direction in family):
                self._families = [family]
                break
        return self._families[0]
