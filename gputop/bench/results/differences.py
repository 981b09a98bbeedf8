"""Differences between two results: settings, figures with their intervals, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gputop.bench.events import Result
from gputop.bench.plan.kinds import BANDWIDTH, kind_of
from gputop.bench.results.compare import FEWEST_RUNS, last_and_first_runs
from gputop.bench.results.statistics import scatter_limit
from gputop.bench.results.tables import LAYOUTS, aligned
from gputop.text import moment, quantity, visible

MEDIAN_SPREADS = 1.8
"""Half of a 95 % interval of a row's median, in spreads of its blocks, which are four or more."""

RUN_PERCENT = 1.0
"""Standard deviation of a figure in equal runs, in percent, where fewer than four are known."""
RUN_DEVIATIONS = 2.8
"""Half of the 95 % interval of the difference of two runs, in such deviations: 2 times the root of
two."""
TEST = ("kind", "data type", "size", "accumulation", "layout", "data", "threads")
"""Settings that make another test."""
UNITS = {"tflops": ("TFLOP/s", 1.0), BANDWIDTH: ("GB/s", 1e9), "seconds": ("µs", 1e-6)}
"""Units of the values of rows, and what one of them is."""


class Figure(NamedTuple):
    """A figure, and half of its 95 % interval, where that is known."""

    value: float
    half: float | None = None
    in_percent: bool = False

    def __str__(self) -> str:
        return f"{self.value:.4g}" + (
            "" if self.half is None else f" ± {self.half:.2g}"
        )


def settings(result: Result) -> tuple[tuple[str, str], ...]:
    """Return what has to be equal in results of one test, by name."""
    found = {
        "kind": result.kind,
        "data type": result.dtype,
        "accumulation": result.accumulate,
        "layout": result.layout if not kind_of(result.kind).finds_shape else None,
        "data": result.data,
        "threads": result.threads,
        "torch": result.torch_version,
        "CUDA": result.cuda_version,
        "driver": result.known_conditions.driver_version,
    }
    if not kind_of(result.kind).has_rows:
        found["size"] = f"{result.m} x {result.n} x {result.k}"
    return tuple(
        (name, str(value)) for name, value in found.items() if value is not None
    )


def differences(before: Result, after: Result, known: Sequence[Result] = ()) -> str:
    """Return the settings, figures and parts of the verdict that two results do not share.

    Equal runs scatter, too: by as much as those of the `known` results that are like these.
    """
    like = max(
        (last_and_first_runs(each, known)[0] for each in (before, after)), key=len
    )
    lines = [*_other_test(before, after), f"{_name(before)}, then {_name(after)}"]
    lines += [
        *_changed_settings(before, after),
        f"  scatter of equal runs: {_source(like)}",
        "",
    ]
    old, new, others = _figures(before), _figures(after), [*map(_figures, like)]
    rows = [["", "before", "then", "change", ""]]
    for name, one in old.items():
        if other := new.get(name):
            values = [each[name].value for each in others if name in each]
            change = _change(one, other, _run_half(one, values))
            rows.append([name, str(one), str(other), *change])
    lines += (
        aligned(rows, left=1) if len(rows) > 1 else ["  They have no figure in common."]
    )
    was = {
        part.name: part.state
        for part in (before.verdict.parts if before.verdict else ())
    }
    for part in after.verdict.parts if after.verdict else ():
        if was.get(part.name, part.state) != part.state:
            why = visible(part.why, 400)
            lines.append(
                f"  {part.name} was {was[part.name]} and is {part.state}: {why}"
            )
    return "\n".join(lines)


def _name(result: Result) -> str:
    where = f" on {visible(result.host, 60)}" if result.host else ""
    return f"{visible(result.device, 60)}{where}, {moment(result.started_at, '%d %b %Y %H:%M')}"


def _other_test(before: Result, after: Result) -> Iterator[str]:
    one, other = dict(settings(before)), dict(settings(after))
    unlike = [name for name in TEST if one.get(name) != other.get(name)]
    if unlike:
        yield f"These are different tests: they differ in {', '.join(unlike)}."


def _source(like: Sequence[Result]) -> str:
    if len(like) < FEWEST_RUNS:
        return f"{RUN_PERCENT:g} % is assumed, as fewer than {FEWEST_RUNS} like runs are known"
    return f"that of {len(like)} like runs in the history"


def _run_half(figure: Figure, values: Sequence[float]) -> float:
    """Return how far a figure of two equal runs may differ, from those of the like runs."""
    if len(values) >= FEWEST_RUNS:
        return scatter_limit(values)
    assumed = RUN_DEVIATIONS * RUN_PERCENT
    if figure.in_percent:
        return assumed
    return assumed * abs(figure.value) / 100


def _changed_settings(before: Result, after: Result) -> Iterator[str]:
    one, other = (
        {
            **dict(settings(each)),
            "device": each.device_uuid or each.device,
            "power limit": quantity(each.known_conditions.power_limit_watts, " W"),
            "cuBLAS": each.cublas_version,
            "verified": each.verify,
            "seconds": f"{each.seconds:.0f}",
        }
        for each in (before, after)
    )
    for name in dict.fromkeys((*one, *other)):
        if (was := one.get(name)) != (now := other.get(name)):
            shown = (visible(each or "unknown", 80) for each in (was, now))
            yield f"  {name}: {', then '.join(shown)}"


def _figures(result: Result) -> dict[str, Figure]:
    known, kind = result.known_conditions, kind_of(result.kind)
    mean = result.tflops_mean if kind.over_time else None
    values = {
        "mean, TFLOP/s": (mean, result.tflops_mean_interval),
        "burst, TFLOP/s": (result.tflops_burst, None),
        "sustained, TFLOP/s": (result.tflops_sustained, None),
        "droop, %": (result.droop_percent, result.droop_interval_percent),
        "5th percentile, TFLOP/s": (result.tflops_p5, None),
        "power, W": (known.power_watts_mean, None),
        "SM clock, MHz": (known.sm_clock_mhz_mean, None),
        "temperature, °C": (known.temperature_celsius_max, None),
        "TFLOP/J": (known.tflop_per_joule, None),
    }
    found = {
        name: Figure(
            value, (bounds[1] - bounds[0]) / 2 if bounds else None, name.endswith("%")
        )
        for name, (value, bounds) in values.items()
        if value is not None
    }
    layout = LAYOUTS.get(result.kind)
    for point in result.points:
        name = kind.measures if kind.measures in point.values else "seconds"
        value, (unit, one) = point.values.get(name), UNITS[name]
        size = layout.size(point.x) if layout else " x ".join(map(str, point.shape))
        if value is not None:
            spread = point.values.get("spread_percent")
            half = (
                None if spread is None else MEDIAN_SPREADS * spread / 100 * value / one
            )
            found[f"{point.series}, {size}, {unit}"] = Figure(value / one, half)
    return found


def _change(old: Figure, new: Figure, run_half: float) -> tuple[str, str]:
    """Return the change in percent, from nothing as a difference, and whether it says something."""
    change = new.value - old.value
    factor, unit = (100 / abs(old.value), " %") if old.value else (1.0, "")
    said = f"{factor * change:+.2f}{unit}"
    if old.half is None or new.half is None:
        return said, ""
    half = math.hypot(old.half, new.half, run_half)
    word = "differs" if abs(change) > half else "the same"
    return f"{said} ± {factor * half:.2f}", word
