"""Comparison of results: with earlier runs, between devices, and of GPU with CPU."""

from __future__ import annotations

import math
import platform
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gputop.bench.events import Comparison
from gputop.text import brief, moment, number, tflops, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gputop.bench.events import Point, Result
    from gputop.bench.plan.request import Target


NOTICED_PERCENT = 5.0
"""Largest difference from the best that counts as noise."""
AS_LONG = 0.9
"""Least share of another run's time for runs that count as equally long."""
ALONE, TOGETHER = "alone", "together"
"""Rows of a result of `pairs`."""


def comparable(result: Result) -> tuple[object, ...]:
    """Return a key that is equal for results of the same device and method.

    The device counts by its host and UUID (a CPU by its name). The method is the kind, data type,
    m, n, k, accumulation, layout, distribution of the data, and threads on a CPU. A table has its
    rows in place of one shape. A search finds other shapes each time and counts by device and data
    type.

    Left out is what varies between runs (products of the warm-up and of a batch), and the versions
    of torch and driver and the power limit: `changes_since` reports those.
    """
    device = (result.host or platform.node(), result.device_uuid or result.device)
    method = (result.accumulate, result.data, result.threads)
    if result.kind == "peak":
        return (device, result.kind, result.dtype, method)
    rows = frozenset((point.series, point.x, point.shape) for point in result.points)
    shape = rows or (result.m, result.n, result.k)
    return (device, result.kind, result.dtype, method, result.layout, shape)


def score(result: Result) -> float | None:
    """Return the number by which a result is compared, more is better; None if it has none.

    TFLOP/s: the mean of a run of one shape (of `pairs` the one together), the best row of a table.
    A table without them is compared by the geometric mean of its rows, in bytes or products per
    second.
    """
    if not result.points or result.kind == "pairs":
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


def with_comparisons(results: Iterable[Result], among: Iterable[Result]) -> list[Result]:
    """Return the results, each compared with the runs of `among` that were made before it.

    A result that already has a comparison stays as it is.
    """
    groups: dict[tuple[object, ...], list[Result]] = defaultdict(list)
    for other in among:
        groups[comparable(other)].append(other)
    return [
        each
        if each.comparison is not None
        else _with(each, _best_of(each, groups[comparable(each)]))
        for each in results
    ]


def with_comparison(result: Result, among: Iterable[Result]) -> Result:
    """Return the result compared with the runs of `among`, of which one at a time is kept."""
    return result if result.comparison is not None else _with(result, best_of(result, among))


def _with(result: Result, best: Result | None) -> Result:
    comparison = Comparison(percent_under(result, best), regression(result, best))
    return replace(result, comparison=comparison)


def best_of(result: Result, among: Iterable[Result]) -> Result | None:
    """Return the best earlier run that is comparable, or None.

    Faulty runs do not count. Nor do shorter runs of one shape: a device that had less time to get
    hot is faster. For the same reason a result is not held above longer runs.
    """
    key = comparable(result)
    return _best_of(result, (other for other in among if comparable(other) == key))


def _best_of(result: Result, like: Iterable[Result]) -> Result | None:
    best = best_as_short = None
    most = most_as_short = -math.inf
    for other in () if result.wrong_elements else like:
        rate, earlier = score(other), other.started_at < result.started_at
        if rate is None or other.wrong_elements or not (earlier and _as_long(other, result)):
            continue
        if rate > most:
            most, best = rate, other
        if rate > most_as_short and _as_long(result, other):
            most_as_short, best_as_short = rate, other
    return best if most >= (score(result) or 0.0) else best_as_short


def _as_long(other: Result, result: Result) -> bool:
    return bool(result.points) or other.seconds >= AS_LONG * result.seconds


def percent_under(result: Result, best: Result | None) -> float | None:
    """Return the percent that a result is under another one; negative above it."""
    mine, other = score(result), score(best) if best is not None else None
    return percent_below(mine, other) if mine is not None and other else None


