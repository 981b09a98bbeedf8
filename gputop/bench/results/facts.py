"""Facts of a result as people read them, built once for text, HTML, tables and the tab."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gputop.bench.events import FAULTY, UNWATCHED, Conditions, Point, Result
from gputop.bench.plan.kinds import BANDWIDTH, kind_of
from gputop.bench.plan.peaks import AT_MAXIMUM_CLOCK, DATASHEET, percent_lines
from gputop.bench.results.compare import (
    measured,
    points_by_series,
    ranked_shapes,
    row_rate,
    score,
)
from gputop.bench.results.statistics import LARGE_DROOP
from gputop.schema.catalogue import CATALOGUE
from gputop.schema.values import CAUSES, span_text, value_text
from gputop.text import (
    ABSENT,
    age,
    brief,
    count,
    duration,
    fit_columns,
    flops_unit,
    moment,
    number,
    percentage,
    quantity,
    short_name,
    size,
    tflops,
    throughput,
    visible,
)

NARROWEST_DEVICE, WIDEST_DEVICE = 8, 34
ROOMY_DEVICE, TELLING = 24, 10
"""Cells kept for the device's name before columns of a rank above `TELLING` get any."""
RECENT_SECONDS = 300 * 86400.0
"""Age from which a date has its year."""


class Ending(NamedTuple):
    """How a run ended, as one word and as a part of a sentence."""

    word: str
    sentence: str


ENDINGS = {
    "time": Ending("ok", "time was up"),
    "user": Ending("stopped", "stopped by the user"),
    "limit": Ending("too hot", "ended by the temperature limit"),
    "silent": Ending("unwatched", "ended because the device could not be watched"),
    UNWATCHED: Ending("unwatched", "ended because gputop's supervision failed"),
}


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of results. In a narrow table those of a low `rank` stay."""

    title: str
    width: int
    """Width in cells; the device's is its least."""
    rank: int
    text: Callable[[Result], str]
    right: bool = False


def when(result: Result) -> str:
    """Return the start as `20 Nov 13:35`, with the year instead of the time if long ago."""
    recent = time.time() - result.started_at < RECENT_SECONDS
    return moment(result.started_at, "%d %b %H:%M" if recent else "%d %b %Y")


def shape(result: Result) -> str:
    """Return the shape as `8192` or `8192×4096×1024`, absent without a product."""
    if not result.n:
        return ABSENT
    square = result.m == result.n == result.k
    return f"{result.n}" if square else f"{result.m}×{result.n}×{result.k}"


def percent_of_peak(result: Result) -> str:
    """Return `78.1 %`, or `~78.1 %` if the peak is by formula; absent if unknown."""
    known = result.known_conditions.percent_of_peak
    name = next(
        (each for each in (DATASHEET, AT_MAXIMUM_CLOCK, *known) if each in known), None
    )
    if name is None:
        return ABSENT
    return f"{'' if name.startswith(DATASHEET) else '~'}{percentage(known[name], digits=1)}"


def verdict(result: Result) -> str:
    """Return a fault first, then a slower result, how the run ended, and how it is judged."""
    if result.state == FAULTY:
        return "FAULTY"
    if (slower := result.known_comparison.slower) is not None:
        rows = [float(each) for each in re.findall(r" is ([\d.]+) % under", slower)]
        worst = max(rows, default=result.known_comparison.under_percent or 0.0)
        return f"{worst:.0f} % under"
    if result.stopped == "time" and result.verdict is not None:
        return "DEGRADED" if result.verdict.bad else result.state
    return ending(result).word


def ending(result: Result) -> Ending:
    """Return how the run ended."""
    return ENDINGS.get(result.stopped) or Ending(
        visible(result.stopped, 20), "stopped by the user"
    )


def wrong_results(elements: int, checks: int) -> str:
    """Return what a faulty device did: `computed wrong results: 3 elements in 12 checks`."""
    return f"computed wrong results: {count(elements, 'element')} in {count(checks, 'check')}"


MISMATCHES = {
    "wrong": "wrong each time when repeated",
    "not repeatable": "not repeatable, right when repeated",
    "unexplained": "unexplained, at times right when repeated",
    "other bits": "right with other bits than the first",
}


def mismatch_text(result: Result) -> str:
    """Return what products with a mismatch were: `, 1 product not repeatable, ...`."""
    return "".join(
        f"; {count(found, 'product')} {MISMATCHES.get(kind) or visible(kind, 40)}"
        for kind, found in result.mismatches.items()
    )


