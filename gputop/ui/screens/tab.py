"""What the tabs over the telemetry have in common, and those with a list of processes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from textual import work
from textual.containers import Vertical

from gputop.output.absences import unseen
from gputop.telemetry.procfs import ProcError, environment, send_signal
from gputop.telemetry.snapshot import Problem

if TYPE_CHECKING:
    from signal import Signals

    from textual.events import Key

    from gputop.telemetry.snapshot import Device, Process
    from gputop.ui.model import Telemetry
    from gputop.ui.screens.signal import Target
    from gputop.ui.widgets.processes import ProcessesView


class LiveTab(Vertical):
    """A tab that shows what comes with the stream."""

    @property
    def selected(self) -> Device | None:
        """The device that keys act on."""
        raise NotImplementedError

    @property
    def wants_gpm(self) -> bool:
        """Whether it shows readings of GPM, which is sampled only then."""
        return False

    def show_telemetry(self) -> None:
        """Draws what changed."""
        raise NotImplementedError

    def take_key(self, event: Key) -> bool:  # noqa: ARG002
        """Takes a key before any action does, as where one types; whether it did."""
        return False

    def take_paste(self, text: str) -> None:
        """Takes what is pasted, where one types; elsewhere it does nothing."""

    def action_move(self, step: int) -> None:
        """Down by that many rows."""
        raise NotImplementedError

    def action_page(self, step: int) -> None:
        """Down by that many pages."""
        raise NotImplementedError

    def action_side(self, step: int) -> None:
        """To the right by that many."""


class DeviceTab(LiveTab):
    """A page of one device, opened from another tab."""

    def show(self, uuid: str) -> None:
        """Shows that device."""
        raise NotImplementedError


class ListTab(LiveTab):
    """One with a list of processes."""

    telemetry: Telemetry
    processes: ProcessesView

    def take_key(self, event: Key) -> bool:
        """What one types while one filters is for the filter."""
        return self.processes.filtering and self.processes.filter_key(event.key, event.character)

    def take_paste(self, text: str) -> None:
        """Its first line is for the filter, while one filters."""
        if self.processes.filtering:
            self.processes.type_on(next(iter(text.splitlines()), ""))

    def clear_filter(self) -> bool:
        """Lists all processes again; whether some were left out."""
        return self.processes.clear_filter()

    def action_filter(self) -> None:
        """What one types from now on is looked for."""
        self.processes.start_filter()

    def action_sort(self, step: int) -> None:
        """By another column."""
        self.processes.sort_by_next(step)

    def action_reverse(self) -> None:
        """The other way round."""
        self.processes.reverse()

    def action_tree(self) -> None:
        """As a tree, or as a list."""
        self.processes.toggle_tree()

    def action_signal(self) -> None:
        """Asks which signal the selected process is to get, and sends it."""
        from gputop.ui.screens.signal import SendSignal, target_of

        process = self._chosen()
        if process is None:
            return
        telemetry = self.telemetry
        processes = telemetry.sample.processes if telemetry.sample else ()
        target = target_of(process, processes, telemetry.devices)
        if isinstance(target, Problem):
            self.notify(str(target), severity="warning")
            return

        def answered(number: Signals | None) -> None:
            if number is not None:
                self._send(target, number)

        self.app.push_screen(SendSignal(target), answered)

    def _send(self, target: Target, number: Signals) -> None:
        problem = send_signal(target.pid, target.start_time, number)
        if problem is None:
            self.notify(f"{number.name} was sent to {target.pid}")
        else:
            self.notify(str(problem), title="Not sent", severity="error")

    @work(exclusive=True, group="environment", exit_on_error=False)
    async def action_environment(self) -> None:
        """Shows the environment of the selected process."""
        from gputop.ui.screens.environment import Environment

        process = self._chosen()
        if process is None:
            return
        if process.start_time is None:
            why = unseen(process)
            self.notify(
                f"The environment of {process.pid} cannot be read: {why}", severity="warning"
            )
            return
        try:
            # Blocks for a process that hangs in the kernel.
            found = await asyncio.to_thread(environment, process.pid, process.start_time)
        except ProcError as error:
            self.notify(str(error.problem), title="Not shown", severity="error")
        else:
            self.app.push_screen(Environment(process, found, shown=self.telemetry.show_secrets))

    def _chosen(self) -> Process | None:
        """The selected process, if it runs on this machine; else says why there is none."""
        process = self.processes.selected
        if process is None:
            self.notify("There is no process to choose")
        elif self.telemetry.replayed:
            self.notify("The processes are of a recording: their pids may be others' by now")
            return None
        elif self.telemetry.simulated:
            self.notify("The processes are simulated: there is nothing behind them")
            return None
        elif not process.is_here:
            self.notify(
                f"It is on another machine: `ssh -t {process.machine} gputop` does it there",
                title=f"{process.pid} runs on {process.machine}",
                severity="warning",
            )
            return None
        return process
