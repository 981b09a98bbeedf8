"""PCIe and NVLink traffic: rates from counters of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from gputop.agent.device import Absence
from gputop.agent.nvml.bindings import nvml
from gputop.agent.nvml.fields import (
    Asked,
    FieldKey,
    FieldReading,
    FieldValues,
    first_reason,
)
from gputop.agent.nvml.values import UNAVAILABLE

SHORTEST_SECONDS = 0.25
"""Shortest time between two readings of a counter that gives a rate."""
MOST_UNSURE = 1.25
"""Largest ratio of the times between two requests and between two answers. If one of the calls took
long, the ratio is larger, and the time at which the driver read the counter is unknown."""


class RateCounter:
    """Bytes per second from a counter in units of `scale` bytes, at most `fastest`.

    Some counters have 32 bits and are returned in 64. So each counter is taken to have 32 bits
    until it exceeds them. There is no rate if it may have wrapped without notice.
    """

    def __init__(self, scale: int, fastest: float) -> None:
        self._scale = scale
        self._fastest = fastest
        self.is_wide = False
        self._before: tuple[float, Asked] | None = None

    def rate(self, value: float | Absence, asked: Asked) -> int | Absence:
        """Return the rate since the previous call, or `no_data_yet` if there is none or it is
        uncertain."""
        if isinstance(value, Absence):
            return value
        previous, self._before = self._before, (value, asked)
        self.is_wide = self.is_wide or value >= 1 << 32
        if previous is None:
            return Absence.NO_DATA_YET
        before, asked_before = previous
        shorter, longer = sorted(
            (
                asked.began - asked_before.began,
                asked.ended - asked_before.ended,
            )
        )
        if shorter < SHORTEST_SECONDS or longer > MOST_UNSURE * shorter:
            return Absence.NO_DATA_YET
        may_have_wrapped = (1 << 32) * self._scale <= self._fastest * longer
        if may_have_wrapped and not self.is_wide:
            return Absence.NO_DATA_YET
        rate: float = (value - before) * self._scale / ((shorter + longer) / 2)
        # A counter that goes backwards has wrapped or was reset.
        if not 0 <= rate <= self._fastest:
            return Absence.NO_DATA_YET
        return round(rate)


_PCIE_FASTEST = 256e9
"""Most bytes per second in one direction: more than generation 7 with 16 lanes."""
_PCIE_MEASURED = {
    FieldKey(
        nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES
    ): nvml.NVML_PCIE_UTIL_RX_BYTES,
    FieldKey(
        nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES
    ): nvml.NVML_PCIE_UTIL_TX_BYTES,
}
"""Counters, with the measurements of the driver that replace them."""


class Pcie(FieldReading):
    """PCIe traffic from the byte counters, or else from the driver's own measurement.

    The measurement takes 20 ms per direction. So it is a separate question with a long interval,
    and only for a direction whose counter is missing or may have wrapped.
    """

    names = "pcie_rx_bytes_per_second pcie_tx_bytes_per_second"

    def __init__(self) -> None:
        self._counters = {
            key: RateCounter(1, _PCIE_FASTEST) for key in _PCIE_MEASURED
        }

    def keys(self, found: FieldValues) -> Iterable[FieldKey]:  # noqa: ARG002
        return self._counters

    def values(self, found: FieldValues, asked: Asked) -> Sequence[Any]:
        rates = []
        for key, counter in self._counters.items():
            rates.append(counter.rate(found[key], asked))
        return rates

    def measured(self, handle: Any) -> Sequence[int | Absence]:
        """Return the bytes per second in the last 20 ms, for the directions that need it."""
        rates: list[int | Absence] = []
        for key, counter in self._counters.items():
            kibibytes = None
            if not counter.is_wide:
                direction = _PCIE_MEASURED[key]
                kibibytes = nvml.nvmlDeviceGetPcieThroughput(handle, direction)
            if kibibytes is None or kibibytes in UNAVAILABLE:
                rates.append(Absence.NOT_SUPPORTED)
                continue
            rate = kibibytes * 1024
            rates.append(rate if rate <= _PCIE_FASTEST else Absence.ERROR)
        return rates


_LINK_FASTEST = 200e9
"""Most bytes per second of one link in one direction."""
_NVLINK_FASTEST = 2e12
"""Most bytes per second in one direction: more than all links of NVLink 6 together."""
_MOST_LINKS = 256
_ALL_LINKS = 0xFFFF_FFFF
_LINK_COUNT = FieldKey(nvml.NVML_FI_DEV_NVLINK_LINK_COUNT)


class _Family(NamedTuple):
    """The fields of the counters in both directions, and their unit in bytes."""

    received: int
    sent: int
    scale: int


_FAMILIES = (
    # Up to NVLink 4.
    _Family(
        nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
        nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
        scale=1024,
    ),
    # Since NVLink 5.
    _Family(
        nvml.NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES,
        nvml.NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES,
        scale=1,
    ),
)


class _NvLinkReading(FieldReading):
    """Rates from the counters of each link, or from those of all links together."""

    def __init__(self) -> None:
        self._links = 0
        self._families: Sequence[_Family] = _FAMILIES
        self._counters: dict[FieldKey, RateCounter] = {}

    def keys(self, found: FieldValues) -> Iterable[FieldKey]:
        """Yield the number of links until it is known, and the counters."""
        if not self._links:
            yield _LINK_COUNT
            count = found.get(_LINK_COUNT)
            if isinstance(count, int) and 0 < count <= _MOST_LINKS:
                self._links = count
        if self._links:
            for family in self._families:
                for scope in self._scopes():
                    yield FieldKey(family.received, scope)
                    yield FieldKey(family.sent, scope)

    def _scopes(self) -> Iterable[int]:
        raise NotImplementedError

    def _rates(
        self, found: FieldValues, asked: Asked
    ) -> tuple[list[int | Absence], list[int | Absence]]:
        """Return the rates received and sent in each scope."""
        if not self._links:
            count = found[_LINK_COUNT]
            if not isinstance(count, Absence):
                count = Absence.NOT_SUPPORTED
            return [count], [count]
        self._choose_family(found)
        family = self._families[0]
        rates = []
        for field in (family.received, family.sent):
            row = []
            for scope in self._scopes():
                key = FieldKey(field, scope)
                if key not in self._counters:
                    fastest = _LINK_FASTEST
                    if scope == _ALL_LINKS:
                        fastest = _NVLINK_FASTEST
                    self._counters[key] = RateCounter(family.scale, fastest)
                row.append(self._counters[key].rate(found[key], asked))
            rates.append(row)
        received, sent = rates
        return received, sent

    def _choose_family(self, found: FieldValues) -> None:
        """Keep only the first family that has a value."""
        for family in self._families:
            for scope in self._scopes():
                for field in (family.received, family.sent):
                    if isinstance(found[FieldKey(field, scope)], int):
                        self._families = [family]
                        return


class NvLinkTotal(_NvLinkReading):
    """NVLink traffic over all links, as the driver sums it."""

    names = "nvlink_rx_bytes_per_second nvlink_tx_bytes_per_second"

    def _scopes(self) -> Iterable[int]:
        return (_ALL_LINKS,)

    def values(self, found: FieldValues, asked: Asked) -> Sequence[Any]:
        received, sent = self._rates(found, asked)
        return received + sent


class NvLinks(_NvLinkReading):
    """NVLink traffic of each link, and their sums for drivers that do not sum them."""

    names = (
        "nvlink_rx_bytes_per_second nvlink_tx_bytes_per_second"
        " nvlink_link_rx_bytes_per_second nvlink_link_tx_bytes_per_second"
    )

    def _scopes(self) -> Iterable[int]:
        return range(self._links)

    def values(self, found: FieldValues, asked: Asked) -> Sequence[Any]:
        """Return the sums received and sent, then both for each link."""
        received, sent = self._rates(found, asked)
        total_received, each_received = _with_sum(received)
        total_sent, each_sent = _with_sum(sent)
        return total_received, total_sent, each_received, each_sent


def _with_sum(rates: Sequence[int | Absence]) -> tuple[Any, Any]:
    """Return the sum of the rates and all of them; None for a link that is down."""
    reason = first_reason(rates)
    known = [None if isinstance(rate, Absence) else rate for rate in rates]
    # A link may be silent for a moment.
    is_silent = reason is not Absence.NOT_SUPPORTED
    if is_silent or known.count(None) == len(known):
        return reason, reason
    return sum(rate or 0 for rate in known), tuple(known)
