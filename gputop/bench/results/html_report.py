"""A run as one self-contained HTML page with SVG charts, to send to somebody."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from gputop import __version__
from gputop.bench.results import facts
from gputop.bench.results.facts import shape, wrong_results
from gputop.text import ABSENT, brief, moment, number, tflops, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from gputop.bench.events import Point, Result
    from gputop.bench.results.facts import Fact
    from gputop.bench.run.state import Curve, RunCurves


WIDTH, LEFT, RIGHT, TOP, BOTTOM = 760, 64, 16, 10, 34
"""SVG user units. The last four are the margins around a chart."""
STRIP_ROW = 18
COLOURS = 6
"""Number of the colour classes `c0` to `c5`, used in turn."""
FEW = 80
"""Most points of a line that are marked with dots."""
SECONDS = "seconds"
FAR_X, FAR_Y = 16, 300
"""Ratios of the largest to the smallest value from which an axis is logarithmic."""
LEAST_LOG = 1e-12
"""Values below it count as zero."""


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
        step = max(1, math.ceil((high - low) / 8)) if self.base else _round_step((high - low) / 6)
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        values = [n * step for n in range(first, last + 1)]
        return [float(self.base) ** value for value in values] if self.base else values


def _round_step(rough: float) -> float:
    if rough <= 0:
        return 1.0
    scale: float = 10.0 ** math.floor(math.log10(rough))
    return next(scale * n for n in (1, 2, 2.5, 5, 10) if rough <= scale * n * (1 + 1e-9))


def x_axis(series: Mapping[str, Curve], title: str) -> SvgAxis:
    """Return an axis from 0 for a time, in powers of two if other values are far apart."""
    xs = [x for line in series.values() for x, _ in line]
    low, high = min(xs, default=0.0), max(xs, default=0.0) or 1.0
    if title != SECONDS and low > LEAST_LOG and high / low >= FAR_X:
        return SvgAxis(low, high, title, base=2)
    return SvgAxis(0.0, high, title)


def _y_axis(series: Mapping[str, Curve], title: str) -> SvgAxis:
    ys = [y for line in series.values() for _, y in line]
    low, high = min(ys, default=0.0), max(ys, default=0.0) or 1.0
    if low > LEAST_LOG and high / low >= FAR_Y:
        # Whole powers of ten: there are lines at both ends.
        low, high = 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high))
        return SvgAxis(low, high, title, base=10)
    return SvgAxis(0.0, 1.06 * high, title)


def chart(series: Mapping[str, Curve], x: SvgAxis, title: str, height: int = 260) -> str:
    """Return lines over `x`, with their names in a legend above."""
    y = _y_axis(series, title)
    drawn = [*_grid(x, y, height)]
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
    return f"<figure><figcaption>{says}</figcaption>{_svg(drawn, height, title)}</figure>"


def strip(intervals: Mapping[str, Curve], x: SvgAxis) -> str:
    """Return a row for each name, filled where it held."""
    height = STRIP_ROW * len(intervals) + BOTTOM
    drawn, thick = [], STRIP_ROW - 6
    for n, (name, held) in enumerate(intervals.items()):
        top = n * STRIP_ROW + 3
        drawn.append(
            f'<rect class="track" x="{LEFT}" y="{top}" width="{_inner()}" height="{thick}"/>'
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
    return (
        "<figure><figcaption>Clock event reasons, where they held</figcaption>"
        f"{_svg(drawn, height, 'Clock event reasons')}</figure>"
    )


def text(value: object) -> str:
    """Return foreign text for a page, without markup and invisible characters."""
    return escape(visible(str(value)))


def label(value: float) -> str:
    """Return a number on an axis: `0.25`, `8192`, `1 Gi`."""
    for power, unit in ((40, "Ti"), (30, "Gi"), (20, "Mi")):
        if value >= 1 << power and value % (1 << power) == 0:
            return f"{value / (1 << power):g} {unit}"
    return f"{value:.6g}"


def _svg(drawn: list[str], height: int, title: str) -> str:
    body = "".join(drawn)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{text(title)}">{body}</svg>'


def _inner() -> int:
    return WIDTH - LEFT - RIGHT


def _to_x(axis: SvgAxis, value: float) -> float:
    return LEFT + axis.at(value) * _inner()


def _to_y(axis: SvgAxis, value: float, height: int) -> float:
    return height - BOTTOM - axis.at(value) * (height - TOP - BOTTOM)


def _grid(x: SvgAxis, y: SvgAxis, height: int) -> Iterator[str]:
    for tick in y.ticks():
        down = _to_y(y, tick, height)
        yield f'<path class="grid" d="M{LEFT} {down:.1f}H{WIDTH - RIGHT}"/>'
        yield f'<text class="y" x="{LEFT - 6}" y="{down + 4:.1f}">{label(tick)}</text>'
    yield from _x_labels(x, height)


def _x_labels(x: SvgAxis, height: int) -> Iterator[str]:
    for tick in x.ticks():
        yield f'<text class="x" x="{_to_x(x, tick):.1f}" y="{height - 14}">{label(tick)}</text>'
    yield f'<text class="y" x="{WIDTH - RIGHT}" y="{height - 1}">{text(x.title)}</text>'


UNITS = "TFLOP/s are 10¹² floating-point operations a second; a product of m×k and k×n has 2·m·n·k."
SMALL = 120
"""Height of a chart of a device's reading, under the throughput."""
TITLES = {
    "power_watts": "Power, W",
    "sm_clock_mhz": "SM clock, MHz",
    "temperature_celsius": "Temperature, °C",
    "tflops": "TFLOP/s",
    "seconds": "Seconds",
    "bytes_per_second": "Bytes per second",
}
STYLE = """
:root { color-scheme: light dark; --ink: #1d2329; --dim: #68727d; --line: #d9dee3; --back: #fff }
@media (prefers-color-scheme: dark) {
  :root { --ink: #dfe3e7; --dim: #929ca6; --line: #39414a; --back: #15191d }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back);
       max-width: 820px; margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.5em; margin: 0 } h2 { font-size: 1.05em; margin: 2em 0 .4em }
.sub, figcaption, th, footer { color: var(--dim) }
.verdict { margin: 1em 0; padding: .5em .8em; border-left: 5px solid #2e8b57 }
.verdict.warn { border-color: #c98a00 } .verdict.fault { border-color: #cf3a3a; font-weight: bold }
table { border-collapse: collapse } td, th { padding: .1em 1.2em .1em 0; text-align: left;
       vertical-align: top; font-weight: normal; overflow-wrap: anywhere }
.rows td, .rows th { border-bottom: 1px solid var(--line); text-align: right }
.rows td:first-child, .rows th:first-child { text-align: left }
.scroll { overflow-x: auto } figure { margin: 1em 0 } svg { width: 100%; height: auto }
svg text { fill: var(--dim); font-size: 11px } text.y { text-anchor: end }
text.x { text-anchor: middle } text.in { fill: var(--ink) }
.grid { stroke: var(--line); fill: none }
.track { fill: var(--line); opacity: .4 } .held { fill: #c98a00; opacity: .75 }
polyline { fill: none; stroke: currentColor; stroke-width: 1.6; stroke-linejoin: round }
circle { fill: currentColor }
.c0 { color: #2f7fd1 } .c1 { color: #d1742f } .c2 { color: #2e9b6b } .c3 { color: #b3509f }
.c4 { color: #a08a1c } .c5 { color: #6a62c9 }
footer { margin: 3em 0 1em; font-size: .85em }
"""


