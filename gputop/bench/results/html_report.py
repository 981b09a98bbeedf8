"""A run as one self-contained HTML page with SVG charts, to send to somebody."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from gputop import __version__
from gputop.bench.events import FAULTY, OK, Point, Result
from gputop.bench.plan.kinds import kind_of
from gputop.bench.results import facts, suite_report, text_report
from gputop.bench.results.compare import SPOILED_PERCENT
from gputop.bench.results.outliers import find_outlier
from gputop.bench.results.tables import BETWEEN
from gputop.bench.results.verdict import verdict_lines
from gputop.text import UNITS, brief, flops_unit, moment, visible

if TYPE_CHECKING:
    from gputop.bench.results.facts import Fact
    from gputop.bench.run.run_state import Curve, RunCurves
    from gputop.bench.run.suite import Suite


WIDTH, LEFT, RIGHT, TOP, BOTTOM = 760, 64, 16, 10, 34
"""SVG user units. The last four are the margins around a chart."""
INNER = WIDTH - LEFT - RIGHT
STRIP_ROW = 18
COLOURS = 6
"""Number of the colour classes `c0` to `c5`, used in turn."""
FEW = 80
"""Most points of a line that are marked with dots."""
SECONDS, BYTES, TIME, TAIL = "seconds", "bytes", "Time", "p99"
"""Titles of axes with labels of their own."""
LETTER = 7
"""Width of a character of a label, or a little more."""
Bounds = Sequence[float]
FAR_X, FAR_Y = 16, 300
"""Ratios of the largest to the smallest value from which an axis is logarithmic."""
LEAST_LOG = 1e-12


@dataclass(frozen=True, slots=True)
class SvgAxis:
    """Range of an axis. With `base` it is in powers of that."""

    low: float
    high: float
    title: str
    base: int | None = None

    def at(self, value: float) -> float:
        """Return the position of a value, 0 to 1."""
        low, high, value = map(self._scaled, (self.low, self.high, value))
        return (value - low) / (high - low) if high > low else 0.5

    def _scaled(self, value: float) -> float:
        return math.log(value, self.base) if self.base else value

    def ticks(self) -> list[float]:
        """Return at most nine round numbers within the range."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        step = (
            max(1, math.ceil((high - low) / 8))
            if self.base
            else _round_step((high - low) / 6)
        )
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        values = [n * step for n in range(first, last + 1)]
        return [float(self.base) ** value for value in values] if self.base else values


def _round_step(rough: float) -> float:
    if rough <= 0:
        return 1.0
    scale: float = 10.0 ** math.floor(math.log10(rough))
    return next(
        scale * n for n in (1, 2, 2.5, 5, 10) if rough <= scale * n * (1 + 1e-9)
    )


def _range(values: Iterable[float]) -> tuple[float, float]:
    known = list(values)
    return min(known, default=0.0), max(known, default=0.0) or 1.0


def x_axis(series: Mapping[str, Curve], title: str) -> SvgAxis:
    """Return an axis from 0 for a time, in powers of two if other values are far apart."""
    low, high = _range(x for line in series.values() for x, _ in line)
    if title != SECONDS and low > LEAST_LOG and high / low >= FAR_X:
        return SvgAxis(low, high, title, base=2)
    return SvgAxis(0.0, high, title)


def _y_axis(series: Mapping[str, Curve], title: str) -> SvgAxis:
    low, high = _range(y for line in series.values() for _, y in line)
    if low > LEAST_LOG and high / low >= FAR_Y:
        # Whole powers of ten: there are lines at both ends.
        low, high = (
            10.0 ** math.floor(math.log10(low)),
            10.0 ** math.ceil(math.log10(high)),
        )
        return SvgAxis(low, high, title, base=10)
    return SvgAxis(0.0, 1.06 * high, title)


