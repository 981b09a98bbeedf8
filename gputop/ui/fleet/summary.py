"""Lines on top of the fleet screen: the server, totals, distributions, and the filter."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING

from gputop.fleet.page import counted
from gputop.health.findings import Severity
from gputop.text import ABSENT, brief, duration, number, used_of, visible
from gputop.ui.drawing.cells import Row, Span, cell, cells_of, clip, faded, fit, spread, width_of
from gputop.ui.drawing.live import FilterView, LiveView
from gputop.ui.drawing.palette import ACCENT, BADGE, DIM, GOOD, LEVELS, STRONG, TEXT, WARN
from gputop.ui.fleet.grouping import EXAMPLE, FilteredGpus
from gputop.ui.fleet.map_metrics import GRAVEST_FIRST, SIGN_STYLES, SIGNS, SUMMARISED, TEMPERATURE

if TYPE_CHECKING:
    from gputop.fleet.model import Fleet
    from gputop.problem import Problem
    from gputop.ui.fleet.fleet_state import FleetState
    from gputop.ui.fleet.map_metrics import MapMetric

MOST_PROBLEMS = 3
NARROWEST, ROOMY = 38, 48
"""Cells of a value's distribution: without, and with the word `median`."""


class FleetHeader(LiveView):
    """Title, problems of the server, totals, and distributions."""

    def __init__(self, state: FleetState, where: str) -> None:
        """Show a fleet; `where` is the server, as the user named it."""
        super().__init__(id="header")
        self._state, self._where = state, where
        self.brief = False
        """True if there is no room for distributions."""

    def height_in(self, width: int) -> int:
        """Return the number of rows in that width."""
        return len(self.draw(width, 0))

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - as many as there are
        state, fleet, view = self._state, self._state.fleet, self._state.view
        rows = [self._title(width)]
        rows += [row for problem in fleet.problems[:MOST_PROBLEMS] for row in _said(problem, width)]
        if not fleet.gpus:
            return rows
        figures = [self._totals(view, width)]
        if view.numbers and not self.brief:
            figures += _distributions(view, fleet, width)
        return [*rows, *(faded(figures) if state.is_old else figures)]

    def _title(self, width: int) -> Row:
        state, fleet = self._state, self._state.fleet
        left = [Span(" gputop ", ACCENT), Span(" fleet ", STRONG)]
        if fleet.simulated:
            left.append(Span(" SIMULATED ", BADGE))
        age = state.age_seconds
        parts = [visible(self._where, 60), f"every {state.interval:g} s"]
        if fleet.took_seconds is not None:
            parts.append(f"answered in {brief(fleet.took_seconds)}")
        newest = Span("")
        if age is not None:
            old = state.is_old
            newest = Span(f"{'from ' if old else ''}{duration(age)} ago ", WARN if old else TEXT)
        room = width - width_of([*left, newest]) - 4
        while parts and len(" · ".join(parts)) > room:
            parts.pop(1 if len(parts) > 1 else 0)
        said = " · ".join(parts) + (" · " if parts and newest.text else "")
        return spread(left, [Span(said, DIM), newest], width)

    def _totals(self, view: FilteredGpus, width: int) -> Row:
        found = view.totals
        shown = f"{found.gpus:,}" + (f" of {view.all_gpus:,}" if view.filtered else "")
        parts = f" in {found.instances:,} MIG instances" if found.instances else ""
        row = [
            Span(f" {shown} GPU{'s' if found.gpus != 1 else ''}", STRONG),
            Span(f"{parts} on {found.hosts:,} host{'s' if found.hosts != 1 else ''}  ", DIM),
        ]
        for health in GRAVEST_FIRST:
            if count := found.findings.get(health, 0):
                text = f" {SIGNS[health]} {counted(count, health)} "
                row.append(Span(text, SIGN_STYLES[health]))
        if not found.findings and found.gpus:
            row.append(Span(" no problems ", GOOD))
        memory = used_of(found.memory_used_bytes, found.memory_total_bytes)
        power = ABSENT if found.power_watts is None else _watts(found.power_watts)
        sums = [Span("  memory ", DIM), Span(memory), Span("  power ", DIM)]
        sums += [Span(f"{power} ")]
        while sums and width_of(row) + width_of(sums) > width:
            del sums[:2]
        return spread(row, sums, width)


