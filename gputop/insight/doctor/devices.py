"""Checks of each GPU. What one that does not answer says of the rest is its state, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gputop.insight.doctor.finding import INDEX, Check, Group, Judgement, note, ok, problem, warning
from gputop.output.absences import absence_text
from gputop.output.faults import event_text, fault_of
from gputop.output.values import value_text
from gputop.telemetry.alerts import PROGRAM_XIDS
from gputop.telemetry.kernel_log import same_address
from gputop.telemetry.snapshot import Absence, Device, DeviceSample, DeviceState, Event
from gputop.text import duration, visible

if TYPE_CHECKING:
    from gputop.insight.doctor.facts import Facts

Judged = Callable[[Device, DeviceSample], Judgement]

LOADED_PERCENT = 25
"""From where a device is at work, and its link is at its full speed."""
FAST_STATES = 3
"""P0 to P3: in slower ones the link may be slower, too."""
LEAST_SHARE = 0.99
"""Of the default power limit: less is not rounding."""
RECENT_SECONDS = 86_400.0
"""How long an Xid is of late."""


def state(facts: Facts) -> Iterator[Judgement]:
    """Whether it answers."""
    for device in facts.gpus:
        readings = facts.readings(device)
        fault = fault_of(readings) if readings else None
        if fault is not None:
            yield problem(fault.what, fault.remedy, device)
        elif readings is None or readings.age_seconds is None:
            yield warning("it has not answered yet", "Run `gputop doctor` again", device)
        else:
            yield ok("answers", device)


def _of_each(judged: Judged) -> Callable[[Facts], Iterator[Judgement]]:
    """A check that needs the readings of a device that answers."""

    def judge(facts: Facts) -> Iterator[Judgement]:
        for device in facts.gpus:
            readings = facts.readings(device)
            if readings is not None and readings.state is DeviceState.OK:
                yield judged(device, readings)

    return judge


def _absent(name: str, device: Device, readings: DeviceSample) -> Judgement:
    """Nothing to judge by: fine where the device has no such thing."""
    reason = {**device.absent, **readings.absent}.get(name, Absence.NOT_SUPPORTED)
    if reason is Absence.NOT_SUPPORTED:
        return ok("not supported by this device or its driver", device)
    return note(f"not judged: {absence_text(name, reason, device)}", device=device)


def ecc(device: Device, readings: DeviceSample) -> Judgement:
    """Memory errors that were not corrected."""
    if readings.ecc_uncorrected:
        return problem(
            f"{readings.ecc_uncorrected} uncorrected since the driver was loaded",
            "End its programs and reset it; if they come again, have it replaced",
            device,
        )
    if device.ecc_enabled is False:
        remedy = f"`sudo nvidia-smi -i {INDEX} -e 1` and a reboot enable it"
        return note("disabled: memory errors are not seen", remedy, device)
    if readings.ecc_uncorrected is None:
        return _absent("ecc_uncorrected", device, readings)
    if readings.ecc_uncorrected_lifetime:
        many = readings.ecc_uncorrected_lifetime
        return note(f"none now, {many} uncorrected in its life", "Watch it", device)
    return ok("none uncorrected", device)


def remap(device: Device, readings: DeviceSample) -> Judgement:
    """Rows of memory that are to be replaced by spare ones."""
    if readings.remap_failed:
        return problem("no spare row is left", "Have the device replaced", device)
    if readings.remap_pending:
        return warning(
            "a row is replaced at the next reset",
            "Let its programs end, then reset it or reboot",
            device,
        )
    if readings.remap_pending is None:
        return _absent("remap_pending", device, readings)
    return ok("none pending", device)


def recovery(device: Device, readings: DeviceSample) -> Judgement:
    """What the driver wants done."""
    action = readings.recovery_action
    if action is None:
        return _absent("recovery_action", device, readings)
    if action == "none":
        return ok("none", device)
    text = value_text("recovery_action", action)
    return problem(f"the driver wants: {visible(action, 40).replace('_', ' ')}", text, device)


def power(device: Device, readings: DeviceSample) -> Judgement:
    """A limit that somebody has lowered."""
    limit, default = readings.power_limit_watts, device.power_limit_default_watts
    if limit is None:
        return _absent("power_limit_watts", device, readings)
    if default is None:
        return _absent("power_limit_default_watts", device, readings)
    if limit < LEAST_SHARE * default:
        remedy = f"`sudo nvidia-smi -i {INDEX} -pl {default:.0f}` puts it back"
        return warning(f"{limit:.0f} W, under its default of {default:.0f} W", remedy, device)
    return ok(f"{limit:.0f} W, its default is {default:.0f} W", device)


def persistence(device: Device, readings: DeviceSample) -> Judgement:
    """Without it the driver lets go of the device whenever nobody uses it."""
    if device.persistence_mode is None:
        return _absent("persistence_mode", device, readings)
    if device.persistence_mode == "enabled":
        return ok("on", device)
    return note(
        "off: the first program each time waits for the device to start",
        f"`sudo nvidia-smi -i {INDEX} -pm 1`, or run nvidia-persistenced",
        device,
    )


def compute_mode(device: Device, readings: DeviceSample) -> Judgement:
    """Who may compute on it."""
    mode = device.compute_mode
    if mode is None:
        return _absent("compute_mode", device, readings)
    remedy = f"`sudo nvidia-smi -i {INDEX} -c 0` lets everybody compute"
    if mode == "prohibited":
        return problem("prohibited: no program may compute on it", remedy, device)
    if mode != "default":
        text = f"{value_text('compute_mode', mode)}: one program at a time"
        return note(text, remedy, device)
    return ok("default", device)


def pcie(device: Device, readings: DeviceSample) -> Judgement:
    """A link slower than it could be while the device works; an idle one slows itself down."""
    for name in ("pcie_generation", "pcie_width"):
        for holder, each in ((readings, name), (device, f"{name}_max")):
            if getattr(holder, each) is None:
                return _absent(each, device, readings)
    now = (readings.pcie_generation or 0, readings.pcie_width or 0)
    most = (device.pcie_generation_max or 0, device.pcie_width_max or 0)
    if now[0] >= most[0] and now[1] >= most[1]:
        return ok(f"{_link(now)}, its most", device)
    busy, level = readings.gpu_utilization_percent, readings.performance_state
    if busy is None:
        return note(f"not judged: {_link(now)}, and its load is not known", "", device)
    if busy < LOADED_PERCENT or (level or 0) > FAST_STATES:
        return note(
            f"not judged: idle, at {_link(now)} of {_link(most)}",
            "Run `gputop doctor` again while it computes",
            device,
        )
    return warning(
        f"{_link(now)} under load, and it can do {_link(most)}",
        "Look at its seating, riser and slot, and at the BIOS",
        device,
    )


def _link(link: tuple[int, int]) -> str:
    return f"gen {link[0]} x{link[1]}"


def xids(facts: Facts) -> Iterator[Judgement]:
    """Errors that the driver reported: those in the kernel's log, and what came meanwhile."""
    log = facts.kernel_log
    reported = [(event.device_uuid, event.code, 0.0) for event in facts.events if _is_xid(event)]
    for device in facts.gpus:
        found = [(code, age) for uuid, code, age in reported if uuid == device.uuid]
        found += [
            (each.code, each.age_seconds)
            for each in log.xids
            if each.age_seconds < RECENT_SECONDS
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


def _is_xid(event: Event) -> bool:
    return event.kind == "xid"


def _worst(device: Device, found: list[tuple[int | None, float]]) -> Judgement:
    """The last one; a program's only where there is no other."""
    code, age = min(found, key=lambda each: (each[0] in PROGRAM_XIDS, each[1]))
    fault = event_text(Event(0.0, device.uuid, "xid", code))
    ago = "just now" if age < 1 else f"{duration(age)} ago"
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    said = note if code in PROGRAM_XIDS else problem
    return said(f"{fault.what}, {ago}{more}", fault.remedy, device)


CHECKS = (
    Check("state", Group.DEVICES, "state", state),
    Check("xid", Group.DEVICES, "Xid errors", xids),
    Check("ecc", Group.DEVICES, "memory errors", _of_each(ecc)),
    Check("remap", Group.DEVICES, "row remapping", _of_each(remap)),
    Check("recovery", Group.DEVICES, "recovery", _of_each(recovery)),
    Check("power_limit", Group.DEVICES, "power limit", _of_each(power)),
    Check("persistence", Group.DEVICES, "persistence", _of_each(persistence)),
    Check("compute_mode", Group.DEVICES, "compute mode", _of_each(compute_mode)),
    Check("pcie", Group.DEVICES, "PCIe link", _of_each(pcie)),
)
