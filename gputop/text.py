"""Format numbers and foreign text for display."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeVar
from unicodedata import east_asian_width

from gputop.agent.text import fold_list as fold_list  # noqa: PLC0414 - public here
from gputop.agent.text import visible as visible  # noqa: PLC0414 - public here

ABSENT = "–"
"""Sign for a missing reading. The stream has the reason."""

Column = TypeVar("Column")
_NUMBER = r"[+-]?(?:inf|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\Z"
_FORMULA = rf"(?i)(?!{_NUMBER})[\s\u2400-\u2421]*[=+@-]"
"""Start of a spreadsheet formula, also after white space or the picture of a control character."""


def csv_field(text: str) -> str:
    """Return the text. Add an apostrophe if a spreadsheet would read it as a formula."""
    return f"'{text}" if re.match(_FORMULA, text) else text


def cells(text: str) -> int:
    """Return the terminal columns of visible text. A wide East Asian character takes two."""
    if text.isascii():
        return len(text)
    return len(text) + sum(east_asian_width(each) in "WF" for each in text)


def cut(text: str, room: int) -> str:
    """Return visible text, cut to `room` columns with a "…" if it is longer."""
    if cells(text) <= room:
        return text
    while text and cells(text) >= room:
        text = text[: min(len(text) - 1, room)]
    return f"{text}…"[: max(0, room)]


def fit_columns(
    ranked: Iterable[Column],
    room: int,
    width: Callable[[Column], int],
    spare: Callable[[Column], float] = lambda _: 0,
) -> list[Column]:
    """Return the columns that fit into `room` cells, dropping the last of `ranked` first.

    `width` returns the cells of a column with its gap. `spare` returns the cells that must stay
    free after the column.
    """
    kept: list[Column] = []
    for column in ranked:
        room -= width(column)
        if room < spare(column):
            break
        kept.append(column)
    return kept


def rounded(
    value: float,
    digits: int = 0,
    full: float | None = None,
) -> str:
    """Return a number with `digits` decimals. It reads as zero or as `full` only if it is equal.

    Otherwise it is written as `<1` or `>99`. Use this for all numbers on display.
    """
    text = f"{value:.{digits}f}"
    step = 10.0**-digits
    if value > 0 and not float(text):
        return f"<{step:.{digits}f}"
    if value < 0 and not float(text):
        return f">-{step:.{digits}f}"
    if full is not None and value < full and text == f"{full:.{digits}f}":
        return f">{float(text) - step:.{digits}f}"
    return text


def percentage(
    value: float | None,
    unit: str = " %",
    digits: int = 0,
) -> str:
    """Return a percentage: `37 %`, `<1 %`, `>99 %`, or `–`. Integers have no decimals."""
    if value is None:
        return ABSENT
    if isinstance(value, int):
        digits = 0
    return rounded(value, digits, 100) + unit


@lru_cache(maxsize=1024)
def size(value: float | None) -> str:
    """Return bytes in binary units with three digits: `71.2 GiB`."""
    if value is None:
        return ABSENT
    scaled, unit = _scaled(value)
    return f"{number(scaled, whole=unit == 'B')} {unit}"


def _scaled(value: float) -> tuple[float, str]:
    for unit in UNITS:
        if abs(value) < 999.5 or unit == "TiB":
            break
        value /= 1024
    return value, unit


UNITS = {"B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}
"""Units of `size` with their exponents of two."""


def in_unit_of(value: float, total: float | None) -> str:
    """Return bytes in the unit and with the decimals of `total`: `71.2` beside `79.6 GiB`.

    A number that would have only one digit gets its own unit: `51M`.
    """
    if total is None:
        return size(value)
    shown, unit = size(total).split()
    scaled = value / (1 << UNITS[unit])
    full = total / (1 << UNITS[unit])
    digits = 0
    if scaled < 99.95:
        digits = max(1, len(shown.partition(".")[2]))
    text = rounded(scaled, digits, full)
    if scaled > 0 and len(text.lstrip("<0.")) < 2:
        scaled, unit = _scaled(value)
        return rounded(scaled, int(scaled < 9.95 and unit != "B")) + unit[0]
    return text


def used_of(
    used: float | None,
    total: float | None,
    of: str = "/",
) -> str:
    """Return `71.2/79.6 GiB` or `51M/79.6 GiB`, or `–` without `used`."""
    if used is None:
        return ABSENT
    if total is None:
        return size(used)
    return f"{in_unit_of(used, total)}{of}{size(total)}"


def watts_of(
    watts: float | None,
    limit: float | None,
    unit: str = " W",
) -> str:
    """Return `612/700 W`, or `–` without `watts`. The draw can briefly exceed the limit."""
    if watts is None:
        return ABSENT
    if limit is None:
        return f"{rounded(watts)}{unit}"
    return f"{rounded(watts)}/{rounded(limit)}{unit}"


def number(value: float | None, *, whole: bool = False) -> str:
    """Return three significant digits without an exponent: `8.23`, `71.2`. Keep integers whole."""
    if value is None:
        return ABSENT
    if whole or isinstance(value, int):
        return rounded(value)
    return rounded(value, _decimals(value, 2))


def tflops(value: float | None) -> str:
    """Return a throughput with three significant digits: `0.0834`, `0.312`, `789`."""
    if value is None:
        return ABSENT
    return rounded(value, _decimals(value, 5))


def _decimals(value: float, most: int) -> int:
    """Return the number of decimals for three significant digits, at most `most`."""
    for digits, least in enumerate((99.95, 9.995, 0.9995, 0.09995, 0.009995)):
        if digits == most or abs(value) >= least:
            return digits
    return most


LEAST_TFLOPS = 0.09995
"""Smallest throughput shown in TFLOP/s."""


def flops_unit(most: float | None) -> tuple[str, float]:
    """Return the unit for throughputs up to `most` TFLOP/s, and its factor from TFLOP/s."""
    if most is not None and 0 < most < LEAST_TFLOPS:
        return "GFLOP/s", 1e3
    return "TFLOP/s", 1.0


def throughput(value: float | None, *, short: bool = False) -> str:
    """Return a throughput with its unit: `789 TFLOP/s`, `83.4 GFLOP/s`; `short`: `789`, `83.4G`."""
    unit, factor = flops_unit(value)
    text = tflops(None if value is None else factor * value)
    if not short:
        return f"{text} {unit}"
    return text if factor == 1 else f"{text}G"


def count(many: int, what: str) -> str:
    """Return a number with a noun: `1 host`, `8 hosts`, `10,000 hosts`."""
    if many == 1:
        return f"1 {what}"
    return f"{many:,} {what}s"


def quantity(
    value: float | None,
    unit: str,
    digits: int = 0,
) -> str:
    """Return a number with its unit, or the sign of absence: `612 W`, `64°C`, `–`."""
    if value is None:
        return ABSENT
    return f"{rounded(value, digits)}{unit}"


def duration(seconds: float) -> str:
    """Return seconds as `8 s`, `2:05` or `1:02:05`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, seconds = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02d}:{seconds:02d}"
    return f"{minutes}:{seconds:02d}"


def age(seconds: float) -> str:
    """Return seconds as `2.1 s`, or from 10 s as a duration."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    return duration(seconds)


def brief(seconds: float | None) -> str:
    """Return seconds with three digits: `812 ns`, `3.12 µs`, `4.5 ms`, `1.2 s`."""
    if seconds is None:
        return ABSENT
    for unit, scale in (("ns", 1e9), ("µs", 1e6), ("ms", 1e3), ("s", 1)):
        # Larger numbers would have four digits.
        if abs(seconds) * scale < 999.5:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds:.0f} s"


def moment(stamp: float, form: str = "%H:%M:%S") -> str:
    """Return a Unix time as local time, or `–` if it is out of range."""
    try:
        return time.strftime(form, time.localtime(stamp))
    except (
        ValueError,
        OverflowError,
        OSError,
        # Streams and files may contain any number.
    ):
        return ABSENT


def short_name(name: str) -> str:
    """Return a device's name without the brand: `NVIDIA H100 80GB HBM3` → `H100 80GB HBM3`."""
    return re.sub("^(NVIDIA )?(GeForce )?(Tesla )?", "", name)
