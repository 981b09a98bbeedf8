"""Checks of each GPU. A GPU that does not answer has only a finding about its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.health.conditions import PROGRAM_XIDS, event_text, fault_of, gravest_xid
from gputop.health.doctor.checks import INDEX, Check, CheckGroup, absent, note, ok, problem, warning
from gputop.health.judge import judge_snapshot
from gputop.health.rules.hardware import link_text, lowered_limit
from gputop.health.thresholds import FULL
from gputop.schema.device import Device, DeviceSample
from gputop.schema.snapshot import Event
from gputop.schema.values import value_text
from gputop.sources.linux.driver_files import same_address
from gputop.text import duration

if TYPE_CHECKING:
    from gputop.health.doctor.facts import DoctorFacts
    from gputop.health.findings import Finding

DeviceCheck = Callable[[Device, DeviceSample], "Finding"]

DAY_SECONDS = 86_400.0
"""Age up to which an Xid in the kernel's log is a finding."""


def state(facts: DoctorFacts) -> Iterator[Finding]:
    """Check that each GPU answers."""
    for device in facts.gpus:
        readings = facts.readings(device)
        fault = fault_of(readings) if readings else None
        if fault is not None:
            yield problem(fault.what, fault.remedy, device)
        elif readings is None or readings.age_seconds is None:
            yield warning("it has not answered yet", "Run `gputop doctor` again", device)
        else:
            yield ok("answers", device)


def xids(facts: DoctorFacts) -> Iterator[Finding]:
    """Check for Xid errors in the kernel's log and among the events since the start."""
    log = facts.kernel_log
    for device in facts.gpus:
        found = [
            replace(event, time=0.0)
            for event in facts.events
            if event.kind == "xid" and event.device_uuid == device.uuid
        ]
        found += [
            Event(-each.age_seconds, device.uuid, "xid", each.code)
            for each in log.xids
            if each.age_seconds < DAY_SECONDS
            and same_address(each.address, device.pci_bus_id or "")
        ]
        if found:
            yield _worst(device, found)
        elif log.refused is None:
            yield ok("none in the kernel's log of the last day", device)
    if log.refused is not None and facts.gpus:
        yield note(
            f"earlier ones are not known: /dev/kmsg, {log.refused}",
            "Run `sudo gputop doctor`, or `sudo dmesg | grep Xid`",
        )


def _worst(device: Device, found: Sequence[Event]) -> Finding:
    """Return the finding about the gravest Xid; times are in seconds from now."""
    event = gravest_xid(found)
    fault, age = event_text(event), -event.time
    ago = "just now" if age < 1 else f"{duration(age)} ago"
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    made = note if event.code in PROGRAM_XIDS else problem
    return made(f"{fault.what}, {ago}{more}", fault.remedy, device)


def _by_rule(name: str, otherwise: DeviceCheck) -> Callable[[DoctorFacts], Iterator[Finding]]:
    """Return a check made by a rule; `otherwise` is asked about devices without a finding."""

    def judge(facts: DoctorFacts) -> Iterator[Finding]:
        if facts.inventory is None or facts.sample is None:
            return
        findings = judge_snapshot(facts.inventory, facts.sample).findings
        found = {each.device_uuid: each for each in findings if each.rule == name}
        for device, readings in facts.answering():
            finding = found.get(device.uuid)
            if finding is None:
                yield otherwise(device, readings)
            else:
                sentence = finding.sentence[:1].lower() + finding.sentence[1:]
                yield replace(finding, sentence=sentence, since=None, evidence=())

    return judge


def _fine(name: str, text: str) -> DeviceCheck:
    """Return a check that says `text` for a device that has the reading."""

    def check(device: Device, readings: DeviceSample) -> Finding:
        is_absent = getattr(readings, name) is None
        return absent(name, device, readings) if is_absent else ok(text, device)

    return check


def _no_ecc(device: Device, readings: DeviceSample) -> Finding:
    if device.ecc_enabled is False:
        remedy = f"`sudo nvidia-smi -i {INDEX} -e 1` and a reboot enable it"
        return note("disabled: memory errors are not seen", remedy, device)
    if readings.ecc_uncorrected is not None and readings.ecc_uncorrected_lifetime:
        many = readings.ecc_uncorrected_lifetime
        return note(f"none now, {many} uncorrected in its life", "Watch it", device)
    return _fine("ecc_uncorrected", "none uncorrected")(device, readings)


