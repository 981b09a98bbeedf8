"""What the tabs over the telemetry have in common, and those with a list of processes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from textual import work
from textual.containers import Vertical

from gputop.problem import Problem
from gputop.schema.remedies import unseen
from gputop.sources.linux.procfs import ProcError, environment, send_signal
from gputop.ui.processes.widget import ProcessesView

if TYPE_CHECKING:
    from signal import Signals

    from textual.widget import Widget

    from gputop.schema.device import Device
    from gputop.schema.snapshot import Process
    from gputop.ui.model import Telemetry
    from gputop.ui.processes.signal import Target
    from gputop.ui.processes.table import ProcessTable
    from gputop.ui.widgets.filter import FilterView


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

    @property
    def actors(self) -> tuple[Widget, ...]:
        """Return the widgets that do what keys do: each action is the first one's that has it."""
        return (self,)

    @property
    def field(self) -> FilterView | None:
        """Return the view that takes what is typed, where there is one."""
        return None


class DeviceTab(LiveTab):
    """A page of one device, opened from another tab."""

    telemetry: Telemetry

    @property
    def wants_gpm(self) -> bool:
        """Always: half of what it shows rests on it."""
        return True

    def show(self, uuid: str) -> None:
        """Shows that device."""
        raise NotImplementedError

    def action_device(self, step: int) -> None:
        """Shows the device that is listed `step` further on, round and round."""
        devices, shown = self.telemetry.devices, self.selected
        if devices:
            uuid = shown.uuid if shown else None
            now = next((n for n, each in enumerate(devices) if each.uuid == uuid), -1)
            self.show(devices[(now + step) % len(devices)].uuid)


class ListTab(LiveTab):
    """One with a list of processes."""

    def __init__(self, telemetry: Telemetry, table: ProcessTable, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self.telemetry = telemetry
        self.processes = ProcessesView(telemetry, table)

    @property
    def actors(self) -> tuple[Widget, ...]:
        """Return the tab itself and its list."""
        return (self, self.processes)

    @property
    def field(self) -> FilterView:
        """Return the list, which is narrowed down by typing."""
        return self.processes

    def action_signal(self) -> None:
        """Asks which signal the selected process is to get, and sends it."""
        from gputop.ui.processes.signal import SendSignal, target_of

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
        from gputop.ui.processes.environment import Environment

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
