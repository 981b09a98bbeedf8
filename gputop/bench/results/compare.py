"""Comparison of results: with earlier runs, and between devices."""

from __future__ import annotations

import heapq
import math
import platform
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

from gputop.bench.events import Comparison, Point, Result
from gputop.bench.plan.kinds import BANDWIDTH, kind_of
from gputop.bench.results.statistics import scatter_limit
from gputop.text import brief, number, tflops, throughput, visible

SPOILED_PERCENT = 5.0
"""Scatter of a row from which its number says little."""
FEWEST_RUNS, MOST_RUNS = 4, 10
"""Runs before a result that it is compared with: fewer say too little, older ones are left out."""
LEAST_LIMIT = 3.0
"""Percent under the median of earlier runs that is never slow."""
FIRST_LIMIT = 10.0
"""Percent under the median of the first runs that is never slow: it finds a slow decline."""
AS_LONG, TABLE_AS_LONG = 0.9, 0.5
"""Least share of another run's time for runs that count as equally long. That of a table varies."""
START = attrgetter("started_at")
ALONE, TOGETHER = "alone", "together"
"""Rows of a result of `pairs`."""


def comparable(result: Result) -> tuple[object, ...]:
    """Return a key that is equal for results of the same device and method.

    The device counts by its host and UUID (a CPU by its name). The method is the kind, data type,
    m, n, k, accumulation, layout, distribution of the data, threads on a CPU, and if every product
    was verified. A table has its rows in place of one shape. A search finds other shapes each time
    and counts by device and data type.

    Left out is what varies between runs (products of the warm-up and of a batch), and what may
    change on a machine: torch, the driver, the power limit.
    """
    device = (result.host or platform.node(), result.device_uuid or result.device)
    rows = frozenset((point.series, point.x, point.shape) for point in result.points)
    if kind_of(result.kind).finds_shape:
        return (device, method(result))
    return (device, method(result), result.layout, rows)


def method(result: Result) -> tuple[object, ...]:
    """Return a key that is equal for results of the same method, but for the rows of tables."""
    known = (
        result.kind,
        result.dtype,
        result.accumulate,
        result.data,
        result.threads,
        result.verify,
    )
    if result.points or kind_of(result.kind).finds_shape:
        return known
    return (*known, result.layout, result.m, result.n, result.k)


def score(result: Result) -> float | None:
    """Return the number by which a result is compared, more is better; None if it has none.

    TFLOP/s: the mean of a run of one shape (of `pairs` the one together), the best row of a table.
    A table without them is compared by the geometric mean of its rows, in bytes or products per
    second.
    """
    kind = kind_of(result.kind)
    if not result.points or (kind.over_time and not kind.moves_bytes):
        return result.tflops_mean
    if result.tflops_peak is not None:
        return result.tflops_peak
    rates = [each[1] for each in map(row_rate, result.points) if each and each[1] > 0]
    return math.exp(math.fsum(map(math.log, rates)) / len(rates)) if rates else None


def row_rate(point: Point) -> tuple[int, float] | None:
    """Return the rate of a row, where more is better, behind the rank of its unit.

    Units by falling rank: TFLOP/s, bytes per second, calls per second.
    """
    values = point.values
    if "tflops" in values:
        return 2, values["tflops"]
    if "bytes_per_second" in values:
        return 1, values["bytes_per_second"]
    return (0, 1 / values["seconds"]) if values.get("seconds") else None


def judged_rows(result: Result) -> dict[str, Point]:
    """Return the rows by which a table is judged, by name.

    Copies have the largest of each series (of pageable memory none: it is the host's doing), a
    sweep the fastest of each data type, training steps all of theirs, and a search its best,
    without a name.
    """
    kind, found = kind_of(result.kind), {}
    if kind.finds_shape:
        return dict(zip([""], ranked_shapes(result.points), strict=False))
    for name, line in points_by_series(result.points).items():
        if kind.moves_bytes and "pageable" not in name:
            found[name] = max(line, key=lambda point: point.x)
        elif kind.several_dtypes or kind.name == "step":
            found[name] = max(line, key=lambda point: point.values.get("tflops", 0.0))
    return found


def measured(result: Result) -> dict[str, float]:
    """Return the numbers by which a result is judged, more is better, by the names of their rows.

    A result without such rows has its score, with an empty name.
    """
    measures = kind_of(result.kind).measures
    rates = {
        name: row.values.get(measures) for name, row in judged_rows(result).items()
    }
    if not rates and measures != BANDWIDTH:
        rates = {"": score(result)}
    return {name: rate for name, rate in rates.items() if rate is not None}


def ranked_shapes(points: Sequence[Point]) -> list[Point]:
    """Return the shapes of a search, best first: confirmed, then in other ways, then the others."""

    def rank(point: Point) -> tuple[bool, bool, float]:
        tflops = point.values.get("tflops", 0.0)
        return "confirmed" in point.series, ", " in point.series, tflops

    return sorted(points, key=rank, reverse=True)


def compared(result: Result, among: Iterable[Result]) -> Result:
    """Return the result compared with those before it; as it is if it has a comparison."""
    if result.comparison is not None:
        return result
    like, first = last_and_first_runs(result, among)
    mine = score(result)
    scores = [value for each in like if (value := score(each)) is not None]
    under = (
        percent_below(mine, statistics.median(scores))
        if scores and mine is not None
        else None
    )
    return replace(
        result, comparison=Comparison(under, regression(result, like, first), len(like))
    )