HEAD = (
    '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
    '<meta name="generator" content="gputop">'
)
"""Begin of every report, which tells it from other files."""


def is_report(file: Path) -> bool:
    """Return True if the file is empty or begins as a report does; raises `OSError`."""
    with file.open("rb") as opened:
        return opened.read(len(HEAD)) in (b"", HEAD.encode())


def html_page(result: Result, course: RunCurves) -> str:
    """Return the document: no script, nothing fetched; text of others is escaped."""
    when = moment(result.started_at, "%d %B %Y, %H:%M %Z")
    size = "" if result.points else f", {shape(result)}"
    title = f"{result.device}: {result.kind}, {result.dtype or 'bytes'}{size}"
    parts = [
        f"<h1>{text(result.device)}</h1>",
        f'<div class="sub">{text(f"{result.kind}, {result.dtype}{size}")} · {text(when)}</div>',
        _verdict(result),
        _table(facts.figure_facts(result)),
        *_charts(result, course),
        *_rows(result.points),
        *_section("Conditions", facts.condition_facts(result.conditions)),
        *_section("Method", facts.method_facts(result)),
        *_section("Details", facts.detail_facts(result)),
        f"<footer>Made by gputop {text(__version__)}. {UNITS}</footer>",
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        f"{HEAD}"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _verdict(result: Result) -> str:
    slower = result.comparison.slower if result.comparison else None
    level, says = "warn", slower or ""
    if result.wrong_elements:
        level, says = "fault", f"The device {wrong_results(result.wrong_elements, result.checks)}."
    elif slower is None and result.stopped != "time":
        says = f"The run was {facts.ending(result).sentence}."
    elif slower is None:
        level, says = "", "The run took its time"
        says += ", and every checked product was right." if result.checks else "."
    return f'<div class="verdict {level}">{text(says)}</div>'


def _charts(result: Result, course: RunCurves) -> Iterator[str]:
    throughput: dict[str, Curve] = {}
    if course.progress:
        throughput = {"TFLOP/s": [(w.elapsed_seconds, w.tflops) for w in course.progress]}
    over_time = {
        **throughput,
        **{name: series for name, series in course.readings.items() if series},
    }
    if over_time:
        x = x_axis(over_time, SECONDS)
        for name, series in over_time.items():
            height = 260 if name in throughput else SMALL
            yield chart({name: series}, x, _title(name), height)
        if course.reasons:
            yield strip(course.reasons, x)
    for name, lines in by_value(result.points).items():
        title = "bytes" if name == "bytes_per_second" else "N"
        yield chart(lines, x_axis(lines, title), _title(name))


def by_value(points: Iterable[Point]) -> Mapping[str, Mapping[str, Curve]]:
    """Return the rows of a table as lines: (x, value) by series, by value."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for point in points:
        for name, value in point.values.items():
            found.setdefault(name, {}).setdefault(point.series, []).append((point.x, value))
    return {
        name: {series: sorted(line) for series, line in lines.items()}
        for name, lines in found.items()
    }


def _title(name: str) -> str:
    return TITLES.get(name, name.replace("_", " "))


def _rows(points: Iterable[Point]) -> Iterator[str]:
    names = list(dict.fromkeys(name for point in points for name in point.values))
    if not names:
        return
    head = "".join(f"<th>{text(each)}</th>" for each in ("Series", "x", *map(_title, names)))
    body = "".join(
        f"<tr><td>{text(point.series)}</td><td>{text(_x(point))}</td>"
        + "".join(f"<td>{text(_value(name, point.values.get(name)))}</td>" for name in names)
        + "</tr>\n"
        for point in points
    )
    yield "<h2>Rows</h2>"
    yield f'<div class="scroll"><table class="rows"><tr>{head}</tr>\n{body}</table></div>'


def _x(point: Point) -> str:
    return "×".join(map(str, point.shape)) if len(set(point.shape)) > 1 else label(point.x)


def _value(name: str, value: float | None) -> str:
    if value is None:
        return ABSENT
    if name == "tflops":
        return tflops(value)
    if name == "seconds":
        return brief(value)
    return f"{number(value / 1e9)} GB/s" if name == "bytes_per_second" else f"{value:.4g}"


def _section(title: str, found: Iterable[Fact]) -> Iterator[str]:
    known = list(found)
    if known:
        yield f"<h2>{text(title)}</h2>"
        yield _table(known)


def _table(found: Iterable[Fact]) -> str:
    rows = "".join(
        f"<tr><th>{text(name[0].upper() + name[1:])}</th><td>{text(said)}</td></tr>\n"
        for name, said in found
    )
    return f"<table>\n{rows}</table>"
