"""Differences between two results, in numbers with intervals. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gputop.bench.plan.kinds import BANDWIDTH, kind_of
from gputop.bench.results.collect import settings
from gputop.bench.results.tables import LAYOUTS, aligned
from gputop.text import moment, visible

if TYPE_CHECKING:
    from gputop.bench.events import Result

MEDIAN_SPREADS = 1.4
"""Half of a 95 % interval of a row's median, in spreads of its blocks, which are seven or more."""


UNITS = {"tflops": ("TFLOP/s", 1.0), BANDWIDTH: ("GB/s", 1e9), "seconds": ("µs", 1e-6)}
"""Units of the values of rows, and what one of them is."""


class Figure(NamedTuple):
    """A figure, and half of its 95 % interval, where that is known."""

    value: float
    half: float | None = None

    def __str__(self) -> str:
        return f"{self.value:.4g}" + ("" if self.half is None else f" ± {self.half:.2g}")


def differences(before: Result, after: Result) -> str:
    """Return the settings, figures and parts of the verdict that two results do not share."""
    lines = [f"{_name(before)}, then {_name(after)}", *_settings(before, after), ""]
    old, new = _figures(before), _figures(after)
    rows = [["", "before", "then", "change", ""]]
    both = [(name, each, new[name]) for name, each in old.items() if name in new]
    rows += [[name, str(one), str(other), *_change(one, other)] for name, one, other in both]
    lines += aligned(rows, left=1) if len(rows) > 1 else ["  They have no figure in common."]
    was = {part.name: part.state for part in (before.verdict.parts if before.verdict else ())}
    for part in after.verdict.parts if after.verdict else ():
        if was.get(part.name, part.state) != part.state:
            why = visible(part.why, 400)
            lines.append(f"  {part.name} was {was[part.name]} and is {part.state}: {why}")
    return "\n".join(lines)


def _name(result: Result) -> str:
    where = f" on {visible(result.host, 60)}" if result.host else ""
    return f"{visible(result.device, 60)}{where}, {moment(result.started_at, '%d %b %Y %H:%M')}"


def _settings(before: Result, after: Result) -> Iterator[str]:
    one, other = (
        {
            **dict(settings(each)),
            "device": each.device_uuid or each.device,
            "power limit": str(each.known_conditions.power_limit_watts),
            "cuBLAS": str(each.cublas_version),
            "verified": each.verify,
            "seconds": f"{each.seconds:.0f}",
        }
        for each in (before, after)
    )
    for name in dict.fromkeys((*one, *other)):
        if (was := one.get(name)) != (now := other.get(name)):
            yield f"  {name}: {visible(str(was), 80)}, then {visible(str(now), 80)}"


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
        name: Figure(value, (bounds[1] - bounds[0]) / 2 if bounds else None)
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
            half = None if spread is None else MEDIAN_SPREADS * spread / 100 * value / one
            found[f"{point.series}, {size}, {unit}"] = Figure(value / one, half)
    return found


def _change(old: Figure, new: Figure) -> tuple[str, str]:
    if not old.value:
        return "", ""
    percent = 100 * (new.value / old.value - 1)
    if old.half is None or new.half is None:
        return f"{percent:+.2f} %", ""
    half = 100 / abs(old.value) * math.hypot(new.half, old.half * new.value / old.value)
    return f"{percent:+.2f} % ± {half:.2f}", "differs" if abs(percent) > half else "the same"
