"""Checks of each GPU. What one that does not answer says of the rest is its state, once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from gputop.health.alerts import PROGRAM_XIDS
from gputop.health.conditions import event_text, fault_of
from gputop.health.doctor import rules
from gputop.health.doctor.finding import (
    INDEX,
    Check,
    Group,
    Judgement,
    absent,
    note,
    ok,
    problem,
    warning,
)
from gputop.health.rules.errors import gravest
from gputop.health.rules.hardware import lowered_limit
from gputop.schema.snapshot import Device, DeviceSample, Event
from gputop.schema.values import value_text
from gputop.sources.linux.kernel_log import same_address
from gputop.text import duration

if TYPE_CHECKING:
    from gputop.health.doctor.facts import Facts

Judged = Callable[[Device, DeviceSample], Judgement]

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
        for device, readings in facts.answering():
            yield judged(device, readings)

    return judge


def power(device: Device, readings: DeviceSample) -> Judgement:
    """A limit that somebody has lowered, whether or not it holds anything back now."""
    limit, default = readings.power_limit_watts, device.power_limit_default_watts
    if limit is None:
        return absent("power_limit_watts", device, readings)
    if default is None:
        return absent("power_limit_default_watts", device, readings)
    lowered = lowered_limit(limit, default, INDEX)
    if lowered is not None:
        return warning(*lowered, device)
    return ok(f"{limit:.0f} W, its default is {default:.0f} W", device)


def persistence(device: Device, readings: DeviceSample) -> Judgement:
    """Without it the driver lets go of the device whenever nobody uses it."""
    if device.persistence_mode is None:
        return absent("persistence_mode", device, readings)
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
        return absent("compute_mode", device, readings)
    remedy = f"`sudo nvidia-smi -i {INDEX} -c 0` lets everybody compute"
    if mode == "prohibited":
        return problem("prohibited: no program may compute on it", remedy, device)
    if mode != "default":
        text = f"{value_text('compute_mode', mode)}: one program at a time"
        return note(text, remedy, device)
    return ok("default", device)


def xids(facts: Facts) -> Iterator[Judgement]:
    """Errors that the driver reported: those in the kernel's log, and what came meanwhile."""
    log = facts.kernel_log
    for device in facts.gpus:
        found = [
            dataclasses.replace(event, time=0.0)
            for event in facts.events
            if event.kind == "xid" and event.device_uuid == device.uuid
        ]
        found += [
            Event(-each.age_seconds, device.uuid, "xid", each.code)
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


def _worst(device: Device, found: Sequence[Event]) -> Judgement:
    """Their times are seconds from now. What is a program's own fault is no problem."""
    event = gravest(found)
    fault, age = event_text(event), -event.time
    ago = "just now" if age < 1 else f"{duration(age)} ago"
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    said = note if event.code in PROGRAM_XIDS else problem
    return said(f"{fault.what}, {ago}{more}", fault.remedy, device)


CHECKS = (
    Check("state", Group.DEVICES, "state", state),
    Check("xid", Group.DEVICES, "Xid errors", xids),
    *rules.CHECKS,
    Check("power_limit", Group.DEVICES, "power limit", _of_each(power)),
    Check("persistence", Group.DEVICES, "persistence", _of_each(persistence)),
    Check("compute_mode", Group.DEVICES, "compute mode", _of_each(compute_mode)),
)
