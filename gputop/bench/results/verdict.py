"""Verdict about a device in parts. Pure.

A part without enough evidence is not judged, and has a reason. If other processes used the device
during the run, only wrong results, memory errors and heat are judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gputop.bench.events import (
    DEGRADED,
    FAULTY,
    NOT_JUDGED,
    OK,
    UNWATCHED,
    Result,
    Verdict,
    VerdictPart,
)
from gputop.bench.plan.kinds import kind_of
from gputop.bench.plan.request import (
    DEFAULT_MIN_PERCENT_OF_PEAK,
    DEFAULT_TOLERANCE_PERCENT,
)
from gputop.bench.results import held_back
from gputop.bench.results.advice import (
    Judged,
    it,
    number,
    reset,
    see_why,
    smi_id,
    summary,
)
from gputop.bench.results.compare import method
from gputop.bench.results.link_verdict import (
    has_links,
    judge_links,
    judge_pcie,
)
from gputop.bench.results.measures import (
    memory_errors_text,
    mismatch_text,
    verified_text,
    wrong_results,
)
from gputop.bench.results.outcome import ending
from gputop.bench.results.speed_verdict import (
    judge_by_datasheet,
    judge_by_earlier_runs,
    judge_like_devices,
)
from gputop.bench.results.statistics import DIP_SECONDS, LARGE_DROOP
from gputop.text import count, duration, percentage, visible

FAULTS = {"ecc_uncorrected", "remap_failed"}
"""Counters of memory errors whose rise is a fault."""
BAD_STATES = ("remap_pending", "remap_failed")
"""Counters that are bad without a rise: no spare row is left, or a remap waits for a reset."""
CORRECTED_MANY = 10
"""Corrected errors per run, or per ten minutes of a longer run, from which the memory is degraded.
The health finding has the same limit."""
LARGE_DIP = 15.0
"""Percent of a dip, in the slowest seconds of a run, that needs a reason."""
COOL_CELSIUS = 75.0
"""Temperature below which the summary calls a device under full load cool."""
LOWER_POWER_SHARE = 0.85
"""Share of the power limit that the advice for a hot device suggests."""
LEAST_DROOP = 1.0
"""Least droop in percent that the summary of a hot device mentions."""


@dataclass(frozen=True, slots=True)
class VerdictLimits:
    """Limits that a user can set, in percent."""

    min_percent_of_peak: float = DEFAULT_MIN_PERCENT_OF_PEAK
    tolerance: float = DEFAULT_TOLERANCE_PERCENT
    """Largest distance of a device under the median of its like devices."""


DEFAULTS = VerdictLimits()


def with_verdicts(
    results: Sequence[Result], limits: VerdictLimits = DEFAULTS
) -> list[Result]:
    """Return results of one run, each with its verdict. It uses their comparisons with history."""
    judged = []
    for each in results:
        others = [one for one in results if one is not each]
        judged.append(replace(each, verdict=judge(each, others, limits)))
    return judged


def judge(
    result: Result, others: Iterable[Result], limits: VerdictLimits = DEFAULTS
) -> Verdict:
    """Return the verdict about the device of a result. `others` are the run's other results.

    A part comes before those that it may explain.
    """
    others = [*others]
    like = _like_it(result, others)
    judged = {"throttling": _throttling(result)}
    if result.kind == "copy" and result.device_uuid is not None:
        if has_links(result):
            judged["links"] = judge_links(result, like, limits.tolerance)
        judged["PCIe"] = judge_pcie(result, others)
    judged |= {
        "like devices": judge_like_devices(result, like, limits.tolerance),
        "earlier runs": judge_by_earlier_runs(result),
        "datasheet": judge_by_datasheet(result, limits.min_percent_of_peak),
        "droop": _droop(result),
    }
    if kind_of(result.kind).over_time:
        judged["steadiness"] = _steadiness(result)
    for name, why in kind_of(result.kind).unjudged.items():
        judged[name] = Judged(NOT_JUDGED, why)
    load = result.known_conditions.other_load
    if load:
        throttling = judged["throttling"]
        judged = dict.fromkeys(judged, _busy(load))
        if throttling.state == DEGRADED:  # heat is a fault under any load
            judged["throttling"] = throttling
    if result.known_conditions.memory_errors:
        judged = {"memory": _memory(result), **judged}
    judged = {"results": _results(result), **judged}
    for name, part in judged.items():
        if result.stopped == UNWATCHED and part.state != FAULTY:
            judged[name] = Judged(NOT_JUDGED, ending(result).sentence)
    parts = [
        VerdictPart(name, part.state, part.why)
        for name, part in judged.items()
    ]
    return Verdict(tuple(parts), summary(result, judged))


def _busy(load: Sequence[str]) -> Judged:
    who = "; ".join(visible(each, 60) for each in load)
    return Judged(
        NOT_JUDGED,
        f"others used the device meanwhile: {who}",
        f"others used the device ({who}). Run the test again when it is free",
    )


def _results(result: Result) -> Judged:
    if result.wrong_elements:
        wrong = wrong_results(result.wrong_elements, result.checks)
        # The first note of a memory test with wrong words names the first address.
        notes = result.notes if result.kind == "memory" else ()
        where = f"; {visible(notes[0], 200)}" if notes else ""
        why = f"the device {wrong}{mismatch_text(result)}{where}"
        return Judged(FAULTY, why, _wrong(result))
    if not result.checks:
        return Judged(NOT_JUDGED, "nothing was checked")
    why = f"no wrong element in {verified_text(result)}{mismatch_text(result)}"
    return Judged(OK, why)


def _wrong(result: Result) -> str:
    """Return a description of the wrong results, and the remedy."""
    elements = count(result.wrong_elements, "element")
    if result.kind == "collective":
        return (
            f"wrong results from collectives ({elements} wrong). Test each device alone "
            "with `gputop bench check`; if all are right, a link between them is bad."
        )
    remedy = f"Have {it(result)} replaced."
    if result.device_uuid is None:
        remedy = "Undo overclocking, and test the memory of this computer."
    if result.kind == "memory":
        return f"its memory changed data ({elements} wrong). {remedy}"
    if kind_of(result.kind).moves_bytes:
        return f"copies changed data ({elements} wrong). {remedy}"
    products = sum(
        result.mismatches.get(each, 0) for each in ("wrong", "unexplained")
    )
    verified = result.verified_products
    if products and verified:
        what = f"wrong results in {products:,} of {count(verified, 'product')}"
    else:
        what = f"wrong results ({elements} wrong in {count(result.checks, 'check')})"
    return f"{what}. {remedy}"


def _memory(result: Result) -> Judged:
    few = CORRECTED_MANY * max(1.0, result.seconds / 600)
    state, bad, rises = OK, {}, {}
    for name, pair in result.known_conditions.memory_errors.items():
        rise = pair[-1] - pair[0] if pair else 0.0
        if rise <= 0 and not (name in BAD_STATES and pair and pair[-1]):
            continue
        bad[name], rises[name] = pair, rise
        if name in FAULTS:
            state = FAULTY
        elif state == OK and not (name == "ecc_corrected" and rise < few):
            state = DEGRADED
    if not bad:
        return Judged(OK, "no counter of memory errors rose")
    if "remap_failed" in bad:
        said = (
            f"its memory has no spare cells left. Have {it(result)} replaced."
        )
    elif "ecc_uncorrected" in bad:
        said = (
            "its memory lost data during the test (uncorrectable errors). "
            f"{reset(result)} Have it replaced if this happens again."
        )
    elif "remap_pending" in bad:
        said = f"Bad memory cells wait to be replaced by spare ones. {reset(result)}"
    else:
        said = "Its memory replaced bad cells by spare ones during the test."
        if "ecc_corrected" in bad:
            many = count(int(rises["ecc_corrected"]), "error")
            said = f"Its memory corrected {many} during the test."
        again = f"gputop bench memory --device {number(result)}"
        said += (
            f" Run `{again}`; have {it(result)} replaced if it happens again."
        )
    return Judged(state, memory_errors_text(bad), said)


def _like_it(result: Result, others: Iterable[Result]) -> list[Result]:
    """Return the results of the same test on healthy, unshared devices of the same model."""
    like = []
    for each in others:
        is_like = each.device == result.device
        is_good = not each.wrong_elements
        is_alone = not each.known_conditions.other_load
        if is_like and is_good and is_alone and method(each) == method(result):
            like.append(each)
    return like


def _throttling(result: Result) -> Judged:
    if result.stopped == "silent":
        said = (
            "The driver did not answer for too long, so the test was ended. Look for Xid "
            f"errors of {it(result)} with `sudo dmesg`, and run the test again."
        )
        return Judged(DEGRADED, ending(result).sentence, said)
    celsius = result.known_conditions.temperature_celsius_max
    held = held_back.slowdowns(result)
    why = held_back.slowdown_text(result, held)
    heat = [seconds for event, seconds in held.items() if event.is_heat]
    if result.stopped == "limit":
        at = "" if celsius is None else f" at {celsius:.0f}°C"
        when = f"the test was ended{at} after {duration(result.seconds)}"
        said = f"Too hot: {when}. {_cooler(result)}"
        return Judged(DEGRADED, ending(result).sentence, said)
    if heat:
        slower = f"slowed down for {max(heat):.0f} of {result.seconds:.0f} s"
        if (result.droop_percent or 0.0) >= LEAST_DROOP:
            slower = _slower(result)
        return Judged(DEGRADED, why, f"Too hot: {slower}. {_cooler(result)}")
    if held:
        check = f"Check the power cables, power supply and cooling of {it(result)}."
        said = f"Slowed down by its hardware: {why}. {check}"
        return Judged(DEGRADED, why, said)
    if not held_back.knows_reasons(result):
        return Judged(
            NOT_JUDGED,
            "the device does not say why its clocks are not higher",
        )
    said = ""
    if celsius is not None:
        said = f"not slowed by heat ({celsius:.0f}°C)"
        if celsius < COOL_CELSIUS:
            said = "cool"
    return Judged(OK, "no slowdown by heat or hardware", said)


def _slower(result: Result) -> str:
    """Return the droop, and when it was over: `17 % slower after 15 s`."""
    steady = result.time_to_steady_seconds
    after = f" after {duration(steady)}" if steady else ""
    return f"{result.droop_percent or 0.0:.0f} % slower{after}"


def _cooler(result: Result) -> str:
    limit, gpu = result.known_conditions.power_limit_watts, smi_id(result)
    if limit is None or gpu is None:
        return "Improve airflow."
    watts = round(LOWER_POWER_SHARE * limit, -1)
    return f"Improve airflow, or limit power with `sudo nvidia-smi -i {gpu} -pl {watts:.0f}`."


def _droop(result: Result) -> Judged:
    if not kind_of(result.kind).over_time:
        return Judged(NOT_JUDGED, "only a run of one shape has a droop")
    percent, interval = result.droop_percent, result.droop_interval_percent
    if percent is None or interval is None:
        return Judged(NOT_JUDGED, "the run was too short")
    low, high = interval
    why = "none beyond noise"
    if percent:
        why = f"{percentage(percent, digits=1)} below the burst"
    if low > LARGE_DROOP:
        said = f"It got {_slower(result)}, not by heat or its power limit."
        return _explained(result, why, said)
    if high - low > LARGE_DROOP:
        wide = f"its 95 % interval is {low:.0f} to {high:.0f} %"
        return Judged(
            NOT_JUDGED,
            f"the rate varies too much to tell {LARGE_DROOP:g} %: {wide}",
        )
    return Judged(OK, why)


def _steadiness(result: Result) -> Judged:
    if result.dip_percent is None:
        return Judged(NOT_JUDGED, "the run was too short")
    share = percentage(result.dip_percent, digits=1)
    why = f"its slowest {DIP_SECONDS:g} s are {share} under the median"
    if result.dip_percent <= LARGE_DIP:
        return Judged(OK, why)
    said = f"Its speed is uneven: {why}, without a power cap or heat."
    return _explained(result, why, said)


def _explained(result: Result, why: str, said: str) -> Judged:
    """Judge a large decrease. The device is ok if a known limit explains it."""
    held = held_back.explanation(result)
    if held:
        return Judged(OK, f"{why}, by {held}")
    if not held_back.knows_reasons(result):
        return Judged(
            NOT_JUDGED,
            f"{why}, and the device does not say why its clocks are not higher",
        )
    why = f"{why}, without a power cap or heat"
    return Judged(DEGRADED, why, f"{said} {see_why(result)}")
