"""Verdict about a device in parts. Pure.

A part without enough evidence is not judged, and has a reason. If other processes used the device
during the run, only wrong results, memory errors and heat are judged.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
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
from gputop.bench.plan.peaks import (
    AT_LIVE_CLOCK,
    AT_MAXIMUM_CLOCK,
    BANDWIDTH,
    DATASHEET,
)
from gputop.bench.plan.request import (
    DEFAULT_MIN_PERCENT_OF_PEAK,
    DEFAULT_TOLERANCE_PERCENT,
)
from gputop.bench.results import held_back
from gputop.bench.results.columns import ending
from gputop.bench.results.compare import FEWEST_RUNS, method
from gputop.bench.results.held_back import LONG_WAIT
from gputop.bench.results.link_verdict import (
    Judged,
    has_links,
    judge_links,
    judge_pcie,
)
from gputop.bench.results.measures import (
    judged_rows,
    measured,
    memory_errors_text,
    mismatch_text,
    percent_below,
    verified_text,
    wrong_results,
)
from gputop.bench.results.statistics import DIP_SECONDS, LARGE_DROOP
from gputop.bench.results.summary import summary
from gputop.console import COULD_NOT_RUN, FAULT, FINE
from gputop.console import DEGRADED as DEGRADED_STATUS
from gputop.text import count, percentage, visible

STATUSES = {FAULTY: FAULT, DEGRADED: DEGRADED_STATUS}
"""Exit statuses by the state of a verdict. Other states have the status 0."""
FAULTS = {"ecc_uncorrected", "remap_failed"}
"""Counters of memory errors whose rise is a fault."""
BAD_STATES = ("remap_pending", "remap_failed")
"""Counters that are bad without a rise: no spare row is left, or a remap waits for a reset."""
CORRECTED_MANY = 10
"""Corrected errors per run, or per ten minutes of a longer run, from which the memory is degraded.
The health finding has the same limit."""
LEAST_SIDE = 2048
"""Least m, n and k of a product that can reach the peak."""
PLAIN_TYPES = {"float64", "float32", "tf32", "float16", "bfloat16"}
"""Types whose products come near the peak by formula on every GPU with a formula."""
LEAST_OF_FORMULA = 30.0
"""Least percentage of the formula at the maximum clock. No GPU holds this clock at full load."""
UNMEASURED_FROM = 10
"""First major compute capability whose int8 products are not judged.

On these GPUs torch runs kernels for Ampere, which are up to 13 times slower than TF32:
https://github.com/pytorch/pytorch/issues/187094.
"""
DATASHEETS = {
    DATASHEET: "dense peak in its datasheet",
    BANDWIDTH: "memory bandwidth in its datasheet",
}
LARGE_DIP = 15.0
"""Percent of a dip, in the slowest seconds of a run, that needs a reason."""


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


def status(result: Result) -> int:
    """Return the exit status of a result."""
    if result.state in STATUSES:
        return STATUSES[result.state]
    return COULD_NOT_RUN if result.stopped == UNWATCHED else FINE


def judge(
    result: Result, others: Iterable[Result], limits: VerdictLimits = DEFAULTS
) -> Verdict:
    """Return the verdict about the device of a result. `others` are the run's other results."""
    others = [*others]
    like = _like_it(result, others)
    judged = {
        "datasheet": _datasheet(result, limits.min_percent_of_peak),
        "like devices": _like_devices(result, like, limits.tolerance),
        "earlier runs": _earlier_runs(result),
        "throttling": _throttling(result),
        "droop": _droop(result),
    }
    if kind_of(result.kind).over_time:
        judged["steadiness"] = _steadiness(result)
    if result.kind == "copy" and result.device_uuid is not None:
        judged["PCIe"] = judge_pcie(result, others)
        if has_links(result):
            judged["links"] = judge_links(result, like, limits.tolerance)
    for name, why in kind_of(result.kind).unjudged.items():
        judged[name] = NOT_JUDGED, why
    load = result.known_conditions.other_load
    if load:
        said = "; ".join(visible(each, 80) for each in load)
        throttling = judged["throttling"]
        busy = NOT_JUDGED, f"others used the device meanwhile: {said}"
        judged = dict.fromkeys(judged, busy)
        if throttling[0] == DEGRADED:  # heat is a fault under any load
            judged["throttling"] = throttling
    if result.known_conditions.memory_errors:
        judged = {"memory": _memory(result), **judged}
    judged = {"results": _results(result), **judged}
    parts = []
    for name, (state, why) in judged.items():
        if result.stopped == UNWATCHED and state != FAULTY:
            state, why = NOT_JUDGED, ending(result).sentence  # noqa: PLW2901
        parts.append(VerdictPart(name, state, why))
    return Verdict(tuple(parts), summary(result, parts))


