"""The GPU under the cursor, in two lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.text import (
    ABSENT,
    duration,
    percentage,
    quantity,
    short_name,
    used_of,
    visible,
    watts_of,
)
from gputop.ui.draw import Row, Span, faded, fit, reading, width_of
from gputop.ui.palette import ACCENT, DIM, STRONG, WARN
from gputop.ui.widgets.live import LiveView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputop.fleet.model import Gpu
    from gputop.ui.fleet.state import FleetState


class DetailView(LiveView):
    """Where it is and whose, and its readings."""

    def __init__(self, state: FleetState) -> None:
        super().__init__(id="detail")
        self._state = state

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - always two rows
        """As much of both as there is room for."""
        gpu = self._state.selected
        if gpu is None:
            return []
        labels = self._state.fleet.label_names if self._state.fleet else ()
        rows = [_place(gpu, labels, width), _readings(gpu, width)]
        return faded(rows) if self._state.is_old else rows


def gpu_name(gpu: Gpu) -> str:
    """`node7:3`, from foreign text."""
    return visible(f"{gpu.host}:{gpu.index}" if gpu.index else gpu.host)


def _place(gpu: Gpu, names: Sequence[str], width: int) -> Row:
    """Its name, its model, and the labels that fit: first those that tell it from others."""
    row = [Span("▌", ACCENT), Span(f"{gpu_name(gpu)}  ", STRONG)]
    row.append(Span(visible(short_name(gpu.name))))
    for name in (*names, *(other for other in gpu.labels if other not in names)):
        value = gpu.labels.get(name)
        if not value:
            continue
        more = [Span(f"  {visible(name, 40)} ", DIM), Span(visible(value, 80))]
        if width_of([*row, *more]) <= width:
            row += more
    return fit(row, width)


def _watts(gpu: Gpu) -> str:
    text = watts_of(gpu.power_watts, gpu.power_limit_watts)
    return text if text == ABSENT else f"{text} W"


def _readings(gpu: Gpu, width: int) -> Row:
    row = [Span("▌", ACCENT)]
    if gpu.gpu_utilization_percent is None and gpu.temperature_celsius is None:
        row.append(Span("no readings  ", WARN))
    age = None if gpu.age_seconds is None else duration(gpu.age_seconds)
    reasons = None if gpu.clock_event_reasons is None else ", ".join(gpu.clock_event_reasons)
    for name, text in (
        ("busy", percentage(gpu.gpu_utilization_percent)),
        ("mem", used_of(gpu.memory_used_bytes, gpu.memory_total_bytes)),
        ("", quantity(gpu.temperature_celsius, "°C")),
        ("power", _watts(gpu)),
        ("clock", quantity(gpu.sm_clock_mhz, " MHz")),
        ("SM", percentage(gpu.sm_active_percent)),
        ("tensor", percentage(gpu.tensor_active_percent)),
        ("DRAM", percentage(gpu.dram_active_percent)),
        ("mem temp", quantity(gpu.memory_temperature_celsius, "°C")),
        ("scraped", f"{age} ago" if age else ABSENT),
        ("clocks", visible(reasons) if reasons else ABSENT),
        ("", visible(gpu.uuid)),
    ):
        more = [Span(f"{name} " if name else "", DIM), reading(text), Span("  ")]
        if width_of([*row, *more]) <= width + 2 and text != ABSENT:
            row += more
    return fit(row, width)