def last_and_first_runs(
    result: Result, among: Iterable[Result]
) -> tuple[list[Result], list[Result]]:
    """Return the last runs before a result that are like it, newest first, and the first ones.

    There are at most ten of each. They are comparable, with the same minor version of torch and the
    same power limit, about as long (a device that had less time to get hot is faster), took their
    time, and had no other load on the device. A bad run is none: a device that became slower would
    be its own measure.
    """
    if result.wrong_elements or score(result) is None:
        return [], []
    key = comparable(result)
    like = (
        other
        for other in among
        if other.started_at < result.started_at
        and comparable(other) == key
        and score(other) is not None
        and not other.wrong_elements
        and not (other.known_comparison.slower or (other.verdict and other.verdict.bad))
        and other.stopped == "time"
        and not other.known_conditions.other_load
        and _setting(other) == _setting(result)
        and as_long(
            other.seconds, result.seconds, table=not kind_of(result.kind).over_time
        )
    )
    last, first = list[Result](), list[Result]()
    for other in like:  # one at a time: their tables may be long
        last = heapq.nlargest(MOST_RUNS, (*last, other), key=START)
        first = heapq.nsmallest(MOST_RUNS, (*first, other), key=START)
    return last, first


def _setting(result: Result) -> tuple[object, ...]:
    limit = result.known_conditions.power_limit_watts
    version = result.torch_version.split(".")[:2]
    return *version, None if limit is None else round(limit)


def as_long(seconds: float, others: float, *, table: bool = False) -> bool:
    """True if two runs took about equally long."""
    share = TABLE_AS_LONG if table else AS_LONG
    return min(seconds, others) >= share * max(seconds, others)


def percent_limits(rows: Sequence[Sequence[float]]) -> list[float]:
    """Return how far under the median of its values each row may be, in percent.

    Values of one row say little about its scatter. So of several rows each may be as far under its
    median as the mean of all, or farther if its own values scatter more.
    """
    own = [
        100 * scatter_limit(row) / (statistics.median(row) or math.inf) for row in rows
    ]
    usual = statistics.fmean(own) if own else 0.0
    return [max(LEAST_LIMIT, usual, limit) for limit in own]


def percent_below(value: float, reference: float) -> float:
    """Return how far a value is below a reference, in percent of that; negative above it."""
    return 100 * (reference - value) / reference if reference else 0.0


def regression(
    result: Result, like: Sequence[Result], first: Sequence[Result] = ()
) -> str | None:
    """Return a warning if a result is slower than the last like runs or the first ones, else None.

    Copies are compared direction by direction.
    """
    for which, runs, least in (
        ("last", like, LEAST_LIMIT),
        ("first", first, FIRST_LIMIT),
    ):
        if slow := "; ".join(_slower_rows(result, runs, least)):
            usual = f"the median of its {which} {len(runs)} like runs"
            accept = (
                "Delete those results on the benchmark tab if this is its speed now"
            )
            return f"{slow}, {usual}{_new_driver(result, runs[0])}. {accept}"
    return None


def _new_driver(result: Result, before: Result) -> str:
    driver, then = (each.known_conditions.driver_version for each in (result, before))
    if driver is None or then is None or driver == then:
        return ""
    return f"; the driver {visible(then)} became {visible(driver)}"


def _slower_rows(result: Result, like: Sequence[Result], least: float) -> Iterator[str]:
    """Yield the rows that are further under their medians than their limits, with figures."""
    known = [measured(one) for one in like]
    rows = {
        name: before
        for name in measured(result)
        if len(before := [each[name] for each in known if name in each]) >= FEWEST_RUNS
    }
    limits = percent_limits([*rows.values()])
    for (name, before), limit in zip(rows.items(), limits, strict=True):
        value, middle, most = (
            measured(result)[name],
            statistics.median(before),
            max(limit, least),
        )
        if (under := percent_below(value, middle)) > most:
            figures = f"{figure_text(result, value)} is {under:.1f} % under the "
            what = name and f"{visible(name, 60)}: "
            usual = figure_text(result, middle)
            yield f"{what}{figures}{usual} that is usual (limit {most:.1f} %)"


def figure_text(result: Result, value: float) -> str:
    """Return a score or a rate with its unit: `780 TFLOP/s`, `54.1 GB/s`."""
    unit, shown = score_unit(result)
    if unit == "products/s":  # their time says more
        return f"{brief(1 / value) if value else 'nothing'} over its rows"
    return throughput(value) if unit == "TFLOP/s" else f"{shown(value)} {unit}"


def score_unit(result: Result) -> tuple[str, Callable[[float], str]]:
    """Return the unit of a result's score, and the function that formats it."""
    kind = kind_of(result.kind)
    if kind.moves_bytes:
        return kind.rate_unit, lambda value: number(value / 1e9)
    if not result.points or result.tflops_peak is not None or kind.over_time:
        return kind.rate_unit, tflops
    return "products/s", lambda value: f"{value:.4g}"


def rates_of_pair(
    rows: Iterable[Point],
) -> tuple[float | None, float | None, float | None]:
    """Return TFLOP/s alone and together, and the cost in percent, negative for a gain."""
    reached = {point.series: point.values.get("tflops") for point in rows}
    alone, together = reached.get(ALONE), reached.get(TOGETHER)
    cost = percent_below(together, alone) if alone and together is not None else None
    return alone, together, cost


def points_by_series(points: Iterable[Point]) -> dict[str, list[Point]]:
    """Return the rows of a table by their series, in the order of their first rows."""
    found: dict[str, list[Point]] = {}
    for point in points:
        found.setdefault(point.series, []).append(point)
    return found
