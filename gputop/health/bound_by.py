"""Name the bottleneck of a GPU in one word, with the numbers behind it.

The conditions below return their evidence, or None if they do not hold. The rules about slowness
use the same conditions, so that a finding and the word never contradict each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gputop.agent.device import DeviceState
from gputop.agent.snapshot import ProcessKind
from gputop.health import thresholds as t
from gputop.health.conditions import STATES
from gputop.health.findings import Bound, BoundBy, Evidence, headlines
from gputop.health.rule_view import (
    NoEvidence,
    RuleView,
    finite,
    lack_text,
    needed,
)
from gputop.schema.clock_events import HEAT_REASONS
from gputop.schema.values import link_bytes
from gputop.text import size

BUSY, SM = "gpu_utilization_percent", "sm_active_percent"
TENSOR, DRAM = "tensor_active_percent", "dram_active_percent"
FP64, FP32 = "fp64_active_percent", "fp32_active_percent"
FP16, OCCUPANCY = "fp16_active_percent", "sm_occupancy_percent"
MEMORY_BUSY, POWER = "memory_utilization_percent", "power_watts"
REASONS = "clock_event_reasons"
GENERATION, WIDTH = "pcie_generation", "pcie_width"
PCIE = ("pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second")
NVLINK = ("nvlink_rx_bytes_per_second", "nvlink_tx_bytes_per_second")
HARDWARE_REASONS = ("hw_power_brake", "hw_slowdown")
COMPUTES = (ProcessKind.COMPUTE, ProcessKind.BOTH, ProcessKind.MPS)


Found = list[Evidence] | None


def activity_percent(view: RuleView) -> float:
    """Return the share of time with work in %, from the driver's own samples if there are any."""
    mean = view.mean(view.activity)
    fine = view.driver_samples(view.activity)
    return mean if fine is None else fine.mean


def gaps(view: RuleView) -> Found:
    """Return the evidence for work with gaps, as on a device that waits for its input."""
    busy = activity_percent(view)
    if not (view.passes(t.STARVED, busy) and view.passes(t.WORKS, busy)):
        return None
    label, samples = "idle", view.driver_samples(view.activity)
    if samples is None:
        samples = view.samples(view.activity)
    else:
        label = f"idle, from {1 / samples.step:.0f} samples a second"
    found = [
        view.measured(
            label,
            view.activity,
            100 - busy,
            headline="idle {}",
        )
    ]
    period = samples.period
    if period is not None:
        found.append(
            view.measured(
                "gaps every",
                view.activity,
                period,
                "s",
                headline="every {}",
            )
        )
    return found


def link_full(view: RuleView) -> Found:
    """Return the evidence for a PCIe link that has hardly any bandwidth left."""
    traffic = view.means(
        *zip(PCIE, PCIE, strict=True), seconds=t.SHORT_SECONDS
    )
    if not traffic:
        raise NoEvidence(PCIE[0])
    most_used = max(traffic, key=lambda each: each.value)
    # An idle link slows down, so use its bandwidth while it was busy.
    generation = max(finite(view.values(GENERATION, t.SHORT_SECONDS)))
    width = max(finite(view.values(WIDTH, t.SHORT_SECONDS)))
    most = needed(link_bytes(generation, width), GENERATION)
    share = 100 * most_used.value / most
    if not view.passes(t.PCIE_SHARE, share):
        return None
    return [
        Evidence(
            "share of the link",
            most_used.reading,
            share,
            "%",
            most_used.seconds,
            f"{{}} of {size(most)}/s",
        )
    ]


def slowed_by_heat(view: RuleView) -> Found:
    """Return the share of time in which heat held the clocks down."""
    share = view.slowed_percent(*HEAT_REASONS)
    return _slowed(view, share) if view.passes(t.HEAT, share) else None


def slowed_by_hardware(view: RuleView) -> Found:
    """Return the share of time slowed by hardware for reasons other than heat, mostly power."""
    share = view.slowed_percent(*HARDWARE_REASONS, without="hw_thermal")
    return (
        _slowed(view, max(1, share))
        if view.passes(t.HARDWARE, share)
        else None
    )


def at_power_limit(view: RuleView) -> Found:
    """Return the share of time in which the power limit held the clocks down."""
    share = view.slowed_percent("sw_power_cap")
    if not view.passes(t.POWER_CAP, share):
        return None
    return _slowed(view, share, "at the power limit")


def _slowed(
    view: RuleView,
    share: float,
    label: str = "slowed",
) -> list[Evidence]:
    headline = "" if view.windows.momentary else "{} of the time"
    return [
        view.measured(
            label,
            REASONS,
            share,
            "%",
            headline=headline,
        )
    ]


