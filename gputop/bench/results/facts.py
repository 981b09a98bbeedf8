"""Facts of a result as people read them, built once for text, HTML, tables and the tab."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from gputop.bench.plan.peaks import AT_MAXIMUM_CLOCK, DATASHEET, percent_lines
from gputop.bench.results.compare import row_rate, score
from gputop.schema.values import CAUSES, span_text, value_text
from gputop.text import (
    ABSENT,
    brief,
    count,
    duration,
    fit_columns,
    moment,
    number,
    percentage,
    quantity,
    short_name,
    size,
    tflops,
    visible,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputop.bench.events import Conditions, Point, Result


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
}
"""Endings of a run by `Result.stopped`."""


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
    known = result.conditions.percent_of_peak if result.conditions else {}
    name = next((each for each in (DATASHEET, AT_MAXIMUM_CLOCK, *known) if each in known), None)
    if name is None:
        return ABSENT
    return f"{'' if name == DATASHEET else '~'}{percentage(known[name], digits=1)}"


def is_slow(result: Result) -> bool:
    """True if the result was noticeably slower than the best run before it."""
    return result.comparison is not None and result.comparison.slower is not None


def verdict(result: Result) -> str:
    """Return a fault first, then a slower result, then how the run ended."""
    if result.wrong_elements:
        return "FAULTY"
    if is_slow(result):
        return f"{under_percent(result):.0f} % under"
    return ending(result).word


def ending(result: Result) -> Ending:
    """Return how the run ended."""
    return ENDINGS.get(result.stopped) or Ending(visible(result.stopped, 20), "stopped by the user")


def wrong_results(elements: int, checks: int | None = None) -> str:
    """Return what a faulty device did: `computed wrong results: 3 elements in 12 checks`."""
    where = "" if checks is None else f" in {count(checks, 'check')}"
    return f"computed wrong results: {count(elements, 'element')}{where}"


def under_percent(result: Result) -> float | None:
    """Return the percent under the best run before it, or None without one."""
    return None if result.comparison is None else result.comparison.under_percent


def share_of_best(result: Result) -> str:
    """Return the share of the best run before it, or `new best` above that."""
    under = under_percent(result)
    if under is None:
        return ABSENT
    return "new best" if under < 0 else percentage(100 - under, digits=1)


def speed(result: Result) -> str:
    """Return mean TFLOP/s without the unit; for a table the figure of its best row."""
    if result.tflops_mean is None and result.tflops_peak is None:
        return rate_text(best_row(result.points))
    # The mean of a table is over unlike rows.
    of_table = result.points or result.tflops_mean is None
    return tflops(result.tflops_peak if of_table else result.tflops_mean)


def best_row_text(result: Result) -> str:
    """Return the row of a table with the highest rate: `host to device, pinned: 54.1 GB/s`."""
    best = best_row(result.points)
    return ABSENT if best is None else f"{visible(best.series, 60)}: {rate_text(best)}"


def best_row(points: Iterable[Point]) -> Point | None:
    """Return the fastest row of those with the most telling value, or None without any.

    A launch that waits for nothing has a time and no throughput: it competes with none.
    """
    rated = [(row_rate(point), point) for point in points]
    known = [(rate, point) for rate, point in rated if rate is not None]
    return max(known, key=lambda each: each[0], default=(None, None))[1]


def rate_text(point: Point | None) -> str:
    """Return the rate of a row with its unit: `54.1 GB/s`, or a time if it has no other."""
    values = point.values if point else {}
    if "tflops" in values:
        return f"{tflops(values['tflops'])} TFLOP/s"
    if "bytes_per_second" in values:
        return f"{number(values['bytes_per_second'] / 1e9)} GB/s"
    return brief(values.get("seconds")) if values.get("seconds") else ABSENT


def device(result: Result) -> str:
    """Return the device's name without the words that all names have."""
    return short_name(visible(result.device))


def _condition(name: str, unit: str) -> Callable[[Result], str]:
    def text(result: Result) -> str:
        conditions = result.conditions
        return quantity(getattr(conditions, name) if conditions else None, unit)

    return text


def _droop(result: Result) -> str:
    return percentage(result.droop_percent, digits=1)


def _driver(result: Result) -> str:
    conditions = result.conditions
    return visible((conditions.driver_version if conditions else None) or ABSENT, 20)


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
    ResultColumn("PEAK", 6, 5, lambda each: tflops(each.tflops_peak), right=True),
    ResultColumn("DROOP", 6, 7, _droop, right=True),
    ResultColumn("OF PEAK", 7, 8, percent_of_peak, right=True),
    ResultColumn("OF BEST", 8, 10, share_of_best, right=True),
    ResultColumn("TIME", 7, 9, lambda each: duration(each.seconds), right=True),
    ResultColumn("POWER", 6, 11, _condition("power_watts_mean", " W"), right=True),
    ResultColumn("CLOCK", 8, 12, _condition("sm_clock_mhz_mean", " MHz"), right=True),
    ResultColumn("HEAT", 5, 13, _condition("temperature_celsius_max", "°C"), right=True),
    ResultColumn("TORCH", 12, 14, lambda each: visible(each.torch_version, 40)),
    ResultColumn("DRIVER", 11, 15, _driver),
    ResultColumn("BEST ROW", 30, 16, best_row_text),
    VERDICT,
)


