"""Map of a device's bottleneck: memory bandwidth against compute, each in percent of the peak."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gputop.agent.device import Absence, Device
from gputop.health.bound_by import DRAM, FP16, FP32, FP64, TENSOR
from gputop.health.findings import Bound
from gputop.schema.values import absence_text
from gputop.ui.drawing.cells import Row, Span, cell, paragraph
from gputop.ui.drawing.live import DeviceView
from gputop.ui.drawing.palette import ACCENT, DIM, STRONG, TRACK

TRAIL_SECONDS = 30.0
COMPUTE = (TENSOR, FP32, FP16, FP64)
"""Units, the busiest of which counts as compute."""
TITLE = " memory bandwidth ↑ compute →"
LEFT = 7
"""Cells on the left for the scale and the axis."""
FEWEST_ROWS, MOST_ROWS = 6, 16
NOW, TRAIL = "●", "."
ADVICE: Mapping[Bound, str] = {
    Bound.COMPUTE: "It computes near its peak: only fewer or smaller operations, or another "
    "data type, make it faster",
    Bound.MEMORY: "Fuse kernels, use smaller data types, or do more with what was loaded",
    Bound.FP32: "Use bf16 or TF32, which run on the tensor cores",
    Bound.LATENCY: "Give each kernel more work: larger batches, fewer synchronizations",
    Bound.LAUNCHES: "Give each launch more work: larger batches, CUDA graphs or torch.compile",
    Bound.INPUT: "Feed it faster: more loader workers, prefetching, pinned memory",
    Bound.TRANSFERS: "Copy less over the link, or while it computes",
    Bound.PEERS: "Look at the other GPUs of its job: the slowest sets the pace",
    Bound.POWER: "Normal at full load: a higher power limit or cooler device would help",
    Bound.HEAT: "Improve the airflow, or lower the power limit",
    Bound.IDLE: "Nothing to improve: it has hardly any work",
}
"""Advice for each bottleneck."""

Point = tuple[float, float]
"""Compute and memory bandwidth, each in percent of the peak."""


class BoundMap(DeviceView):
    """The last 30 s as a trail of points, and the newest point if the device answers."""

    def draw(self, width: int, height: int) -> list[Row]:
        device = self.device
        if device is None or height < FEWEST_ROWS or width < 2 * LEFT:
            return []
        title = [Span(TITLE, DIM)]
        readings = self._telemetry.readings(device.uuid)
        points = self._points(device.uuid)
        if not points:
            why = self._why_empty(device, readings.absent.get(DRAM))
            return [title, *paragraph(why, width - 1, DIM)]
        plot = _plot(
            points,
            width - LEFT - 1,
            min(MOST_ROWS, height) - 2,
            now=readings.dram_active_percent is not None,
        )
        return [title, *plot, _scale(width)]

    def _points(self, uuid: str) -> list[Point]:
        """Return the points of the last seconds, oldest first."""
        history = self._telemetry.history
        many = history.samples_within(TRAIL_SECONDS)
        memory = history.last(uuid, DRAM, many)
        units = [history.last(uuid, name, many) for name in COMPUTE]
        points = []
        for bandwidth, *compute in zip(memory, *units, strict=True):
            known = [value for value in compute if not math.isnan(value)]
            if known and not math.isnan(bandwidth):
                points.append((max(known), bandwidth))
        return points

    def _why_empty(self, device: Device, absence: Absence | None) -> str:
        if absence is None:
            return "no data yet"
        host = self._telemetry.host_of(device)
        return (
            f"needs DRAM active: {absence_text(DRAM, absence, device, host)}"
        )


def _plot(
    points: Sequence[Point],
    width: int,
    height: int,
    *,
    now: bool,
) -> list[Row]:
    """Return the plot with its left axis, from 100 % at the top to 0."""
    places = [_place(point, width, height) for point in points]
    rows = [[Span(" ")] * width for _ in range(height)]
    for y, x in places:
        rows[y][x] = Span(TRAIL, STRONG)
    if now:
        rows[y][x] = Span(NOW, ACCENT)
    labels = ["100 %"] + [""] * height
    return [
        [cell(label, LEFT - 1, DIM, right=True), Span("│", TRACK), *row]
        for label, row in zip(labels, rows, strict=False)
    ]


def _place(
    point: Point,
    width: int,
    height: int,
) -> tuple[int, int]:
    compute, memory = (min(100.0, max(0.0, value)) / 100 for value in point)
    return round((1 - memory) * (height - 1)), round(compute * (width - 1))


def _scale(width: int) -> Row:
    line = "└" + "─" * (width - LEFT - len("100 %") - 1)
    return [
        cell(
            "0",
            LEFT - 1,
            DIM,
            right=True,
        ),
        Span(line, TRACK),
        Span("100 %", DIM),
    ]
