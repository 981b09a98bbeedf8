"""Tab with one line per host, and the free GPUs of all hosts."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.widget import Widget
from textual.widgets import Static

from gputop.agent.device import Device, DeviceState
from gputop.agent.snapshot import MachineState
from gputop.text import count, visible
from gputop.ui.drawing.cells import Row, Span, fit
from gputop.ui.drawing.device_cells import sign_of
from gputop.ui.drawing.filter_bar import FilterView
from gputop.ui.drawing.list_state import Column
from gputop.ui.drawing.list_view import ListView, Slot, fit_slots
from gputop.ui.drawing.live import LiveTab
from gputop.ui.drawing.palette import (
    ACCENT,
    BUSY,
    DIM,
    FAULT,
    GOOD,
    STRONG,
    TEXT,
    TRACK,
    WARN,
)
from gputop.ui.hosts import host_row
from gputop.ui.hosts.host_row import (
    HostGpu,
    HostRow,
    HostTable,
    free_gpus,
    host_rows,
)
from gputop.ui.telemetry import Telemetry

LEVELS = "▁▂▃▄▅▆▇█"
NOTE_CELLS = 25
"""Width that the note keeps before less useful columns are shown."""


class HostsView(ListView[HostRow]):
    """List of hosts, worst first."""

    noun = "hosts"

    def __init__(self) -> None:
        super().__init__(HostTable(host_row.WORST), host_row.COLUMNS)

    def slots(self, width: int) -> Sequence[Slot[HostRow]]:
        columns, least = host_row.COLUMNS, NOTE_CELLS
        ranked = [column for column in columns if column is not host_row.WORST]
        return fit_slots(columns, ranked, width, lambda _: least, least)

    def cell_of(self, item: HostRow, slot: Slot[HostRow]) -> Row:
        if slot.column is host_row.GPUS:
            return _gpu_cells(item, slot.cells)
        return super().cell_of(item, slot)

    def style_of(self, item: HostRow, column: Column[HostRow]) -> Style:
        if column is host_row.HOST:
            return ACCENT
        if column is host_row.WORST:
            return sign_of(item.rank).style
        return TEXT

    def action_sort(self, step: int) -> None:
        """Sort by the column `step` places further on."""
        shown = [slot.column for slot in self.slots(self.size.width)]
        places: dict[object, int] = {each: n for n, each in enumerate(shown)}
        at = places.get(self.state.sorted_by, 0) + step
        self.state.sort_by(shown[at % len(shown)])
        self.redraw()


def _gpu_cells(row: HostRow, width: int) -> Row:
    """Return a cell for each GPU. The last cell has the number of GPUs without a cell."""
    drawn = [_gpu_cell(gpu) for gpu in row.gpus]
    if len(drawn) > width:
        drawn = [*drawn[: width - 1], Span("…", DIM)]
    return fit(drawn, width)


def _gpu_cell(gpu: HostGpu) -> Span:
    """Return a bar for the GPU's utilization, in the colour of its finding."""
    style = BUSY
    if gpu.finding is not None:
        style = sign_of(gpu.finding.severity).style
    if gpu.readings.state is not DeviceState.OK:
        return Span("×", FAULT)
    if gpu.is_free:
        return Span("○", GOOD)
    busy = gpu.readings.gpu_utilization_percent
    if busy is None:
        return Span("┄", TRACK)
    level = min(len(LEVELS) - 1, round(busy / 100 * len(LEVELS)))
    return Span(LEVELS[level], style)


class HostsTab(LiveTab):
    """First tab for several hosts."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(id="hosts")
        self.telemetry = telemetry
        self.title = Static(id="hosts-title")
        self.view = HostsView()

    def compose(self) -> ComposeResult:
        yield self.title
        yield self.view

    @property
    def key_handlers(self) -> tuple[Widget, ...]:
        return (self, self.view)

    @property
    def filter_view(self) -> FilterView:
        return self.view

    @property
    def selected(self) -> Device | None:
        """First GPU of the selected host."""
        row = self.view.selected
        if row is None or not row.gpus:
            return None
        return row.gpus[0].device

    @property
    def selected_name(self) -> str | None:
        """Name of the selected host."""
        row = self.view.selected
        return None if row is None else row.machine.name

    def show_telemetry(self) -> None:
        rows = host_rows(self.telemetry)
        self.title.update(title_of(rows), layout=False)
        self.view.state.fill(rows)
        self.view.redraw()


def title_of(rows: Sequence[HostRow]) -> Text:
    """Return the number of hosts, and the free GPUs."""
    title = Text().append(count(len(rows), "host"), STRONG)
    states = [each.machine.state for each in rows]
    for state, style in (
        (MachineState.AWAY, FAULT),
        (MachineState.CONNECTING, WARN),
    ):
        many = states.count(state)
        if many:
            title.append(f" · {many} {state.value}", style)
    gpus = sum(len(each.gpus) for each in rows)
    free = free_gpus(rows)
    title.append(f" · free {len(free)} of {count(gpus, 'GPU')}", DIM)
    if free:
        title.append(f": {visible(', '.join(free))}", GOOD)
    return title
