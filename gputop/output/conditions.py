"""The conditions of a run as people read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gputop.output.values import CAUSES, span_text, value_text
from gputop.text import quantity, tflops, visible

if TYPE_CHECKING:
    from gputop.bench.events import Conditions


def condition_rows(conditions: Conditions | None) -> Iterator[tuple[str, str]]:
    """What it is, in a word, and how it was; what is not known is left out."""
    if conditions is None:
        return
    known = conditions
    if known.power_watts_mean is not None:
        limit = known.power_limit_watts
        of = "" if limit is None else f", limit {limit:.0f} W"
        yield "power", f"{known.power_watts_mean:.0f} W in the mean{of}"
    if known.energy_joules is not None:
        efficiency = known.tflop_per_joule
        per = "" if efficiency is None else f", {tflops(efficiency)} TFLOP/J"
        energy = value_text("energy_joules", known.energy_joules)
        yield "energy", f"{energy} by the device's counter{per}"
    if known.sm_clock_mhz_mean is not None:
        most = known.sm_clock_max_mhz
        of = "" if most is None else f", at most {most:.0f} MHz"
        yield "clock", f"{known.sm_clock_mhz_mean:.0f} MHz in the mean{of}"
    if known.temperature_celsius_max is not None:
        yield "heat", f"up to {quantity(known.temperature_celsius_max, '°C')}"
    if known.heat_limit is not None:
        yield "heat limit", visible(known.heat_limit, 120)
    if known.clock_event_seconds:
        yield "held back", ", ".join(_held(known))
    if known.driver_version is not None:
        yield "driver", visible(known.driver_version, 40)


def _held(conditions: Conditions) -> Iterator[str]:
    """The longest first."""
    spent = sorted(conditions.clock_event_seconds.items(), key=lambda each: -each[1])
    for reason, seconds in spent:
        yield f"{CAUSES.get(reason, visible(reason, 40))} {span_text(seconds)}"
