"""List of processes, and the tabs with such a list: sort, filter, signals, environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.style import Style
from textual.app import ComposeResult
from textual.widget import Widget

from gputop.agent.device import Absence, Device
from gputop.agent.snapshot import Process
from gputop.schema.derived import label_of
from gputop.schema.values import unseen
from gputop.ui.drawing.cells import Row, Span, cell
from gputop.ui.drawing.filter_bar import FilterView
from gputop.ui.drawing.list_state import Column
from gputop.ui.drawing.list_view import ListView
from gputop.ui.drawing.live import LiveTab
from gputop.ui.drawing.palette import DIM, STRONG, TEXT
from gputop.ui.processes import columns
from gputop.ui.processes.columns import ProcessRow, ProcessSlot
from gputop.ui.processes.table_state import ProcessTable
from gputop.ui.processes.users import UsersView
from gputop.ui.telemetry import Telemetry

if TYPE_CHECKING:
    from gputop.ui.processes.process_page import ProcessDetailsView
    from gputop.ui.processes.ranks import RanksView


UNLISTED = (Absence.NO_PERMISSION, Absence.NOT_SUPPORTED, Absence.ERROR)
"""Reasons of a driver that answers, but does not list processes."""


class ProcessesView(ListView[ProcessRow]):
    """Scrolling list with one row per process and device."""

    state: ProcessTable
    noun = "processes"
    focused_list = False
    device_uuid: str | None = None
    """UUID of the only device whose processes are listed, or None for all."""

    def __init__(
        self,
        telemetry: Telemetry,
        table: ProcessTable | None = None,
    ) -> None:
        """Set the table. A shared `table` has the same order, filter and selection in all views."""
        super().__init__(table or ProcessTable())
        self._telemetry = telemetry
        self._side = 0
        """Steps of the scrolling to the right."""
        self._skipped = 0
        """Characters of the commands that are scrolled over."""

    @property
    def process(self) -> Process | None:
        """Selected process."""
        row = self.state.selected
        return None if row is None else row.process

    def redraw(self) -> None:
        """List the processes of the current sample."""
        telemetry = self._telemetry
        self.state.update(
            telemetry.sample,
            telemetry.devices,
            self.device_uuid,
            telemetry.host_name,
        )
        super().redraw()

    def action_side(self, step: int) -> None:
        """Scroll right by `step` columns. After the last column, scroll the command."""
        commands = [row.process.command or "" for row in self.state.lines]
        longest = max(map(len, ["", *commands]))
        most = len(columns.moving_columns(self.state.columns))
        most += longest // columns.SIDE_CELLS
        self._side = max(0, min(most, self._side + step))
        self.redraw()

    def action_sort(self, step: int) -> None:
        self.state.sort_by_next(step)
        self.redraw()

    def action_sort_by(self, title: str) -> None:
        self.state.apply_settings(title, False, self.state.tree)
        self.redraw()

    def action_user(self) -> None:
        """Filter by the selected process's user, or show all again."""
        process = self.process
        if process is None or self.typed:
            self.type("")
        else:
            self.type(process.user or "")

    def action_reverse(self) -> None:
        self.state.sort_by(self.state.sorted_by)
        self.redraw()

    def action_tree(self) -> None:
        self.state.tree = not self.state.tree
        self.state.changed(order=False)
        self.redraw()

    def slots(self, width: int) -> Sequence[ProcessSlot]:
        shown, side = self.state.columns, self._side
        over = max(0, side - len(columns.moving_columns(shown)))
        self._skipped = over * columns.SIDE_CELLS
        return columns.process_slots(width, self.state.sorted_by, shown, side)

    def nothing(self) -> str:
        """Return why the list is empty. Devices that do not answer have their own message."""
        silent = []
        for device in self._telemetry.devices:
            if self.device_uuid in (None, device.uuid):
                absent = self._telemetry.readings(device.uuid).absent
                if absent.get("processes") in UNLISTED:
                    silent.append(label_of(device))
        if silent:
            return f"The driver does not list the processes of GPU {', '.join(silent)}"
        return super().nothing()

    def heading(self, width: int) -> Row:
        row = super().heading(width)
        if self._side:
            row[0] = Span("←", DIM)
        return row

    def title_of(self, column: Column[ProcessRow]) -> str:
        if column is columns.COMMAND and self.state.tree:
            # This is often the only visible change.
            return "COMMAND (tree)"
        return column.title

    def cell_of(self, item: ProcessRow, slot: ProcessSlot) -> Row:
        column = slot.column
        if column is columns.COMMAND:
            return _command(item, slot.cells, self._skipped)
        if item.is_parent and column not in columns.PARENT_COLUMNS:
            return [Span(" " * slot.cells)]
        return super().cell_of(item, slot)

    def style_of(self, item: ProcessRow, column: Column[ProcessRow]) -> Style:
        if item.is_parent:
            return DIM
        return STRONG if column is columns.GPU_MEMORY else TEXT