def few_sms_work(view: RuleView) -> Found:
    """Return the evidence for a device that is always busy while few of its SMs work.

    Without the reading *SM active*, low power is the evidence.
    """
    busy = view.mean(BUSY)
    if not view.passes(t.BUSY, busy):
        return None
    shown = view.measured(
        "busy, mean",
        BUSY,
        busy,
        headline="busy {}",
    )
    sm = view.mean_or_none(SM)
    if sm is not None:
        if not view.passes(t.FEW_SMS, sm):
            return None
        return [shown, *view.means(("SM active", SM), on_line=True)]
    drawn = needed(power_percent(view), SM)
    if not view.passes(t.FEW_WATTS, drawn):
        return None
    return [
        shown,
        *view.means(("power", POWER)),
        view.measured(
            "share of the power limit",
            POWER,
            drawn,
            "%",
            headline="{} of the limit",
        ),
    ]


def power_percent(view: RuleView) -> float | None:
    """Return the mean power in % of the limit, or None if one of them is unknown."""
    watts, limit = view.mean_or_none(POWER), view.sample.power_limit_watts
    if watts is None or not limit or limit <= 0:
        return None
    return 100 * watts / limit


def without_tensor_cores(view: RuleView) -> Found:
    """Return the evidence for SMs that compute without their tensor cores."""
    computes = any(process.kind in COMPUTES for process in view.processes)
    if not computes or _hardly_works(view):
        return None
    sm, tensor = view.mean(SM), view.mean(TENSOR)
    if not (view.passes(t.SMS_WORK, sm) and view.passes(t.NO_TENSOR, tensor)):
        return None
    # Simulations need FP64, and memory bandwidth is a separate limit.
    fp64, dram = view.mean_or_none(FP64) or 0.0, view.mean_or_none(DRAM) or 0.0
    if fp64 >= t.FP64 or dram >= t.DRAM.end:
        return None
    return view.means(
        ("SM active", SM), ("tensor active", TENSOR), on_line=True
    )


def memory_limits(view: RuleView) -> Found:
    """Return the evidence for work that is limited by memory bandwidth."""
    if _hardly_works(view):
        return None
    dram, tensor = view.mean(DRAM), view.mean(TENSOR)
    if not (
        view.passes(t.DRAM, dram) and view.passes(t.LITTLE_TENSOR, tensor)
    ):
        return None
    return view.means(
        ("DRAM active", DRAM), ("tensor active", TENSOR), on_line=True
    )


def _hardly_works(view: RuleView) -> bool:
    activity = view.mean_or_none(view.activity)
    return activity is not None and activity < t.SMS_WORK.end


def _idle(view: RuleView) -> Found:
    busy = activity_percent(view)
    if view.passes(t.WORKS, busy):
        return None
    return [
        view.measured(
            "busy, mean",
            view.activity,
            busy,
            headline="busy {}",
        )
    ]


def _input(view: RuleView) -> Found:
    return gaps(view) if view.processes else None


def _nvlink_works(view: RuleView) -> Found:
    found = few_sms_work(view)
    if found is None:
        return None
    rates = view.means(*(("NVLink", name) for name in NVLINK), on_line=True)
    if not rates:
        return None
    fastest = max(rates, key=lambda each: each.value)
    return (
        [*found, fastest]
        if view.passes(t.NVLINK_WORKS, fastest.value)
        else None
    )


def _waits_for_peers(view: RuleView) -> Found:
    """Return the evidence for few working SMs while another GPU of the job does other work."""
    found = few_sms_work(view)
    if found is None:
        return None
    for peer in view.peers:
        try:
            if few_sms_work(peer) is None:
                return found
        except NoEvidence:
            continue
    return None


def _fp32(view: RuleView) -> Found:
    if without_tensor_cores(view) is None or not view.passes(
        t.PIPE_WORKS, view.mean(FP32)
    ):
        return None
    return view.means(
        ("FP32 active", FP32), ("tensor active", TENSOR), on_line=True
    )


def _mostly_memory(view: RuleView) -> Found:
    """Return the evidence for full memory bandwidth together with some tensor core work."""
    tensor = view.mean(TENSOR)
    if view.passes(t.TENSOR_WORKS, tensor) or not view.passes(
        t.DRAM, view.mean(DRAM)
    ):
        return None
    return view.means(
        ("DRAM active", DRAM), ("tensor active", TENSOR), on_line=True
    )


def _latency(view: RuleView) -> Found:
    found = view.means(
        ("SM active", SM),
        ("tensor active", TENSOR),
        ("DRAM active", DRAM),
        ("FP32 active", FP32),
        ("SM occupancy", OCCUPANCY),
        on_line=True,
    )
    known = {each.reading for each in found}
    return found if {SM, TENSOR, DRAM} <= known else None


def _memory_busy(view: RuleView) -> Found:
    """Return the share of time in which memory was accessed. Without GPM, nothing more is known."""
    if view.mean_or_none(DRAM) is not None:
        return None
    if not view.passes(t.MEMORY_WORKS, view.mean(MEMORY_BUSY)):
        return None
    return view.means(("memory busy", MEMORY_BUSY), on_line=True)


