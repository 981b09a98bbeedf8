"""Columns of results, for the history, the tab, and devices side by side."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gputop.bench.events import FAULTY, Result
from gputop.bench.plan.kinds import kind_of
from gputop.bench.plan.peaks import AT_MAXIMUM_CLOCK, DATASHEET
from gputop.bench.results.measures import best_row, best_row_text, rate_text
from gputop.bench.results.outcome import outcome_of
from gputop.text import (
    ABSENT,
    duration,
    moment,
    percentage,
    quantity,
    short_name,
    throughput,
    visible,
)

RECENT_SECONDS = 300 * 86400.0
"""Age from which a date has its year."""


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of results. A narrow table keeps the columns with the lowest `rank`."""

    title: str
    width: int
    """Width in cells. For the device it is the minimum."""
    rank: int
    text: Callable[[Result], str]
    right: bool = False


def when(result: Result) -> str:
    """Return the start as `20 Nov 13:35`, or `20 Nov 2025` for an old result."""
    recent = time.time() - result.started_at < RECENT_SECONDS
    return moment(result.started_at, "%d %b %H:%M" if recent else "%d %b %Y")


def shape(result: Result) -> str:
    """Return the shape as `8192` or `8192×4096×1024`, or the sign of absence without a product."""
    if not result.n:
        return ABSENT
    if result.m == result.n == result.k:
        return f"{result.n}"
    return f"{result.m}×{result.n}×{result.k}"


def percent_of_peak(result: Result) -> str:
    """Return `78.1 %`, or `~78.1 %` for a peak by formula, or the sign of absence if unknown."""
    return peak_text(result.known_conditions.percent_of_peak)


def peak_text(known: Mapping[str, float]) -> str:
    """Return the percentage of the best known peak."""
    for name in (DATASHEET, AT_MAXIMUM_CLOCK, *known):
        if name in known:
            about = "" if name.startswith(DATASHEET) else "~"
            return f"{about}{percentage(known[name], digits=1)}"
    return ABSENT


def verdict(result: Result) -> str:
    """Return the gravest fact: a fault, a slower result, an early end, or the verdict's state."""
    slower = result.known_comparison.slower
    if slower is None or result.state == FAULTY:
        return outcome_of(result).word
    rows = [
        float(each) for each in re.findall(r" is ([\d.]+) % under", slower)
    ]
    worst = max(rows, default=result.known_comparison.under_percent or 0.0)
    return f"{worst:.0f} % under"


def share_of_usual(result: Result) -> str:
    """Return the share of the median of earlier like runs."""
    under = result.known_comparison.under_percent
    return ABSENT if under is None else percentage(100 - under, digits=1)


def speed(result: Result) -> str:
    """Return mean TFLOP/s without the unit, or the figure of a table's best row."""
    if result.tflops_mean is None and result.tflops_peak is None:
        return rate_text(best_row(result.points))
    rate = result.tflops_mean
    if rate is None or not kind_of(result.kind).over_time:
        rate = result.tflops_peak  # a mean over different rows says nothing
    return throughput(rate, short=True)


def device(result: Result) -> str:
    """Return the device's name without words that all device names share."""
    return short_name(visible(result.device))


def _condition(name: str, unit: str) -> Callable[[Result], str]:
    return lambda result: quantity(
        getattr(result.known_conditions, name), unit
    )


def _peak(result: Result) -> str:
    return throughput(result.tflops_peak, short=True)


def _droop(result: Result) -> str:
    return percentage(result.droop_percent, digits=1)


def _word(name: str) -> Callable[[Result], str]:
    return lambda result: visible(getattr(result, name), 40)


def _driver(result: Result) -> str:
    return visible(result.known_conditions.driver_version or ABSENT, 20)


WATTS = _condition("power_watts_mean", " W")
MEGAHERTZ = _condition("sm_clock_mhz_mean", " MHz")
CELSIUS = _condition("temperature_celsius_max", "°C")
WHEN = ResultColumn("WHEN", 12, 3, when)
DEVICE = ResultColumn("DEVICE", 8, 0, device)
SPEED = ResultColumn(
    "TFLOP/s",
    9,
    1,
    speed,
    right=True,
)
VERDICT = ResultColumn("VERDICT", 10, 0, verdict)
COLUMNS = (
    WHEN,
    DEVICE,
    ResultColumn("KIND", 7, 2, _word("kind")),
    ResultColumn("TYPE", 8, 3, _word("dtype")),
    ResultColumn(
        "SIZE",
        6,
        4,
        shape,
        right=True,
    ),
    SPEED,
    ResultColumn(
        "PEAK",
        6,
        5,
        _peak,
        right=True,
    ),
    ResultColumn(
        "DROOP",
        6,
        7,
        _droop,
        right=True,
    ),
    ResultColumn(
        "OF PEAK",
        7,
        8,
        percent_of_peak,
        right=True,
    ),
    ResultColumn(
        "OF USUAL",
        8,
        10,
        share_of_usual,
        right=True,
    ),
    ResultColumn(
        "TIME",
        7,
        9,
        lambda each: duration(each.seconds),
        right=True,
    ),
    ResultColumn(
        "POWER",
        6,
        11,
        WATTS,
        right=True,
    ),
    ResultColumn(
        "CLOCK",
        8,
        12,
        MEGAHERTZ,
        right=True,
    ),
    ResultColumn(
        "HEAT",
        5,
        13,
        CELSIUS,
        right=True,
    ),
    ResultColumn("TORCH", 12, 14, _word("torch_version")),
    ResultColumn("DRIVER", 11, 15, _driver),
    ResultColumn("BEST ROW", 30, 16, best_row_text),
    VERDICT,
)
OF_A_RUN = {"WHEN", "DEVICE", "KIND", "TIME", "OF USUAL", "TORCH", "DRIVER"}
"""Titles of columns that a table of one run does not need."""
IN_TITLE = {"TYPE", "SIZE"}
"""Titles of columns whose common value is in the line above the table."""


def devices_table(
    places: Iterable[str], results: Sequence[Result]
) -> list[list[str]]:
    """Return a table of the devices of one run, with the columns that have values."""
    shown = [["DEVICE", *places]]
    for column in COLUMNS:
        texts = [column.text(result) for result in results]
        is_same = column.title in IN_TITLE and len(set(texts)) == 1
        if (
            column.title not in OF_A_RUN
            and not is_same
            and set(texts) != {ABSENT}
        ):
            shown.append([column.title, *texts])
    return [list(line) for line in zip(*shown, strict=True)]