def fitting_columns(width: int) -> tuple[tuple[ResultColumn, int], ...]:
    """Return the columns that fit with their cells; the device gets the rest."""
    ranked = sorted(COLUMNS, key=lambda column: column.rank)
    shown = fit_columns(
        ranked,
        width,
        lambda column: column.width + 1,
        lambda column: ROOMY_DEVICE - NARROWEST_DEVICE if column.rank > TELLING else 0,
    )
    left = width - sum(column.width + 1 for column in shown)
    spare = min(left, WIDEST_DEVICE - NARROWEST_DEVICE)
    return tuple(
        (column, column.width + spare * (column is DEVICE)) for column in COLUMNS if column in shown
    )


Fact = tuple[str, str]
"""A label and a text."""


def figure_facts(result: Result) -> Iterator[Fact]:
    """Yield what was measured, how it was verified, and the memory used."""
    if result.kind == "soak":
        yield from _throughput(result)
    elif result.tflops_peak is not None:
        shape = f"{result.m} x {result.n} x {result.k}"
        yield "best", f"{result.tflops_peak:.4g} TFLOP/s at {shape}"
    for line in _of_peak(result):
        yield "of peak", line
    ended = ending(result).sentence
    what = "copies" if result.kind == "copy" else "products"
    verified = f"{result.checks} checks"
    if result.verified_products is not None and result.kind == "soak":
        verified = f"{result.verified_products} of {result.iterations} {what}"
    done = f"{len(result.points)} rows" if result.points else ended
    yield what, f"{result.iterations}, {done if result.stopped == 'time' else ended}"
    yield "verified", f"{verified}, {result.wrong_elements or 'no'} wrong elements"
    if result.tensor_bytes is not None or result.context_bytes is not None:
        parts = (
            f"tensors {size(result.tensor_bytes)}",
            f"torch's cache {size(result.cache_bytes)}",
            f"CUDA context {size(result.context_bytes)}",
        )
        yield "memory", ", ".join(parts)


def _throughput(result: Result) -> Iterator[Fact]:
    mean, peak = result.tflops_mean or 0.0, result.tflops_peak or 0.0
    yield "mean", f"{mean:.4g} TFLOP/s over {result.seconds:.2f} s"
    yield "peak", f"{peak:.4g} TFLOP/s in the best window"
    if result.tflops_sustained is not None and result.droop_percent is not None:
        below = f"{percentage(result.droop_percent, digits=1)} below the peak"
        yield "sustained", f"{result.tflops_sustained:.4g} TFLOP/s, {below}"
        steady = result.time_to_steady_seconds
        yield "steady", "not within this run" if steady is None else f"after {steady:.1f} s"
    if result.tflops_device is not None:
        yield "on device", f"{result.tflops_device:.4g} TFLOP/s by device events"


def _of_peak(result: Result) -> Iterable[str]:
    """Return a line for each denominator; a GPU without any gets a line that says so."""
    if result.device_uuid is None:
        return ()
    known = result.conditions.percent_of_peak if result.conditions else {}
    if result.kind == "copy":
        return [f"{percentage(percent)} of {name}" for name, percent in known.items()]
    return percent_lines(score(result), known, result.dtype)


def condition_facts(known: Conditions | None) -> Iterator[Fact]:
    """Yield the known state of the device during the run."""
    if known is None:
        return
    if known.power_watts_mean is not None:
        limit = known.power_limit_watts
        of = "" if limit is None else f", limit {limit:.0f} W"
        yield "power", f"{known.power_watts_mean:.0f} W on average{of}"
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
    if known.clock_event_seconds:
        yield "held back", ", ".join(_held(known))
    if known.driver_version is not None:
        yield "driver", visible(known.driver_version, 40)


def _held(known: Conditions) -> Iterator[str]:
    """Yield clock event reasons, the longest first."""
    spent = sorted(known.clock_event_seconds.items(), key=lambda each: -each[1])
    for reason, seconds in spent:
        yield f"{CAUSES.get(reason, visible(reason, 40))} {span_text(seconds)}"


def method_facts(result: Result) -> Iterator[Fact]:
    """Yield how it was measured, and with what software."""
    for note in result.notes:
        yield "note", note
    yield "method", result.method
    yield "software", f"torch {result.torch_version} in {result.python}"


def detail_facts(result: Result) -> Iterator[Fact]:
    """Yield further facts for a reader who has no access to the machine."""
    under = under_percent(result)
    if under is not None:
        above = f", {-under:.1f} % above the best run before" if under < 0 else ""
        yield "of the best run before", f"{share_of_best(result)}{above}"
    yield "time", duration(result.seconds)
    known = result.conditions
    named = {
        "accumulate": result.accumulate,
        "layout": result.layout,
        "data": result.data,
        "threads": result.threads,
        "CUDA": result.cuda_version,
        "device": result.device_uuid,
        "PCI device id": known.pci_device_id if known else None,
    }
    yield from ((label, str(value)) for label, value in named.items() if value is not None)