def percent_below(value: float, reference: float) -> float:
    """Return how far a value is below a reference, in percent of that; negative above it."""
    return 100 * (reference - value) / reference if reference else 0.0


def regression(result: Result, best: Result | None) -> str | None:
    """Return a warning if a result is more than `NOTICED_PERCENT` under the best, else None."""
    under = percent_under(result, best)
    if best is None or under is None or under <= NOTICED_PERCENT:
        return None
    when = moment(best.started_at, "%d %b %Y %H:%M")
    also = changes_since(result, best)
    differs = f"; since then {also}" if also else ""
    return (
        f"{visible(result.device)} is slower than it was: {_what(result)} is {under:.1f} % under "
        f"its best, {_figure(best)} on {when}{differs}. Compare clocks, power limit and "
        "temperature, or run it again to be sure."
    )


def _what(result: Result) -> str:
    shape = f" {result.n}" if not result.points and result.m == result.n == result.k else ""
    return f"{result.kind} in {visible(result.dtype)}{shape} at {_figure(result)}"


def _figure(result: Result) -> str:
    unit, shown = score_unit(result)
    value = score(result) or 0.0
    if not result.points or result.tflops_peak is not None:
        return f"{shown(value)} {unit}"
    if unit == "products/s":  # their time says more
        return f"{brief(1 / value) if value else 'nothing'} over its rows"
    return f"{shown(value)} {unit} over its rows"


def score_unit(result: Result) -> tuple[str, Callable[[float], str]]:
    """Return the unit of a result's score, and the function that formats it."""
    if not result.points or result.tflops_peak is not None or result.kind == "pairs":
        return "TFLOP/s", tflops
    if any("bytes_per_second" in point.values for point in result.points):
        return "GB/s", lambda value: number(value / 1e9)
    return "products/s", lambda value: f"{value:.4g}"


def changes_since(result: Result, earlier: Result) -> str:
    """Return the changed versions and limits that may explain a difference; may be empty."""
    now, then = result.conditions, earlier.conditions
    pairs = [("torch", earlier.torch_version, result.torch_version)]
    if now is not None and then is not None:
        pairs.append(("driver", then.driver_version or "", now.driver_version or ""))
        limits = (then.power_limit_watts, now.power_limit_watts)
        old, new = (f"{watts:.0f} W" if watts is not None else "" for watts in limits)
        pairs.append(("power limit", old, new))
    return ", ".join(
        f"{name} {visible(old)} became {visible(new)}"
        for name, old, new in pairs
        if old and new and old != new
    )


@dataclass(frozen=True, slots=True)
class DeviceSpread:
    """Distance between devices that did the same work, by their labels."""

    dtype: str
    percent: float
    """Percent that the last is under the best."""
    best: str
    behind: Mapping[str, float]
    """Percent under the best of the devices that are noticeably slower."""


def spreads(results: Iterable[tuple[Target, Result]]) -> tuple[DeviceSpread, ...]:
    """Return how far the devices of these results are apart by their scores."""
    return spreads_of((target, result.dtype, score(result)) for target, result in results)


def spreads_of(reached: Iterable[tuple[Target, str, float | None]]) -> tuple[DeviceSpread, ...]:
    """Return the spreads of GPUs and of CPUs, by data type. More is better.

    A device without a value is left out.
    """
    groups: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for target, dtype, value in reached:
        if value is not None:
            groups[target.kind, dtype][target.label] = value
    return tuple(
        _spread(dtype, reached) for (_, dtype), reached in groups.items() if len(reached) > 1
    )


def _spread(dtype: str, reached: Mapping[str, float]) -> DeviceSpread:
    best = max(reached, key=reached.__getitem__)
    top = reached[best]
    under = {label: percent_below(each, top) for label, each in reached.items()}
    behind = {label: percent for label, percent in under.items() if percent > NOTICED_PERCENT}
    return DeviceSpread(dtype, max(under.values()), best, behind)


