"""A run as one page of HTML that needs nothing else: to be sent to somebody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop import __version__
from gputop.bench.results import facts, svg
from gputop.bench.results.columns import shape
from gputop.bench.results.svg import text
from gputop.text import ABSENT, brief, moment, number, tflops

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from gputop.bench.events import Point, Result
    from gputop.bench.results.facts import Fact
    from gputop.bench.run.state import Course, Curve

UNITS = "TFLOP/s are 10¹² floating-point operations a second; a product of m×k and k×n has 2·m·n·k."
SMALL = 120
"""Height of a chart of a device's reading, under the throughput's."""
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
"""Begins every report, and tells a report from a file that is somebody's own."""


def is_report(file: Path) -> bool:
    """Return True if the file is empty or begins as a report does; raises `OSError`."""
    with file.open("rb") as opened:
        return opened.read(len(HEAD)) in (b"", HEAD.encode())


def page(result: Result, course: Course) -> str:
    """The document: no script, nothing that is fetched; text of others is escaped."""
    when = moment(result.started_at, "%d %B %Y, %H:%M %Z")
    size = "" if result.points else f", {shape(result)}"
    title = f"{result.device}: {result.kind}, {result.dtype or 'bytes'}{size}"
    parts = [
        f"<h1>{text(result.device)}</h1>",
        f'<div class="sub">{text(f"{result.kind}, {result.dtype}{size}")} · {text(when)}</div>',
        _verdict(result),
        _table(facts.figures(result)),
        *_charts(result, course),
        *_rows(result.points),
        *_section("Conditions", facts.conditions(result.conditions)),
        *_section("Method", facts.method(result)),
        *_section("Details", facts.details(result)),
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
    level, says = "", "The run took its time, and every checked product was right."
    if result.wrong_elements:
        level = "fault"
        says = f"Faulty: {result.wrong_elements} wrong elements in {result.checks} checks."
    elif slower is not None:
        level, says = "warn", slower
    elif result.stopped == "limit":
        level, says = "warn", "The run was ended by a limit, before its time."
    elif result.stopped == "silent":
        level, says = "warn", "The run was ended: nothing was heard of the device any more."
    elif result.stopped != "time":
        level, says = "warn", "The run was stopped before its time."
    elif not result.checks:
        says = "The run took its time."
    return f'<div class="verdict {level}">{text(says)}</div>'


def _charts(result: Result, course: Course) -> Iterator[str]:
    throughput: dict[str, Curve] = {}
    if course.progress:
        throughput = {"TFLOP/s": [(w.elapsed_seconds, w.tflops) for w in course.progress]}
    over_time = {
        **throughput,
        **{name: series for name, series in course.readings.items() if series},
    }
    if over_time:
        x = svg.x_axis(over_time, svg.SECONDS)
        for name, series in over_time.items():
            height = 260 if name in throughput else SMALL
            yield svg.chart({name: series}, x, _title(name), height)
        if course.reasons:
            yield svg.strip(course.reasons, x)
    for name, lines in by_value(result.points).items():
        title = "bytes" if name == "bytes_per_second" else "N"
        yield svg.chart(lines, svg.x_axis(lines, title), _title(name))


def by_value(points: Iterable[Point]) -> Mapping[str, Mapping[str, Curve]]:
    """The rows of a table as lines: what is measured, then the series, then (x, value)."""
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
    return "×".join(map(str, point.shape)) if len(set(point.shape)) > 1 else svg.label(point.x)


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
