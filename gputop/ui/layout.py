"""How dense, in how many columns: devices and processes share the monitor's space. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gputop.ui.widgets.panel import Density

NARROWEST_PANEL = 52
WIDEST_PANEL = 100
NARROWEST_ROW = 68
"""Of one row a device: two columns of them where there is room, before they have to be scrolled."""
GAP = 1
TALLEST_FULL, TALLEST = 12, 22
"""Rows of a full panel beyond which its history says no more, and where there is room for three."""
PROCESS_ROWS = (8, 4)
"""Processes that should have room under the devices, if there are that many: at best, at least."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How the devices are laid out."""

    density: Density
    columns: int
    panel_width: int
    panel_height: int
    rows: int
    """Rows in all, the heading of the one-row density included."""


def layout(
    devices: int, processes: int, width: int, height: int, chosen: Density | None = None
) -> Layout:
    """The fullest density that leaves room for the processes, or the one that was chosen."""
    # In steps, so that a process more does not move everything.
    spare = height - -(-processes // PROCESS_ROWS[0]) * PROCESS_ROWS[0] - 1
    for density in [chosen] if chosen else (Density.FULL, Density.COMPACT, Density.ROW):
        for wanted in PROCESS_ROWS:
            room = height - min(processes, wanted) - 1
            found = _of(density, devices, width, room, spare)
            if found.rows <= room:
                return found
    return found


def _of(density: Density, devices: int, width: int, room: int, spare: int) -> Layout:
    heading = density is Density.ROW
    narrowest = NARROWEST_ROW if heading else NARROWEST_PANEL
    best = None
    most = max(1, min(devices, (width + GAP) // (narrowest + GAP)))
    for columns in range(1, most + 1):
        lines = -(-devices // columns)
        panel_width = (width - (columns - 1) * GAP) // columns
        roomy = max(TALLEST_FULL, min(TALLEST, spare // lines))
        tallest = roomy if density is Density.FULL else density
        panel_height = max(density, min(tallest, room // lines))
        rows = lines * panel_height + heading
        best = Layout(density, columns, panel_width, panel_height, rows)
        if best.rows <= room and (heading or panel_width <= WIDEST_PANEL):
            return best
    assert best is not None
    return best
