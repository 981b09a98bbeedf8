"""Reasons for a slow run: power limit, application clocks, heat, hardware, the host. Pure."""

from __future__ import annotations

import math

from gputop.bench.events import Result
from gputop.bench.plan.kinds import kind_of
from gputop.bench.plan.peaks import find_peak
from gputop.schema.clock_events import BY_WORD

LOWERED_SHARE = 0.9
"""Share of the model's watts under which its power limit was lowered."""
HELD_SHARE = 0.05
"""Share of the timed seconds from which a clock event reason counts."""
CAPPED_SHARE = 0.9
"""Least share of the power limit that a device draws in the mean if that limit holds it back."""
AT_LIMIT_SHARE = 0.97
"""Share of the power limit from which the power alone shows that the limit holds the device back.
Real cards count a power cap and do not report its reason at the same moment."""
LONG_WAIT = 10.0
"""Percent of a run that the device waited for its host, from which the host may be the reason."""


def host_wait_percent(result: Result) -> float:
    """Return how much of the run the device waited for its host, in percent; 0 if unknown."""
    rate, device = result.tflops_mean, result.tflops_device
    if not rate or not device:
        return 0.0
    return 100 * (1 - rate / device)


def knows_reasons(result: Result) -> bool:
    """Return True if the device reports clock event reasons."""
    known = result.known_conditions
    return bool(known.clock_events_known or known.clock_event_seconds)


def _shortest_run(result: Result) -> float:
    """Return the seconds of the run; of `pairs` those of the shorter one, alone or together."""
    rows = result.points if result.kind == "pairs" else ()
    return min(
        (row.values.get("seconds", math.inf) for row in rows), default=result.seconds
    )


def is_capped(result: Result) -> bool:
    """Return True if the power limit held the device back for most of the second half."""
    known, limit = result.known_conditions, result.known_conditions.power_limit_watts
    late = known.late_power_watts_mean
    if late is not None and limit is not None and late >= AT_LIMIT_SHARE * limit:
        return True
    watts = known.power_watts_mean if late is None else late
    held = known.late_power_cap_seconds
    if held is None:  # of an older version
        held = _cap_seconds(result) / 2
    near = watts is None or limit is None or watts >= CAPPED_SHARE * limit
    return near and held > _shortest_run(result) / 4


def _cap_seconds(result: Result) -> float:
    """Return how long a power cap held in the whole run."""
    known = result.known_conditions
    counted = known.clock_event_seconds.get("sw_power_cap", 0.0)
    return max(counted, known.late_power_cap_seconds or 0.0)


def slowdowns(result: Result) -> list[str]:
    """Return the faults that slowed the device down for more than a small share of the run."""
    least = HELD_SHARE * _shortest_run(result)
    return [
        f"{BY_WORD[word].label} for {seconds:.0f} s"
        for word, seconds in result.known_conditions.clock_event_seconds.items()
        if word in BY_WORD and BY_WORD[word].fault and seconds > least
    ]


def explanation(result: Result) -> str:
    """Return what explains a decrease, a power cap or a slowdown, or nothing."""
    known, held = result.known_conditions, slowdowns(result)
    by_power = ""
    if is_capped(result):
        if seconds := _cap_seconds(result):
            held.insert(0, f"{BY_WORD['sw_power_cap'].label} for {seconds:.0f} s")
        else:
            watts, limit = known.late_power_watts_mean, known.power_limit_watts
            by_power = f"its power limit, at {watts:.0f} of {limit:.0f} W"
    of_run = f"{', '.join(held)} of {result.seconds:.0f} s" if held else ""
    return " and ".join(each for each in (by_power, of_run) if each)


def by_power_limit(result: Result) -> str:
    """Return that the power limit holds the clock down, or nothing."""
    known = result.known_conditions
    peak, limit = find_peak(known.pci_device_id, result.device), known.power_limit_watts
    usual = peak.watts if peak else None
    is_lowered = bool(usual and limit is not None and limit < LOWERED_SHARE * usual)
    # Rows of a table are too short for a mean of the power to show much.
    at_times = (
        has_short_rows(result) and _cap_seconds(result) > HELD_SHARE * result.seconds
    )
    if not (
        is_capped(result) or at_times or (is_lowered and not knows_reasons(result))
    ):
        return ""
    watts = "" if limit is None else f" of {limit:.0f} W"
    of = f", lowered from {usual:.0f} W," if is_lowered else ""
    return f"its power limit{watts}{of} holds it back"


def by_application_clocks(result: Result) -> str:
    """Return that application clocks held the clock down for most of the run, or nothing."""
    held = result.known_conditions.clock_event_seconds.get("application_clocks", 0.0)
    return "application clocks are set" if held > result.seconds / 2 else ""


def has_short_rows(result: Result) -> bool:
    """Return True for a table, whose rows are too short to have a clock of their own."""
    return not kind_of(result.kind).over_time