def chart(
    series: Mapping[str, Curve],
    x: SvgAxis,
    title: str,
    height: int = 260,
    band: Bounds = (),
) -> str:
    """Return lines over `x`, with their names in a legend above, and the bounds of the mean."""
    y = _y_axis(series, title)
    drawn = []
    if band:
        top, bottom = (_to_y(y, bound, height) for bound in (max(band), min(band)))
        said = f"95 % interval of the mean: {min(band):.4g} to {max(band):.4g}"
        drawn.append(
            f'<rect class="band" x="{LEFT}" y="{top:.1f}" width="{INNER}" '
            f'height="{max(1.0, bottom - top):.1f}"><title>{said}</title></rect>'
        )
    for tick in y.ticks():
        down = _to_y(y, tick, height)
        drawn.append(f'<path class="grid" d="M{LEFT} {down:.1f}H{WIDTH - RIGHT}"/>')
        said = label(tick, y.title)
        drawn.append(f'<text class="y" x="{LEFT - 6}" y="{down + 4:.1f}">{said}</text>')
    drawn += _x_labels(x, height)
    for n, line in enumerate(series.values()):
        points = [(_to_x(x, at), _to_y(y, value, height)) for at, value in line]
        path = " ".join(f"{across:.1f},{down:.1f}" for across, down in points)
        drawn.append(f'<polyline class="c{n % COLOURS}" points="{path}"/>')
        if len(points) <= FEW:
            drawn += [
                f'<circle class="c{n % COLOURS}" cx="{across:.1f}" cy="{down:.1f}" r="2.5"/>'
                for across, down in points
            ]
    legend = "".join(
        f' <span class="c{n % COLOURS}">&#9644; {text(name)}</span>'
        for n, name in enumerate(series)
    )
    says = f"{text(title)} over {text(x.title)}{legend if len(series) > 1 else ''}"
    return _figure(says, drawn, height, title)


def strip(intervals: Mapping[str, Curve], x: SvgAxis) -> str:
    """Return a row for each name, filled where it held."""
    height = STRIP_ROW * len(intervals) + BOTTOM
    drawn, thick = [], STRIP_ROW - 6
    for n, (name, held) in enumerate(intervals.items()):
        top = n * STRIP_ROW + 3
        drawn.append(
            f'<rect class="track" x="{LEFT}" y="{top}" width="{INNER}" height="{thick}"/>'
        )
        for start, end in held:
            left, right = _to_x(x, start), _to_x(x, min(end, x.high))
            drawn.append(
                f'<rect class="held" x="{left:.1f}" y="{top}" width="{max(1.0, right - left):.1f}" '
                f'height="{thick}"><title>{text(name)}: {start:.1f} to {end:.1f} s</title>'
                "</rect>"
            )
        drawn.append(
            f'<text class="in" x="{LEFT + 4}" y="{top + 10}">{text(name.replace("_", " "))}</text>'
        )
    drawn += _x_labels(x, height)
    title = "Clock event reasons"
    return _figure(f"{title}, where they held", drawn, height, title)


def text(value: object) -> str:
    """Return foreign text for a page, without markup and invisible characters."""
    return escape(visible(str(value)))


def label(value: float, title: str = "") -> str:
    """Return a number on the axis of that title: `0.25`, `8192`, `64 KiB`, `10 µs`."""
    if title in (TIME, TAIL) and value:
        return brief(value)
    if title == BYTES:
        unit = next(
            (each for each in reversed(UNITS) if value >= 1 << UNITS[each]), "B"
        )
        return f"{value / (1 << UNITS[unit]):.4g} {unit}"
    return f"{value:.9f}".rstrip("0").rstrip(".")  # without an exponent


def _figure(caption: str, drawn: list[str], height: int, title: str) -> str:
    svg = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{text(title)}">'
    return f"<figure><figcaption>{caption}</figcaption>{svg}{''.join(drawn)}</svg></figure>"


def _to_x(axis: SvgAxis, value: float) -> float:
    return LEFT + axis.at(value) * INNER


def _to_y(axis: SvgAxis, value: float, height: int) -> float:
    return height - BOTTOM - axis.at(value) * (height - TOP - BOTTOM)


def _x_labels(x: SvgAxis, height: int) -> Iterator[str]:
    for tick in x.ticks():
        said = label(tick, x.title)
        middle = min(
            _to_x(x, tick), WIDTH - LETTER * len(said) / 2
        )  # else its end is cut off
        yield f'<text class="x" x="{middle:.1f}" y="{height - 17}">{said}</text>'
    yield f'<text class="y" x="{WIDTH - RIGHT}" y="{height - 4}">{text(x.title)}</text>'


SMALL = 120
"""Height of a chart of a device's reading, under the throughput."""
TITLES = {
    "power_watts": ("Power, W", 1.0),
    "sm_clock_mhz": ("SM clock, MHz", 1.0),
    "clock_mhz": ("Clock, MHz", 1.0),
    "temperature_celsius": ("Temperature, °C", 1.0),
    "seconds": (TIME, 1.0),
    "p99_seconds": (TAIL, 1.0),
    "latency_seconds": ("Latency", 1.0),
    "bytes_per_second": ("GB/s", 1e-9),
    "algorithm_bytes_per_second": ("Algorithm GB/s", 1e-9),
    "tokens_per_second": ("Tokens/s", 1.0),
    "spread_percent": ("Scatter, %", 1.0),
    "passes": ("Passes", 1.0),
}
"""Title of a value by its name, and how many of the title's unit are one of the value's."""


