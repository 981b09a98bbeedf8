"""Comparison of two results: the faster one and the reason, settings, figures, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gputop.bench.events import Result
from gputop.bench.plan.kinds import kind_of
from gputop.bench.results.columns import shape
from gputop.bench.results.compare import FEWEST_RUNS, last_and_first_runs
from gputop.bench.results.measures import MEASURES, percent_below, score
from gputop.bench.results.page import Block, Heading, Sentence
from gputop.bench.results.statistics import scatter_limit
from gputop.bench.results.tables import TextTable, layout_of
from gputop.text import (
    ABSENT,
    moment,
    percentage,
    quantity,
    rounded,
    tflops,
    visible,
)

MEDIAN_SPREADS = 1.8
"""Half of the 95 % interval of a row's median, in spreads of its blocks (four or more)."""
RUN_PERCENT = 1.0
"""Assumed standard deviation of a figure, in percent, with fewer than four equal runs."""
RUN_DEVIATIONS = 2.8
"""Half of the 95 % interval of the difference of two runs, in standard deviations: two times the
square root of two."""
TEST = (
    "kind",
    "data type",
    "size",
    "accumulation",
    "layout",
    "data",
    "threads",
)
"""Settings that define a test. Results with different values are not compared."""
OTHER_PERCENT = 1.0
"""Least difference of a condition, in percent, that explains a difference in speed."""
LOWER = (
    ("sm_clock_mhz_mean", "clock", "MHz"),
    ("power_limit_watts", "power limit", "W"),
)
"""Conditions that make a device slower if they are lower: names, labels and units."""
OTHER_HEAT = 3.0
"""Least difference of temperatures in °C that is mentioned."""


class Figure(NamedTuple):
    """A figure, and half of its 95 % interval if known."""

    value: float
    half: float | None = None
    name: str = ""
    """Name of the value in `MEASURES`, which has the format; empty for TFLOP/s."""

    def __str__(self) -> str:
        if self.name:
            return MEASURES[self.name].text(self.value)
        return tflops(self.value)


def comparison_page(
    before: Result, after: Result, known: Sequence[Result] = ()
) -> list[Block]:
    """Return the answer first, then the settings, figures and parts of the verdict that differ.

    The scatter of equal runs is estimated from the like runs among the `known` results.
    """
    like = last_and_first_runs(before, known)[0]
    others = last_and_first_runs(after, known)[0]
    if len(others) > len(like):
        like = others
    page: list[Block] = [answer(before, after, like)]
    page.append(Heading(f"{_when(before)}, then {_when(after)}"))
    page += [Sentence(line) for line in _changed_settings(before, after)]
    page.append(Sentence(f"scatter of equal runs: {_source(like)}"))
    rows = [["", "before", "then", "change", ""], *_rows(before, after, like)]
    if len(rows) > 1:
        page.append(TextTable(rows))
    else:
        page.append(Sentence("They have no figure in common."))
    page += [Sentence(line) for line in _changed_parts(before, after)]
    return page


def answer(
    before: Result,
    after: Result,
    like: Sequence[Result] = (),
) -> Sentence:
    """Return a sentence about the faster result and the reasons, or `The same within 1 %.`"""
    tests = []
    for name, (was, now) in _settings(before, after).items():
        if name in TEST and was != now:
            tests.append(name)
    if tests:
        return Sentence(
            f"These are different tests: they differ in {', '.join(tests)}.",
            "warn",
        )
    one, other = score(before), score(after)
    if not one or not other:
        return Sentence("They have no speed to compare.")
    slow, fast = (before, after) if one < other else (after, before)
    percent = percent_below(min(one, other), max(one, other))
    scores = [value for each in like if (value := score(each)) is not None]
    noise = 100 * _run_half(Figure(max(one, other)), scores) / max(one, other)
    if percent <= noise:
        return Sentence(
            f"The same within {max(1, math.ceil(percent))} %.", "good"
        )
    slow_name, fast_name = _names(slow, fast, after)
    why = ", ".join(_reasons(slow, fast)) or "no reason is known"
    share = percentage(percent)
    return Sentence(
        f"{slow_name} is {share} slower than {fast_name}: {why}.", "warn"
    )


def _names(
    slow: Result,
    fast: Result,
    after: Result,
) -> tuple[str, str]:
    """Return the names of two runs in a sentence: by device, or by order for the same device."""
    if (slow.device_uuid, slow.host) == (fast.device_uuid, fast.host):
        names = "The second run", "the first"
        return names if slow is after else ("The first run", "the second")
    return _device(slow, fast), _device(fast, slow)


def _device(result: Result, other: Result) -> str:
    """Return a name of a device that distinguishes it from the other device."""
    name = visible(result.device, 60)
    if (
        result.device_index is not None
        and result.device_index != other.device_index
    ):
        name = f"GPU {result.device_index}"
    if result.host and result.host != other.host:
        name += f" on {visible(result.host, 60)}"
    return name


def _reasons(slow: Result, fast: Result) -> Iterator[str]:
    """Yield the conditions that may explain a difference, with the figures of both."""
    one, other = slow.known_conditions, fast.known_conditions
    for name, label, unit in LOWER:
        low, high = getattr(one, name), getattr(other, name)
        if low and high and percent_below(low, high) >= OTHER_PERCENT:
            yield f"lower {label} ({rounded(low)} and {rounded(high)} {unit})"
    mine, its = one.temperature_celsius_max, other.temperature_celsius_max
    if mine is not None and its is not None:
        both = f"both at {quantity(mine, '°C')}"
        word = "hotter" if mine > its else "cooler"
        differ = f"{word} ({rounded(mine)} and {quantity(its, '°C')})"
        yield both if abs(mine - its) < OTHER_HEAT else differ
    if one.other_load:
        yield f"used by {visible(one.other_load[0], 60)}"
    versions = {
        "torch": (slow.torch_version, fast.torch_version),
        "driver": (one.driver_version, other.driver_version),
    }
    for name, (version, its_version) in versions.items():
        if version != its_version:
            both = f"{visible(version or ABSENT)} and {visible(its_version or ABSENT)}"
            yield f"another {name} ({both})"


