"""Rules about the hardware: clocks and what holds them down, the PCIe link, errors."""

from __future__ import annotations

from itertools import compress, pairwise, repeat
from math import isfinite
from typing import TYPE_CHECKING

from gputop.health import thresholds as t
from gputop.health.conditions import (
    NO_SPARE_ROWS,
    ROW_PENDING,
    counted,
    ecc_text,
    event_text,
    gravest_xid,
    recovery_text,
    xid_severity,
)
from gputop.health.findings import Evidence, Finding, Severity
from gputop.health.rule_view import NoEvidence, RuleView, evidence_now, finite
from gputop.schema.clock_events import BITS, BY_WORD, mask_of
from gputop.schema.snapshot import SLOWDOWN_BITS
from gputop.schema.values import span_text, value_text
from gputop.text import duration, percentage, size

if TYPE_CHECKING:
    from collections.abc import Sequence

BUSY, CLOCK, POWER = "gpu_utilization_percent", "sm_clock_mhz", "power_watts"
REASONS = "clock_event_reasons"
ECC, ECC_UNCORRECTED = "ecc_corrected", "ecc_uncorrected"
GENERATION, WIDTH = "pcie_generation", "pcie_width"
TRAFFIC = {"pcie_rx_bytes_per_second": "receives", "pcie_tx_bytes_per_second": "sends"}
LANE_BYTES = {1: 250e6, 2: 500e6, 3: 984.6e6, 4: 1969e6, 5: 3938e6, 6: 7563e6}
"""Bytes/s of a lane by generation, after line coding and before headers (PCI-SIG)."""
HEAT_CAUSES = ("sw_thermal", "hw_thermal")
LOST = "work lost by it, as time"
"""Label of the evidence for lost work."""
MOST_POINTS = 60
"""Most samples of ten minutes that are read: more precision than anyone needs."""


def power_capped(view: RuleView) -> Finding | None:
    """Find clocks held down by the power limit: normal at full load unless it was lowered."""
    share = view.slowed_percent("sw_power_cap")
    if not view.passes(t.POWER_CAP, share):
        return None
    evidence = [_share("at the power limit", share, view), *view.mean_evidence("power", POWER)]
    limit, default = view.sample.power_limit_watts, view.device.power_limit_default_watts
    if limit is not None:
        evidence.append(evidence_now("power limit", "power_limit_watts", limit))
    evidence += _clock(view)
    lowered = lowered_limit(limit, default, str(view.device.index))
    if lowered is not None and default is not None:
        evidence.append(evidence_now("its default", "power_limit_default_watts", default))
        what, advice = lowered
        return Finding(Severity.WARNING, f"Held back by a power limit of {what}", evidence, advice)
    return Finding(
        Severity.INFORMATION,
        f"At its power limit {percentage(share)} of the time: normal at full load",
        evidence,
        "Nothing to do: it is as fast as its power limit allows",
    )


def lowered_limit(limit: float | None, default: float | None, index: str) -> tuple[str, str] | None:
    """Return the power limit in words and the remedy if somebody lowered it, else None."""
    if limit is None or not default or limit >= t.LIMIT_LOWERED * default:
        return None
    back = f"`sudo nvidia-smi -i {index} -pl {default:.0f}`"
    return (
        f"{limit:.0f} W, below its default of {default:.0f} W",
        f"If nobody meant it: {back}, if power supply and cooling allow it",
    )


def thermal(view: RuleView) -> Finding | None:
    """Find clocks held down by heat."""
    share = view.slowed_percent(*HEAT_CAUSES)
    if not view.passes(t.HEAT, share):
        return None
    evidence = [_share("slowed by heat", share, view), *_lost(view, HEAT_CAUSES)]
    evidence += view.mean_evidence("temperature", "temperature_celsius")
    slowdown = view.device.temperature_slowdown_celsius
    if slowdown is not None:
        evidence.append(evidence_now("slows down at", "temperature_slowdown_celsius", slowdown))
    return Finding(
        Severity.WARNING,
        f"{_fault('sw_thermal')} {_when(share, view)}{_loss_text(evidence)}",
        [*evidence, *_clock(view)],
        "Check fans, dust, airflow and its neighbours; a lower power limit costs less than "
        "throttling",
    )


def hardware_slowdown(view: RuleView) -> Finding | None:
    """Find a slowdown by hardware other than heat: mostly by the power supply."""
    causes = ("hw_power_brake", "hw_slowdown")
    share = view.slowed_percent(*causes, without="hw_thermal")
    if not view.passes(t.HARDWARE, share):
        return None
    cause = causes[0] if view.slowed_percent(causes[0]) > 0 else causes[1]
    evidence = [_share("slowed by hardware", share, view), *_lost(view, causes)]
    return Finding(
        Severity.WARNING,
        f"{_fault(cause)} {_when(max(1, share), view)}{_loss_text(evidence)}",
        [*evidence, *view.mean_evidence("power", POWER), *_clock(view)],
        "Check power cables and supply, and what else draws from it; `dmesg` may say more",
    )


