"""The figures of a run: what runs, how fast, how far it is, and what the device says meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.text import duration, quantity, tflops, visible
from gputop.ui.draw import Row, Span, bar, clip, reading, share_of
from gputop.ui.palette import ACCENT, BUSY, DIM, FAULT, GOOD, STRONG, TEXT, WARN
from gputop.ui.widgets.live import LiveView

if TYPE_CHECKING:
    from gputop.ui.model import Telemetry
    from gputop.ui.run import Run


class TitleView(LiveView):
    """One line: what is being run, or how it ended."""

    def __init__(self) -> None:
        super().__init__(id="run-title")
        self.run: Run | None = None

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - always one row
        """One row."""
        return [[Span(" "), *_title(self.run, width - 1)]] if self.run else []


def _title(run: Run, width: int) -> Row:
    if run.problem is not None:
        return [Span(clip(f"Not run: {visible(run.problem.what)}", width), FAULT)]
    what = f"{run.request.dtype} on {visible(run.request.target.label)}"
    if run.planned is not None:
        p = run.planned
        what = f"{run.request.dtype} {p.m}×{p.n}×{p.k} on {visible(run.request.target.label)}"
    if run.hello is not None:
        what += f" · torch {visible(run.hello.torch_version)}"
    if run.result is not None:
        return _ending(run, what, width)
    if run.stopping:
        return [Span("Stopping ", WARN), Span(clip(what, width - 9))]
    if run.progress is None:
        step = "Starting torch …  " if run.hello is None else "Warming up …  "
        return [Span(step, WARN), Span(clip(what, width - len(step)))]
    return [Span("Running ", GOOD), Span(clip(what, width - 8))]


def _ending(run: Run, what: str, width: int) -> Row:
    result = run.result
    assert result is not None
    if result.wrong_elements:
        return [
            Span(clip(f"FAULTY: {result.wrong_elements} wrong elements in {what}", width), FAULT)
        ]
    if result.stopped == "limit":
        return [Span("Too hot ", WARN), Span(clip(f"{run.limit or ''} · {what}", width - 8))]
    word = "Done " if result.stopped == "time" else "Stopped "
    checks = f" · {result.checks} checks, all right" if result.checks else ""
    return [Span(word, GOOD), Span(clip(what + checks, width - len(word)))]


class ReadoutView(LiveView):
    """Two lines: the figures, and the progress."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(id="readout")
        self._telemetry = telemetry
        self.run: Run | None = None

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - always two rows
        """Two rows."""
        run = self.run
        if run is None or run.problem is not None:
            return []
        figures: Row = [Span(" ")]
        for name, value in (
            ("now", run.tflops_now),
            ("mean", run.tflops_mean),
            ("peak", run.tflops_peak),
        ):
            figures += [Span(f"{name} ", DIM), reading(tflops(value).ljust(7), STRONG)]
        figures += [Span("TFLOP/s  ", DIM), *self._device(run)]
        return [figures, self._progress(run, width)]

    def _device(self, run: Run) -> Row:
        """Power, clock and temperature of the device under test."""
        target = run.request.target
        if target.uuid is None:
            host = self._telemetry.sample.host if self._telemetry.sample else None
            watts, limit = None, None
            clock = host.cpu_clock_mhz if host else None
            celsius = host.cpu_temperature_celsius if host else None
        else:
            readings = self._telemetry.readings(target.uuid)
            watts, limit = readings.power_watts, readings.power_limit_watts
            clock, celsius = readings.sm_clock_mhz, readings.temperature_celsius
        of_limit = f" of {limit:.0f}" if limit and watts is not None else ""
        return [
            Span("power ", DIM),
            reading(quantity(watts, f"{of_limit} W")),
            Span("  clock ", DIM),
            reading(quantity(clock, " MHz")),
            Span("  temp ", DIM),
            reading(quantity(celsius, "°C")),
        ]

    def _progress(self, run: Run, width: int) -> Row:
        planned, elapsed = run.request.seconds, run.elapsed_seconds
        left = max(0.0, planned - elapsed)
        ending = "" if run.ended else f", {duration(left)} left"
        text = f"  {duration(elapsed)} of {duration(planned)}{ending}"
        room = max(10, min(80, width - 32))
        style = BUSY if run.ended else ACCENT
        return [Span(" "), *bar(share_of(elapsed, planned), room, style), Span(text, TEXT)]
