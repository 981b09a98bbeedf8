"""Checks of each GPU that are rules: those that need no history, asked of one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gputop.health.alerts import Severity
from gputop.health.doctor.finding import INDEX, Check, Group, Judgement, Status, absent, note, ok
from gputop.health.judge import judge_snapshot
from gputop.health.thresholds import FULL
from gputop.schema.device import Device, DeviceSample

if TYPE_CHECKING:
    from gputop.health.doctor.facts import Facts
    from gputop.health.findings import Finding

Judged = Callable[[Device, DeviceSample], Judgement]

STATUSES = {
    Severity.INFORMATION: Status.NOTE,
    Severity.WARNING: Status.WARNING,
    Severity.FAULT: Status.PROBLEM,
}


def _by_rule(name: str, otherwise: Judged) -> Callable[[Facts], Iterator[Judgement]]:
    """A check that the rule of that name makes; `otherwise` says it where that finds nothing."""

    def judge(facts: Facts) -> Iterator[Judgement]:
        if facts.inventory is None or facts.sample is None:
            return
        found = judge_snapshot(facts.inventory, facts.sample).findings
        said = {finding.device_uuid: finding for finding in found if finding.rule == name}
        for device, readings in facts.answering():
            finding = said.get(device.uuid)
            yield _said(finding, device) if finding else otherwise(device, readings)

    return judge


def _said(finding: Finding, device: Device) -> Judgement:
    sentence = finding.sentence[:1].lower() + finding.sentence[1:]
    return Judgement(STATUSES[finding.severity], sentence, finding.advice, device)


def no_ecc(device: Device, readings: DeviceSample) -> Judgement:
    """No memory error that was not corrected."""
    if device.ecc_enabled is False:
        remedy = f"`sudo nvidia-smi -i {INDEX} -e 1` and a reboot enable it"
        return note("disabled: memory errors are not seen", remedy, device)
    if readings.ecc_uncorrected is None:
        return absent("ecc_uncorrected", device, readings)
    if readings.ecc_uncorrected_lifetime:
        many = readings.ecc_uncorrected_lifetime
        return note(f"none now, {many} uncorrected in its life", "Watch it", device)
    return ok("none uncorrected", device)


def no_remap(device: Device, readings: DeviceSample) -> Judgement:
    """No row of memory that is to be replaced by a spare one."""
    if readings.remap_pending is None:
        return absent("remap_pending", device, readings)
    return ok("none pending", device)


def no_recovery(device: Device, readings: DeviceSample) -> Judgement:
    """Nothing that the driver wants done."""
    if readings.recovery_action is None:
        return absent("recovery_action", device, readings)
    return ok("none", device)


def not_full(device: Device, readings: DeviceSample) -> Judgement:
    """Memory is left."""
    used, free = readings.memory_used_bytes, readings.memory_free_bytes
    if used is None or free is None:
        return absent("memory_free_bytes", device, readings)
    return ok(f"more than {100 - FULL.begin:.0f} % free", device)


def attributed(device: Device, readings: DeviceSample) -> Judgement:
    """Its memory is that of the processes that are listed."""
    if readings.memory_unattributed_bytes is None:
        return absent("memory_unattributed_bytes", device, readings)
    return ok("listed processes hold what is in use", device)


def not_slowed(device: Device, readings: DeviceSample) -> Judgement:
    """Its clocks are not held down by that."""
    if readings.clock_event_reasons is None:
        return absent("clock_event_reasons", device, readings)
    return ok("none now", device)


def not_degraded(device: Device, readings: DeviceSample) -> Judgement:
    """A link that is as fast as it could be, or one without load: that slows itself down."""
    for name in ("pcie_generation", "pcie_width"):
        for holder, each in ((readings, name), (device, f"{name}_max")):
            if getattr(holder, each) is None:
                return absent(each, device, readings)
    now = (readings.pcie_generation or 0, readings.pcie_width or 0)
    most = (device.pcie_generation_max or 0, device.pcie_width_max or 0)
    if now[0] >= most[0] and now[1] >= most[1]:
        return ok(f"{_link(now)}, its most", device)
    if readings.gpu_utilization_percent is None:
        return note(f"not judged: {_link(now)}, and its load is not known", "", device)
    return note(
        f"not judged: little load, at {_link(now)} of {_link(most)}",
        "Run `gputop doctor` again while it computes",
        device,
    )


def _link(link: tuple[int, int]) -> str:
    return f"gen {link[0]} ×{link[1]}"


RULED = (
    ("ecc", "memory errors", "ecc", no_ecc),
    ("remap", "row remapping", "remap", no_remap),
    ("recovery", "recovery", "recovery", no_recovery),
    ("almost_full", "free memory", "almost_full", not_full),
    ("unattributed", "memory users", "unattributed", attributed),
    ("thermal", "heat", "thermal", not_slowed),
    ("hardware_slowdown", "slowdown", "hardware_slowdown", not_slowed),
    ("pcie", "PCIe link", "link_degraded", not_degraded),
)
"""The checks that a rule makes: name, title, the rule, and what is said where it finds nothing."""

CHECKS = tuple(
    Check(name, Group.DEVICES, title, _by_rule(rule, otherwise))
    for name, title, rule, otherwise in RULED
)
