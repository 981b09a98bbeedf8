"""Verdict about the speed of a device: by its datasheet, like devices and earlier runs. Pure."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gputop.bench.events import DEGRADED, NOT_JUDGED, OK, Result
from gputop.bench.plan.kinds import kind_of
from gputop.bench.plan.peaks import (
    AT_LIVE_CLOCK,
    AT_MAXIMUM_CLOCK,
    BANDWIDTH,
    DATASHEET,
)
from gputop.bench.results import held_back
from gputop.bench.results.advice import Judged, it, see_why, smi_id
from gputop.bench.results.compare import FEWEST_RUNS
from gputop.bench.results.held_back import LONG_WAIT
from gputop.bench.results.measures import judged_rows, measured, percent_below
from gputop.text import count, percentage, visible

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
REFERENCES = {
    DATASHEET: ("dense peak in its datasheet", "its datasheet"),
    BANDWIDTH: (
        "memory bandwidth in its datasheet",
        "its datasheet's bandwidth",
    ),
}
"""Names of peaks in a part of the verdict, and in its summary. Other peaks are computed."""
COMPUTED = "its computed peak"
STUCK_SHARE = 0.4
"""Share of the maximum clock up to which a low clock explains a slow device."""
LEAST_SLOWER = 1.0
"""Least percentage under earlier runs that a summary mentions."""


def judge_by_datasheet(result: Result, least: float) -> Judged:
    """Judge the share of the peak. A slow host is not a fault of the device."""
    judged = _by_peak(result, least)
    if judged.state != DEGRADED:
        return judged
    rate, device = result.tflops_mean, result.tflops_device
    waited = held_back.host_wait_percent(result)
    if not rate or not device or waited < LONG_WAIT:
        return judged._replace(said=_too_slow(result, judged.why))
    known = result.known_conditions
    own = {
        name: share * device / rate
        for name, share in known.percent_of_peak.items()
    }
    busy = replace(result, conditions=replace(known, percent_of_peak=own))
    if _by_peak(busy, least).state == DEGRADED:
        return judged._replace(said=_too_slow(result, judged.why))
    why = f"the host kept it waiting for {waited:.0f} % of the time"
    return _unjudged(why, f"{why}. Free the CPU, and run the test again")


def _unjudged(why: str, said: str = "") -> Judged:
    return Judged(NOT_JUDGED, why, said or why)


def _too_slow(result: Result, why: str) -> str:
    clock = result.known_conditions.sm_clock_mhz_mean
    most, gpu = result.known_conditions.sm_clock_max_mhz, smi_id(result)
    if gpu is None or not clock or not most or clock > STUCK_SHARE * most:
        return f"Too slow: {why}. {see_why(result)}"
    return (
        f"Too slow: its clock stays at {clock:.0f} of {most:.0f} MHz. Undo a limit of the clock "
        f"with `sudo nvidia-smi -i {gpu} -rgc`, and restart the computer if that changes nothing."
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
    if found.state != DEGRADED:
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
    if live.state == NOT_JUDGED:
        return _unjudged(f"{slower}, and the peak at its clock is not known")
    if live.state == DEGRADED and capped and held_back.has_short_rows(result):
        return _unjudged(
            f"{slower}, and its clock differs from row to row: try soak"
        )
    return Judged(live.state, f"{live.why}; {slower}", found.said)


def _share_of_peak(result: Result, limits: Mapping[str, float]) -> Judged:
    """Judge by the first known peak, with its least percentage, for each data type."""
    known = result.known_conditions.percent_of_peak
    shapes = _shapes_by_type(result)
    if not shapes:
        return _unjudged("torch uses int8 kernels of older GPUs on this one")
    for peak, least in limits.items():
        found = {}
        for mark, (dtype, shape) in shapes.items():
            by_formula = dtype in PLAIN_TYPES or f"{DATASHEET}{mark}" in known
            if f"{peak}{mark}" in known and (peak in REFERENCES or by_formula):
                found[mark] = min(shape)
        if found:
            return _judged_share(result, peak, least, found)
    device = "CPU" if result.device_uuid is None else "GPU"
    return _unjudged(
        "no datasheet value is known", f"no reference for this {device}"
    )


def _judged_share(
    result: Result,
    peak: str,
    least: float,
    sides: Mapping[str, int],
) -> Judged:
    """Judge the shares of one peak. `sides` has the least side of the product by data type mark."""
    known, shares = result.known_conditions, {}
    for mark, side in sides.items():
        if peak == BANDWIDTH or side >= LEAST_SIDE:
            shares[mark] = known.percent_of_peak[f"{peak}{mark}"]
    if not shares:
        return _unjudged(f"matrices under {LEAST_SIDE} do not reach the peak")
    reached = [
        f"{mark} {percentage(each, digits=1)}" for mark, each in shares.items()
    ]
    name, short = REFERENCES.get(peak, (peak, COMPUTED))
    why = f"{','.join(reached).strip()} of the {name}"
    low, high = min(shares.values()), max(shares.values())
    said = f"{low:.0f} % of {short}"
    if len(shares) > 1:
        said = f"{low:.0f} to {high:.0f} % of {short}"
    if known.power_limit_watts is not None and held_back.is_capped(result):
        said += (
            f", at its power limit of {known.power_limit_watts:.0f} W as usual"
        )
    if low < least:
        return Judged(DEGRADED, f"{why}, under {least:g} %", said)
    return Judged(OK, why, said)


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


def judge_like_devices(
    result: Result,
    like: Sequence[Result],
    tolerance: float,
) -> Judged:
    """Judge the distance under the median of like devices, for each rate."""
    if not like:
        return Judged(NOT_JUDGED, "no other device like it was in the run")
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
        return Judged(NOT_JUDGED, "the run measured nothing to compare")
    others_said = f"the median of {count(len(like), 'other')} like it"
    if slow:
        why = (
            f"{'; '.join(slow)} under {others_said}, more than {tolerance:g} %"
        )
        return Judged(
            DEGRADED,
            why,
            f"Slower than the others: {why}. "
            f"Compare power limit, clock and temperature of {it(result)} with theirs.",
        )
    where = "under" if worst > 0 else "above"
    why = f"{percentage(abs(worst), digits=1)} {where} {others_said}"
    return Judged(OK, why, "as fast as the others")


def _scatter(name: str, like: Iterable[Result]) -> float:
    """Return the median scatter of a row over the like devices, in percent."""
    rows = (judged_rows(each).get(name) for each in like)
    return statistics.median(
        [row.values.get("spread_percent", 0.0) for row in rows if row] or [0.0]
    )


def judge_by_earlier_runs(result: Result) -> Judged:
    """Judge by the comparison with earlier runs."""
    known = result.known_comparison
    runs, under = known.runs or 0, known.under_percent
    if known.slower is not None:
        said = "Slower than in its earlier runs"
        if under and runs and under >= LEAST_SLOWER:
            said = f"{under:.0f} % slower than in its last {runs} runs"
        advice = f"Compare cooling, power limit and driver of {it(result)} with then."
        return Judged(DEGRADED, known.slower, f"{said}. {advice}")
    if under is None or runs < FEWEST_RUNS:
        why = f"{count(runs, 'run')} like it before, {FEWEST_RUNS} are needed"
        return Judged(NOT_JUDGED, why)
    where = f"{percentage(abs(under), digits=1)} {'under' if under > 0 else 'above'}"
    return Judged(
        OK,
        f"{where} the median of its last {runs} like runs",
        "as fast as in earlier runs",
    )