def _link_not_slow(device: Device, readings: DeviceSample) -> Finding:
    """Tell a link at its maximum from one that cannot be judged without load."""
    for name in ("pcie_generation", "pcie_width"):
        for holder, each in ((readings, name), (device, f"{name}_max")):
            if getattr(holder, each) is None:
                return absent(each, device, readings)
    now = (readings.pcie_generation or 0, readings.pcie_width or 0)
    most = (device.pcie_generation_max or 0, device.pcie_width_max or 0)
    if now[0] >= most[0] and now[1] >= most[1]:
        return ok(f"{link_text(*now)}, its most", device)
    if readings.gpu_utilization_percent is None:
        return note(f"not judged: {link_text(*now)}, and its load is not known", "", device)
    return note(
        f"not judged: little load, at {link_text(*now)} of {link_text(*most)}",
        "Run `gputop doctor` again while it computes",
        device,
    )


def _for_each(check: DeviceCheck) -> Callable[[DoctorFacts], Iterator[Finding]]:
    """Return a check of the devices that answer."""

    def judge(facts: DoctorFacts) -> Iterator[Finding]:
        for device, readings in facts.answering():
            yield check(device, readings)

    return judge


def power_limit(device: Device, readings: DeviceSample) -> Finding:
    """Check for a lowered limit, even if it holds nothing back now."""
    limit, default = readings.power_limit_watts, device.power_limit_default_watts
    if limit is None:
        return absent("power_limit_watts", device, readings)
    if default is None:
        return absent("power_limit_default_watts", device, readings)
    lowered = lowered_limit(limit, default, INDEX)
    if lowered is not None:
        return warning(*lowered, device)
    return ok(f"{limit:.0f} W, its default is {default:.0f} W", device)


def persistence(device: Device, readings: DeviceSample) -> Finding:
    """Check that the driver keeps the device initialized while nobody uses it."""
    if device.persistence_mode is None:
        return absent("persistence_mode", device, readings)
    if device.persistence_mode == "enabled":
        return ok("on", device)
    return note(
        "off: the first program each time waits for the device to start",
        f"`sudo nvidia-smi -i {INDEX} -pm 1`, or run nvidia-persistenced",
        device,
    )


def compute_mode(device: Device, readings: DeviceSample) -> Finding:
    """Check that programs may compute on it."""
    mode = device.compute_mode
    if mode is None:
        return absent("compute_mode", device, readings)
    remedy = f"`sudo nvidia-smi -i {INDEX} -c 0` lets everybody compute"
    if mode == "prohibited":
        return problem("prohibited: no program may compute on it", remedy, device)
    if mode != "default":
        text = f"{value_text('compute_mode', mode)}: one program at a time"
        return note(text, remedy, device)
    return ok("default", device)


_ALL_LISTED = "listed processes hold what is in use"
BY_RULE = (
    ("ecc", "memory errors", "ecc", _no_ecc),
    ("remap", "row remapping", "remap", _fine("remap_pending", "none pending")),
    ("recovery", "recovery", "recovery", _fine("recovery_action", "none")),
    (
        "almost_full",
        "free memory",
        "almost_full",
        _fine("memory_free_bytes", f"more than {100 - FULL.begin:.0f} % free"),
    ),
    (
        "unattributed",
        "memory users",
        "unattributed",
        _fine("memory_unattributed_bytes", _ALL_LISTED),
    ),
    ("thermal", "heat", "thermal", _fine("clock_event_reasons", "none now")),
    (
        "hardware_slowdown",
        "slowdown",
        "hardware_slowdown",
        _fine("clock_event_reasons", "none now"),
    ),
    ("pcie", "PCIe link", "link_degraded", _link_not_slow),
)
"""Checks made by a rule: name, title, the rule, and the check for devices without a finding."""

CHECKS = (
    Check("state", CheckGroup.DEVICES, "state", state),
    Check("xid", CheckGroup.DEVICES, "Xid errors", xids),
    *(
        Check(name, CheckGroup.DEVICES, title, _by_rule(rule, otherwise))
        for name, title, rule, otherwise in BY_RULE
    ),
    Check("power_limit", CheckGroup.DEVICES, "power limit", _for_each(power_limit)),
    Check("persistence", CheckGroup.DEVICES, "persistence", _for_each(persistence)),
    Check("compute_mode", CheckGroup.DEVICES, "compute mode", _for_each(compute_mode)),
)