def verified_text(result: Result) -> str:
    """Return the share of the products that were verified: `16 of 500 products (3.2 %)`."""
    what = kind_of(result.kind).counts
    known, total = result.verified_products, result.iterations
    if known is None or not kind_of(result.kind).over_time:
        return count(result.checks, "check")
    share = percentage(100 * known / total, digits=1) if total else ABSENT
    return f"{'all ' * (0 < total <= known)}{known} of {total} {what} ({share})"


def share_of_usual(result: Result) -> str:
    """Return the share of the median of the like runs before it."""
    under = result.known_comparison.under_percent
    return ABSENT if under is None else percentage(100 - under, digits=1)


def speed(result: Result) -> str:
    """Return mean TFLOP/s without the unit; for a table the figure of its best row."""
    if result.tflops_mean is None and result.tflops_peak is None:
        return rate_text(best_row(result.points))
    # The mean of a table is over unlike rows.
    of_table = result.points or result.tflops_mean is None
    return throughput(
        result.tflops_peak if of_table else result.tflops_mean, short=True
    )


def best_row_text(result: Result) -> str:
    """Return the row of a table with the highest rate: `host to device, pinned: 54.1 GB/s`."""
    best = best_row(result.points)
    return ABSENT if best is None else f"{visible(best.series, 60)}: {rate_text(best)}"


def best_row(points: Sequence[Point]) -> Point | None:
    """Return the fastest row of those with the most telling value, or None without any.

    A launch that waits for nothing has a time and no throughput: it competes with none. Of a search
    the confirmed shapes count, and of bytes moved the largest sizes: smaller ones lie in caches.
    """
    if any(BANDWIDTH in point.values for point in points):
        lines = points_by_series(points).values()
        points = [max(line, key=lambda point: point.x) for line in lines]

    def rank(point: Point) -> tuple[object, ...]:
        return "confirmed" in point.series, row_rate(point)

    return max(filter(row_rate, points), key=rank, default=None)


def rate_text(point: Point | None) -> str:
    """Return the rate of a row with its unit: `54.1 GB/s`, or a time if it has no other."""
    values = point.values if point else {}
    if "tflops" in values:
        return throughput(values["tflops"])
    if "bytes_per_second" in values:
        return f"{number(values['bytes_per_second'] / 1e9)} GB/s"
    return brief(values.get("seconds")) if values.get("seconds") else ABSENT


def device(result: Result) -> str:
    """Return the device's name without the words that all names have."""
    return short_name(visible(result.device))


def _condition(name: str, unit: str) -> Callable[[Result], str]:
    return lambda each: quantity(getattr(each.known_conditions, name), unit)


def _driver(result: Result) -> str:
    return visible(result.known_conditions.driver_version or ABSENT, 20)


WHEN = ResultColumn("WHEN", 12, 3, when)
DEVICE = ResultColumn("DEVICE", NARROWEST_DEVICE, 0, device)
SPEED = ResultColumn("TFLOP/s", 9, 1, speed, right=True)
VERDICT = ResultColumn("VERDICT", 10, 0, verdict)
COLUMNS = (
    WHEN,
    DEVICE,
    ResultColumn("KIND", 7, 6, lambda each: visible(each.kind, 20)),
    ResultColumn("TYPE", 8, 2, lambda each: visible(each.dtype, 40)),
    ResultColumn("SIZE", 6, 2, shape, right=True),
    SPEED,
    ResultColumn(
        "PEAK", 6, 5, lambda each: throughput(each.tflops_peak, short=True), right=True
    ),
    ResultColumn(
        "DROOP", 6, 7, lambda each: percentage(each.droop_percent, digits=1), right=True
    ),
    ResultColumn("OF PEAK", 7, 8, percent_of_peak, right=True),
    ResultColumn("OF USUAL", 8, 10, share_of_usual, right=True),
    ResultColumn("TIME", 7, 9, lambda each: duration(each.seconds), right=True),
    ResultColumn("POWER", 6, 11, _condition("power_watts_mean", " W"), right=True),
    ResultColumn("CLOCK", 8, 12, _condition("sm_clock_mhz_mean", " MHz"), right=True),
    ResultColumn(
        "HEAT", 5, 13, _condition("temperature_celsius_max", "°C"), right=True
    ),
    ResultColumn("TORCH", 12, 14, lambda each: visible(each.torch_version, 40)),
    ResultColumn("DRIVER", 11, 15, _driver),
    ResultColumn("BEST ROW", 30, 16, best_row_text),
    VERDICT,
)


