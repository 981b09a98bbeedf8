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
from gputop.ui.drawing.cells import Row, Span, faded, fit, reading, width_of
from gputop.ui.drawing.palette import ACCENT, DIM, STRONG, WARN
from gputop.ui.widgets.live import LiveView

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
        fleet = self._state.fleet
        assert fleet is not None
        rows = [_place(gpu, fleet.label_names, width), _readings(gpu, fleet.lag_seconds, width)]
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


def _readings(gpu: Gpu, lag: Callable[[str], float], width: int) -> Row:
    """Its readings; after those of an earlier moment than the rest, how much older they are."""
    row = [Span("▌", ACCENT)]
    if gpu.gpu_utilization_percent is None and gpu.temperature_celsius is None:
        row.append(Span("no readings  ", WARN))
    age = None if gpu.age_seconds is None else duration(gpu.age_seconds)
    reasons = None if gpu.clock_event_reasons is None else ", ".join(gpu.clock_event_reasons)
    shown = [
        ("busy", percentage(gpu.gpu_utilization_percent), "gpu_utilization_percent"),
        ("mem", used_of(gpu.memory_used_bytes, gpu.memory_total_bytes), "memory_used_bytes"),
        ("", quantity(gpu.temperature_celsius, "°C"), "temperature_celsius"),
        ("power", watts_of(gpu.power_watts, gpu.power_limit_watts), "power_watts"),
        ("clock", quantity(gpu.sm_clock_mhz, " MHz"), "sm_clock_mhz"),
        ("SM", percentage(gpu.sm_active_percent), "sm_active_percent"),
        ("tensor", percentage(gpu.tensor_active_percent), "tensor_active_percent"),
        ("DRAM", percentage(gpu.dram_active_percent), "dram_active_percent"),
        ("mem temp", quantity(gpu.memory_temperature_celsius, "°C"), "memory_temperature_celsius"),
        ("scraped", f"{age} ago" if age else ABSENT, ""),
        ("clocks", visible(reasons) if reasons else ABSENT, "clock_event_reasons"),
        ("", visible(gpu.uuid), ""),
    ]
    known = [(name, text, lag(of)) for name, text, of in shown if text != ABSENT]
    for (name, text, older), (*_, next_older) in zip(
        known, [*known[1:], ("", "", 0.0)], strict=True
    ):
        more = [Span(f"{name} " if name else "", DIM), reading(text)]
        if older and older != next_older:  # once for neighbours of the same moment
            more.append(Span(f" ({duration(older)} older)", DIM))
        more.append(Span("  "))
        if width_of([*row, *more]) <= width + 2:
            row += more
    return fit(row, width)
