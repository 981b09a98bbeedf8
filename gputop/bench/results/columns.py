"""What a table of results has in its columns, on the screen and on a page."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputop.text import (
    ABSENT,
    brief,
    duration,
    fit_columns,
    moment,
    number,
    percentage,
    quantity,
    short_name,
    tflops,
    visible,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputop.bench.events import Point, Result

NARROWEST_DEVICE, WIDEST_DEVICE = 8, 34
ROOMY_DEVICE, TELLING = 24, 10
"""Cells that the device has before columns of a rank above `TELLING` take any."""
RECENT_SECONDS = 300 * 86400.0
"""What is older is dated with its year."""
ENDS = {"time": "ok", "user": "stopped", "limit": "too hot", "silent": "unwatched"}
PREFERRED = ("datasheet dense", "formula at the maximum clock")
"""Denominators of a percentage of the peak, the best known first."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column; those of a lower `rank` stay where the width is not enough for all."""

    title: str
    width: int
    """Cells; that of the device is its least."""
    rank: int
    text: Callable[[Result], str]
    right: bool = False


def when(result: Result) -> str:
    """`20 Nov 13:35`, with the year in the place of the time where it is long ago."""
    recent = time.time() - result.started_at < RECENT_SECONDS
    return moment(result.started_at, "%d %b %H:%M" if recent else "%d %b %Y")


def shape(result: Result) -> str:
    """`8192`, `8192×4096×1024`; absent where there is no product."""
    if not result.n:
        return ABSENT
    square = result.m == result.n == result.k
    return f"{result.n}" if square else f"{result.m}×{result.n}×{result.k}"


def percent_of_peak(result: Result) -> str:
    """`78.1 %`, `~78.1 %` where the peak is by formula; absent where it is not known."""
    known = result.conditions.percent_of_peak if result.conditions else {}
    name = next((each for each in (*PREFERRED, *known) if each in known), None)
    if name is None:
        return ABSENT
    return f"{'' if name == PREFERRED[0] else '~'}{percentage(known[name], digits=1)}"


def is_slow(result: Result) -> bool:
    """True if the result was noticeably slower than the best run before it."""
    return result.comparison is not None and result.comparison.slower is not None


def verdict(result: Result) -> str:
    """A fault first, then what is slower than it was, then how the run ended."""
    if result.wrong_elements:
        return "FAULTY"
    if is_slow(result):
        return f"{under_percent(result):.0f} % under"
    return ENDS.get(result.stopped, visible(result.stopped, 20))


def under_percent(result: Result) -> float | None:
    """Percent under the best run before it, or None without a comparable one."""
    return None if result.comparison is None else result.comparison.under_percent


def of_best(result: Result) -> str:
    """Share of the best run before it, or `new best` for one that is above that."""
    under = under_percent(result)
    if under is None:
        return ABSENT
    return "new best" if under < 0 else percentage(100 - under, digits=1)


def speed(result: Result) -> str:
    """Mean TFLOP/s, without the unit; of a table those of its best row, or its own figure."""
    if result.tflops_mean is None and result.tflops_peak is None:
        return _best_of_rows(result)[1]
    # The mean of a table is over unlike rows.
    of_table = result.points or result.tflops_mean is None
    return tflops(result.tflops_peak if of_table else result.tflops_mean)


def best_row(result: Result) -> str:
    """The row of a table with the highest rate, `host to device, pinned: 54.1 GB/s`."""
    series, figure = _best_of_rows(result)
    return f"{visible(series, 60)}: {figure}" if series else ABSENT


def _best_of_rows(result: Result) -> tuple[str, str]:
    """Its series and its figure, among those rows that can be compared."""
    kinds = ("tflops", "bytes_per_second", "seconds")
    kind = next((k for k in kinds if any(k in point.values for point in result.points)), "")
    comparable = (point for point in result.points if kind in point.values)
    rated = [(figure, point.series) for point in comparable if (figure := rate(point))]
    (_, text), series = max(rated, default=((0.0, ABSENT), ""))
    return series, text


def rate(point: Point) -> tuple[float, str] | None:
    """Of a row, as a number to compare (more is better) and as text; None where it has none."""
    values = point.values
    if "tflops" in values:
        return values["tflops"], f"{tflops(values['tflops'])} TFLOP/s"
    if "bytes_per_second" in values:
        speed = values["bytes_per_second"]
        return speed, f"{number(speed / 1e9)} GB/s"
    if values.get("seconds"):
        return 1 / values["seconds"], brief(values["seconds"])
    return None


def device(result: Result) -> str:
    """Its name, without what every one has."""
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


WHEN = Column("WHEN", 12, 3, when)
DEVICE = Column("DEVICE", NARROWEST_DEVICE, 0, device)
SPEED = Column("TFLOP/s", 9, 1, speed, right=True)
VERDICT = Column("VERDICT", 10, 0, verdict)
COLUMNS = (
    WHEN,
    DEVICE,
    Column("KIND", 7, 6, lambda each: visible(each.kind, 20)),
    Column("TYPE", 8, 2, lambda each: visible(each.dtype, 40)),
    Column("SIZE", 6, 2, shape, right=True),
    SPEED,
    Column("PEAK", 6, 5, lambda each: tflops(each.tflops_peak), right=True),
    Column("DROOP", 6, 7, _droop, right=True),
    Column("OF PEAK", 7, 8, percent_of_peak, right=True),
    Column("OF BEST", 8, 10, of_best, right=True),
    Column("TIME", 7, 9, lambda each: duration(each.seconds), right=True),
    Column("POWER", 6, 11, _condition("power_watts_mean", " W"), right=True),
    Column("CLOCK", 8, 12, _condition("sm_clock_mhz_mean", " MHz"), right=True),
    Column("HEAT", 5, 13, _condition("temperature_celsius_max", "°C"), right=True),
    Column("TORCH", 12, 14, lambda each: visible(each.torch_version, 40)),
    Column("DRIVER", 11, 15, _driver),
    Column("BEST ROW", 30, 16, best_row),
    VERDICT,
)


def fitting(width: int) -> tuple[tuple[Column, int], ...]:
    """The columns that there is room for, each with its cells; the device takes what is left."""
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