class FilterLine(FilterView):
    """The filter, shown while it is typed and while it leaves GPUs out."""

    def __init__(self, state: FleetState, changed: Callable[[], None]) -> None:
        """Call `changed` when another text is typed."""
        super().__init__(id="filter")
        self._state, self._changed = state, changed

    @property
    def wanted(self) -> bool:
        """True if the line has something to show."""
        return self.typing or bool(self.typed)

    @property
    def typing(self) -> bool:
        """True while keys go into the filter. The state keeps it, to read an unfinished word."""
        return self._state.typing

    @typing.setter
    def typing(self, typing: bool) -> None:
        self._state.typing = typing

    @property
    def typed(self) -> str:
        """Words such as `rack=r3`."""
        return self._state.typed

    def type(self, text: str) -> None:
        self._state.type(text)
        self._changed()

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - always one row
        state = self._state
        if state.filter.refused:
            said, style = state.filter.refused, WARN
        elif not state.typed:
            said, style = f"labels, as in {EXAMPLE}; * is anything", DIM
        else:
            many = len(state.view.numbers)
            said, style = f"{many:,} GPU{'s' if many != 1 else ''}", TEXT if many else WARN
        keys = f"  {'Enter applies' if self.typing else '/ changes it'} · Esc shows all "
        room = max(8, width - cells_of(visible(state.typed)) - len(keys) - 8)
        right = [Span(clip(visible(said), room), style), Span(keys, DIM)]
        return [spread(self.prompt(width // 2), right, width)]


def _distributions(view: FilteredGpus, fleet: Fleet, width: int) -> list[Row]:
    beside = next(n for n in (4, 2, 1) if width >= n * NARROWEST or n == 1)
    drawn = [_distribution(metric, view, width // beside) for metric in SUMMARISED]
    old = [fleet.lag_seconds(metric.reading) > 0 for metric in SUMMARISED]
    drawn = [faded([row])[0] if is_old else row for row, is_old in zip(drawn, old, strict=True)]
    return [
        [span for block in drawn[n : n + beside] for span in block]
        for n in range(0, len(drawn), beside)
    ]


def _distribution(metric: MapMetric, view: FilteredGpus, width: int) -> Row:
    """Return `busy  median 87%  p5 0%  p95 100%` and a bar for each level."""
    found = view.summary[metric.name]
    name = "temp" if metric is TEMPERATURE else metric.name
    row = [Span(f" {name:<7}", DIM), *([Span("median ", DIM)] if width >= ROOMY else [])]
    row += [cell(metric.text(found.median), 5, STRONG, right=True), Span("  p5", DIM)]
    row += [cell(metric.text(found.p5), 5, right=True), Span("  p95", DIM)]
    row += [cell(metric.text(found.p95), 5, right=True), Span(" ")]
    row += [Span(bar, style) for bar, style in zip(found.bars, LEVELS, strict=True)]
    return fit(row, width)


def _said(problem: Problem, width: int) -> list[Row]:
    lines = textwrap.wrap(visible(str(problem)), max(10, width - 4), max_lines=3, placeholder=" …")
    return [
        [Span(f" {' ' if n else SIGNS[Severity.WARNING]} {line}", WARN)]
        for n, line in enumerate(lines)
    ]


def _watts(watts: float) -> str:
    """Return a text such as `812 W`, `6.12 kW` or `4.03 MW`."""
    for unit in ("W", "kW"):
        if watts < 999.5:
            return f"{number(watts, whole=unit == 'W')} {unit}"
        watts /= 1000
    return f"{number(watts)} MW"
