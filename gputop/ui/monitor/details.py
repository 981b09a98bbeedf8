"""Further readings of a panel: clocks, units and links, in lines with fixed parts."""

from __future__ import annotations

from gputop.schema.values import rate
from gputop.text import ABSENT, percentage, size
from gputop.ui.drawing import charts
from gputop.ui.drawing.cells import Row, Span, reading
from gputop.ui.drawing.device_cells import Part, parts_in_line
from gputop.ui.monitor.shown_device import ShownDevice

BOTH_LINKS = len(
    "PCIe ↓ 1.00 GiB/s ↑ 1.00 GiB/s · NVLink ↓ 1.00 GiB/s ↑ 1.00 GiB/s"
)
"""Cells in which both links fit, whatever their traffic, so that lines do not come and go."""


def detail_rows(shown: ShownDevice, width: int, most: int) -> list[Row]:
    """Draw the readings in up to `most` rows, the most useful first.

    A supported reading is shown even without a value. The device page says why it is missing.
    """
    device, r = shown.device, shown.readings
    clock = _of(r.sm_clock_mhz, device.sm_clock_max_mhz)
    memory = _of(r.memory_clock_mhz, device.memory_clock_max_mhz)
    units = [
        ("SM", "sm_clock_mhz", clock),
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
        del units[1]
    others = [
        ("mem", "memory_clock_mhz", memory),
        (
            "bus",
            "memory_utilization_percent",
            percentage(r.memory_utilization_percent),
        ),
        ("fan", "fan_percent", percentage(r.fan_percent)),
    ]
    if r.memory_reserved_bytes:
        reserved = size(r.memory_reserved_bytes)
        others.append(("reserved", "memory_reserved_bytes", reserved))
    lines: list[list[Part]] = []
    for named in (units, others):
        has = [each for each in named if not shown.lacks(each[1])]
        lines.append([(label, reading(text)) for label, _, text in has])
    links: list[Part] = []
    for label, received, sent in (
        ("PCIe", r.pcie_rx_bytes_per_second, r.pcie_tx_bytes_per_second),
        ("NVLink", r.nvlink_rx_bytes_per_second, r.nvlink_tx_bytes_per_second),
    ):
        # Show both directions of a link, or neither.
        if (received, sent) != (None, None):
            traffic = Span(f"↓ {rate(received)} ↑ {rate(sent)}")
            links.append((label, traffic))
    if width >= BOTH_LINKS:
        lines.append(links)
    else:
        lines += [[link] for link in links]
    return [parts_in_line(parts, width) for parts in lines if parts][:most]


def _of(value: int | None, maximum: int | None) -> str:
    if value is None:
        return ABSENT
    return f"{value} MHz" if maximum is None else f"{value}/{maximum} MHz"
