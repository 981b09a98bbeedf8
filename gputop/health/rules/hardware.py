"""Rules about the hardware: reduced clocks and their reasons, the PCIe link, errors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite

from gputop.agent.device import Device
from gputop.agent.words import CLOCK_EVENT_BITS
from gputop.health import conditions
from gputop.health import thresholds as t
from gputop.health.bound_by import (
    BUSY,
    GENERATION,
    PCIE,
    POWER,
    REASONS,
    WIDTH,
)
from gputop.health.findings import Bound, Evidence, Finding, Severity
from gputop.health.rule_view import NoEvidence, RuleView, finite, needed
from gputop.health.rules.workload import CLOCK, HEAT
from gputop.schema.advice import INDEX, RESET, fill_in, shared_command
from gputop.schema.catalogue import RECOVERIES
from gputop.schema.clock_events import BY_WORD, HEAT_REASONS, mask_of
from gputop.schema.derived import SLOWDOWN_BITS
from gputop.schema.values import link_bytes
from gputop.text import duration, size

CLOCK_MAX = "sm_clock_max_mhz"
HARDWARE_REASONS = ("hw_power_brake", "hw_slowdown")
ECC, ECC_UNCORRECTED = "ecc_corrected", "ecc_uncorrected"
TRAFFIC = dict(zip(PCIE, ("receives", "sends"), strict=True))
MOST_POINTS = 60
"""Most samples to read from ten minutes. More precision is not needed."""


def power_capped(view: RuleView) -> Finding | None:
    """Find clocks reduced by the power limit. This is normal at full load unless it was lowered."""
    found = _slowed_share(
        view, t.POWER_CAP, ("sw_power_cap",), label="at the power limit"
    )
    if found is None:
        return None
    evidence = [
        *found,
        *view.means(("power", POWER)),
        *view.newest("power limit", "power_limit_watts"),
        *_clock(view),
    ]
    limit, default = (
        view.sample.power_limit_watts,
        view.device.power_limit_default_watts,
    )
    lowered = lowered_limit(limit, default, view.device)
    if lowered is not None:
        evidence += view.newest("its default", "power_limit_default_watts")
        what, remedy = lowered
        return Finding(
            Severity.WARNING,
            f"held back by a power limit of {what}",
            evidence,
            remedy,
            bound=Bound.POWER,
        )
    return Finding(
        Severity.INFORMATION,
        "at the power limit, which is normal at full load",
        evidence,
        "Nothing to do: it is as fast as its power limit allows",
        bound=Bound.POWER,
    )


def lowered_limit(
    limit: float | None, default: float | None, device: Device
) -> tuple[str, str] | None:
    """Return a lowered power limit in words and the remedy, or None if it was not lowered."""
    if limit is None or not default or limit >= t.LIMIT_LOWERED * default:
        return None
    restore = shared_command(f"-pl {default:.0f}", device)
    return (
        f"{limit:.0f} W, below its default of {default:.0f} W",
        f"If this limit is not intended, restore it: {restore} (check power and cooling)",
    )


def thermal(view: RuleView) -> Finding | None:
    """Find clocks reduced by heat."""
    slowed = _slowed_share(view, t.HEAT, HEAT_REASONS)
    if slowed is None:
        return None
    evidence = view.means(("temperature", HEAT))
    evidence += view.newest("slows down at", "temperature_slowdown_celsius")
    lost, cost = _lost(view, HEAT_REASONS)
    return Finding(
        Severity.WARNING,
        BY_WORD["sw_thermal"].fault,
        [*slowed, *lost, *evidence, *_clock(view)],
        "Check fans, dust, airflow and its neighbours; a lower power limit costs less than "
        "throttling",
        cost_percent=cost,
        bound=Bound.HEAT,
    )


def hardware_slowdown(view: RuleView) -> Finding | None:
    """Find a slowdown by the hardware for reasons other than heat, mostly power."""
    slowed = _slowed_share(view, t.HARDWARE, HARDWARE_REASONS, "hw_thermal")
    if slowed is None:
        return None
    brake, other = HARDWARE_REASONS
    cause = brake if view.slowed_percent(brake) > 0 else other
    lost, cost = _lost(view, HARDWARE_REASONS)
    evidence = view.means(("power", POWER))
    return Finding(
        Severity.WARNING,
        BY_WORD[cause].fault,
        [*slowed, *lost, *evidence, *_clock(view)],
        "Check power cables and supply, and what else draws from it; `dmesg` may say more",
        cost_percent=cost,
        bound=Bound.POWER,
    )


def _slowed_share(
    view: RuleView,
    limit: t.Limit,
    causes: Sequence[str],
    without: str = "",
    label: str = "slowed",
) -> list[Evidence] | None:
    """Return the share of time with a cause and not `without`, or None below the limit."""
    share = view.slowed_percent(*causes, without=without)
    if not view.passes(limit, share):
        return None
    headline = "{} of the time"
    if view.momentary:
        headline = ""
    return [view.measured(label, REASONS, share, "%", headline=headline)]


def clocks_low(view: RuleView) -> Finding | None:
    """Find clocks that are low under load without a reason from the driver."""
    if not view.passes(t.CLOCK_LOAD, view.mean(view.activity)):
        return None
    clock = needed(view.mean_or_none(CLOCK, at_work=True), CLOCK)
    maximum = view.reading(CLOCK_MAX)
    if maximum <= 0 or not view.passes(t.LOW_CLOCK, 100 * clock / maximum):
        return None
    unslowed = view.unslowed_percent()
    if not view.passes(t.NO_REASON, unslowed):
        return None
    return Finding(
        Severity.WARNING,
        "clocks are low under load for no stated reason",
        [
            *_clock(view, "{}"),
            view.measured("without a reason", REASONS, unslowed, "%"),
            *view.means(("power", POWER), ("busy", view.activity)),
        ],
        f"They may be locked: `nvidia-smi -q -d CLOCK -i {INDEX}` shows it, "
        f"{shared_command('-rgc', view.device)} undoes it; on a laptop check the power mode",
        cost_percent=100 * (1 - clock / maximum),
    )


def _clock(view: RuleView, headline: str = "") -> list[Evidence]:
    clock = view.mean_or_none(CLOCK, at_work=True)
    if clock is None:
        return []
    found = [
        view.measured(
            "SM clock at work, mean",
            CLOCK,
            clock,
            headline=headline,
        )
    ]
    if view.device.sm_clock_max_mhz:
        found += view.newest(
            "its maximum", CLOCK_MAX, headline and f"of {headline}"
        )
    return found


def _lost(
    view: RuleView, causes: Sequence[str]
) -> tuple[list[Evidence], float]:
    """Return the time lost by a slowdown in the last minutes, and its share in percent.

    A slowed second counts by how far its clock is below the clock of the other busy seconds.
    """
    window = view.windows[t.LONG_SECONDS]
    step = max(1, window.samples // MOST_POINTS)
    history, uuid = view.history, view.device.uuid
    masks = history.last(uuid, SLOWDOWN_BITS, window.samples)[::step]
    clocks = history.last(uuid, CLOCK, window.samples)[::step]
    bits = mask_of(causes)
    slow, free, known = [], [], 0
    for mask, clock in zip(masks, clocks, strict=True):
        if not isfinite(mask + clock):
            continue
        known += 1
        if int(mask) & bits:
            slow.append(clock)
        elif not int(mask) & CLOCK_EVENT_BITS["idle"]:
            free.append(clock)
    full = (
        sum(free) / len(free)
        if free
        else float(view.device.sm_clock_max_mhz or 0)
    )
    each = window.span / max(1, known)
    evidence = [
        Evidence("slowed for", REASONS, len(slow) * each, "s", window.span)
    ]
    lost = 0.0
    if full > 0:
        lost = sum(1 - min(clock, full) / full for clock in slow) * each
    if not lost:
        return evidence, 0.0
    headline = f"lost {{}} in {duration(window.span)}"
    evidence.append(Evidence("lost", CLOCK, lost, "s", window.span, headline))
    return evidence, 100 * lost / window.span


def pcie_bound(view: RuleView) -> Finding | None:
    """Find a PCIe link that has hardly any bandwidth left."""
    labelled = [(verb, name) for name, verb in TRAFFIC.items()]
    traffic = view.means(*labelled, seconds=t.SHORT_SECONDS)
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
    full = view.measured(
        "share of the link",
        most_used.reading,
        share,
        "%",
        t.SHORT_SECONDS,
        f"{{}} of {size(most)}/s",
    )
    return Finding(
        Severity.WARNING,
        f"PCIe link nearly full, {TRAFFIC[most_used.reading]} most",
        [full, *traffic, *view.means(("busy", BUSY))],
        "Keep data on the device, copy less and in smaller types, overlap copies with work "
        "(pinned memory, non_blocking)",
        bound=Bound.TRANSFERS,
    )


def link_text(generation: float, width: float) -> str:
    """Return generation and width of a link in words."""
    return f"gen {generation:.0f} ×{width:.0f}"


def link_degraded(view: RuleView) -> Finding | None:
    """Find a PCIe link that is narrower or slower under load than device and slot allow."""
    # The device is on the host's chip, not in a slot.
    if view.device.memory_is_shared:
        return None
    generation_max, width_max = (
        view.reading("pcie_generation_max"),
        view.reading("pcie_width_max"),
    )
    generation = max(finite(view.values(GENERATION)))
    width = max(finite(view.values(WIDTH)))
    if generation >= generation_max and width >= width_max:
        return None
    if not view.passes(t.LINK_LOAD, view.mean(view.activity)):
        return None
    state = view.sample.performance_state
    if not view.held and state is not None and state > t.FAST_STATES:
        return None
    present, most = (
        link_text(generation, width),
        link_text(generation_max, width_max),
    )
    evidence = [
        Evidence("generation, of its maximum", GENERATION, generation),
        Evidence("lanes, of their maximum", WIDTH, width),
    ]
    ours = link_bytes(generation, width)
    full = link_bytes(generation_max, width_max)
    if ours and full:
        evidence += [
            Evidence("it can carry", PCIE[0], ours, "B/s"),
            Evidence("it could carry", PCIE[0], full, "B/s"),
        ]
    return Finding(
        Severity.WARNING,
        f"PCIe link at {present} of {most} under load",
        [*evidence, *view.means(("busy", view.activity))],
        "Check the seating of card and riser, the slot and the BIOS; after an error a reboot may "
        "bring it back",
    )


def xid(view: RuleView) -> Finding | None:
    """Find the gravest Xid of the last hour."""
    recent = [
        e
        for e in view.events
        if e.kind == "xid" and view.now - e.time < t.XID_SECONDS
    ]
    if not recent:
        return None
    last = conditions.gravest_xid(recent)
    what, remedy = conditions.event_text(last, view.device, view.sample)
    evidence = [
        Evidence(
            "Xids in the last hour", "events", len(recent), "", t.XID_SECONDS
        )
    ]
    if last.code is not None:
        evidence.append(Evidence("code", "events", last.code))
    return Finding(
        conditions.xid_severity(last.code), what, evidence, remedy, last.time
    )


def ecc(view: RuleView) -> Finding | None:
    """Find uncorrected memory errors, and an increase of corrected ones.

    A single snapshot cannot show an increase.
    """
    uncorrected = view.sample.ecc_uncorrected
    if uncorrected:
        return Finding(
            Severity.FAULT,
            conditions.ecc_text(uncorrected),
            view.newest("uncorrected", ECC_UNCORRECTED),
            f"{_repair(view)}. Run the jobs that used it again: their data may be wrong. "
            "If the errors come back, have it replaced",
        )
    if view.reading(ECC):
        rising = _corrected(view)
        if rising is not None:
            return rising
    view.reading(ECC_UNCORRECTED)
    return None


def _corrected(view: RuleView) -> Finding | None:
    counts = view.values(ECC, t.ECC_SECONDS, enough=0.01)
    # A counter that decreases was reset.
    rise = sum(
        max(0.0, after - before) for before, after in pairwise(finite(counts))
    )
    if rise <= 0:
        return None
    span = view.windows[t.ECC_SECONDS].span
    severity, remedy = (
        Severity.INFORMATION,
        "Nothing to do for an occasional one",
    )
    if rise >= t.ECC_MANY:
        severity = Severity.WARNING
        remedy = "Watch it: many of them often precede an uncorrected one"
    return Finding(
        severity,
        "corrected ECC errors",
        [
            Evidence(
                "corrected", ECC, rise, "", span, f"{{}} in {duration(span)}"
            ),
            *view.newest("since the start", ECC),
        ],
        remedy,
    )


def remap(view: RuleView) -> Finding | None:
    """Find a memory row that the next reset replaces, or a device without spare rows."""
    rows = view.newest("rows replaced in its life", "remapped_rows")
    if view.sample.remap_failed:
        return Finding(
            Severity.FAULT, conditions.NO_SPARE_ROWS, rows, "Have it replaced"
        )
    if view.reading("remap_pending"):
        return Finding(
            Severity.WARNING,
            conditions.ROW_PENDING,
            rows,
            _repair(view),
        )
    return None


def recovery(view: RuleView) -> Finding | None:
    """Find a recovery action that the driver recommends."""
    action = needed(view.sample.recovery_action, "recovery_action")
    if action == "none":
        return None
    return Finding(
        Severity.FAULT,
        conditions.recovery_text(action),
        [],
        _repair(view),
    )


def _repair(view: RuleView) -> str:
    """Return the action that the driver recommends, or else a reset."""
    action = view.sample.recovery_action or "none"
    if action not in RECOVERIES:
        return f"Look at `nvidia-smi -q -i {view.device.index}`"
    remedy = RECOVERIES[action].remedy or RESET
    return fill_in(remedy, view.device, view.sample)
