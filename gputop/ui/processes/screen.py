"""List of processes, and the tabs that have one: sort, filter, signals, environments."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from textual import work
from textual.message import Message

from gputop.problem import Problem
from gputop.schema.device import Absence, DeviceState
from gputop.schema.remedies import unseen
from gputop.sources.linux.procfs import ProcError, environment, send_signal
from gputop.text import ABSENT
from gputop.ui.drawing.cells import Row, Span, cell, spread
from gputop.ui.drawing.palette import ACCENT, CURSOR, DIM, STRONG, TEXT
from gputop.ui.model import find_device
from gputop.ui.processes.columns import (
    COMMAND,
    GAP,
    GPU_MEMORY,
    MARK_WIDTH,
    ProcessColumn,
    ShownColumn,
    command_of,
    shown_columns,
)
from gputop.ui.processes.table import ProcessTable
from gputop.ui.widgets.filter import FilterView
from gputop.ui.widgets.live import LiveTab, Wheel

if TYPE_CHECKING:
    from signal import Signals

    from textual.app import ComposeResult
    from textual.events import Click
    from textual.widget import Widget

    from gputop.schema.device import Device
    from gputop.schema.snapshot import Process
    from gputop.ui.model import Telemetry
    from gputop.ui.processes.signal import SignalTarget
    from gputop.ui.processes.table import ProcessLine


LONGEST_FILTER = 200


class ProcessesView(Wheel, FilterView):
    """Scrolling list with one row per process and device."""

    class RowClicked(Message):
        """Message that a row was selected with the mouse."""

    def __init__(self, telemetry: Telemetry, table: ProcessTable | None = None) -> None:
        """`table` may be shared: its views have the same order, filter and selection."""
        super().__init__()
        self._telemetry = telemetry
        self._table = table or ProcessTable()
        self.device_uuid: str | None = None
        """UUID of the only device whose processes are listed, or None for all."""
        self._room = 1
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
        """Process that keys act on."""
        return self._listed().selected

    def action_move(self, step: int) -> None:
        """Select the process `step` rows further down."""
        self._listed().move(step)
        self.redraw()

    def action_page(self, step: int) -> None:
        """Select the process `step` windows further down."""
        self.action_move(step * max(1, self._room - 1))

    def action_sort(self, step: int) -> None:
        """Sort by the column `step` places further right, wrapping around."""
        self._table.sort_by_next(step)
        self.redraw()

    def action_reverse(self) -> None:
        """Reverse the order."""
        self._table.reverse()
        self.redraw()

    def action_tree(self) -> None:
        """Switch between a tree of parents and children and a flat list."""
        self._table.toggle_tree()
        self.redraw()

    @property
    def typed(self) -> str:
        """Words that a row must all contain."""
        return self._table.filter

    def type(self, text: str) -> None:
        """List only rows that contain all words of `text`."""
        self._table.set_filter(text[:LONGEST_FILTER])
        self.redraw()

    def filter_key(self, key: str, character: str | None) -> bool:
        """Handle a key while typing: arrows and pages move in the list."""
        match key:
            case "down" | "up":
                self.action_move(1 if key == "down" else -1)
            case "pagedown" | "pageup":
                self.action_page(1 if key == "pagedown" else -1)
            case _:
                return super().filter_key(key, character)
        return True

    def draw(self, width: int, height: int) -> list[Row]:
        """Draw the heading, the visible rows, and under them the filter or the number of rows."""
        table = self._listed()
        typed = self.typing or bool(table.filter)
        self._headed = height > 1 + typed
        space = height - self._headed
        footed = typed or (space > 1 and table.total > space)
        self._room = max(1, space - footed)
        if not table.total:
            rows: list[Row] = [[Span(f"  {self._none()}", DIM)]]
        else:
            slots = shown_columns(width, table.sorted_by, table.several)
            at, lines = table.at, table.window(self._room)
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

    def _listed(self) -> ProcessTable:
        """Return the table, updated to the current sample."""
        self._table.update(self._telemetry.sample, self._telemetry.devices, self.device_uuid)
        return self._table

    def _none(self) -> str:
        """Return why the list is empty. Devices that do not answer say so themselves."""
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
            return "Prometheus has no processes: run gputop on the host itself"
        if silent:
            return f"The driver does not list the processes of GPU {', '.join(silent)}"
        return "No process uses " + ("a device" if self.device_uuid is None else "this device")

    def _heading(self, slots: tuple[ShownColumn, ...]) -> Row:
        table = self._table
        row = [Span(" " * MARK_WIDTH)]
        for column, cells in slots:
            at = column is table.sorted_by
            title = column.title + ("▼" if table.descending else "▲") * at
            if column is COMMAND and table.tree:  # often the only visible change
                title += " (tree)"
            row += [Span(" " * GAP), cell(title, cells, STRONG if at else DIM, right=column.right)]
        return row

    def _line(self, line: ProcessLine, slots: tuple[ShownColumn, ...], *, selected: bool) -> Row:
        process, context = line.process, self._table.context
        row: Row = []
        for column, cells in slots:
            row.append(Span(" " * GAP))
            if column is COMMAND:
                row += _command(line, cells)
                continue
            text = column.text(process, context)
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
        """Sort by the heading under the mouse, or reverse the order; select the row under it."""
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

    def _column_at(self, x: int) -> ProcessColumn | None:
        end = MARK_WIDTH
        table = self._table
        for column, cells in shown_columns(self.size.width, table.sorted_by, table.several):
            end += GAP + cells
            if x < end:
                return column
        return None

    def wheel(self, step: int) -> None:
        self._listed().scroll(step, self._room)
        self.redraw()


def _command(line: ProcessLine, cells: int) -> Row:
    """Return the branch of the tree, in at most half of the room, and the command."""
    branch = line.branch
    if len(branch) > cells // 2:
        branch = "…" + branch[-max(3, cells // 2 - 1) :]
    room = max(0, cells - len(branch))
    text = cell(command_of(line.process, room), room)
    return [Span(branch, DIM), Span(text.text, DIM if line.process.command is None else TEXT)]


class ListTab(LiveTab):
    """Tab with a list of processes."""

    def __init__(self, telemetry: Telemetry, table: ProcessTable, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self.telemetry = telemetry
        self.processes = ProcessesView(telemetry, table)

    @property
    def key_handlers(self) -> tuple[Widget, ...]:
        return (self, self.processes)

    @property
    def filter_view(self) -> FilterView:
        return self.processes

    def action_signal(self) -> None:
        """Ask which signal to send to the selected process, and send it."""
        from gputop.ui.processes.signal import SendSignal, signal_target

        process = self._chosen()
        if process is None:
            return
        telemetry = self.telemetry
        processes = telemetry.sample.processes if telemetry.sample else ()
        target = signal_target(process, processes, telemetry.devices)
        if isinstance(target, Problem):
            self.notify(str(target), severity="warning")
            return

        def answered(number: Signals | None) -> None:
            if number is not None:
                self._send(target, number)

        self.app.push_screen(SendSignal(target), answered)

    def _send(self, target: SignalTarget, number: Signals) -> None:
        problem = send_signal(target.pid, target.start_time, number)
        if problem is None:
            self.notify(f"{number.name} was sent to {target.pid}")
        else:
            self.notify(str(problem), title="Not sent", severity="error")

    @work(exclusive=True, group="environment", exit_on_error=False)
    async def action_environment(self) -> None:
        """Show the environment of the selected process."""
        from gputop.ui.processes.environment import Environment

        process = self._chosen()
        if process is None:
            return
        if process.start_time is None:
            why = f"Cannot read the environment of {process.pid}: {unseen(process)}"
            self.notify(why, severity="warning")
            return
        try:
            # Reading blocks if the process hangs in the kernel.
            found = await asyncio.to_thread(environment, process.pid, process.start_time)
        except ProcError as error:
            self.notify(str(error.problem), title="Not shown", severity="error")
        else:
            self.app.push_screen(Environment(process, found, shown=self.telemetry.show_secrets))

    def _chosen(self) -> Process | None:
        """Return the selected process if it runs on this machine; else notify why not."""
        process = self.processes.selected
        if process is None:
            self.notify("No process is selected")
        elif self.telemetry.replayed:
            self.notify("This is a recording: its pids may belong to other processes by now")
        elif self.telemetry.simulated:
            self.notify("These processes are simulated: they do not exist")
        elif not process.is_here:
            self.notify(
                f"It is on another machine: use `ssh -t {process.machine} gputop`",
                title=f"{process.pid} runs on {process.machine}",
                severity="warning",
            )
        else:
            return process
        return None


class ProcessesTab(ListTab):
    """Full-screen list with the order and filter of the monitor's list."""

    def __init__(self, telemetry: Telemetry, table: ProcessTable) -> None:
        super().__init__(telemetry, table, "processes")
        self.processes.focused_list = True

    def compose(self) -> ComposeResult:
        yield self.processes

    @property
    def selected(self) -> Device | None:
        """Device of the selected process, or else the first device."""
        process, devices = self.processes.selected, self.telemetry.devices
        found = find_device(devices, process.device_uuid if process else None)
        return found or (devices[0] if devices else None)

    def show_telemetry(self) -> None:
        self.processes.redraw()
