"""The results of this run and of those before it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gputop.text import ABSENT, duration, quantity, short_name, tflops, visible
from gputop.ui.draw import Row, Span, cell, fit
from gputop.ui.model import find_device
from gputop.ui.palette import DIM, FAULT, STRONG, TEXT
from gputop.ui.widgets.host import wrap
from gputop.ui.widgets.live import LiveView

if TYPE_CHECKING:
    from rich.style import Style

    from gputop.bench.session import Result
    from gputop.ui.model import Telemetry

HEADINGS = ("WHEN", "DEVICE", "TYPE", "SIZE", "TFLOP/s", "PEAK", "DROOP", "TIME", "END")
WIDTHS = (12, 0, 8, 6, 7, 7, 6, 7, 7)
"""By column, 0 for the one that takes what is left; the fifth is the mean."""
WIDEST_DEVICE = 34
ENDS = {"time": "ok", "user": "stopped", "limit": "too hot"}
RIGHT = {3, 4, 5, 6, 7}


class ResultsView(LiveView):
    """A table, newest first."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(id="results")
        self._telemetry = telemetry
        self.results: list[Result] = []
        self.problem: str | None = None
        """Why earlier results could not be read, or this one not be kept."""

    def draw(self, width: int, height: int) -> list[Row]:
        """As many rows as there are results and room."""
        note: list[Row] = [
            [Span(f" {line}", FAULT)] for line in wrap(visible(self.problem or ""), width - 2)[:2]
        ]
        if not self.results:
            return [*note, [Span(" No results yet", DIM)]]
        rows = [_line(HEADINGS, width, DIM)]
        rows += [_line(self._cells(result), width, _style(result)) for result in self.results]
        return [*note, *rows][:height]

    def _device_of(self, result: Result) -> str:
        """The device with its index, where it is one of this machine: eight may have one name."""
        name = short_name(visible(result.device))
        device = find_device(self._telemetry.devices, result.device_uuid)
        return name if device is None else f"{device.label} {name}"

    def _cells(self, result: Result) -> tuple[str, ...]:
        """One result by column."""
        square = result.m == result.n == result.k
        shape = f"{result.n}" if square else f"{result.m}×{result.n}×{result.k}"
        end = ENDS.get(result.stopped, result.stopped)
        return (
            time.strftime("%d %b %H:%M", time.localtime(result.started_at)),
            self._device_of(result),
            result.dtype,
            shape,
            tflops(result.tflops_mean),
            tflops(result.tflops_peak),
            quantity(result.droop_percent, " %", 1) if result.droop_percent is not None else ABSENT,
            duration(result.seconds),
            "FAULTY" if result.wrong_elements else end,
        )


def _style(result: Result) -> Style:
    return FAULT if result.wrong_elements else TEXT


def _line(cells: tuple[str, ...], width: int, style: Style) -> Row:
    room = max(8, min(WIDEST_DEVICE, width - sum(WIDTHS) - len(WIDTHS) - 2))
    row: Row = [Span(" ")]
    for n, (text, cells_wide) in enumerate(zip(cells, WIDTHS, strict=True)):
        strong = style is TEXT and n == 4
        column = cell(text, cells_wide or room, STRONG if strong else style, right=n in RIGHT)
        row += [column, Span("  " if n == 7 else " ")]
    return fit(row, width)