def _results(result: Result) -> Judged:
    if result.wrong_elements:
        wrong = wrong_results(result.wrong_elements, result.checks)
        # The first note of a memory test with wrong words names the first address.
        notes = result.notes if result.kind == "memory" else ()
        where = f"; {visible(notes[0], 200)}" if notes else ""
        return FAULTY, f"the device {wrong}{mismatch_text(result)}{where}"
    if not result.checks:
        return NOT_JUDGED, "nothing was checked"
    return (
        OK,
        f"no wrong element in {verified_text(result)}{mismatch_text(result)}",
    )


def _memory(result: Result) -> Judged:
    known = result.known_conditions.memory_errors
    few = CORRECTED_MANY * max(1.0, result.seconds / 600)
    state, bad = OK, {}
    for name, pair in known.items():
        rise = pair[-1] - pair[0] if pair else 0.0
        if rise <= 0 and not (name in BAD_STATES and pair and pair[-1]):
            continue
        bad[name] = pair
        if name in FAULTS:
            state = FAULTY
        elif state == OK and not (name == "ecc_corrected" and rise < few):
            state = DEGRADED
    if not bad:
        return OK, "no counter of memory errors rose"
    return state, memory_errors_text(bad)


def _datasheet(result: Result, least: float) -> Judged:
    """Judge the share of the peak. A slow host is not a fault of the device."""
    judged = _by_peak(result, least)
    rate, device = result.tflops_mean, result.tflops_device
    waited = held_back.host_wait_percent(result)
    if judged[0] != DEGRADED or not rate or not device or waited < LONG_WAIT:
        return judged
    known = result.known_conditions
    own = {
        name: share * device / rate
        for name, share in known.percent_of_peak.items()
    }
    busy = replace(result, conditions=replace(known, percent_of_peak=own))
    if _by_peak(busy, least)[0] == DEGRADED:
        return judged
    return (
        NOT_JUDGED,
        f"the host kept it waiting for {waited:.0f} % of the time",
    )


def _by_peak(result: Result, least: float) -> Judged:
    """Judge by the datasheet, or by the formula at the live clock if a limit lowers the clock.

    At their power limits a healthy T4 and L4 reach 36 to 49 % of their datasheets, and 64 and 93 %
    of the formula at the live clock.
    """
    if kind_of(result.kind).moves_bytes:
        return _share_of_peak(result, {BANDWIDTH: least})
    least_of_formula = min(least, LEAST_OF_FORMULA)
    found = _share_of_peak(
        result, {DATASHEET: least, AT_MAXIMUM_CLOCK: least_of_formula}
    )
    if found[0] != DEGRADED:
        return found
    capped = held_back.by_power_limit(result)
    slower = capped or held_back.by_application_clocks(result)
    if not slower:
        return found
    known = result.known_conditions.percent_of_peak
    has_datasheet = any(name.startswith(DATASHEET) for name in known)
    live = _share_of_peak(
        result, {AT_LIVE_CLOCK: least if has_datasheet else least_of_formula}
    )
    if live[0] == NOT_JUDGED:
        return NOT_JUDGED, f"{slower}, and the peak at its clock is not known"
    if live[0] == DEGRADED and capped and held_back.has_short_rows(result):
        return (
            NOT_JUDGED,
            f"{slower}, and its clock differs from row to row: try soak",
        )
    return live[0], f"{live[1]}; {slower}"


def _share_of_peak(result: Result, limits: Mapping[str, float]) -> Judged:
    """Judge by the first known peak, with its least percentage, for each data type."""
    known = result.known_conditions.percent_of_peak
    shapes = _shapes_by_type(result)
    if not shapes:
        return NOT_JUDGED, "torch uses int8 kernels of older GPUs on this one"
    for peak, least in limits.items():
        found = {}
        for mark, (dtype, shape) in shapes.items():
            by_formula = dtype in PLAIN_TYPES or f"{DATASHEET}{mark}" in known
            if f"{peak}{mark}" in known and (peak in DATASHEETS or by_formula):
                found[mark] = min(shape)
        if found:
            return _judged_share(known, peak, least, found)
    return NOT_JUDGED, "no datasheet value is known"


def _judged_share(
    known: Mapping[str, float],
    peak: str,
    least: float,
    sides: Mapping[str, int],
) -> Judged:
    """Judge the shares of one peak. `sides` has the least side of the product by data type mark."""
    shares = {}
    for mark, side in sides.items():
        if peak == BANDWIDTH or side >= LEAST_SIDE:
            shares[mark] = known[f"{peak}{mark}"]
    if not shares:
        return NOT_JUDGED, f"matrices under {LEAST_SIDE} do not reach the peak"
    reached = [
        f"{mark} {percentage(each, digits=1)}" for mark, each in shares.items()
    ]
    said = f"{','.join(reached).strip()} of the {DATASHEETS.get(peak, peak)}"
    if min(shares.values()) < least:
        return DEGRADED, f"{said}, under {least:g} %"
    return OK, said


