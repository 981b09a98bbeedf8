"""Title and figures of a run: what runs, its speed, its progress, and its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.style import Style

from gputop.bench.plan.request import Target, short_labels
from gputop.bench.results.columns import peak_text
from gputop.bench.results.measures import best_row, rate_text
from gputop.bench.results.outcome import Outcome, outcome_of_run
from gputop.bench.results.outliers import device_outcome, joined, was_stopped
from gputop.bench.run.check import Check
from gputop.bench.run.device_run import DeviceRun
from gputop.bench.run.run import Run
from gputop.bench.worker.heat import heat_in_short
from gputop.text import (
    ABSENT,
    count,
    duration,
    fit_columns,
    quantity,
    short_name,
    throughput,
    visible,
)
from gputop.ui.benchmark.device_strips import last_readings
from gputop.ui.benchmark.plot import colour_of
from gputop.ui.drawing.cells import (
    Row,
    Span,
    bar,
    cell,
    cells_of,
    paragraph,
    width_of,
)
from gputop.ui.drawing.live import LiveView
from gputop.ui.drawing.palette import (
    ACCENT,
    BUSY,
    DIM,
    FAULT,
    GOOD,
    STRONG,
    TEXT,
    WARN,
)

TALL_ROOM = 20
"""Rows from which more notes are shown."""
SHORTEST_BAR, LONGEST_BAR = 10, 60
STYLES = {"fault": FAULT, "warn": WARN, "good": GOOD, "": TEXT}
"""Styles of the levels of an outcome."""
WIDTHS = {
    "STATE": 13,
    "NOW": 6,
    "MEAN": 6,
    "PEAK": 6,
    "ROWS": 8,
    "BEST": 14,
    "OF PEAK": 7,
    "ERRORS": 6,
    "TEMP": 5,
    "POWER": 6,
    "CLOCK": 8,
}
"""Widths of the columns. A narrow table keeps the first ones."""


class RunView(LiveView):
    """A view of a run."""

    run: Run | None = None


class TitleView(RunView):
    """One line: the current run, or how the last one ended."""

    when = ""
    """Time of an earlier run that is shown again, with a space after it."""
    check: Check | None = None
    """Check whose current part is shown."""

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - always one row
        run, check = self.run, self.check
        if run is None:
            return []
        when = f" {self.when}"
        if check is not None:
            left = _seconds_left(run) + check.seconds_to_come
            part = f"Part {check.number} of {len(check.parts)}"
            when = f" {part}, {duration(left)} left · "
        return [[Span(when, STRONG), *title(run)]]


def title(run: Run) -> Row:
    """Return the gravest state, its devices if others have another one, and what runs."""
    outcomes = _outcomes(run)
    gravest = min(outcomes.values())
    word = gravest.word[:1].upper() + gravest.word[1:]
    if gravest.word == "ok":
        word = "Done"
    if not run.begun and not run.ended:
        word += f", {duration(run.now() - run.started_at)}"
    named = [each for each in outcomes if outcomes[each] == gravest]
    device = run.devices[named[0]]
    parts = []
    if len(named) < len(outcomes):
        parts.append(short_labels(named))
    if device.wrong_elements:
        parts.append(wrong_elements_text(device))
    if device.problem is not None:
        parts.append(visible(device.problem.what))
    elif device.limit is not None:
        parts.append(device.limit.why)
    text = " · ".join([*parts, *_what(run)])
    style = STYLES[gravest.level]
    said = style if style is FAULT else TEXT
    return [Span(word, style), Span(f": {text}", said)]


def _seconds_left(run: Run) -> float:
    return max(0.0, run.request.seconds - run.elapsed_seconds)


def _outcomes(run: Run) -> Mapping[Target, Outcome]:
    behind = run.slow_devices()
    outcomes = {}
    for target, device in run.devices.items():
        outcomes[target] = outcome_of_run(device, behind.get(target))
    return outcomes


def _what(run: Run) -> list[str]:
    """Return what runs: `bfloat16 8192×8192×8192 on 4 × H100 80GB HBM3`, `torch 2.9.1`."""
    shapes, torch = set(), set()
    for each in run.devices.values():
        if each.planned:
            shapes.add((each.planned.m, each.planned.n, each.planned.k))
        if each.hello:
            torch.add(f"torch {visible(each.hello.torch_version)}")
    shape = ""
    if len(shapes) == 1 and not run.is_table:
        shape = "×".join(map(str, shapes.pop())) + " "
    what = f"{run.first.description} {shape}on {_devices([*run.devices])}"
    return [what, *sorted(torch)]


def _devices(targets: Sequence[Target]) -> str:
    names = {short_name(visible(target.name)) for target in targets}
    if len(names) > 1:
        return short_labels(targets)
    name, number = names.pop(), targets[0].number
    if len(targets) > 1:
        return f"{len(targets)} × {name}"
    return name if number is None else f"GPU {number} {name}"


def wrong_elements_text(run: DeviceRun) -> str:
    """Return the number of wrong elements, and the time of the first."""
    many = count(run.wrong_elements, "wrong element")
    if run.wrong_at is None:
        return many
    return f"{many}, first at {duration(run.wrong_at)}"


class ReadoutView(RunView):
    """A table with a row for each device, the progress, and notes."""

    def wanted(self, room: int) -> int:
        """Return the rows that the view needs, with few notes if the `room` is small.

        The number is the same before and after the end of a run, so that the chart keeps its
        height.
        """
        if self.run is None:
            return 0
        rows = len(self.run.devices) + 2
        notes = 4 if room >= TALL_ROOM else 2
        return rows + max(0, min(notes, room - rows))

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - what fits is shown
        run = self.run
        if run is None:
            return []
        return [
            *_table(run, width),
            _progress_row(run, width),
            *_notes(run, width),
        ]


def _table(run: Run, width: int) -> list[Row]:
    """Draw a heading and a row for each device.

    A device's name has the colour of its line in the chart.
    """
    head = {title: Span(title, DIM) for title in WIDTHS}
    table = [(Span("DEVICE", DIM), head)]
    outcomes = _outcomes(run)
    for n, (target, device) in enumerate(run.devices.items()):
        name = Span(_name(run, target), colour_of(n))
        table.append((name, _cells(device, outcomes[target])))
    wide = max(cells_of(name.text) for name, _ in table)
    _, first = table[1]
    titles = [title for title in WIDTHS if title in first]
    room = width - wide - 1
    titles = fit_columns(titles, room, lambda title: WIDTHS[title] + 1)
    rows = []
    for name, cells in table:
        row = [Span(" "), cell(name.text, wide, name.style)]
        for title in titles:
            text, style = cells[title]
            if text == ABSENT:
                style = DIM
            right = title != "STATE"
            shown = cell(text, WIDTHS[title], style, right=right)
            row += [Span(" "), shown]
        rows.append(row)
    return rows


def _name(run: Run, target: Target) -> str:
    models = {each.name for each in run.devices}
    if target.number is None or len(models) > 1:
        return f"{target.place} {short_name(visible(target.name))}"
    return target.place


def _cells(device: DeviceRun, state: Outcome) -> dict[str, Span]:
    wrong = device.wrong_elements
    errors = f"{wrong:,}" if device.verified else ABSENT
    read = last_readings(device)
    cells = {
        "STATE": Span(state.word, STYLES[state.level]),
        "ERRORS": Span(errors, FAULT if wrong else TEXT),
        "TEMP": Span(quantity(read["temperature_celsius"], "°C")),
        "POWER": Span(quantity(read["power_watts"], " W")),
        "CLOCK": Span(quantity(read["sm_clock_mhz"], " MHz")),
    }
    if device.is_table:
        rows = f"{len(device.rows)}"
        if device.planned is not None and not device.ended:
            rows += f"/{device.planned.rows}"
        cells["ROWS"] = Span(rows)
        cells["BEST"] = Span(rate_text(best_row(device.rows)), STRONG)
        return cells
    mean = device.rate_mean
    known = device.readings.percent_of_peak(mean, device.request.dtype)
    if device.result is not None:
        known = device.result.known_conditions.percent_of_peak
    cells["OF PEAK"] = Span(peak_text(known))
    rates = {"NOW": device.rate_now, "MEAN": mean, "PEAK": device.rate_peak}
    for title, rate in rates.items():
        cells[title] = Span(throughput(rate, short=True), STRONG)
    return cells


def _progress_row(run: Run, width: int) -> Row:
    """Draw the progress, the number of checks, and the temperatures that end the run."""
    text, most = f"  {duration(run.elapsed_seconds)}", run.request.seconds
    if run.is_table and not run.ended:
        text += f" of at most {duration(most)}"
    elif not run.ended:
        text += f" of {duration(most)}, {duration(_seconds_left(run))} left"
    checks, heat = 0, []
    for device in run.devices.values():
        if device.verified is not None:
            checks += device.verified.products or device.verified.checks
        if device.readings.gpu is not None:
            heat.append(device.readings.heat_limits)
    text += f"  {checks:,} verified"
    after = [Span(text)]
    if heat:
        after.append(Span(f"  heat limit: {heat_in_short(heat)}", DIM))
    cells = max(SHORTEST_BAR, min(LONGEST_BAR, width - width_of(after) - 2))
    style = BUSY if run.ended else ACCENT
    return [Span(" "), *bar(run.share, cells, style), *after]


def _notes(run: Run, width: int) -> list[Row]:
    """Draw why devices ended, their verdicts, and who else uses them; join equal notes."""
    if run.problem is not None and not run.measured:
        # The chart's space shows it.
        return []
    said = []
    for device in run.devices.values():
        member = device_outcome(device)
        result = device.result
        others = device.readings.others
        if result is not None:
            others = result.known_conditions.other_load
        if result is not None and result.verdict is not None:
            said.append((member, member.sentence))
            said += [(member, why) for why in member.reasons]
        elif member.problem and not was_stopped(member):
            said.append((member, member.sentence))
        if others:
            said.append((member, f"also used by {'; '.join(others)}"))
    rows = []
    for member, line in joined(said):
        style: Style = STYLES[member.outcome.level]
        rows += paragraph(visible(line), width, style, " ")
    return rows