def fitting_columns(width: int) -> tuple[tuple[ResultColumn, int], ...]:
    """Return the columns that fit with their cells; the device gets the rest."""
    ranked = sorted(COLUMNS, key=lambda column: column.rank)
    spare = ROOMY_DEVICE - NARROWEST_DEVICE
    shown = fit_columns(
        ranked,
        width,
        lambda each: each.width + 1,
        lambda each: spare * (each.rank > TELLING),
    )
    left = width - sum(column.width + 1 for column in shown)
    spare = min(left, WIDEST_DEVICE - NARROWEST_DEVICE)
    return tuple(
        (column, column.width + spare * (column is DEVICE))
        for column in COLUMNS
        if column in shown
    )


Fact = tuple[str, str]


def figure_facts(result: Result) -> Iterator[Fact]:
    """Yield what was measured, how it was verified, and the memory used."""
    if not kind_of(result.kind).has_rows:
        yield from _throughput(result)
    elif result.tflops_peak is not None and result.points:
        best, (unit, factor) = (
            ranked_shapes(result.points)[0],
            flops_unit(result.tflops_peak),
        )
        where = (
            f"{result.m} x {result.n} x {result.k}"
            if result.n
            else visible(best.series, 60)
        )
        said = f"{factor * result.tflops_peak:.4g} {unit} at {where}"
        scatter = best.values.get("spread_percent")
        yield "best", said if scatter is None else f"{said}, ± {scatter:.1f} %"
    for line in _of_peak(result):
        yield "of peak", line
    ended = ending(result).sentence
    what = kind_of(result.kind).counts
    done = count(len(result.points), "row") if result.points else ended
    yield what, f"{result.iterations}, {done if result.stopped == 'time' else ended}"
    wrong = f"{result.wrong_elements or 'no'} wrong elements{mismatch_text(result)}"
    yield "verified", f"{verified_text(result)}, {wrong}"
    if result.tensor_bytes is not None or result.context_bytes is not None:
        held = f"tensors {size(result.tensor_bytes)}, torch's cache {size(result.cache_bytes)}"
        yield "memory", f"{held}, CUDA context {size(result.context_bytes)}"


def _throughput(result: Result) -> Iterator[Fact]:
    mean, peak = result.tflops_mean or 0.0, result.tflops_peak or 0.0
    unit, factor = flops_unit(peak)  # one for all: they are compared
    interval = _between(result.tflops_mean_interval, ".4g", factor)
    yield "mean", f"{factor * mean:.4g} {unit} over {result.seconds:.2f} s{interval}"
    tails = [
        f"{factor * each:.4g}" for each in (result.tflops_p5, result.tflops_p95) if each
    ]
    spread = f"; 5 % to 95 % of them {' to '.join(tails)}" if len(tails) == 2 else ""
    yield "peak", f"{factor * peak:.4g} {unit} in the best window{spread}"
    if result.tflops_burst is not None:
        yield (
            "burst",
            f"{factor * result.tflops_burst:.4g} {unit} from the first product on",
        )
    if result.tflops_sustained is not None and result.droop_percent is not None:
        yield (
            "sustained",
            f"{factor * result.tflops_sustained:.4g} {unit}, {droop_text(result)}",
        )
        steady = result.time_to_steady_seconds
        yield (
            "steady",
            "not within this run" if steady is None else f"after {steady:.1f} s",
        )
    if result.tflops_device is not None:
        yield (
            "on device",
            f"{factor * result.tflops_device:.4g} {unit} by device events",
        )


def _between(bounds: tuple[float, ...] | None, form: str, factor: float = 1.0) -> str:
    low_high = [f"{factor * each:{form}}" for each in bounds or ()]
    return f", 95 % interval {' to '.join(low_high)}" if bounds else ""


def droop_text(result: Result) -> str:
    """Return `15.2 % below the burst, 95 % interval 14.1 to 16.3`, or that there is no droop."""
    below = f"{percentage(result.droop_percent, digits=1)} below the burst"
    if (
        result.droop_interval_percent is None
    ):  # of an older version, which knew no burst
        return below.replace("burst", "peak")
    if not result.droop_percent:
        low, high = result.droop_interval_percent
        wide = high - low > LARGE_DROOP
        return "too uneven to tell a droop" if wide else "no droop beyond the noise"
    return below + _between(result.droop_interval_percent, ".1f")


