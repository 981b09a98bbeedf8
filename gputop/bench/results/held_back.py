"""Reasons for a slow run: power limit, application clocks, heat, hardware, the host. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from gputop.bench.events import Result
from gputop.bench.plan.kinds import kind_of
from gputop.bench.plan.peaks import find_peak
from gputop.schema.clock_events import BY_WORD, ClockEvent

LOWERED_SHARE = 0.9
"""Share of the model's watts below which a power limit counts as lowered."""
HELD_SHARE = 0.05
"""Share of the timed seconds from which a clock event reason counts."""
CAPPED_SHARE = 0.9
"""Share of the power limit below which the mean power rules out that the limit holds it back."""
AT_LIMIT_SHARE = 0.97
"""Share of the power limit from which the power alone proves that the limit holds the device back.
A device may count a power cap without reporting its reason at the same time."""
LONG_WAIT = 10.0
"""Percent of a run that the device waits for its host, from which the host may be the reason."""


def host_wait_percent(result: Result) -> float:
    """Return the percentage of the run in which the device waited for its host; 0 if unknown."""
    rate, device = result.tflops_mean, result.tflops_device
    if not rate or not device:
        return 0.0
    return 100 * (1 - rate / device)


def knows_reasons(result: Result) -> bool:
    """Return True if the device reports clock event reasons."""
    known = result.known_conditions
    return bool(known.clock_events_known or known.clock_event_seconds)


def is_capped(result: Result) -> bool:
    """Return True if the power limit held the device back for most of the second half."""
    known, limit = (
        result.known_conditions,
        result.known_conditions.power_limit_watts,
    )
    watts = known.late_power_watts_mean
    if (
        watts is not None
        and limit is not None
        and watts >= AT_LIMIT_SHARE * limit
    ):
        return True
    if watts is None:
        watts = known.power_watts_mean
    if (
        watts is not None
        and limit is not None
        and watts < CAPPED_SHARE * limit
    ):
        return False
    held = known.late_power_cap_seconds
    if held is None:  # a result of an older version
        held = _cap_seconds(result) / 2
    return held > result.seconds / 4


def _cap_seconds(result: Result) -> float:
    """Return the seconds of the whole run with a power cap."""
    known = result.known_conditions
    counted = known.clock_event_seconds.get("sw_power_cap", 0.0)
    return max(counted, known.late_power_cap_seconds or 0.0)


def slowdowns(result: Result) -> dict[ClockEvent, float]:
    """Return the seconds of the faults that slowed the device down, above a small share."""
    found = {}
    least = HELD_SHARE * result.seconds
    for word, seconds in result.known_conditions.clock_event_seconds.items():
        event = BY_WORD.get(word)
        if event and event.fault and seconds > least:
            found[event] = seconds
    return found


def slowdown_text(result: Result, held: Mapping[ClockEvent, float]) -> str:
    """Return `software thermal slowdown for 42 s of 60 s`, or an empty text."""
    said = [f"{each.label} for {held[each]:.0f} s" for each in held]
    return f"{', '.join(said)} of {result.seconds:.0f} s" if said else ""


def explanation(result: Result) -> str:
    """Return the explanation of a decrease (a power cap or a slowdown), or an empty text."""
    known, held = result.known_conditions, slowdowns(result)
    seconds, found = _cap_seconds(result), []
    if is_capped(result) and seconds:
        held = {BY_WORD["sw_power_cap"]: seconds, **held}
    elif is_capped(result):
        watts, limit = known.late_power_watts_mean, known.power_limit_watts
        found.append(f"its power limit, at {watts:.0f} of {limit:.0f} W")
    if held:
        found.append(slowdown_text(result, held))
    return " and ".join(found)


def by_power_limit(result: Result) -> str:
    """Return a text if the power limit lowers the clock, else an empty text."""
    known = result.known_conditions
    peak, limit = (
        find_peak(known.pci_device_id, result.device),
        known.power_limit_watts,
    )
    usual = peak.watts if peak else None
    said, is_lowered = "its power limit", False
    if limit is not None:
        said += f" of {limit:.0f} W"
    if usual and limit is not None and limit < LOWERED_SHARE * usual:
        said += f", lowered from {usual:.0f} W,"
        is_lowered = True
    # The rows of a table are too short for a reliable mean of the power.
    often = _cap_seconds(result) > HELD_SHARE * result.seconds
    at_times = has_short_rows(result) and often
    if (
        is_capped(result)
        or at_times
        or (is_lowered and not knows_reasons(result))
    ):
        return f"{said} holds it back"
    return ""


def by_application_clocks(result: Result) -> str:
    """Return a text if application clocks lowered the clock most of the time, else an empty one."""
    held = result.known_conditions.clock_event_seconds.get(
        "application_clocks", 0.0
    )
    return "application clocks are set" if held > result.seconds / 2 else ""


def has_short_rows(result: Result) -> bool:
    """Return True for a table. Its rows are too short for a mean clock of each."""
    return not kind_of(result.kind).over_time
