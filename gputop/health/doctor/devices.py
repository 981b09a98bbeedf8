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
            for event in facts.sample.events
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


def ask_rules(facts: DoctorFacts) -> dict[tuple[str, str], Finding]:
    """Return the findings of the rules that need no history, by rule and device."""
    return {
        (each.rule, each.device_uuid): replace(
            each, sentence=each.sentence[:1].lower() + each.sentence[1:], since=None, evidence=()
        )
        for each in judge_snapshot(facts.inventory, facts.sample).findings
    }


def _of_each(
    needs: Sequence[str], check: DeviceCheck
) -> Callable[[DoctorFacts], Iterator[Finding]]:
    """Return a check of the devices that answer, or which of the needed readings one lacks."""

    def judge(facts: DoctorFacts) -> Iterator[Finding]:
        for device, readings in facts.answering():
            known = {name: getattr(readings, name, getattr(device, name, None)) for name in needs}
            lacking = next((name for name, value in known.items() if value is None), None)
            yield absent(lacking, device, readings) if lacking else check(device, readings)

    return judge


def _fine(text: str) -> DeviceCheck:
    return lambda device, _: ok(text, device)


def _no_ecc(device: Device, readings: DeviceSample) -> Finding:
    if device.ecc_enabled is False:
        remedy = f"`sudo nvidia-smi -i {INDEX} -e 1` and a reboot enable it"
        return note("disabled: memory errors are not seen", remedy, device)
    if readings.ecc_uncorrected is not None and readings.ecc_uncorrected_lifetime:
        many = readings.ecc_uncorrected_lifetime
        return note(f"none now, {many} uncorrected in its life", "Watch it", device)
    if readings.ecc_uncorrected is None:
        return absent("ecc_uncorrected", device, readings)
    return ok("none uncorrected", device)


def _link_not_slow(device: Device, readings: DeviceSample) -> Finding:
    """Tell a link at its maximum from one that cannot be judged without load."""
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


def power_limit(device: Device, readings: DeviceSample) -> Finding:
    """Check for a lowered limit, even if it holds nothing back now."""
    limit, default = readings.power_limit_watts or 0, device.power_limit_default_watts or 0
    lowered = lowered_limit(limit, default, INDEX)
    if lowered is not None:
        return warning(*lowered, device)
    return ok(f"{limit:.0f} W, its default is {default:.0f} W", device)


def persistence(device: Device, _: DeviceSample) -> Finding:
    """Check that the driver keeps the device initialized while nobody uses it."""
    if device.persistence_mode == "enabled":
        return ok("on", device)
    return note(
        "off: the first program each time waits for the device to start",
        f"`sudo nvidia-smi -i {INDEX} -pm 1`, or run nvidia-persistenced",
        device,
    )


def compute_mode(device: Device, _: DeviceSample) -> Finding:
    """Check that programs may compute on it."""
    mode = device.compute_mode or ""
    remedy = f"`sudo nvidia-smi -i {INDEX} -c 0` lets everybody compute"
    if mode == "prohibited":
        return problem("prohibited: no program may compute on it", remedy, device)
    if mode != "default":
        text = f"{value_text('compute_mode', mode)}: one program at a time"
        return note(text, remedy, device)
    return ok("default", device)


_ALL_LISTED = _fine("listed processes hold what is in use")
_MUCH_FREE = _fine(f"more than {100 - FULL.begin:.0f} % free")
_REASONS, _LIMITS = ("clock_event_reasons",), ("power_limit_watts", "power_limit_default_watts")
_LINK = ("pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max")
OF_EACH = (
    ("ecc", "memory errors", "ecc", (), _no_ecc),
    ("remap", "row remapping", "remap", ("remap_pending",), _fine("none pending")),
    ("recovery", "recovery", "recovery", ("recovery_action",), _fine("none")),
    ("almost_full", "free memory", "almost_full", ("memory_free_bytes",), _MUCH_FREE),
    ("unattributed", "memory users", "unattributed", ("memory_unattributed_bytes",), _ALL_LISTED),
    ("thermal", "heat", "thermal", _REASONS, _fine("none now")),
    ("hardware_slowdown", "slowdown", "hardware_slowdown", _REASONS, _fine("none now")),
    ("pcie", "PCIe link", "link_degraded", _LINK, _link_not_slow),
    ("power_limit", "power limit", "", _LIMITS, power_limit),
    ("persistence", "persistence", "", ("persistence_mode",), persistence),
    ("compute_mode", "compute mode", "", ("compute_mode",), compute_mode),
)
"""Name, title, rule, needed readings, and the check of a device without a finding of the rule."""

CHECKS = (
    Check("state", CheckGroup.DEVICES, "state", state),
    Check("xid", CheckGroup.DEVICES, "Xid errors", xids),
    *(
        Check(name, CheckGroup.DEVICES, title, _of_each(needs, check), rule)
        for name, title, rule, needs, check in OF_EACH
    ),
)
