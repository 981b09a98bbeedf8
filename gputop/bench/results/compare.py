"""Comparison of a result with earlier runs of the same test on the same device."""

from __future__ import annotations

import math
import platform
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gputop.bench.events import Comparison, Result
from gputop.bench.plan.kinds import kind_of
from gputop.bench.results.measures import (
    figure_text,
    measured,
    percent_below,
    score,
)
from gputop.bench.results.statistics import scatter_limit
from gputop.text import visible

FEWEST_RUNS, MOST_RUNS = 4, 10
"""Least and most earlier runs for a comparison. The newest runs are used."""
LEAST_LIMIT = 3.0
"""Percent under the median of the last runs that never counts as slow."""
AS_LONG, TABLE_AS_LONG = 0.9, 0.5
"""Least ratio of the times of equally long runs. The time of a table varies."""


def comparable(result: Result) -> tuple[object, ...]:
    """Return a key that is equal for results of the same device and method.

    The device is identified by its host and UUID (a CPU by its name). The method is the kind, data
    type, m, n, k, accumulation, layout, distribution of the data, threads on a CPU, and if every
    product was verified. A table has its rows in place of one shape. The key of a search has no
    shape, because each search finds a different one.

    The key has no values that vary between runs (products of the warm-up and of a batch) or that
    may change on a machine (torch, the driver, the power limit).
    """
    device = (
        result.host or platform.node(),
        result.device_uuid or result.device,
    )
    if kind_of(result.kind).finds_shape:
        return (device, method(result))
    rows = frozenset(
        (point.series, point.x, point.shape) for point in result.points
    )
    return (device, method(result), result.layout, rows)


def method(result: Result) -> tuple[object, ...]:
    """Return a key that is equal for results of the same method, apart from the rows of tables."""
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


def compared(result: Result, among: Iterable[Result]) -> Result:
    """Return the result with a comparison with earlier results, unless it already has one.

    `among` come newest first.
    """
    if result.comparison is not None:
        return result
    like = last_runs(result, among)
    mine, under = score(result), None
    if like and mine is not None:
        under = percent_below(mine, statistics.median(map(_known_score, like)))
    slower = regression(result, like)
    return replace(result, comparison=Comparison(under, slower, len(like)))


def _known_score(result: Result) -> float:
    return score(result) or 0.0


def last_runs(result: Result, among: Iterable[Result]) -> list[Result]:
    """Return at most ten like runs before a result. They and `among` are newest first.

    Like runs are comparable, with the same minor version of torch and the same power limit. They
    ran to their end, without other load on the device, and about as long (in a short run the device
    stays cooler and is faster). Bad runs are left out, because otherwise a device that became
    slower would lower its own reference.
    """
    found: list[Result] = []
    if result.wrong_elements or score(result) is None:
        return found
    key, setting = comparable(result), _setting(result)
    is_table = not kind_of(result.kind).over_time
    for other in among:
        if (
            other.started_at < result.started_at
            and comparable(other) == key
            and _setting(other) == setting
            and _is_good(other)
            and as_long(other.seconds, result.seconds, table=is_table)
        ):
            found.append(other)
        if len(found) == MOST_RUNS:
            break
    return found


def _is_good(run: Result) -> bool:
    """Return True if a run shows the usual speed of its device."""
    if run.wrong_elements or run.known_comparison.slower or score(run) is None:
        return False
    if run.verdict is not None and run.verdict.bad:
        return False
    return run.stopped == "time" and not run.known_conditions.other_load


def _setting(result: Result) -> tuple[object, ...]:
    limit = result.known_conditions.power_limit_watts
    version = result.torch_version.split(".")[:2]
    return *version, None if limit is None else round(limit)


def as_long(
    seconds: float,
    others: float,
    *,
    table: bool = False,
) -> bool:
    """True if two runs took about equally long."""
    share = TABLE_AS_LONG if table else AS_LONG
    return min(seconds, others) >= share * max(seconds, others)


def percent_limits(rows: Sequence[Sequence[float]]) -> list[float]:
    """Return the allowed distance under the median of its values for each row, in percent.

    The few values of a row do not determine its scatter well. So the limit of a row is the mean
    limit of all rows, or its own limit if that is larger.
    """
    own = [
        100 * scatter_limit(row) / (statistics.median(row) or math.inf)
        for row in rows
    ]
    usual = statistics.fmean(own or [0.0])
    return [max(LEAST_LIMIT, usual, limit) for limit in own]


def regression(result: Result, like: Sequence[Result]) -> str | None:
    """Return a warning if a result is slower than its last like runs, else None.

    Each direction of copies is compared separately.
    """
    slower = "; ".join(_slower_rows(result, like))
    if not slower:
        return None
    usual = f"the median of its last {len(like)} like runs"
    driver = _new_driver(result, like[0])
    return (
        f"{slower}, {usual}{driver}. "
        "Delete those results on the benchmark tab if this is its speed now"
    )


def _new_driver(result: Result, before: Result) -> str:
    driver = result.known_conditions.driver_version
    then = before.known_conditions.driver_version
    if driver is None or then is None or driver == then:
        return ""
    return f"; the driver {visible(then)} became {visible(driver)}"


def _slower_rows(result: Result, like: Sequence[Result]) -> Iterator[str]:
    """Yield a text for each row whose distance under its median exceeds its limit."""
    known, mine = [measured(one) for one in like], measured(result)
    rows = {}
    for name in mine:
        before = [each[name] for each in known if name in each]
        if len(before) >= FEWEST_RUNS:
            rows[name] = before
    limits = percent_limits([*rows.values()])
    for (name, before), limit in zip(rows.items(), limits, strict=True):
        middle = statistics.median(before)
        under = percent_below(mine[name], middle)
        if under > limit:
            what = name and f"{visible(name, 60)}: "
            yield (
                f"{what}{figure_text(result, mine[name])} is {under:.1f} % under the "
                f"{figure_text(result, middle)} that is usual (limit {limit:.1f} %)"
            )