def _template() -> str:
    return Path(__file__).with_suffix(".html").read_text(encoding="utf-8")


def is_report(file: Path) -> bool:
    """Return True if the file is empty or begins as a report does; raises `OSError`."""
    head = _template().partition("\n<meta")[0].encode()
    with file.open("rb") as opened:
        return opened.read(len(head)) in (b"", head)


def html_page(result: Result, course: RunCurves) -> str:
    """Return the document: no script, nothing fetched; text of others is escaped."""
    size = "" if result.points else f", {facts.shape(result)}"
    run = f"{result.kind}, {result.dtype or 'bytes'}{size}"
    return _page(
        result.device, run, result.started_at, _verdict(result), _body(result, course)
    )


def suite_html(suite: Suite) -> str:
    """Return the document of a suite: its parts with their verdicts, and then each run."""
    titles, *parts = suite_report.suite_table(suite)
    rows = [
        _cells("th", *map(str.capitalize, titles)),
        *(_cells("td", *part) for part in parts),
    ]
    body = [_scrolled("".join(f"<tr>{row}</tr>\n" for row in rows))]
    body += [f"<p>{text(line)}</p>" for line in suite_report.suite_problems(suite)]
    for part in suite.parts:
        many = len(part.members) > text_report.MOST_ROWS
        for member, course in zip(part.members, part.series, strict=False):
            if many and find_outlier(member) is None:
                continue
            body.append(
                f"<h1 class=part>{text(f'{part.name}, {text_report.name(member)}')}</h1>"
            )
            if member.result is not None:
                body += [
                    _verdict_box(*_verdict(member.result)),
                    *_body(member.result, course),
                ]
    levels = {FAULTY: "fault", OK: ""}
    title = suite_report.suite_title(suite)
    level = levels.get(title.rpartition(": ")[2], "warn")
    verdict = (level, suite_report.suite_summary(suite) or title)
    if verdict[1] != title:
        body.insert(0, f"<p>{text(title)}</p>")
    device = suite_report.suite_devices(suite)
    return _page(device, f"check {suite.level}", suite.started_at, verdict, body)


def _body(result: Result, course: RunCurves) -> list[str]:
    parts = result.verdict.parts if result.verdict else ()
    sections = (
        ("Verdict", [(part.name, f"{part.state}: {part.why}") for part in parts]),
        ("Conditions", facts.condition_facts(result.conditions)),
        ("Method", facts.method_facts(result)),
        ("Details", facts.detail_facts(result)),
    )
    body = [
        _table(facts.figure_facts(result)),
        *_charts(result, course),
        *_rows(result),
    ]
    for title, found in sections:
        if known := list(found):
            body += [f"<h2>{title}</h2>", _table(known)]
    return body


def _page(
    device: str,
    run: str,
    started_at: float,
    verdict: tuple[str, str],
    body: Iterable[str],
) -> str:
    return Template(_template()).substitute(
        title=text(f"{device}: {run}"),
        device=text(device),
        run=text(run),
        when=text(moment(started_at, "%d %B %Y, %H:%M %Z")),
        verdict=_verdict_box(*verdict),
        body="\n".join(body),
        version=text(__version__),
    )


def _verdict_box(level: str, says: str) -> str:
    return f'<div class="verdict {level}">{text(says)}</div>'


def _verdict(result: Result) -> tuple[str, str]:
    """Return the level, `fault`, `warn` or none, and what is wrong first of all."""
    level = "fault" if result.state == FAULTY else "warn"
    if result.verdict and result.verdict.summary:
        fine = result.state == OK and result.stopped == "time"
        return "" if fine else level, result.verdict.summary
    if result.verdict and result.verdict.bad:
        return level, "; ".join(
            f"{part.name}: {part.why}" for part in result.verdict.bad
        )
    if result.wrong_elements:
        return (
            level,
            f"The device {facts.wrong_results(result.wrong_elements, result.checks)}",
        )
    if result.known_comparison.slower is not None:  # of an older version
        return level, result.known_comparison.slower
    if result.stopped != "time":
        return level, f"The run was {facts.ending(result).sentence}."
    right = ", and all that was checked was right" if result.checks else ""
    level = "" if result.verdict is None or result.state == OK else level
    return level, next(verdict_lines(result), f"The run took its time{right}.")


