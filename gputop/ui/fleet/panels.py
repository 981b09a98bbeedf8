"""Panels around the map: header, filter, the list of problems, and the details of a GPU."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from gputop.fleet.distributions import (
    BUSY,
    TEMPERATURE,
    MapMetric,
    MetricDistribution,
    distribution,
)
from gputop.fleet.fleet_findings import job_of
from gputop.fleet.page import counted, since, total_watts
from gputop.health.findings import Finding, Severity
from gputop.text import (
    ABSENT,
    brief,
    count,
    duration,
    percentage,
    quantity,
    short_name,
    used_of,
    visible,
    watts_of,
)
from gputop.ui.drawing import cells
from gputop.ui.drawing.cells import Row, Span, cell, clip, faded, fit, spread, width_of
from gputop.ui.drawing.live import LONGEST_FILTER, FilterView, LiveView, Wheel
from gputop.ui.drawing.palette import (
    ACCENT,
    BADGE,
    DIM,
    GOOD,
    LEVELS,
    STRONG,
    TAB,
    TEXT,
    WARN,
)
from gputop.ui.fleet.grouping import (
    EXAMPLE,
    GRAVEST_FIRST,
    SIGN_STYLES,
    SIGNS,
    FilteredGpus,
)

if TYPE_CHECKING:
    from textual.events import Click

    from gputop.agent.problem import Problem
    from gputop.fleet.model import Fleet, Gpu
    from gputop.ui.fleet.fleet_state import FleetState

MOST_PROBLEMS = 3
NARROWEST, WITH_MEDIAN = 38, 48
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
        rows += [
            row
            for problem in fleet.problems[:MOST_PROBLEMS]
            for row in _said(problem, width)
        ]
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
            newest = Span(
                f"{'from ' if old else ''}{duration(age)} ago ", WARN if old else TEXT
            )
        room = width - width_of([*left, newest]) - 4
        while parts and len(" · ".join(parts)) > room:
            parts.pop(1 if len(parts) > 1 else 0)
        said = " · ".join(parts) + (" · " if parts and newest.text else "")
        return spread(left, [Span(said, DIM), newest], width)

    def _totals(self, view: FilteredGpus, width: int) -> Row:
        found = view.totals
        shown = f"{found.gpus:,} of " if view.filtered else ""
        parts = f" in {found.instances:,} MIG instances" if found.instances else ""
        row = [
            Span(f" {shown}{count(view.all_gpus, 'GPU')}", STRONG),
            Span(f"{parts} on {count(found.hosts, 'host')}  ", DIM),
        ]
        for health in GRAVEST_FIRST:
            if many := found.findings.get(health, 0):
                text = f" {SIGNS[health]} {counted(many, health)} "
                row.append(Span(text, SIGN_STYLES[health]))
        if not found.findings and found.gpus:
            row.append(Span(" no problems found ", GOOD))
        memory = used_of(found.memory_used_bytes, found.memory_total_bytes)
        power = ABSENT if found.power_watts is None else total_watts(found.power_watts)
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

    def type(self, text: str) -> None:
        self._typed = text[:LONGEST_FILTER]
        self._state.type(self._typed, unfinished=self.typing)
        self._changed()

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - always one row
        state = self._state
        if state.filter.refused:
            said, style = state.filter.refused, WARN
        elif not self.typed:
            said, style = f"labels, as in {EXAMPLE}; * is anything", DIM
        else:
            many = len(state.view.numbers)
            said, style = count(many, "GPU"), TEXT if many else WARN
        room = width - cells.cells_of(visible(self.typed)) - len(self.filter_keys) - 8
        right = [
            Span(clip(visible(said), max(8, room)), style),
            Span(self.filter_keys, DIM),
        ]
        return [spread(self.prompt(width // 2), right, width)]


def _distributions(view: FilteredGpus, fleet: Fleet, width: int) -> list[Row]:
    beside = next(n for n in (4, 2, 1) if width >= n * NARROWEST or n == 1)
    drawn = []
    for metric, found in view.summary:
        row = _distribution(metric, found, width // beside)
        drawn.append(faded([row])[0] if fleet.lag_seconds(metric.reading) > 0 else row)
    return [
        [span for block in drawn[n : n + beside] for span in block]
        for n in range(0, len(drawn), beside)
    ]


def _distribution(metric: MapMetric, found: MetricDistribution, width: int) -> Row:
    """Return `busy  median 87%  p5 0%  p95 100%` and a bar for each level."""
    name = "temp" if metric is TEMPERATURE else metric.name
    row = [
        Span(f" {name:<7}", DIM),
        *([Span("median ", DIM)] if width >= WITH_MEDIAN else []),
    ]
    row += [cell(metric.text(found.median), 5, STRONG, right=True), Span("  p5", DIM)]
    row += [cell(metric.text(found.p5), 5, right=True), Span("  p95", DIM)]
    row += [cell(metric.text(found.p95), 5, right=True), Span(" ")]
    row += [Span(bar, style) for bar, style in zip(found.bars, LEVELS, strict=True)]
    return fit(row, width)


def _said(problem: Problem, width: int) -> list[Row]:
    lines = textwrap.wrap(
        visible(str(problem)), max(10, width - 4), max_lines=3, placeholder=" …"
    )
    return [
        [Span(f" {' ' if n else SIGNS[Severity.WARNING]} {line}", WARN)]
        for n, line in enumerate(lines)
    ]


LONGEST_NAME = 32
ROOMY = 110
"""Width in cells from which on the place of the GPU is shown too."""
SINCE_CELLS = 14
MOST_ROWS = 6
"""Most rows of the details of a GPU."""


class ProblemsView(Wheel, LiveView):
    """A heading, and a scrolled window over the list."""

    def __init__(self, state: FleetState, moved: Callable[[], None]) -> None:
        """Call `moved` when a click has moved the cursor."""
        super().__init__(id="wrong")
        self._state, self._moved = state, moved

    @property
    def rows(self) -> int:
        """Number of rows that the view could use, with its heading."""
        return 1 + len(self._state.view.wrong)

    def action_move(self, step: int) -> None:
        """Move the cursor that many rows down; if it is on none, to the first visible row."""
        state = self._state
        row = state.row
        state.move_to_row(self._first if row is None else row + step)

    def action_page(self, step: int) -> None:
        self.action_move(step * max(1, self.size.height - 2))

    def on_click(self, event: Click) -> None:
        row = self._first + event.y - 1
        if event.y > 0 and row < len(self._state.view.wrong):
            self._state.move_to_row(row)
            self._state.on_list = True
            self._moved()

    def draw(self, width: int, height: int) -> list[Row]:
        state = self._state
        if not state.fleet.gpus:
            return []
        wrong, room, row = self._state.view.wrong, max(0, height - 1), state.row
        self.follow(row, row, len(wrong), room)
        shown = wrong[self._first : self._first + room]
        longest = max(
            (cells.cells_of(gpu_name(state.gpu_of(each))) for each in shown), default=0
        )
        names = min(LONGEST_NAME, longest)
        rows = [self._heading(width, len(shown))]
        rows += [
            self._line(each, names, width, selected=n == row)
            for n, each in enumerate(shown, self._first)
        ]
        return [rows[0], *faded(rows[1:])] if state.is_old else rows

    def _heading(self, width: int, shown: int) -> Row:
        state = self._state
        title = Span(" PROBLEMS ", TAB if state.on_list else STRONG)
        if not self._state.view.wrong:
            return [title, Span(" none found", GOOD)]
        found, gpus = state.view.totals.findings, state.view.totals.gpus_with_findings
        words = " · ".join(counted(found[h], h) for h in GRAVEST_FIRST if h in found)
        words += f" on {count(gpus, 'GPU')}"
        seen = (
            f"{self._first + 1}–{self._first + shown} of {len(self._state.view.wrong)} "
        )
        right = [Span(seen, DIM)] if 0 < shown < len(self._state.view.wrong) else []
        return spread([title, Span(f" {words}, worst first", DIM)], right, width)

    def _line(self, wrong: Finding, names: int, width: int, *, selected: bool) -> Row:
        state = self._state
        gpu = state.gpu_of(wrong)
        begun = since(wrong, state.fleet.time)
        where = visible(state.place_of(gpu), 40) if width >= ROOMY else ""
        right = [Span(f"  {where}", DIM), Span(f"  {begun} ".rjust(SINCE_CELLS), DIM)]
        row = [
            Span(f"{SIGNS[wrong.severity]} ", SIGN_STYLES[wrong.severity]),
            cell(gpu_name(gpu), names, STRONG),
            Span("  "),
            Span(clip(visible(wrong.title), width - names - 6 - width_of(right))),
        ]
        row = spread(row, right, width - 1)
        return cells.list_row(row, selected=selected, focused=state.on_list)


class DetailView(LiveView):
    """Lines about a GPU: its place and labels, and its readings."""

    def __init__(self, state: FleetState) -> None:
        super().__init__(id="detail")
        self._state = state
        self._most = 2

    def rows(self, width: int) -> int:
        """Return the rows that it could use, for any GPU so far: else moving would move the map."""
        self._most = max(self._most, len(self.draw(width, MOST_ROWS)))
        return self._most

    def draw(self, width: int, height: int) -> list[Row]:
        gpu = self._state.selected
        if gpu is None:
            return []
        fleet, view = self._state.fleet, self._state.view
        readings = in_rows(_readings(gpu, fleet.lag_seconds), width, height // 2)
        place = _place(gpu, view.jobs.get(job_of(gpu), ()), fleet.label_names)
        rows = [*in_rows(place, width, height - len(readings)), *readings]
        return faded(rows) if self._state.is_old else rows


def in_rows(parts: Iterable[Row], width: int, most: int) -> list[Row]:
    """Wrap the parts into at most `most` rows. What fits nowhere is left out, third spans first."""
    rows: list[Row] = [[Span("▌", ACCENT)]]
    for whole in parts:
        for part in (whole, whole[:2]):
            into = rows if len(rows) == most else rows[-1:]
            fitting = (
                r for r in into if len(r) == 1 or width_of([*r, *part]) + 2 <= width
            )
            row = next(fitting, None)
            if row is None and len(rows) < most:
                rows.append(row := [Span("▌", ACCENT)])
            if row is not None:
                row += [Span("  "), *part] if len(row) > 1 else part
                break
    return [fit(row, width) for row in rows]


def gpu_name(gpu: Gpu) -> str:
    """Return a name such as `node7:3`, which is safe to show."""
    return visible(f"{gpu.host}:{gpu.index}" if gpu.index else gpu.host)


def _place(gpu: Gpu, peers: Sequence[Gpu], names: Sequence[str]) -> Iterator[Row]:
    """Yield the name, the model, the job with its `peers`, and the labels.

    First come labels that differ among GPUs.
    """
    yield [Span(f"{gpu_name(gpu)}  ", STRONG), Span(visible(short_name(gpu.name)))]
    job = job_of(gpu).partition("=")[2] or job_of(gpu).rpartition("/")[2]
    if job:
        busy = BUSY.text(distribution(peers, BUSY).median)
        hosts = count(len({each.host for each in peers}), "host")
        said = f" ({count(len(peers), 'GPU')}, {hosts}, median busy {busy})"
        yield [Span("job ", DIM), Span(visible(job, 40), STRONG), Span(said, DIM)]
    for name in (*names, *(other for other in gpu.labels if other not in names)):
        value = gpu.labels.get(name)
        if value and value != job:
            yield [Span(f"{visible(name, 40)} ", DIM), Span(visible(value, 80))]


def _readings(gpu: Gpu, lag: Callable[[str], float]) -> Iterator[Row]:
    """Yield the readings; those older than the rest are followed by how much older they are."""
    if gpu.gpu_utilization_percent is None and gpu.temperature_celsius is None:
        yield [Span("no readings", WARN)]
    age = None if gpu.age_seconds is None else duration(gpu.age_seconds)
    reasons = (
        None if gpu.clock_event_reasons is None else ", ".join(gpu.clock_event_reasons)
    )
    shown = [
        ("busy", percentage(gpu.gpu_utilization_percent), "gpu_utilization_percent"),
        (
            "mem",
            used_of(gpu.memory_used_bytes, gpu.memory_total_bytes),
            "memory_used_bytes",
        ),
        ("", quantity(gpu.temperature_celsius, "°C"), "temperature_celsius"),
        ("power", watts_of(gpu.power_watts, gpu.power_limit_watts), "power_watts"),
        ("clock", quantity(gpu.sm_clock_mhz, " MHz"), "sm_clock_mhz"),
        ("SM", percentage(gpu.sm_active_percent), "sm_active_percent"),
        ("tensor", percentage(gpu.tensor_active_percent), "tensor_active_percent"),
        ("DRAM", percentage(gpu.dram_active_percent), "dram_active_percent"),
        (
            "mem temp",
            quantity(gpu.memory_temperature_celsius, "°C"),
            "memory_temperature_celsius",
        ),
        ("scraped", f"{age} ago" if age else ABSENT, ""),
        ("clocks", visible(reasons) if reasons else ABSENT, "clock_event_reasons"),
        ("", visible(gpu.uuid), ""),
    ]
    known = [(name, text, lag(of)) for name, text, of in shown if text != ABSENT]
    following = [*known[1:], ("", "", 0.0)]
    for (name, text, older), (*_, next_older) in zip(known, following, strict=True):
        more = [Span(f"{name} " if name else "", DIM), cells.reading(text)]
        if older and older != next_older:  # once for neighbours of the same moment
            more.append(Span(f" ({duration(older)} older)", DIM))
        yield more