def clocks_low(view: RuleView) -> Finding | None:
    """Find clocks that are low under load for no reason that the driver gives."""
    if not view.passes(t.CLOCK_LOAD, view.mean(view.activity)):
        return None
    clock, maximum = view.mean(CLOCK), view.reading("sm_clock_max_mhz")
    if maximum <= 0 or not view.passes(t.LOW_CLOCK, 100 * clock / maximum):
        return None
    unslowed = view.unslowed_percent()
    if not view.passes(t.NO_REASON, unslowed):
        return None
    evidence = [*_clock(view), _share("without a reason", unslowed, view)]
    return Finding(
        Severity.WARNING,
        f"Clocks are low for no stated reason: {clock:.0f} of {maximum:.0f} MHz under load",
        [
            *evidence,
            *view.mean_evidence("power", POWER),
            *view.mean_evidence("busy", view.activity),
        ],
        "They may be locked: `nvidia-smi -q -d CLOCK` shows it, `nvidia-smi -rgc` as root undoes "
        "it; on a laptop check the power mode",
    )


def _fault(cause: str) -> str:
    return BY_WORD[cause].fault.capitalize()


def _when(share: float, view: RuleView) -> str:
    return "now" if view.windows.momentary else f"{percentage(share)} of the time"


def _share(label: str, share: float, view: RuleView) -> Evidence:
    return Evidence(label, REASONS, share, "%", view.span(t.WINDOW_SECONDS))


def _clock(view: RuleView) -> list[Evidence]:
    found = view.mean_evidence("SM clock", CLOCK)
    maximum = view.device.sm_clock_max_mhz
    return (
        [*found, evidence_now("its maximum", "sm_clock_max_mhz", maximum)]
        if found and maximum
        else found
    )


