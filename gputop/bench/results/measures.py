"""Figures of a result: the values of its rows, its main rate, and their formats."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from gputop.bench.events import Point, Result
from gputop.bench.plan.kinds import BANDWIDTH, kind_of
from gputop.schema.catalogue import CATALOGUE
from gputop.text import (
    ABSENT,
    brief,
    count,
    number,
    percentage,
    throughput,
    visible,
)

SPOILED_PERCENT = 5.0
"""Scatter in percent above which the value of a row is not reliable."""


class Measure(NamedTuple):
    """Title of a value in tables and charts, and its format without the unit of the title."""

    title: str
    text: Callable[[float], str]


def gigabytes(rate: float) -> str:
    """Return bytes per second in GB/s, without the unit."""
    return number(rate / 1e9)


_percent = partial(percentage, digits=1)

MEASURES = {
    "tflops": Measure("TFLOP/s", partial(throughput, short=True)),
    BANDWIDTH: Measure("GB/s", gigabytes),
    "algorithm_bytes_per_second": Measure("algorithm GB/s", gigabytes),
    "seconds": Measure("time", brief),
    "p99_seconds": Measure("p99", brief),
    "latency_seconds": Measure("latency", brief),
    "tokens_per_second": Measure("tokens/s", "{:,.0f}".format),
    "percent_of_peak": Measure("of peak", _percent),
    "spread_percent": Measure("±", _percent),
    "passes": Measure("passes", "{:.1f}".format),
    "wrong": Measure("wrong", "{:,.0f}".format),
    "clock_mhz": Measure("Clock", "{:.0f} MHz".format),
}
"""Values of rows, by their names in `Point.values`, and the clock of a CPU."""


def points_by_series(points: Iterable[Point]) -> dict[str, list[Point]]:
    """Return the rows of a table by their series, in the order of their first rows."""
    found: dict[str, list[Point]] = {}
    for point in points:
        found.setdefault(point.series, []).append(point)
    return found


def row_rate(point: Point) -> float | None:
    """Return the rate of a row in TFLOP/s or in bytes per second."""
    return point.values.get("tflops", point.values.get(BANDWIDTH))


def rate_text(point: Point | None) -> str:
    """Return the rate of a row with its unit: `54.1 GB/s`."""
    if point is None:
        return ABSENT
    rate = row_rate(point)
    if rate is None or "tflops" in point.values:
        return throughput(rate)
    return f"{gigabytes(rate)} GB/s"


def best_row(points: Sequence[Point]) -> Point | None:
    """Return the fastest row, or None without rows.

    In a search confirmed shapes come first. In runs that move bytes only the largest sizes compete,
    because smaller sizes fit in caches.
    """
    if any(BANDWIDTH in point.values for point in points):
        points = largest_rows(points)

    def rank(point: Point) -> tuple[bool, float]:
        return "confirmed" in point.series, row_rate(point) or 0.0

    return max(points, key=rank, default=None)


def largest_rows(points: Iterable[Point]) -> list[Point]:
    """Return the row with the largest size of each series."""
    lines = points_by_series(points).values()
    return [max(line, key=lambda point: point.x) for line in lines]


def best_row_text(result: Result) -> str:
    """Return the row of a table with the highest rate: `host to device, pinned: 54.1 GB/s`."""
    best = best_row(result.points)
    if best is None:
        return ABSENT
    return f"{visible(best.series, 60)}: {rate_text(best)}"


def ranked_shapes(points: Sequence[Point]) -> list[Point]:
    """Return the shapes of a search, best first: confirmed ones, then variants, then the others."""

    def rank(point: Point) -> tuple[bool, bool, float]:
        tflops = point.values.get("tflops", 0.0)
        return "confirmed" in point.series, ", " in point.series, tflops

    return sorted(points, key=rank, reverse=True)


def score(result: Result) -> float | None:
    """Return the number for comparisons of a result (more is better), or None.

    It is in TFLOP/s: the mean of a run of one shape, or the best row of a table. For a table
    without TFLOP/s it is the geometric mean of the rows, in bytes per second.
    """
    kind = kind_of(result.kind)
    if not result.points or (kind.over_time and not kind.moves_bytes):
        return result.tflops_mean
    if result.tflops_peak is not None:
        return result.tflops_peak
    logarithms = []
    for point in result.points:
        rate = row_rate(point)
        if rate:
            logarithms.append(math.log(rate))
    if not logarithms:
        return None
    return math.exp(math.fsum(logarithms) / len(logarithms))


def judged_rows(result: Result) -> dict[str, Point]:
    """Return the rows on which the verdict about a table is based, by name.

    For copies this is the largest size of each series, without pageable memory (its speed depends
    on the host). For a sweep it is the fastest row of each data type, for training steps the
    fastest of each series, and for a search the best row, with an empty name.
    """
    kind = kind_of(result.kind)
    found = {}
    if kind.finds_shape:
        for best in ranked_shapes(result.points)[:1]:
            found[""] = best
        return found
    for name, line in points_by_series(result.points).items():
        if kind.moves_bytes and "pageable" not in name:
            found[name] = max(line, key=lambda point: point.x)
        elif kind.several_dtypes or kind.name == "step":
            found[name] = max(
                line, key=lambda point: point.values.get("tflops", 0.0)
            )
    return found


def measured(result: Result) -> dict[str, float]:
    """Return the rates on which the verdict is based (more is better), by the names of their rows.

    For a result without such rows it is the score, with an empty name.
    """
    measures = kind_of(result.kind).measures
    rows = judged_rows(result)
    rates = {}
    for name, row in rows.items():
        rate = row.values.get(measures)
        if rate is not None:
            rates[name] = rate
    value = score(result)
    if not rows and measures != BANDWIDTH and value is not None:
        rates[""] = value
    return rates


def figure_text(result: Result, value: float) -> str:
    """Return a score or a rate with its unit: `780 TFLOP/s`, `54.1 GB/s`."""
    if kind_of(result.kind).moves_bytes:
        return f"{gigabytes(value)} GB/s"
    return throughput(value)


def percent_below(value: float, reference: float) -> float:
    """Return the distance of a value below a reference, in percent of it; negative above it."""
    if not reference:
        return 0.0
    return 100 * (reference - value) / reference


def wrong_results(elements: int, checks: int) -> str:
    """Return a faulty device's errors: `computed wrong results: 3 elements in 12 checks`."""
    return f"computed wrong results: {count(elements, 'element')} in {count(checks, 'check')}"


