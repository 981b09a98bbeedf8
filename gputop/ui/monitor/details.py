"""Further readings of a panel: clocks, units and links, in lines with fixed parts."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.agent.device import DeviceSample
from gputop.schema.values import rate
from gputop.text import ABSENT, fit_columns, percentage, size
from gputop.ui.drawing import charts
from gputop.ui.drawing.cells import Row, Span, reading
from gputop.ui.drawing.palette import DIM, TRACK
from gputop.ui.monitor.shown_device import ShownDevice

LONGEST_RATE = len("0.98 GiB/s")
GAP = 3

Part = tuple[str, str]
"""A label and a value."""


def detail_rows(
    shown: ShownDevice,
    width: int,
    most: int,
) -> list[Row]:
    """Draw the readings in up to `most` rows, the most useful first.

    A supported reading is shown even without a value. The device page says why it is missing.
    """
    device, r = shown.device, shown.readings
    clocks = [
        ("SM", "sm_clock_mhz", _of(r.sm_clock_mhz, device.sm_clock_max_mhz)),
        (
            "mem",
            "memory_clock_mhz",
            _of(r.memory_clock_mhz, device.memory_clock_max_mhz),
        ),
        (
            "bus",
            "memory_utilization_percent",
            percentage(r.memory_utilization_percent),
        ),
        ("fan", "fan_percent", percentage(r.fan_percent)),
    ]
    units = [
        ("SM active", "sm_active_percent", percentage(r.sm_active_percent)),
        ("DRAM", "dram_active_percent", percentage(r.dram_active_percent)),
        (
            "occupancy",
            "sm_occupancy_percent",
            percentage(r.sm_occupancy_percent),
        ),
    ]
    # SM active has a bar already.
    if shown.activity is charts.SM_ACTIVE:
        del units[0]
    first = _supported(shown, [*clocks[:1], *units])
    second = _supported(shown, clocks[1:])
    if r.memory_reserved_bytes:
        second.append(("reserved", size(r.memory_reserved_bytes)))
    lines = [parts for parts in (first, second) if parts]
    lines += _links(r, width)
    return [_in_line(parts, width) for parts in lines[:most]]


def _supported(
    shown: ShownDevice,
    parts: Sequence[tuple[str, str, str]],
) -> list[Part]:
    return [
        (label, text) for label, name, text in parts if not shown.lacks(name)
    ]


def _links(r: DeviceSample, width: int) -> list[list[Part]]:
    """Return the traffic of PCIe and NVLink, in one line or in one line each.

    Show both directions of a link, or neither. The choice depends on the longest possible rates,
    not on the current ones. Otherwise, lines would come and go with the traffic.
    """
    links: list[list[Part]] = []
    room = 0
    for label, received, sent in (
        ("PCIe", r.pcie_rx_bytes_per_second, r.pcie_tx_bytes_per_second),
        ("NVLink", r.nvlink_rx_bytes_per_second, r.nvlink_tx_bytes_per_second),
    ):
        longest = len(f"{label} ↓  ↑ ") + 2 * LONGEST_RATE
        if (received, sent) == (None, None) or longest > width:
            continue
        part = (label, f"↓ {rate(received)} ↑ {rate(sent)}")
        if room >= longest + GAP:
            links[-1].append(part)
        else:
            links.append([part])
        room = width - longest
    return links


def _in_line(parts: Sequence[Part], width: int) -> Row:
    def cells_of(part: Part) -> int:
        return len(part[0]) + 1 + len(part[1]) + GAP

    row: Row = []
    for label, value in fit_columns(parts, width + GAP, cells_of):
        if row:
            row.append(Span(" · ", TRACK))
        row += [Span(f"{label} ", DIM), reading(value)]
    return row


def _of(value: int | None, maximum: int | None) -> str:
    if value is None:
        return ABSENT
    return f"{value} MHz" if maximum is None else f"{value}/{maximum} MHz"
