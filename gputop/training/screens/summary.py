"""Lines about a training: its command, its progress and its findings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.style import Style

from gputop.agent.device import Device
from gputop.console import signal_name
from gputop.health.findings import Finding
from gputop.schema.derived import label_of
from gputop.text import age, duration, number, percentage, visible
from gputop.training.findings import (
    COLUMN_SECONDS,
    FEWEST_COLUMNS,
    find_slowdown,
    seconds,
    step_sentence,
)
from gputop.ui.drawing.cells import (
    Row,
    Span,
    bar,
    clip_words,
    spread,
    width_of,
)
from gputop.ui.drawing.live import TelemetryView
from gputop.ui.drawing.palette import (
    ACCENT,
    BUSY,
    DIM,
    FAULT,
    GOOD,
    STRONG,
    WARN,
)
from gputop.ui.telemetry import Telemetry

if TYPE_CHECKING:
    from gputop.training.follow import Training
    from gputop.training.progress import Counter

BUSY_SAMPLES = 60
"""Samples of *busy* for the sentence about a step."""
FINDINGS = 2
ROWS = 2 + FINDINGS
BAR_CELLS = 16
VALUES = ("lr", "learning_rate", "grad_norm", "accuracy", "acc", "ppl")
"""Logged values that are shown after the loss, if there is room."""
SILENT_SECONDS = 60.0
JUDGED_SECONDS = 2 * FEWEST_COLUMNS * COLUMN_SECONDS


class TrainingSummary(TelemetryView):
    """Rows of a training: command and state, progress, and the gravest findings."""

    def __init__(
        self,
        telemetry: Telemetry,
        training: Training,
        devices: Callable[[], Sequence[Device]],
        clock: Callable[[], float],
    ) -> None:
        super().__init__(telemetry, id="training-summary")
        self._training, self._devices = training, devices
        self._clock = clock

    def draw(self, width: int, height: int) -> list[Row]:
        rows = [self._head(width), self._progress(width)]
        for text, style in [*self._findings()][:FINDINGS]:
            rows.append([Span(" "), Span(clip_words(text, width - 1), style)])
        return rows[:height]

    def _head(self, width: int) -> Row:
        text, style = self._state()
        program, *words = self._training.command
        name = program.rpartition("/")[2]
        command = visible(" ".join((name, *words)))
        return spread(
            [Span(f" {command} ", STRONG)],
            [Span(f" {text} ", style)],
            width,
        )

    def _state(self) -> tuple[str, Style]:
        """Return the state of the command, and its style."""
        training = self._training
        run = training.run
        if run is None:
            if training.ended:
                return f"pid {training.pid} has ended", ACCENT
            simulated = "simulated · " * training.is_simulated
            return f"{simulated}pid {training.pid}", DIM
        if run.status is not None and run.ended is not None:
            ran = f"after {duration(run.ended - run.started)}"
            if run.status < 0:
                return f"ended by {signal_name(run.status)} {ran}", FAULT
            style = GOOD if run.status == 0 else FAULT
            return f"ended with status {run.status} {ran}", style
        if training.ended:
            return "its relay was killed, and the command with it", FAULT
        ran = duration(self._clock() - run.started)
        return f"pid {training.pid} · running for {ran}", DIM

    def _progress(self, width: int) -> Row:
        progress, now = self._training.progress, self._clock()
        main = progress.main(now)
        if main is None:
            return [Span(" No steps in the output yet", DIM)]
        rate = main.rate(now)
        parts = [self._step(main)]
        parts.append([Span(number(rate), STRONG), Span(" steps/s", DIM)])
        loss = progress.latest("loss")
        if loss is not None:
            parts.append([Span("loss ", DIM), Span(f"{loss:.3g}", STRONG)])
        if rate:
            parts += self._times(main, rate)
        for name in VALUES:
            value = progress.latest(name)
            if value is not None:
                parts.append([Span(f"{name} ", DIM), Span(f"{value:.3g}")])
        row: Row = []
        for part in parts:
            gap = Span("   " if row else " ")
            longer = [*row, gap, *part]
            if width_of(longer) > width:
                break
            row = longer
        return row

    def _step(self, main: Counter) -> Row:
        row = [Span("step ", DIM), Span(f"{main.step}", STRONG)]
        if main.total:
            share = (main.step or 0) / main.total
            row.append(Span(f" of {main.total} "))
            row += bar(min(1.0, share), BAR_CELLS, BUSY)
            row.append(Span(f" {percentage(100 * share)}"))
        return row

    def _times(self, main: Counter, rate: float) -> Iterator[Row]:
        """Yield the time left, and the time per step."""
        if main.total and main.step is not None and not self._training.ended:
            left = max(0, main.total - main.step) / rate
            yield [Span(duration(left), STRONG), Span(" left", DIM)]
        yield [Span(seconds(1 / rate), STRONG), Span(" a step", DIM)]

    def _findings(self) -> Iterator[tuple[str, Style]]:
        """Yield sentences about the training, the gravest first."""
        training, now = self._training, self._clock()
        loss = training.progress.latest("loss")
        if loss is not None and not math.isfinite(loss):
            yield "▲ The loss is not a number", FAULT
        if training.run is not None and training.run.lost_bytes:
            yield "▲ Output is lost: the disk was full", FAULT
        main = training.progress.main(now)
        if main is None:
            yield "If its steps have another format: --pattern REGEX", DIM
            return
        if training.ended:
            if training.run is not None:
                place = visible(str(training.run.folder))
                yield f"Its output is kept in {place}", DIM
            return
        silent = now - training.progress.moved_at
        rate = main.rate(now)
        # The rate falls during the silence.
        usual = main.rate(main.last_time) or 0.0
        if silent > SILENT_SECONDS and silent * usual > 10:
            yield f"▲ No step for {age(silent)} · s shows where it is", WARN
        slowdown = find_slowdown([*main.points], now)
        if slowdown is not None:
            yield f"▲ {slowdown.sentence(self._causes())}", WARN
        elif main.points[-1].time - main.points[0].time > JUDGED_SECONDS:
            yield "Steps are as fast as before", GOOD
        part = step_sentence(rate, self._busy())
        if part:
            yield f"{part} · s shows where the rest goes", STRONG

    def _causes(self) -> Iterator[tuple[str, Finding]]:
        """Yield the findings of the training's devices, each with the device's name."""
        devices = {device.uuid: device for device in self._devices()}
        for finding in self._telemetry.findings:
            device = devices.get(finding.device_uuid)
            if device is not None:
                yield f"GPU {label_of(device)}", finding

    def _busy(self) -> Iterator[float | None]:
        history = self._telemetry.history
        for device in self._devices():
            yield from history.last(
                device.uuid,
                "gpu_utilization_percent",
                BUSY_SAMPLES,
            )