MISMATCHES = {
    "wrong": "wrong each time when repeated",
    "not repeatable": "not repeatable, right when repeated",
    "unexplained": "unexplained, at times right when repeated",
    "other bits": "right with other bits than the first",
}


def mismatch_text(result: Result) -> str:
    """Return the products with a mismatch by kind: `; 1 product not repeatable; ...`."""
    found = ""
    for kind, many in result.mismatches.items():
        said = MISMATCHES.get(kind) or visible(kind, 40)
        found += f"; {count(many, 'product')} {said}"
    return found


def verified_text(result: Result) -> str:
    """Return the share of the products that were verified: `16 of 500 products (3.2 %)`."""
    kind = kind_of(result.kind)
    known, total = result.verified_products, result.iterations
    if known is None or not kind.over_time:
        return count(result.checks, "check")
    if not total:
        return f"{known:,} of 0 {kind.counts}"
    share = percentage(100 * known / total, digits=1)
    every = "all " if known >= total else ""
    return f"{every}{known:,} of {total:,} {kind.counts} ({share})"


def memory_errors_text(known: Mapping[str, Sequence[float]]) -> str:
    """Return the counters before and after: `ECC corrected 0 before, 3 after`."""
    found = []
    for name, pair in known.items():
        label = (
            CATALOGUE[name].label if name in CATALOGUE else visible(name, 40)
        )
        if pair:
            found.append(f"{label} {pair[0]:.0f} before, {pair[-1]:.0f} after")
    return "; ".join(found)
