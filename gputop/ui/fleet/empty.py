"""What the map says where there is no GPU to show: what it waits for, or what to check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.text import duration, visible
from gputop.ui.draw import Row, Span, clip
from gputop.ui.palette import DIM, STRONG, TEXT

if TYPE_CHECKING:
    from gputop.ui.fleet.state import FleetState

LOOKED_FOR = "DCGM_FI_DEV_GPU_UTIL, DCGM_FI_DEV_FB_USED, … and gputop_gpu_…"


def empty(state: FleetState, where: str, match: str, width: int) -> list[Row]:
    """A heading and what to do, in the middle of nothing."""
    lines: list[Span]
    fleet = state.fleet
    if fleet is None:
        lines = [
            Span(f"Waiting for the first answer of {visible(where, 200)}", STRONG),
            Span(f"for {duration(state.waiting_seconds)} now", DIM),
        ]
    elif fleet.gpus:
        lines = [
            Span(f"No GPU passes the filter {visible(state.typed)}", STRONG),
            Span(f"of {len(fleet.gpus):,}. Esc shows all, / changes the filter", TEXT),
        ]
    elif not fleet.fresh:
        lines = [
            Span("No answer yet", STRONG),
            Span("It is asked again all the time; R asks now", TEXT),
        ]
    else:
        matching = f" that match {visible(match, 200)}" if match else ""
        lines = [
            Span(f"The server answers, and has no GPUs{matching}", STRONG),
            *([Span("Check --match: its labels and their values", TEXT)] if match else []),
            Span("Check that dcgm-exporter or `gputop exporter` is scraped: Status, Targets", TEXT),
            Span(f"These metrics were looked for: {LOOKED_FOR}", DIM),
        ]
    return [[], *([Span("  "), Span(clip(text, width - 2), style)] for text, style in lines)]
