"""The processes on the devices: to be sorted, narrowed down by typing, and selected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.style import Style
from textual.message import Message

from gputop.schema.device import Absence, DeviceState
from gputop.text import ABSENT
from gputop.ui.drawing.draw import Row, Span, cell, spread
from gputop.ui.drawing.palette import ACCENT, DIM, STRONG, TEXT
from gputop.ui.processes.columns import (
    COMMAND,
    GAP,
    GPU_MEMORY,
    MARK_WIDTH,
    Column,
    Slot,
    command_of,
    fitting,
)
from gputop.ui.processes.table import Line, ProcessTable
from gputop.ui.widgets.filter import FilterView
from gputop.ui.widgets.scrolled import Wheel

if TYPE_CHECKING:
    from textual.events import Click

    from gputop.schema.snapshot import Process
    from gputop.ui.model import Telemetry

LONGEST_FILTER = 200
CURSOR = Style(reverse=True)
"""Of the selected row where keys are for it: in one style, for dim cells would be other blocks."""


class ProcessesView(Wheel, FilterView):
    """One row a process and device, in a window over all of them."""

    class RowClicked(Message):
        """Somebody selected a row with the mouse."""

    def __init__(self, telemetry: Telemetry, table: ProcessTable | None = None) -> None:
        """Views of one `table` are sorted, filtered and selected in alike."""
        super().__init__()
        self._telemetry = telemetry
        self._table = table or ProcessTable()
        self.device_uuid: str | None = None
        """The device whose processes alone are listed."""
        self._room = 1
        self._headed = True
        """Return True if there is room for a heading over the rows."""
        self.focused_list = False
        """Whether keys are for this list, and not for the devices."""

    @property
    def wanted_rows(self) -> int:
        """For all processes with their heading."""
        return self._listed().total + 1

    @property
    def selected(self) -> Process | None:
        """The process that keys act on."""
        return self._listed().selected

    def action_move(self, step: int) -> None:
        """Selects the process `step` rows further down."""
        self._listed().move(step)
        self.redraw()

    def action_page(self, step: int) -> None:
        """Selects the process `step` windows further down."""
        self.action_move(step * max(1, self._room - 1))

    def action_sort(self, step: int) -> None:
        """Sorts by the column `step` further right, round and round."""
        self._table.sort_by_next(step)
        self.redraw()

    def action_reverse(self) -> None:
        """Sorts the other way round."""
        self._table.reverse()
        self.redraw()

    def action_tree(self) -> None:
        """Puts children under their parents, or all in one list."""
        self._table.toggle_tree()
        self.redraw()

    @property
    def typed(self) -> str:
        """Words that must all occur in a row."""
        return self._table.filter

    def type(self, text: str) -> None:
        """Lists only those in which all words of `text` occur."""
        self._table.look_for(text[:LONGEST_FILTER])
        self.redraw()

    def filter_key(self, key: str, character: str | None) -> bool:
        """Does what a key does while one types: it may also go through the list."""
        match key:
            case "down" | "up":
                self.action_move(1 if key == "down" else -1)
            case "pagedown" | "pageup":
                self.action_page(1 if key == "pagedown" else -1)
            case _:
                return super().filter_key(key, character)
        return True

    def draw(self, width: int, height: int) -> list[Row]:
        """A heading, the rows of the window, and under them what is typed or does not show."""
        table = self._listed()
        typed = self.typing or bool(table.filter)
        self._headed = height > 1 + typed
        space = height - self._headed
        footed = typed or (space > 1 and table.total > space)
        self._room = max(1, space - footed)
        if not table.total:
            rows: list[Row] = [[Span(f"  {self._none()}", DIM)]]
        else:
            slots = fitting(width, table.sorted_by, table.several)
            at, lines = table.at, table.window(self._room)
            rows = [self._heading(slots)] if self._headed else []
            rows += [
                self._line(line, slots, selected=number == at)
                for number, line in enumerate(lines, table.first)
            ]
            if not lines:
                rows.append([Span("  No process has all of these words in it", DIM)])
        if footed:
            rows += [[] for _ in range(height - 1 - len(rows))]
            rows = [*rows[: height - 1], self._footer(width)]
        return rows

    def _listed(self) -> ProcessTable:
        """The table, up to date."""
        self._table.take(self._telemetry.sample, self._telemetry.devices, self.device_uuid)
        return self._table

    def _none(self) -> str:
        """Why there is nothing to list: devices that do not answer at all say so themselves."""
        telemetry = self._telemetry
        silent = {
            device.label: r.absent["processes"]
            for device in telemetry.devices
            if self.device_uuid in (None, device.uuid)
            and "processes" in (r := telemetry.readings(device.uuid)).absent
            and r.state is DeviceState.OK
            and r.age_seconds is not None
        }
        if silent and set(silent.values()) == {Absence.NOT_SCRAPED}:
            return "Prometheus has no processes: look on the host itself"
        if silent:
            return f"The driver does not list the processes of GPU {', '.join(silent)}"
        return "No process uses " + ("a device" if self.device_uuid is None else "this device")

    def _heading(self, slots: tuple[Slot, ...]) -> Row:
        table = self._table
        row = [Span(" " * MARK_WIDTH)]
        for column, cells in slots:
            at = column is table.sorted_by
            title = column.title + ("▼" if table.descending else "▲") * at
            if column is COMMAND and table.tree:  # which may change nothing but this
                title += " (tree)"
            row += [Span(" " * GAP), cell(title, cells, STRONG if at else DIM, right=column.right)]
        return row

    def _line(self, line: Line, slots: tuple[Slot, ...], *, selected: bool) -> Row:
        process, around = line.process, self._table.around
        row: Row = []
        for column, cells in slots:
            row.append(Span(" " * GAP))
            if column is COMMAND:
                row += _command(line, cells)
                continue
            text = column.text(process, around)
            known = STRONG if column is GPU_MEMORY else TEXT
            style = DIM if text == ABSENT else known
            row.append(cell(text, cells, style, right=column.right))
        if not selected:
            return [Span(" " * MARK_WIDTH), *row]
        if self.focused_list:
            row = [Span(span.text, CURSOR) for span in row]
        return [Span("▌", ACCENT if self.focused_list else DIM), *row]

    def _footer(self, width: int) -> Row:
        table = self._table
        listed, total = len(table.lines), table.total
        shown = f"{table.first + 1} to {min(listed, table.first + self._room)} of {listed}"
        if not self.typing and not table.filter:
            return [Span(f"  {shown} processes · ↑↓ scroll · / filter", DIM)]
        counts = f"  {listed} of {total} match"
        keys = "  Enter keeps · Esc clears " if self.typing else "  / changes it "
        right = [Span(counts, TEXT if listed else STRONG), Span(keys, DIM)]
        return spread(self.prompt(max(8, width - len(counts + keys) - 4)), right, width)

    def on_click(self, event: Click) -> None:
        """On a title: sorts by it, or the other way round. On a row: selects it."""
        table = self._listed()
        if not table.total:
            return
        if event.y == 0 and self._headed:
            column = self._column_at(event.x)
            if column is not None:
                table.sort_by(column)
                self.redraw()
        elif (row := event.y - self._headed) < min(self._room, len(table.lines) - table.first):
            table.select(table.first + row)
            self.redraw()
            self.post_message(self.RowClicked())

    def _column_at(self, x: int) -> Column | None:
        end = MARK_WIDTH
        table = self._table
        for column, cells in fitting(self.size.width, table.sorted_by, table.several):
            end += GAP + cells
            if x < end:
                return column
        return None

    def wheel(self, step: int) -> None:
        """Scroll by that many lines."""
        self._listed().scroll(step, self._room)
        self.redraw()


def _command(line: Line, cells: int) -> Row:
    """The branch of the tree, at most half of the room, and the command."""
    branch = line.branch
    if len(branch) > cells // 2:
        branch = "…" + branch[-max(3, cells // 2 - 1) :]
    room = max(0, cells - len(branch))
    text = cell(command_of(line.process, room), room)
    return [Span(branch, DIM), Span(text.text, DIM if line.process.command is None else TEXT)]
