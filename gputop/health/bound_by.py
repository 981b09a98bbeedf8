"""Name the bottleneck of a GPU in one word, with the numbers behind it.

Most words come from the findings of the rules, so that a finding and the word never contradict each
other. The others say what a GPU does that nothing slows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gputop.agent.device import DeviceState
from gputop.health import thresholds as t
from gputop.health.conditions import STATES
from gputop.health.findings import Bound, BoundBy, Finding, headlines
from gputop.health.rule_view import RuleView, lack_text
from gputop.text import percentage

BUSY, SM = "gpu_utilization_percent", "sm_active_percent"
TENSOR, DRAM = "tensor_active_percent", "dram_active_percent"
FP64, FP32 = "fp64_active_percent", "fp32_active_percent"
FP16, OCCUPANCY = "fp16_active_percent", "sm_occupancy_percent"
MEMORY_BUSY, POWER = "memory_utilization_percent", "power_watts"
REASONS = "clock_event_reasons"
GENERATION, WIDTH = "pcie_generation", "pcie_width"
PCIE = ("pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second")
NVLINK = ("nvlink_rx_bytes_per_second", "nvlink_tx_bytes_per_second")


FIRST = ("pcie_bound",)
"""Rules that give the word of a device even without work."""
ORDER = (
    "input_bound",
    "thermal",
    "hardware_slowdown",
    "not_working",
    "memory_bound",
    "no_tensor_cores",
    "power_capped",
)
"""Rules that give the word of a device with work. Limits that a faster GPU would not lift are
first."""
UNITS = (
    ("tensor cores", "tensor active", TENSOR, t.TENSOR_WORKS),
    ("FP32 units", "FP32 active", FP32, t.PIPE_WORKS),
    ("FP16 units", "FP16 active", FP16, t.PIPE_WORKS),
    ("FP64 units", "FP64 active", FP64, t.PIPE_WORKS),
)
"""Units, label and reading of their activity, and the limit from which they set the pace."""


def activity_percent(view: RuleView) -> float:
    """Return the share of time with work in %, from the driver's own samples if there are any."""
    mean = view.mean(view.activity)
    fine = view.driver_samples(view.activity)
    return mean if fine is None else fine.mean


def power_percent(view: RuleView) -> float | None:
    """Return the mean power in % of the limit, or None if one of them is unknown."""
    watts, limit = view.mean_or_none(POWER), view.sample.power_limit_watts
    if watts is None or not limit or limit <= 0:
        return None
    return 100 * watts / limit


def bound_by(
    view: RuleView,
    found: Mapping[str, Finding],
    before: Bound = Bound.UNKNOWN,
) -> BoundBy:
    """Return the bottleneck of the device. `found` has the findings about it, by rule.

    Pure, and never raises. Near a limit, the result stays at `before`, the previous bottleneck.
    """
    if view.sample.state is not DeviceState.OK:
        return BoundBy(Bound.UNKNOWN, STATES[view.sample.state])
    word = (
        _by_rules(found, FIRST)
        or _idle(view, before)
        or _by_rules(found, ORDER)
        or _waits_for_rank(view)
        or _has_gaps(view)
        or _computes(view, before)
        or _works(view, before)
        or BoundBy(Bound.UNKNOWN, _missing(view))
    )
    view.held = False
    return word


def _by_rules(
    found: Mapping[str, Finding], rules: Iterable[str]
) -> BoundBy | None:
    for rule in rules:
        finding = found.get(rule)
        if finding is not None and finding.bound is not None:
            numbers = headlines(finding.evidence)
            return BoundBy(finding.bound, finding.title, numbers)
    return None


def _idle(view: RuleView, before: Bound) -> BoundBy | None:
    # A device that was working needs less work to count as working.
    view.held = before not in (Bound.IDLE, Bound.UNKNOWN)
    if view.mean_or_none(view.activity) is None:
        return None
    busy = activity_percent(view)
    if view.passes(t.WORKS, busy):
        return None
    return BoundBy(Bound.IDLE, "hardly any work", [f"busy {percentage(busy)}"])


def _waits_for_rank(view: RuleView) -> BoundBy | None:
    if view.job is None or view.held_up is None:
        return None
    if view.rank not in view.job.waiting:
        return None
    why = f"it waits for rank {view.held_up.rank} of its job"
    return BoundBy(Bound.PEERS, why)


def _has_gaps(view: RuleView) -> BoundBy | None:
    """Return the word for gaps that the rule about input does not find, without processes."""
    if view.mean_or_none(view.activity) is None:
        return None
    busy = activity_percent(view)
    if busy > t.STARVED.begin:
        return None
    why = "its work has gaps, and no process is listed"
    return BoundBy(Bound.UNKNOWN, why, [f"idle {percentage(100 - busy)}"])


def _computes(view: RuleView, before: Bound) -> BoundBy | None:
    view.held = before is Bound.COMPUTE
    for units, label, name, limit in UNITS:
        mean = view.mean_or_none(name)
        if mean is not None and view.passes(limit, mean):
            numbers = _numbers(view, (label, name), ("DRAM active", DRAM))
            return BoundBy(Bound.COMPUTE, f"{units} set the pace", numbers)
    drawn = power_percent(view)
    if drawn is None or view.mean_or_none(TENSOR) is not None:
        return None
    if view.mean_or_none(view.activity) is None:
        return None
    if not view.passes(t.MUCH_POWER, drawn):
        return None
    why = "it draws as much power as computing does"
    numbers = [f"power {percentage(drawn)} of the limit"]
    numbers += _numbers(view, ("memory busy", MEMORY_BUSY))
    return BoundBy(Bound.COMPUTE, why, numbers)


def _works(view: RuleView, before: Bound) -> BoundBy | None:
    """Return the word for SMs that work, or partly work, below the limits of all units."""
    sm = view.mean_or_none(SM)
    if sm is None:
        return None
    view.held = before is Bound.LAUNCHES
    if view.passes(t.HALF_OF_SMS, sm):
        numbers = _numbers(view, ("busy", BUSY), ("SM active", SM))
        why = "half of the SMs are idle, or more"
        return BoundBy(Bound.LAUNCHES, why, numbers)
    if view.mean_or_none(TENSOR) is None or view.mean_or_none(DRAM) is None:
        return None
    numbers = _numbers(
        view,
        ("SM active", SM),
        ("tensor active", TENSOR),
        ("DRAM active", DRAM),
        ("FP32 active", FP32),
        ("SM occupancy", OCCUPANCY),
    )
    why = "SMs are busy, units and memory are not"
    return BoundBy(Bound.LATENCY, why, numbers)


def _numbers(view: RuleView, *labelled: tuple[str, str]) -> list[str]:
    return headlines(view.means(*labelled, on_line=True))


def _missing(view: RuleView) -> str:
    """Return which reading is missing and why."""
    for name in (view.activity, SM, TENSOR, DRAM):
        if view.mean_or_none(name) is None:
            return lack_text(name, view.absence(name), view.device, view.host)
    return "no unit is near its limit"