def _shapes_by_type(result: Result) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return data type and shape of the judged products, by the suffix of the peak's name.

    A sweep of several types has a suffix for each type. Other results have an empty suffix.
    """
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    if "," not in result.dtype:
        found[""] = result.dtype, (result.m, result.n, result.k)
    else:
        for dtype, row in judged_rows(result).items():
            found[f" {dtype}"] = dtype, row.shape
    for mark, (dtype, _) in list(found.items()):
        if _unmeasured(result, dtype):
            del found[mark]
    return found


def _unmeasured(result: Result, dtype: str) -> bool:
    """Return True for a type without a reference speed on this GPU."""
    major = (result.known_conditions.compute_capability or "").partition(".")[
        0
    ]
    if dtype != "int8" or not re.fullmatch("[0-9]{1,3}", major):
        return False
    return int(major) >= UNMEASURED_FROM


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


def _like_devices(
    result: Result,
    like: Sequence[Result],
    tolerance: float,
) -> Judged:
    if not like:
        return NOT_JUDGED, "no other device like it was in the run"
    slow, worst = [], -math.inf
    for name, value in measured(result).items():
        known = []
        for one in like:
            rate = measured(one).get(name)
            if rate is not None:
                known.append(rate)
        if not known:
            continue
        under = percent_below(value, statistics.median(known))
        worst = max(worst, under)
        if under > tolerance + _scatter(name, like):
            slow.append(
                f"{name and f'{visible(name, 60)} '}{percentage(under, digits=1)}"
            )
    if worst == -math.inf:
        return NOT_JUDGED, "the run measured nothing to compare"
    others_said = f"the median of {count(len(like), 'other')} like it"
    if slow:
        return (
            DEGRADED,
            f"{'; '.join(slow)} under {others_said}, more than {tolerance:g} %",
        )
    where = "under" if worst > 0 else "above"
    return OK, f"{percentage(abs(worst), digits=1)} {where} {others_said}"


def _scatter(name: str, like: Iterable[Result]) -> float:
    """Return the median scatter of a row over the like devices, in percent."""
    rows = (judged_rows(each).get(name) for each in like)
    return statistics.median(
        [row.values.get("spread_percent", 0.0) for row in rows if row] or [0.0]
    )


def _earlier_runs(result: Result) -> Judged:
    known = result.known_comparison
    if known.slower is not None:
        return DEGRADED, known.slower
    runs, under = known.runs or 0, known.under_percent
    if under is None or runs < FEWEST_RUNS:
        return (
            NOT_JUDGED,
            f"{count(runs, 'run')} like it before, {FEWEST_RUNS} are needed",
        )
    where = f"{percentage(abs(under), digits=1)} {'under' if under > 0 else 'above'}"
    return OK, f"{where} the median of its last {runs} like runs"


def _throttling(result: Result) -> Judged:
    if result.stopped in ("limit", "silent"):
        return DEGRADED, ending(result).sentence
    if held := held_back.slowdowns(result):
        return DEGRADED, f"{', '.join(held)} of {result.seconds:.0f} s"
    if not held_back.knows_reasons(result):
        return (
            NOT_JUDGED,
            "the device does not say why its clocks are not higher",
        )
    return OK, "no slowdown by heat or hardware"


def _droop(result: Result) -> Judged:
    if not kind_of(result.kind).over_time:
        return NOT_JUDGED, "only a run of one shape has a droop"
    percent, interval = result.droop_percent, result.droop_interval_percent
    if percent is None or interval is None:
        return NOT_JUDGED, "the run was too short"
    low, high = interval
    said = (
        f"{percentage(percent, digits=1)} below the burst"
        if percent
        else "none beyond noise"
    )
    if low > LARGE_DROOP:
        return _explained(result, said)
    if high - low > LARGE_DROOP:
        wide = f"its 95 % interval is {low:.0f} to {high:.0f} %"
        return (
            NOT_JUDGED,
            f"the rate varies too much to tell {LARGE_DROOP:g} %: {wide}",
        )
    return OK, said


def _steadiness(result: Result) -> Judged:
    if result.dip_percent is None:
        return NOT_JUDGED, "the run was too short"
    share = percentage(result.dip_percent, digits=1)
    said = f"its slowest {DIP_SECONDS:g} s are {share} under the median"
    return (
        _explained(result, said)
        if result.dip_percent > LARGE_DIP
        else (OK, said)
    )


def _explained(result: Result, said: str) -> Judged:
    """Return the state of a device with a large decrease: it is ok if a known limit explains it."""
    if held := held_back.explanation(result):
        return OK, f"{said}, by {held}"
    if not held_back.knows_reasons(result):
        return (
            NOT_JUDGED,
            f"{said}, and the device does not say why its clocks are not higher",
        )
    return DEGRADED, f"{said}, without a power cap or heat"
