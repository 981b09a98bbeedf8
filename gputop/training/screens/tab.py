"""Tab of a training: its progress, findings, charts and output."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget

from gputop.agent.device import Device
from gputop.agent.problem import ProblemError
from gputop.agent.snapshot import Process, ProcessKind
from gputop.training.screens.charts import TrainingCharts
from gputop.training.screens.output import OutputView
from gputop.training.screens.summary import ROWS, TrainingSummary
from gputop.ui.drawing.live import LiveTab
from gputop.ui.processes.signal_dialog import SendSignal, SignalTarget
from gputop.ui.processes.signals import explained
from gputop.ui.processes.stacks_note import note_stacks
from gputop.ui.telemetry import Telemetry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputop.training.follow import Training
    from gputop.training.runs import Run

READ_SECONDS = 0.2
"""Seconds between two reads of the output."""


class TrainingTab(LiveTab):
    """Tab that follows one training."""

    DEFAULT_CSS = f"""
    TrainingTab {{ height: 1fr; background: ansi_default; }}
    TrainingTab #training-summary {{ height: {ROWS}; }}
    TrainingTab #training-body {{ height: 1fr; }}
    TrainingTab #training-charts {{ height: 45%; min-height: 5; }}
    TrainingTab #output {{ height: 1fr; }}
    """

    def __init__(self, training: Training, telemetry: Telemetry) -> None:
        super().__init__(id="training")
        self._training, self._telemetry = training, telemetry
        self._pids: frozenset[int] = frozenset()
        """GPU processes of the sample in which `_members` were found."""
        self._members: frozenset[int] = frozenset()
        more = (self._of_training, training.clock)
        self.summary = TrainingSummary(telemetry, training, *more)
        self.charts = TrainingCharts(telemetry, training.progress, *more)
        self.output = OutputView(training.lines)

    def compose(self) -> ComposeResult:
        yield self.summary
        with Vertical(id="training-body"):
            yield self.charts
            yield self.output

    def on_mount(self) -> None:
        self._follow()

    @work(group="training", exit_on_error=False)
    async def _follow(self) -> None:
        """Read the output until the training ends. Keys are handled between two pieces."""
        while not self._training.ended:
            pieces = await asyncio.to_thread(self._training.read)
            for piece in pieces:
                self._training.add([piece])
                await asyncio.sleep(0)
            if pieces:
                self._show()
            else:
                self._training.add(())
                await asyncio.sleep(READ_SECONDS)
        self._show()

    def _show(self) -> None:
        is_shown = self.is_attached and self.display
        if is_shown and not self._telemetry.paused:
            self.output.redraw()
            self.summary.redraw()

    def show_telemetry(self) -> None:
        self.summary.redraw()
        self.charts.redraw()
        self.output.redraw()

    @property
    def key_handlers(self) -> tuple[Widget, ...]:
        return (self, self.output, self.charts)

    @property
    def selected(self) -> Device | None:
        """First device of the training, or else of all."""
        devices = self._of_training() or self._telemetry.devices
        return devices[0] if devices else None

    def _of_training(self) -> Sequence[Device]:
        """Return the devices that the processes of the training use."""
        sample = self._telemetry.sample
        if sample is None:
            return ()
        here = [each for each in sample.processes if each.is_here]
        pids = frozenset(each.pid for each in here)
        if pids != self._pids:
            self._pids = pids
            self._members = self._training.members(pids)
        used = {e.device_uuid for e in here if e.pid in self._members}
        devices = self._telemetry.devices
        return [device for device in devices if device.uuid in used]

    def action_stacks(self) -> None:
        """Show where a process spends its time: the rank that the others wait for, or the first."""
        if self._training.is_simulated:
            self.notify("This training is simulated and has no process")
            return
        pid = min(self._members, default=self._training.pid)
        for job in self._telemetry.judgement.jobs.values():
            if job.behind is not None and job.behind.pid in self._members:
                pid = job.behind.pid
        self.run_worker(
            note_stacks(self.app, pid),
            group="stacks",
            exclusive=True,
            exit_on_error=False,
        )

    def action_signal(self) -> None:
        run = self._training.run
        if run is None or self._training.ended:
            self.notify("The training has ended, or gputop did not start it")
            return
        command = " ".join(run.command)
        process = Process(run.pid, "", ProcessKind.COMPUTE, command=command)
        target = SignalTarget("the training", (process,))
        question = SendSignal([target])
        question.ask(self.app, lambda order: self._send(run, order.signal))

    def _send(self, run: Run, number: int) -> None:
        """Send a signal. A command of another user, such as sudo, may refuse it."""
        try:
            with explained("The training got no signal"):
                run.signal(number)
        except ProblemError as error:
            text = str(error.problem)
            self.notify(text, title="Not sent", severity="error")
