"""Layout of the monitor. It depends only on the terminal's size and the number of devices."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

NARROWEST_PANEL, WIDEST_PANEL = 52, 100
NARROWEST_ROW = 68
"""Minimum column width at one row per device. Two columns avoid scrolling."""
GAP = 1
TALLEST, CHART_ROWS = 32, 8
"""Useful height of a full panel, and its minimum height with a chart."""
PROCESS_SHARE, LEAST_PROCESS_ROWS = 0.3, 4
"""Share of the rows for processes before panels grow, and its minimum."""


class Density(IntEnum):
    """Density of the monitor. The value is the minimum number of rows per device."""

    ROW = 1
    COMPACT = 4
    FULL = 6


@dataclass(frozen=True, slots=True)
class DeviceLayout:
    """Density and columns of the devices, in cells."""

    density: Density
    columns: int
    panel_width: int
    panel_height: int
    rows: int
    """Total number of rows, with the heading of the one-row density."""


def plan_layout(
    devices: int,
    width: int,
    height: int,
    chosen: Density | None = None,
) -> DeviceLayout:
    """Return the fullest layout that leaves room for processes, or one with the chosen density."""
    room = height - process_rows(height)
    densities = (Density.FULL, Density.COMPACT, Density.ROW)
    for density in (chosen,) if chosen else densities:
        layout = _layout_at(density, devices, width, room)
        if layout.rows <= room:
            break
    return layout


def process_rows(height: int) -> int:
    """Return the rows that are reserved for processes, with their heading."""
    return max(LEAST_PROCESS_ROWS, int(PROCESS_SHARE * height))


def _layout_at(
    density: Density,
    devices: int,
    width: int,
    room: int,
) -> DeviceLayout:
    """Return the layout with the fewest columns that gives each panel a chart, else with the
    tallest panels."""
    heading = density is Density.ROW
    narrowest, fewest = (
        NARROWEST_PANEL,
        -(-(width + GAP) // (WIDEST_PANEL + GAP)),
    )
    if heading:
        narrowest, fewest = NARROWEST_ROW, 1
    most = max(1, min(devices, (width + GAP) // (narrowest + GAP)))
    fitting = []
    for columns in range(min(fewest, most), most + 1):
        lines = max(1, -(-devices // columns))
        panel_width = (width - (columns - 1) * GAP) // columns
        panel_height = int(density)
        if density is Density.FULL:
            panel_height = max(density, min(TALLEST, room // lines))
        rows = lines * panel_height + heading
        layout = DeviceLayout(
            density,
            columns,
            panel_width,
            panel_height,
            rows,
        )
        if rows <= room:
            fitting.append(layout)
    return max(
        fitting or [layout],
        key=lambda each: min(each.panel_height, CHART_ROWS),
    )