def _of_peak(result: Result) -> Iterable[str]:
    if result.device_uuid is None:
        return ()
    known = result.known_conditions.percent_of_peak
    if kind_of(result.kind).moves_bytes:
        return [f"{percentage(percent)} of {name}" for name, percent in known.items()]
    if "," not in result.dtype:
        return percent_lines(score(result), known, result.dtype)
    lines = []
    for dtype, rate in measured(result).items():
        named = ((name.rpartition(" "), percent) for name, percent in known.items())
        own = {name: percent for (name, _, of), percent in named if of == dtype}
        lines += [f"{dtype}: {line}" for line in percent_lines(rate, own, dtype)]
    return lines


def condition_facts(known: Conditions | None) -> Iterator[Fact]:
    """Yield the known state of the device during the run."""
    if known is None:
        return
    if known.power_watts_mean is not None:
        watts, limit = known.power_watts_mean, known.power_limit_watts
        of = (
            f", {percentage(100 * watts / limit)} of the limit of {limit:.0f} W"
            if limit
            else ""
        )
        yield "power", f"{watts:.0f} W on average{of}"
    if known.energy_joules is not None:
        efficiency = known.tflop_per_joule
        per = "" if efficiency is None else f", {tflops(efficiency)} TFLOP/J"
        energy = value_text("energy_joules", known.energy_joules)
        yield "energy", f"{energy} by the device's counter{per}"
    if known.sm_clock_mhz_mean is not None:
        most = known.sm_clock_max_mhz
        of = "" if most is None else f", maximum {most:.0f} MHz"
        yield "clock", f"{known.sm_clock_mhz_mean:.0f} MHz on average{of}"
    if known.temperature_celsius_max is not None:
        yield "heat", f"up to {quantity(known.temperature_celsius_max, '°C')}"
    if known.heat_limit is not None:
        yield "heat limit", visible(known.heat_limit, 120)
    yield from _incidents(known)
    if known.driver_version is not None:
        yield "driver", visible(known.driver_version, 40)


def _incidents(known: Conditions) -> Iterator[Fact]:
    if known.clock_event_seconds:
        longest = sorted(known.clock_event_seconds.items(), key=lambda each: -each[1])
        held = [
            f"{CAUSES.get(name, visible(name, 40))} {span_text(s)}"
            for name, s in longest
        ]
        yield "held back", ", ".join(held)
    if known.memory_errors:
        yield "memory errors", memory_errors_text(known.memory_errors)
    if known.other_load:
        yield "used by", "; ".join(visible(each, 80) for each in known.other_load)


def memory_errors_text(known: Mapping[str, Sequence[float]]) -> str:
    """Return the counters before and after: `ECC corrected 0 before, 3 after`."""
    return "; ".join(
        f"{CATALOGUE[name].label if name in CATALOGUE else visible(name, 40)} "
        f"{pair[0]:.0f} before, {pair[-1]:.0f} after"
        for name, pair in known.items()
        if pair
    )


def method_facts(result: Result) -> Iterator[Fact]:
    """Yield how it was measured, and with what software."""
    for note in result.notes:
        yield "note", note
    yield "method", result.method
    if result.bound_to:
        yield "bound to", visible(result.bound_to, 80)
    if result.unset:
        named = "; ".join(visible(each, 80) for each in result.unset)
        yield "unset", f"{named}, as that changes what is measured"
    cublas = f", cuBLAS {result.cublas_version}" if result.cublas_version else ""
    yield "software", f"torch {result.torch_version}{cublas} in {result.python}"


def detail_facts(result: Result) -> Iterator[Fact]:
    """Yield further facts for a reader who has no access to the machine."""
    if result.known_comparison.under_percent is not None:
        yield "of the median of earlier runs", share_of_usual(result)
    yield "time", age(result.seconds)
    named = {
        "accumulate": result.accumulate,
        "layout": result.layout,
        "data": result.data,
        "threads": result.threads,
        "CUDA": result.cuda_version,
        "device": result.device_uuid,
        "PCI device id": result.known_conditions.pci_device_id,
    }
    yield from (
        (label, str(value)) for label, value in named.items() if value is not None
    )
