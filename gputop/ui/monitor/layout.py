"""How dense, in how many columns: devices and processes share the monitor's space. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.frozen import dataclass
from gputop.ui.monitor.panel import Density

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    devices: int | Sequence[int],
    processes: int,
    width: int,
    height: int,
    chosen: Density | None = None,
    titles: int = 0,
) -> Layout:
    """The fullest density that leaves room for the processes, or the one that was chosen.

    Devices of several sections begin a line each; `titles` are the rows that these have besides.
    """
    sections = [devices] if isinstance(devices, int) else devices
    # In steps, so that a process more does not move everything.
    spare = height - -(-processes // PROCESS_ROWS[0]) * PROCESS_ROWS[0] - 1
    for density in [chosen] if chosen else (Density.FULL, Density.COMPACT, Density.ROW):
        for wanted in PROCESS_ROWS:
            room = height - min(processes, wanted) - 1
            found = _of(density, sections, width, room - titles, spare - titles)
            found = replace(found, rows=found.rows + titles)
            if found.rows <= room:
                return found
    return found


def _of(density: Density, sections: Sequence[int], width: int, room: int, spare: int) -> Layout:
    heading = density is Density.ROW
    narrowest = NARROWEST_ROW if heading else NARROWEST_PANEL
    best = None
    most = max(1, min(max(sections, default=0), (width + GAP) // (narrowest + GAP)))
    for columns in range(1, most + 1):
        lines = max(1, sum(-(-devices // columns) for devices in sections))
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