def _lost(view: RuleView, causes: Sequence[str]) -> list[Evidence]:
    """Return for how long it was slowed in the last minutes, and the work lost by that.

    A slowed second counts by how far its clock is below that of the other busy seconds.
    """
    window = view.windows.within(t.LONG_SECONDS)
    if "clocks" not in view.memo:
        count, history, uuid = window.samples, view.windows.history, view.device.uuid
        step = max(1, count // MOST_POINTS)
        masks = history.last(uuid, SLOWDOWN_BITS, count)[::step]
        clocks = history.last(uuid, CLOCK, count)[::step]
        there = [m + c == m + c for m, c in zip(masks, clocks, strict=True)]  # none is NaN
        view.memo["clocks"] = [*map(int, compress(masks, there))], [*compress(clocks, there)]
    masks_there, clocks_there = view.memo["clocks"]
    bits = mask_of(causes)
    slow = [*compress(clocks_there, (mask & bits for mask in masks_there))]
    not_free = bits | BITS["idle"]
    free = [*compress(clocks_there, (not mask & not_free for mask in masks_there))]
    full = sum(free) / len(free) if free else float(view.device.sm_clock_max_mhz or 0)
    each = window.span / max(1, len(clocks_there))
    evidence = [Evidence("slowed for", REASONS, len(slow) * each, "s", window.span)]
    if full > 0:
        lost = (len(slow) - sum(map(min, slow, repeat(full))) / full) * each
        evidence.append(Evidence(LOST, CLOCK, lost, "s", window.span))
    return evidence


def _loss_text(evidence: Sequence[Evidence]) -> str:
    lost = next((e for e in evidence if e.label == LOST), None)
    if lost is None or not lost.value or not lost.seconds:
        return ""
    return f": about {span_text(lost.value)} of work lost in {duration(lost.seconds)}"


def link_bytes(generation: float, width: float) -> float | None:
    """Return the link's bandwidth per direction in bytes/s, or None if unknown."""
    lane = LANE_BYTES.get(int(generation))
    return lane * width if lane is not None and width > 0 else None


def pcie_bound(view: RuleView) -> Finding | None:
    """Find a PCIe link with hardly any bandwidth left."""
    rates = {name: view.mean_or_none(name, t.SHORT_SECONDS) for name in TRAFFIC}
    known = {name: rate for name, rate in rates.items() if rate is not None}
    if not known:
        raise NoEvidence(next(iter(TRAFFIC)))
    name, rate = max(known.items(), key=lambda item: item[1])
    most = link_bytes(view.reading(GENERATION), view.reading(WIDTH))
    if most is None:
        raise NoEvidence(GENERATION)
    if not view.passes(t.PCIE_SHARE, 100 * rate / most):
        return None
    # An idle link slows down: judge by its bandwidth while it was busy.
    generation = max(finite(view.values(GENERATION, t.SHORT_SECONDS)))
    most = link_bytes(generation, max(finite(view.values(WIDTH, t.SHORT_SECONDS)))) or most
    share = 100 * rate / most
    if not view.passes(t.PCIE_SHARE, share):
        return None
    evidence = [Evidence("share of the link", name, share, "%", view.span(t.SHORT_SECONDS))]
    for each, verb in TRAFFIC.items():
        evidence += view.mean_evidence(verb, each, t.SHORT_SECONDS)
    sentence = f"Its PCIe link is nearly full: it {TRAFFIC[name]} {size(rate)}/s of {size(most)}/s"
    return Finding(
        Severity.WARNING,
        sentence,
        [*evidence, *view.mean_evidence("busy", BUSY)],
        "Keep data on the device, copy less and in smaller types, overlap copies with work "
        "(pinned memory, non_blocking)",
    )


def link_text(generation: float, width: float) -> str:
    """Return generation and width of a link in words."""
    return f"gen {generation:.0f} ×{width:.0f}"


def link_degraded(view: RuleView) -> Finding | None:
    """Find a PCIe link that is narrower or slower under load than device and slot allow."""
    generation_max, width_max = view.reading("pcie_generation_max"), view.reading("pcie_width_max")
    generation = max(finite(view.values(GENERATION)))
    width = max(finite(view.values(WIDTH)))
    if generation >= generation_max and width >= width_max:
        return None
    if not view.passes(t.LINK_LOAD, view.mean(view.activity)):
        return None
    state = view.sample.performance_state
    if not view.held and state is not None and state > t.FAST_STATES:
        return None
    present, most = link_text(generation, width), link_text(generation_max, width_max)
    evidence = [evidence_now("generation, of its maximum", GENERATION, generation)]
    evidence.append(evidence_now("lanes, of their maximum", WIDTH, width))
    ours, full = link_bytes(generation, width), link_bytes(generation_max, width_max)
    if ours and full:
        evidence.append(evidence_now("it can carry", "pcie_rx_bytes_per_second", ours))
        evidence.append(evidence_now("it could carry", "pcie_rx_bytes_per_second", full))
    return Finding(
        Severity.WARNING,
        f"Its PCIe link runs at {present} of {most} under load",
        [*evidence, *view.mean_evidence("busy", view.activity)],
        "Check the seating of card and riser, the slot and the BIOS; after an error a reboot may "
        "bring it back",
    )


def xid(view: RuleView) -> Finding | None:
    """Find the gravest Xid of the last hour."""
    recent = [e for e in view.events if e.kind == "xid" and view.now - e.time < t.XID_SECONDS]
    if not recent:
        return None
    last = gravest_xid(recent)
    what, remedy = event_text(last)
    evidence = [Evidence("Xids in the last hour", "events", len(recent), "", t.XID_SECONDS)]
    if last.code is not None:
        evidence.append(evidence_now("code", "events", last.code))
    return Finding(xid_severity(last.code), what, evidence, remedy, last.time)


def ecc(view: RuleView) -> Finding | None:
    """Find any uncorrected memory error, and corrected ones while they rise.

    One snapshot shows no rise.
    """
    uncorrected = view.sample.ecc_uncorrected
    if uncorrected:
        return Finding(
            Severity.FAULT,
            ecc_text(uncorrected),
            [evidence_now("uncorrected", ECC_UNCORRECTED, uncorrected)],
            "Affected jobs crashed or have corrupt data: restart them. Reset the device when idle; "
            "if the errors come back, have it replaced",
        )
    rising = _corrected(view) if view.reading(ECC) else None
    if rising is None:
        view.reading(ECC_UNCORRECTED)
    return rising


def _corrected(view: RuleView) -> Finding | None:
    counts = view.values(ECC, t.ECC_SECONDS, enough=0.01)
    known = [*filter(isfinite, counts)]
    last = known[-1]
    # A counter that goes backwards was reset.
    rise = sum(max(0.0, after - before) for before, after in pairwise(known))
    if rise <= 0:
        return None
    span = view.span(t.ECC_SECONDS)
    many = rise >= t.ECC_MANY
    return Finding(
        Severity.WARNING if many else Severity.INFORMATION,
        f"{counted(round(rise), 'corrected ECC error')} in {duration(span)}",
        [Evidence("corrected", ECC, rise, "", span), evidence_now("since the start", ECC, last)],
        "Watch it: many of them often precede an uncorrected one. A reset may put a spare row in"
        if many
        else "Nothing to do for one now and then",
    )


def remap(view: RuleView) -> Finding | None:
    """Find a memory row that waits for its spare, or a device without spares."""
    if view.sample.remap_failed:
        return Finding(Severity.FAULT, NO_SPARE_ROWS, _rows(view), "Have it replaced")
    if view.reading("remap_pending"):
        return Finding(
            Severity.WARNING,
            ROW_PENDING,
            _rows(view),
            "Reset it when it is idle: `nvidia-smi --gpu-reset`, or reboot",
        )
    return None


def _rows(view: RuleView) -> list[Evidence]:
    rows = view.sample.remapped_rows
    return (
        [] if rows is None else [evidence_now("rows replaced in its life", "remapped_rows", rows)]
    )


def recovery(view: RuleView) -> Finding | None:
    """Find a recovery action that the driver asks for."""
    action = view.sample.recovery_action
    if action is None:
        view.reading("recovery_action")
    if action in (None, "none"):
        return None
    remedy = value_text("recovery_action", action)
    remedy = remedy[:1].upper() + remedy[1:]
    return Finding(Severity.FAULT, recovery_text(action), [], remedy)