def rates_of_pair(result: Result) -> tuple[float | None, float | None, float | None]:
    """Return TFLOP/s alone and together, and the cost in percent, negative for a gain."""
    reached = {point.series: point.values.get("tflops") for point in result.points}
    alone, together = reached.get(ALONE), reached.get(TOGETHER)
    cost = percent_below(together, alone) if alone and together is not None else None
    return alone, together, cost


@dataclass(frozen=True, slots=True)
class Crossover:
    """Speed of a GPU relative to a CPU in one data type."""

    series: str
    ratios: tuple[tuple[int, float], ...]
    """N, and TFLOP/s of the GPU over those of the CPU, at the sizes that both have."""

    @property
    def wins_from(self) -> int | None:
        """Smallest size from which the GPU is always faster, or None."""
        found = None
        for n, ratio in reversed(self.ratios):
            if ratio <= 1:
                break
            found = n
        return found


def crossovers(gpu: Iterable[Point], cpu: Iterable[Point]) -> list[Crossover]:
    """Return one for each data type that both have at some size, in the GPU's order."""
    fast, slow = _rates_by_size(gpu), _rates_by_size(cpu)
    found = []
    for series, rates in fast.items():
        other_sweeps = slow.get(series, {})
        shared = sorted(n for n in rates if other_sweeps.get(n))
        if shared:
            found.append(Crossover(series, tuple((n, rates[n] / other_sweeps[n]) for n in shared)))
    return found


def _rates_by_size(points: Iterable[Point]) -> dict[str, dict[int, float]]:
    rated = [point for point in points if "tflops" in point.values]
    return {
        series: {round(point.x): point.values["tflops"] for point in line}
        for series, line in points_by_series(rated).items()
    }


def points_by_series(points: Iterable[Point]) -> dict[str, list[Point]]:
    """Return the rows of a table by their series, in the order of their first rows."""
    found: dict[str, list[Point]] = {}
    for point in points:
        found.setdefault(point.series, []).append(point)
    return found


def other_sweeps(results: Iterable[Result], device: str, uuid: str | None) -> list[Result]:
    """Return the sweeps of other devices, in their order; a CPU is known by its name."""
    own = uuid or device
    return [
        each
        for each in results
        if each.kind == "sweep" and (each.device_uuid or each.device) != own
    ]


def newest_series(results: Iterable[Result]) -> dict[tuple[str, str], tuple[Result, list[Point]]]:
    """Return the newest result and points of each device and data type.

    The results come newest first.
    """
    found: dict[tuple[str, str], tuple[Result, list[Point]]] = {}
    for result in results:
        device = result.device_uuid or result.device
        for series, points in points_by_series(result.points).items():
            found.setdefault((device, series), (result, points))
    return found


def with_earlier(
    points: Iterable[Point], uuid: str | None, earlier: Iterable[Result]
) -> list[Crossover]:
    """Compare a sweep with the newest ones of the other kind of device, by data type."""
    theirs: dict[str, list[Point]] = {}
    for (_, series), (result, line) in newest_series(earlier).items():
        if (result.device_uuid is None) != (uuid is None):
            theirs.setdefault(series, line)
    matching = [point for line in theirs.values() for point in line]
    return crossovers(matching, points) if uuid is None else crossovers(points, matching)


def crossover_in_words(crossover: Crossover) -> str:
    """Return a crossover in words: `float32: the GPU is faster from 192 on, 88 times at 8192`."""
    most, last = crossover.ratios[-1]
    start = crossover.wins_from
    if start is None:
        return f"{crossover.series}: the GPU is not faster even at {most}, {times_text(last)} times"
    return f"{crossover.series}: the GPU is faster from {start} on, {times_text(last)} times" + (
        f" at {most}" if start != most else ""
    )


def times_text(ratio: float) -> str:
    """Return a ratio in two digits, and larger ones in full: `0.042`, `1.3`, `312`."""
    return f"{ratio:.0f}" if ratio >= 9.95 else f"{ratio:.2g}"