def _command(
    row: ProcessRow,
    cells: int,
    skipped: int,
) -> Row:
    """Return the branch of the tree, in at most half of the room, and the command after it."""
    branch = row.branch[-(cells // 2) :]
    room = cells - len(branch)
    is_dim = row.process.command is None or row.is_parent
    style = DIM if is_dim else TEXT
    command = columns.command_of(row.process, room, skipped)
    return [Span(branch, DIM), cell(command, room, style)]


def why_untouched(process: Process | None, telemetry: Telemetry) -> str:
    """Return why a process cannot be read or signalled from here; empty if it can."""
    if process is None:
        return "no process is selected"
    if telemetry.replayed:
        return (
            "this is a recording: its pid may belong to another process by now"
        )
    if telemetry.simulated:
        return "it is simulated and does not exist"
    if not process.is_here:
        return f"it runs on {process.machine}: use `ssh -t {process.machine} gputop`"
    # Without a start time, the pid may already belong to another process.
    if process.start_time is None:
        return unseen(process)
    return ""


class ProcessTab(LiveTab):
    """Tab with a process that keys act on."""

    def __init__(
        self,
        telemetry: Telemetry,
        view: ProcessesView | RanksView | ProcessDetailsView,
        name: str,
    ) -> None:
        super().__init__(id=name)
        self.telemetry, self._view = telemetry, view

    def compose(self) -> ComposeResult:
        yield self._view

    @property
    def key_handlers(self) -> tuple[Widget, ...]:
        return (self, self.filter_view)

    @property
    def filter_view(self) -> FilterView:
        return self._view

    @property
    def process(self) -> Process | None:
        """Process that keys act on."""
        return self._view.process

    @property
    def selected(self) -> Device | None:
        """Device of that process; a launcher has none."""
        process = self.process
        uuid = None if process is None else process.device_uuid
        return self.telemetry.find_device(uuid)

    def is_right(self, uuid: str) -> bool:  # noqa: ARG002 - for the tab with panels
        """Return True if the device with that UUID is shown in the right half."""
        return False

    def action_signal(self) -> None:
        from gputop.ui.processes.signal_dialog import (
            SendSignal,
            send,
            signal_targets,
        )

        process, sample = self.process, self.telemetry.sample
        why = why_untouched(process, self.telemetry)
        if why or process is None or sample is None:
            self.notify(f"No signal: {why}", severity="warning")
            return
        targets = signal_targets(
            process, sample.processes, self.telemetry.devices
        )
        question = SendSignal(targets, left=self.is_right(process.device_uuid))
        question.ask(
            self.app,
            lambda order: self.run_worker(
                send(self.app, order), exit_on_error=False
            ),
        )

    def action_stacks(self) -> None:
        from gputop.ui.processes.stacks_note import note_stacks

        process = self.process
        why = why_untouched(process, self.telemetry)
        if why or process is None:
            self.notify(f"No stacks: {why}", severity="warning")
            return
        self.run_worker(
            note_stacks(self.app, process.pid),
            group="stacks",
            exclusive=True,
            exit_on_error=False,
        )


class ListTab(ProcessTab):
    """Tab with a list of processes."""

    def __init__(
        self,
        telemetry: Telemetry,
        view: ProcessesView | RanksView,
        name: str,
    ) -> None:
        super().__init__(telemetry, view, name)
        self.processes = view

    @property
    def selected(self) -> Device | None:
        """Device of the selected process, else the first one."""
        return super().selected or next(iter(self.telemetry.devices), None)


class ProcessesTab(ListTab):
    """Full-screen list with the order and filter of the monitor's list, or totals by user."""

    processes: ProcessesView

    def __init__(self, telemetry: Telemetry, table: ProcessTable) -> None:
        view = ProcessesView(telemetry, table)
        super().__init__(telemetry, view, "processes")
        self.processes.focused_list = True
        self.users = UsersView(telemetry, self.action_users)

    def compose(self) -> ComposeResult:
        yield self.processes
        yield self.users

    @property
    def filter_view(self) -> FilterView:
        return self.users if self.users.display else self.processes

    @property
    def process(self) -> Process | None:
        return None if self.users.display else super().process

    def show_telemetry(self) -> None:
        self.filter_view.redraw()

    def action_users(self) -> None:
        """Show totals by user, or the processes again."""
        self.users.display = not self.users.display
        self.processes.display = not self.users.display
        self.call_after_refresh(self.show_telemetry)

    def open_user(self) -> bool:
        """Show the processes of the selected user. Return False if no user is selected."""
        row = self.users.selected
        if row is None or not self.users.display:
            return False
        self.action_users()
        if row.totals.user is not None:
            self.processes.type(f"user:{row.totals.user}")
        return True