def _when(result: Result) -> str:
    where = f" on {visible(result.host, 60)}" if result.host else ""
    when = moment(result.started_at, "%d %b %Y %H:%M")
    return f"{visible(result.device, 60)}{where}, {when}"


def _settings(*results: Result) -> dict[str, tuple[str, ...]]:
    """Return the settings of results by name. A missing setting is `unknown`."""
    found = []
    for each in results:
        known, kind = each.known_conditions, kind_of(each.kind)
        settings = {
            "kind": each.kind,
            "data type": each.dtype,
            "size": None if kind.has_rows else shape(each),
            "accumulation": each.accumulate,
            "layout": None if kind.finds_shape else each.layout,
            "data": each.data,
            "threads": each.threads,
            "torch": each.torch_version,
            "CUDA": each.cuda_version,
            "driver": known.driver_version,
            "device": each.device_uuid or each.device,
            "power limit": quantity(known.power_limit_watts, " W"),
            "cuBLAS": each.cublas_version,
            "verified": each.verify,
            "seconds": f"{each.seconds:.0f}",
        }
        found.append(settings)
    pairs = {}
    for name in found[0]:
        values = [each[name] for each in found]
        pairs[name] = tuple(
            visible(str(value or "unknown"), 80) for value in values
        )
    return pairs


def _changed_settings(before: Result, after: Result) -> Iterator[str]:
    for name, (was, now) in _settings(before, after).items():
        if was != now:
            yield f"{name}: {was}, then {now}"


def _changed_parts(before: Result, after: Result) -> Iterator[str]:
    if before.verdict is None or after.verdict is None:
        return
    was = {part.name: part.state for part in before.verdict.parts}
    for part in after.verdict.parts:
        if was.get(part.name, part.state) != part.state:
            yield f"{part.name} was {was[part.name]} and is {part.state}: {part.why}"


def _source(like: Sequence[Result]) -> str:
    if len(like) < FEWEST_RUNS:
        return f"{RUN_PERCENT:g} % is assumed, as fewer than {FEWEST_RUNS} like runs are known"
    return f"that of {len(like)} like runs in the history"


def _run_half(
    figure: Figure, values: Sequence[float], *, in_percent: bool = False
) -> float:
    """Return the largest expected difference of a figure between two equal runs."""
    if len(values) >= FEWEST_RUNS:
        return scatter_limit(values)
    assumed = RUN_DEVIATIONS * RUN_PERCENT
    if in_percent:
        return assumed
    return assumed * abs(figure.value) / 100


def _rows(
    before: Result,
    after: Result,
    like: Sequence[Result],
) -> Iterator[list[str]]:
    """Yield the common figures of both results, with the change and its significance."""
    old, new = _figures(before), _figures(after)
    others = [_figures(each) for each in like]
    for name, one in old.items():
        other = new.get(name)
        if other is None:
            continue
        values = [each[name].value for each in others if name in each]
        run_half = _run_half(one, values, in_percent=name.endswith("%"))
        yield [name, str(one), str(other), *_change(one, other, run_half)]


def _figures(result: Result) -> dict[str, Figure]:
    known, kind = result.known_conditions, kind_of(result.kind)
    values = {
        "mean, TFLOP/s": (result.tflops_mean, result.tflops_mean_interval),
        "burst, TFLOP/s": (result.tflops_burst, None),
        "sustained, TFLOP/s": (result.tflops_sustained, None),
        "droop, %": (result.droop_percent, result.droop_interval_percent),
        "5th percentile, TFLOP/s": (result.tflops_p5, None),
        "power, W": (known.power_watts_mean, None),
        "SM clock, MHz": (known.sm_clock_mhz_mean, None),
        "temperature, °C": (known.temperature_celsius_max, None),
        "TFLOP/J": (known.tflop_per_joule, None),
    }
    if not kind.over_time:  # a mean over different rows says nothing
        del values["mean, TFLOP/s"]
    found = {}
    for name, (value, bounds) in values.items():
        half = (bounds[1] - bounds[0]) / 2 if bounds else None
        if value is not None:
            found[name] = Figure(value, half)
    layout = layout_of(result.kind)
    for point in result.points:
        name = kind.measures if kind.measures in point.values else "seconds"
        value, half = point.values.get(name), None
        if value is None:
            continue
        if "spread_percent" in point.values:
            half = (
                MEDIAN_SPREADS * point.values["spread_percent"] / 100 * value
            )
        place = f"{point.series}, {layout.size_text(point)}"
        found[f"{place}, {MEASURES[name].title}"] = Figure(value, half, name)
    return found


def _change(
    old: Figure,
    new: Figure,
    run_half: float,
) -> tuple[str, str]:
    """Return the change in percent (from 0 as a difference), and if it is significant."""
    change = new.value - old.value
    factor, unit = (100 / abs(old.value), " %") if old.value else (1.0, "")
    said = f"{factor * change:+.2f}{unit}"
    if old.half is None or new.half is None:
        return said, ""
    half = math.hypot(old.half, new.half, run_half)
    word = "differs" if abs(change) > half else "the same"
    return f"{said} ± {factor * half:.2f}", word