def _charts(result: Result, course: RunCurves) -> Iterator[str]:
    bytes_moved = kind_of(result.kind).moves_bytes
    drawn = [row for row in result.points if BETWEEN not in row.series]
    alike = len({row.x for row in drawn}) < 2  # rows of one size are no line
    for name, lines in by_value(() if alike else drawn).items():
        if name == "wrong":  # the rows have it
            continue
        yield _chart(result, lines, x_axis(lines, BYTES if bytes_moved else "N"), name)
    rate = kind_of(result.kind).rate_unit if bytes_moved else "tflops"
    over_time = {
        rate: [(window.elapsed_seconds, window.rate) for window in course.progress]
    }
    for name, series in course.readings.items():
        over_time[name if result.device_uuid else name.removeprefix("sm_")] = [*series]
    over_time = {name: series for name, series in over_time.items() if series}
    if over_time:
        x = x_axis(over_time, SECONDS)
        for name, series in over_time.items():
            yield _chart(
                result, {name: series}, x, name, 260 if name == rate else SMALL
            )
        if course.reasons:
            yield strip(course.reasons, x)


def _chart(
    result: Result, lines: Mapping[str, Curve], x: SvgAxis, name: str, height: int = 260
) -> str:
    title, factor = _unit(
        name, (y for line in lines.values() for _, y in line), result.kind
    )
    bounds = (
        result.tflops_mean_interval if name == "tflops" and not result.points else None
    )
    scaled = {
        each: [(at, factor * y) for at, y in line] for each, line in lines.items()
    }
    return chart(scaled, x, title, height, [factor * bound for bound in bounds or ()])


def _unit(name: str, values: Iterable[float], kind: str = "") -> tuple[str, float]:
    """Return the title of a value, and its factor: see `TITLES`."""
    if (kind, name) == ("collective", "bytes_per_second"):
        return "Bus GB/s", 1e-9
    if name == "tflops":
        return flops_unit(max(values, default=None))
    return TITLES.get(name, (name.replace("_", " "), 1.0))


def by_value(points: Iterable[Point]) -> Mapping[str, Mapping[str, Curve]]:
    """Return the rows of a table as lines: (x, value) by series, by value."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for point in points:
        for name, value in point.values.items():
            insort(
                found.setdefault(name, {}).setdefault(point.series, []),
                (point.x, value),
            )
    return found


def _rows(result: Result) -> Iterator[str]:
    points, axis = result.points, BYTES if kind_of(result.kind).moves_bytes else ""
    names = list(dict.fromkeys(name for point in points for name in point.values))
    if not names:
        return
    units = {
        name: _unit(name, (p.values.get(name, 0.0) for p in points), result.kind)
        for name in names
    }
    titles = (title for title, _ in units.values())
    size = "Block" if result.kind == "memory" else "Size"
    body = f"<tr>{_cells('th', 'Series', size, *titles)}</tr>\n"
    for point in points:
        spoiled = point.values.get("spread_percent", 0.0) > SPOILED_PERCENT
        values = (
            _value(name, point.values.get(name), units[name][1]) for name in names
        )
        shape = "×".join(map(str, point.shape))
        size = shape if len(set(point.shape)) > 1 else label(point.x, axis)
        cells = _cells("td", point.series, size, *values)
        body += f"<tr{' class=spoiled' * spoiled}>{cells}</tr>\n"
    yield f"<h2>Rows</h2>\n{_scrolled(body)}"


def _scrolled(rows: str) -> str:
    return f'<div class="scroll"><table class="rows">{rows}</table></div>'


def _cells(tag: str, *texts: str) -> str:
    return "".join(f"<{tag}>{text(each)}</{tag}>" for each in texts)


def _value(name: str, value: float | None, factor: float) -> str:
    if value is None or name.endswith("seconds"):
        return brief(value)
    return (
        f"{factor * value:.0f}" if factor * value >= 1000 else f"{factor * value:.3g}"
    )


def _table(found: Iterable[Fact]) -> str:
    rows = (
        _cells("th", name[0].upper() + name[1:]) + _cells("td", said)
        for name, said in found
    )
    return "<table>\n" + "".join(f"<tr>{row}</tr>\n" for row in rows) + "</table>"
