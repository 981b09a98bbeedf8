"""What the chart's space has before a run, and where there is nothing to draw of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.bench import plan
from gputop.text import visible
from gputop.ui.draw import Row, Span, cell
from gputop.ui.palette import ACCENT, DIM, STRONG, TEXT, WARN
from gputop.ui.widgets.host import wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.style import Style

    from gputop.telemetry.snapshot import Problem


OTHERS = "The GPUs of other hosts are not offered: for those, ssh -t HOST gputop."


def hint(kinds: Sequence[str], width: int, height: int, *, others: bool = False) -> list[Row]:
    """How to start a run, and what there is to be run; spaced where there is room.

    Of `others`, which are on other hosts, it is said why they are not offered.
    """
    text = (
        "It verifies results while it runs, asks before it disturbs anybody, and stops within half "
        "a second of x."
    )
    press: Row = [Span(" Press "), Span("b", ACCENT), Span(" to start what is chosen above.")]
    known: list[Row] = [
        [cell(f" {kind}", 9, STRONG), Span(plan.KINDS[kind], DIM)] for kind in kinds
    ]
    said: list[Row] = [[Span(f" {line}", DIM)] for line in wrap(text, width - 2)]
    if others:
        said = [[Span(f" {OTHERS}", WARN)], *said]
    room = height - 1 - len(known) - len(said)
    space: list[Row] = [[]]
    return [press, *space * (room > 1), *known, *space * (room > 0), *said]


def problem_rows(problem: Problem, style: Style, width: int, _: int) -> list[Row]:
    """What is wrong, why, and what to type, in the space of the chart."""
    rows: list[Row] = [[], [Span(f"  {visible(problem.what)}", style)], []]
    for text, style in ((problem.why, TEXT), (problem.remedy, STRONG)):
        for line in text.splitlines():
            rows += [[Span(f"  {each}", style)] for each in wrap(visible(line), width - 4)]
        rows.append([])
    return rows
