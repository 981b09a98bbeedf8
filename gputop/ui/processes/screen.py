"""List of processes, and the tabs that have one: sort, filter, signals, environments."""

from __future__ import annotations

from collections.abc import Sequence
from signal import Signals
from typing import TYPE_CHECKING

from textual.message import Message

from gputop.agent.device import Absence, Device, DeviceState
from gputop.schema.derived import label_of
from gputop.schema.values import unseen
from gputop.text import ABSENT, fit_columns
from gputop.ui.drawing.cells import Row, Span, cell, list_row, spread, width_of
from gputop.ui.drawing.live import (
    LONGEST_FILTER,
    FilterView,
    LiveTab,
    TelemetryView,
    Wheel,
)
from gputop.ui.drawing.palette import DIM, STRONG, TEXT
from gputop.ui.processes import columns
from gputop.ui.processes.table_state import ProcessLine, ProcessTable

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.events import Click
    from textual.widget import Widget

    from gputop.agent.snapshot import Process
    from gputop.ui.processes.columns import ProcessColumn, ShownColumn
    from gputop.ui.processes.process_page import ProcessDetailsView
    from gputop.ui.telemetry import Telemetry


class ProcessesView(Wheel, TelemetryView, FilterView):
    """Scrolling list with one row per process and device."""

    class RowClicked(Message):
        """Message that a row was selected with the mouse."""

    def __init__(self, telemetry: Telemetry, table: ProcessTable | None = None) -> None:
        """`table` may be shared: its views have the same order, filter and selection."""
        super().__init__(telemetry)
        self._table = table or ProcessTable()
        self.device_uuid: str | None = None
        """UUID of the only device whose processes are listed, or None for all."""
        self._room = 1
        self._side = 0
        """Steps that it is scrolled to the right."""
        self._headed = True
        """True if there is room for a heading."""
        self.focused_list = False
        """True while keys are for this list and not for the devices."""

    @property
    def rows_needed(self) -> int:
        """Rows needed for all processes and the heading."""
        return self._listed().total + 1

    @property
    def selected(self) -> Process | None:
        return self._listed().selected

    def action_move(self, step: int) -> None:
        self._listed().move(step)
        self.redraw()

    def action_page(self, step: int) -> None:
        self.action_move(step * max(1, self._room - 1))

    def action_side(self, step: int) -> None:
        """Scroll to the right by `step` columns; once none is left, scroll the command."""
        self._side = max(0, self._side + step)
        self.redraw()

    def action_sort(self, step: int) -> None:
        self._table.sort_by_next(step)
        self.redraw()

    def action_sort_by(self, title: str) -> None:
        self._table.apply_settings(title, False, self._table.tree)
        self.redraw()

    def action_user(self) -> None:
        process = self.selected
        self.type("" if self.typed or process is None else process.user or "")

    def action_reverse(self) -> None:
        self._table.reverse()
        self.redraw()

    def action_tree(self) -> None:
        self._table.toggle_tree()
        self.redraw()

    @property
    def typed(self) -> str:
        """Words that a row must all contain."""
        return self._table.filter

    def type(self, text: str) -> None:
        self._table.set_filter(text[:LONGEST_FILTER])
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        table = self._listed()
        typed = self.typing or bool(table.filter)
        self._headed = height > 1 + typed
        space = height - self._headed
        footed = typed or (space > 2 and table.total > space)
        self._room = max(1, space - footed)
        if not table.total:
            rows: list[Row] = [[Span(f"  {self._none()}", DIM)]]
        else:
            at, lines = table.at, table.window(self._room)
            slots = self._slots(width)
            longest = max(
                (len(f"{p.command}{branch}") for p, branch in lines), default=0
            )
            past_end = slots[-1].skipped + slots[-1].cells - longest
            if (excess := min(past_end, slots[-1].skipped) // columns.SIDE_CELLS) > 0:
                self._side -= excess
                slots = self._slots(width)
            rows = [self._heading(slots)] if self._headed else []
            rows += [
                self._line(line, slots, selected=number == at)
                for number, line in enumerate(lines, table.first)
            ]
            if not lines:
                rows.append([Span("  No process matches all of these words", DIM)])
        if footed:
            rows += [[] for _ in range(height - 1 - len(rows))]
            rows = [*rows[: height - 1], self._footer(width)]
        return rows

    def _slots(self, width: int) -> Sequence[ShownColumn]:
        table = self._table
        return columns.shown_columns(
            width, table.sorted_by, table.columns, self._side, table.longest_texts
        )

    def _listed(self) -> ProcessTable:
        """Return the table, updated to the current sample."""
        self._table.update(
            self._telemetry.sample, self._telemetry.devices, self.device_uuid
        )
        return self._table

    def _none(self) -> str:
        """Return why the list is empty. Devices that do not answer say so themselves."""
        telemetry = self._telemetry
        silent = {
            label_of(device): r.absent["processes"]
            for device in telemetry.devices
            if self.device_uuid in (None, device.uuid)
            and "processes" in (r := telemetry.readings(device.uuid)).absent
            and r.state is DeviceState.OK
            and r.age_seconds is not None
        }
        if silent and set(silent.values()) == {Absence.NOT_SCRAPED}:
            return "Prometheus has no processes: run gputop on the host itself"
        if silent:
            return f"The driver does not list the processes of GPU {', '.join(silent)}"
        return "No process uses " + (
            "a device" if self.device_uuid is None else "this device"
        )

    def _heading(self, slots: Sequence[ShownColumn]) -> Row:
        table = self._table
        row = [Span("←" if self._side else " ", DIM)]
        for column, cells, _ in slots:
            at = column is table.sorted_by
            title = column.title + ("▼" if table.descending else "▲") * at
            if (
                column is columns.COMMAND and table.tree
            ):  # often the only visible change
                title += " (tree)"
            style = STRONG if at else DIM
            row += [
                Span(" " * columns.GAP),
                cell(title, cells, style, right=column.right),
            ]
        return row

    def _line(
        self, line: ProcessLine, slots: Sequence[ShownColumn], *, selected: bool
    ) -> Row:
        process, context = line.process, self._table.context
        row: Row = []
        for column, cells, skipped in slots:
            row.append(Span(" " * columns.GAP))
            if column is columns.COMMAND:
                row += _command(line, cells, skipped)
                continue
            text = column.text(process, context)
            known = STRONG if column is columns.GPU_MEMORY else TEXT
            style = DIM if text == ABSENT else known
            row.append(cell(text, cells, style, right=column.right))
        return list_row(row, selected=selected, focused=self.focused_list)

    def _footer(self, width: int) -> Row:
        table = self._table
        listed, total = len(table.lines), table.total
        shown = (
            f"{table.first + 1} to {min(listed, table.first + self._room)} of {listed}"
        )
        if not self.typing and not table.filter:
            parts = (f"  {shown} processes", " · ↑↓ scroll", " · / filter")
            return [Span("".join(fit_columns(parts, width, len)), DIM)]
        counts = f"  {listed} of {total} match"
        right = [Span(counts, TEXT if listed else STRONG), Span(self.filter_keys, DIM)]
        return spread(self.prompt(max(8, width - width_of(right) - 4)), right, width)

    def on_click(self, event: Click) -> None:
        """Sort by the heading under the mouse, or reverse the order; select the row under it."""
        table = self._listed()
        if not table.total:
            return
        if event.y == 0 and self._headed:
            column = self._column_at(event.x)
            if column is not None:
                table.sort_by(column)
                self.redraw()
        elif (row := event.y - self._headed) < min(
            self._room, len(table.lines) - table.first
        ):
            table.select(table.first + row)
            self.redraw()
            self.post_message(self.RowClicked())

    def _column_at(self, x: int) -> ProcessColumn | None:
        end = columns.MARK_WIDTH
        for column, cells, _ in self._slots(self.size.width):
            end += columns.GAP + cells
            if x < end:
                return column
        return None

    def wheel(self, step: int) -> None:
        self.action_move(step)


def _command(line: ProcessLine, cells: int, skipped: int) -> Row:
    """Return the branch of the tree, in at most half of the room, and the command from there on."""
    branch = line.branch
    if len(branch) > cells // 2:
        branch = "…" + branch[-max(3, cells // 2 - 1) :]
    room = max(0, cells - len(branch))
    text = cell(columns.command_of(line.process, room, skipped), room)
    return [
        Span(branch, DIM),
        Span(text.text, DIM if line.process.command is None else TEXT),
    ]


def why_untouched(process: Process, telemetry: Telemetry) -> str:
    """Return why a process cannot be read or signalled from here; empty if it can."""
    if telemetry.replayed:
        return "this is a recording: its pid may belong to another process by now"
    if telemetry.simulated:
        return "it is simulated and does not exist"
    if not process.is_here:
        return f"it runs on {process.machine}: use `ssh -t {process.machine} gputop`"
    # Without a start time the pid may by now be another process.
    return unseen(process) if process.start_time is None else ""


class ProcessTab(LiveTab):
    """Tab with a process that keys act on."""

    def __init__(
        self, telemetry: Telemetry, view: ProcessesView | ProcessDetailsView, name: str
    ) -> None:
        super().__init__(id=name)
        self.telemetry, self._view = telemetry, view

    def compose(self) -> ComposeResult:
        yield self._view

    @property
    def key_handlers(self) -> tuple[Widget, ...]:
        return (self, self._view)

    @property
    def filter_view(self) -> FilterView:
        return self._view

    @property
    def process(self) -> Process | None:
        """Process that keys act on."""
        return self._view.selected

    @property
    def selected(self) -> Device | None:
        """Device of that process; the first one, if it is on several."""
        return self.telemetry.find_device(
            self.process.device_uuid if self.process else None
        )

    def is_right(self, uuid: str) -> bool:  # noqa: ARG002 - for the tab with panels
        """Return True if the device with that UUID is shown in the right half."""
        return False

    def action_signal(self) -> None:
        from gputop.ui.processes.process_page import SendSignal, signal_target

        process, telemetry = self.process, self.telemetry
        if process is None:
            self.notify("No process is selected")
            return
        if why := why_untouched(process, telemetry):
            self.notify(f"No signal to {process.pid}: {why}", severity="warning")
            return
        processes = telemetry.sample.processes if telemetry.sample else ()
        target = signal_target(process, processes, telemetry.devices)
        question = SendSignal(target, left=self.is_right(process.device_uuid))
        question.ask(self.app, lambda number: self._send(process, number))

    def _send(self, process: Process, number: Signals) -> None:
        from gputop.ui.processes.signals import send_signal

        assert process.start_time is not None, "else it is untouched"
        problem = send_signal(process.pid, process.start_time, number)
        if problem is None:
            self.notify(f"{number.name} was sent to {process.pid}")
        else:
            self.notify(str(problem), title="Not sent", severity="error")


class ListTab(ProcessTab):
    """Tab with a list of processes."""

    def __init__(self, telemetry: Telemetry, table: ProcessTable, id: str) -> None:  # noqa: A002
        self.processes = ProcessesView(telemetry, table)
        super().__init__(telemetry, self.processes, id)


class ProcessesTab(ListTab):
    """Full-screen list with the order and filter of the monitor's list."""

    def __init__(self, telemetry: Telemetry, table: ProcessTable) -> None:
        super().__init__(telemetry, table, "processes")
        self.processes.focused_list = True

    @property
    def selected(self) -> Device | None:
        return super().selected or next(iter(self.telemetry.devices), None)

    def show_telemetry(self) -> None:
        self.processes.redraw()