def _much_power(view: RuleView) -> Found:
    """Return the power if it is so high that computing units must be at work."""
    if view.mean_or_none(TENSOR) is not None:
        return None
    view.mean(view.activity)
    drawn = needed(power_percent(view), POWER)
    if not view.passes(t.MUCH_POWER, drawn):
        return None
    label, headline = "share of the power limit", "power {} of the limit"
    share = view.measured(
        label,
        POWER,
        drawn,
        "%",
        headline=headline,
    )
    return [share, *view.means(("memory busy", MEMORY_BUSY), on_line=True)]


def _passes(
    limit: t.Limit, name: str, *shown: tuple[str, str]
) -> Callable[[RuleView], Found]:
    """Return the condition that the mean of a reading passes a limit."""

    def holds(view: RuleView) -> Found:
        if not view.passes(limit, view.mean(name)):
            return None
        return view.means(*shown, on_line=True)

    return holds


class Condition(NamedTuple):
    """A condition that shows the bottleneck of a device."""

    bound: Bound
    text: str
    holds: Callable[[RuleView], Found]


def _computes(
    units: str,
    label: str,
    name: str,
    limit: t.Limit,
) -> Condition:
    return Condition(
        Bound.COMPUTE,
        f"{units} set the pace",
        _passes(limit, name, (label, name), ("DRAM active", DRAM)),
    )


CONDITIONS = (
    Condition(Bound.TRANSFERS, "the PCIe link is nearly full", link_full),
    Condition(Bound.IDLE, "hardly any work", _idle),
    Condition(Bound.INPUT, "its work has gaps", _input),
    Condition(Bound.HEAT, "clocks are held down by heat", slowed_by_heat),
    Condition(
        Bound.POWER, "clocks are held down by hardware", slowed_by_hardware
    ),
    Condition(Bound.TRANSFERS, "few SMs work, and NVLink does", _nvlink_works),
    Condition(
        Bound.PEERS,
        "few SMs work, it waits for another GPU of its job",
        _waits_for_peers,
    ),
    Condition(Bound.LAUNCHES, "few SMs work at a time", few_sms_work),
    Condition(Bound.MEMORY, "memory bandwidth is the limit", memory_limits),
    Condition(
        Bound.FP32, "FP32 without tensor cores, bf16 or TF32 would help", _fp32
    ),
    Condition(
        Bound.UNKNOWN, "its work has gaps, and no process is listed", gaps
    ),
    Condition(Bound.MEMORY, "memory bandwidth is the limit", _mostly_memory),
    Condition(Bound.MEMORY, "memory is nearly always busy", _memory_busy),
    Condition(
        Bound.POWER, "clocks are held down by the power limit", at_power_limit
    ),
    _computes("tensor cores", "tensor active", TENSOR, t.TENSOR_WORKS),
    _computes("FP32 units", "FP32 active", FP32, t.PIPE_WORKS),
    _computes("FP16 units", "FP16 active", FP16, t.PIPE_WORKS),
    _computes("FP64 units", "FP64 active", FP64, t.PIPE_WORKS),
    Condition(
        Bound.COMPUTE, "it draws as much power as computing does", _much_power
    ),
    Condition(
        Bound.LAUNCHES,
        "half of the SMs are idle, or more",
        _passes(t.HALF_OF_SMS, SM, ("busy", BUSY), ("SM active", SM)),
    ),
    Condition(
        Bound.LATENCY, "SMs are busy, units and memory are not", _latency
    ),
)
"""Conditions in order; the first that holds counts. Limits that a faster GPU would not lift are
first."""


def bound_by(view: RuleView, before: Bound = Bound.UNKNOWN) -> BoundBy:
    """Return the bottleneck of the device. `before` is the previous bottleneck.

    Pure, and never raises. Near a limit, the result stays at `before`.
    """
    if view.sample.state is not DeviceState.OK:
        return BoundBy(Bound.UNKNOWN, STATES[view.sample.state])
    try:
        for condition in CONDITIONS:
            found = _check(condition, view, before)
            if found is not None:
                return BoundBy(
                    condition.bound, condition.text, headlines(found)
                )
    finally:
        view.held = False
    return BoundBy(Bound.UNKNOWN, _missing(view))


def _check(
    condition: Condition,
    view: RuleView,
    before: Bound,
) -> Found:
    view.held = before is condition.bound is not Bound.UNKNOWN
    # A device that was working needs less work to count as working.
    if condition.bound is Bound.IDLE:
        view.held = before not in (Bound.IDLE, Bound.UNKNOWN)
    try:
        return condition.holds(view)
    except NoEvidence:
        return None


def _missing(view: RuleView) -> str:
    """Return which reading is missing and why."""
    for name in (view.activity, SM, TENSOR, DRAM):
        if view.mean_or_none(name) is None:
            return lack_text(name, view.absence(name), view.device, view.host)
    return "no unit is near its limit"
