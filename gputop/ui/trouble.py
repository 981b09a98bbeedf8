"""Troubles of the stream, a machine or a device: one order and one wording for all views."""

from __future__ import annotations

from typing import NamedTuple

from gputop.agent.device import Absence, Device, DeviceState
from gputop.agent.snapshot import DriverState, Machine, MachineState
from gputop.health.conditions import HANGING, fault_of
from gputop.health.findings import Severity
from gputop.text import age, duration, visible
from gputop.ui.telemetry import Telemetry


class Trouble(NamedTuple):
    """A reason for missing or old data, or a fault, and its remedy."""

    what: str
    remedy: str
    severity: Severity = Severity.FAULT


GONE = Trouble(
    "GONE: the driver no longer lists it",
    "These are its last readings",
)
NO_ANSWER = Trouble("It has not answered yet", HANGING, Severity.WARNING)
BEHIND_REMEDY = (
    "The connection is slow, or the host stalls: these are its last readings"
)


NOTICED_SECONDS = 2.0
"""Seconds of waiting for the driver before its time is shown and a cause is suggested."""
SLOW_DRIVER = (
    "Without persistence mode it takes some seconds. "
    "A driver that hangs leaves an Xid in `dmesg`, and the machine may need a reboot"
)
NO_DEVICES = Trouble(
    "The NVIDIA driver is loaded but lists no devices",
    "`lspci | grep -i nvidia` lists what is plugged in",
    Severity.WARNING,
)


def stream_trouble(telemetry: Telemetry) -> Trouble | None:
    """Return why there are no new samples or no devices; None if there are both."""
    if telemetry.silent_seconds is not None:
        return _silence(telemetry, telemetry.silent_seconds)
    if telemetry.devices:
        return None
    machines, inventory = telemetry.machines, telemetry.inventory
    if len(machines) > 1:
        what = f"No devices yet on {len(machines)} hosts"
        return Trouble(what, "", Severity.WARNING)
    if machines:
        return machine_trouble(telemetry, machines[0]) or NO_DEVICES
    if inventory is None or telemetry.starting:
        return _waiting(telemetry.waiting_seconds)
    problem = inventory.problem
    if problem is None:
        return NO_DEVICES
    what = visible(f"{problem.what}: {problem.why}")
    return Trouble(what, visible(problem.remedy), Severity.WARNING)


def _silence(telemetry: Telemetry, seconds: float) -> Trouble:
    """Return the reason for a stream without new samples. The remedy may be to wait."""
    problem = telemetry.interruption
    since = f"no data for {duration(seconds)}"
    if problem is not None and problem.check:
        why = visible(f"{problem.why}. {problem.remedy}")
        return Trouble(f"{visible(problem.what)}: {since}", why)
    text, why = since.capitalize(), ""
    if seconds < 1:
        text = "The sampler stopped"
    if problem is not None:
        then = "Restarting the sampler"
        if telemetry.replayed:
            then = problem.remedy
        why = f": {visible(f'{problem.why}. {then}')}"
    elif telemetry.replayed:
        why = ": a gap in the recording"
    elif telemetry.restarting:
        why = ": the driver is restarting"
    return Trouble(text + why, "")


def _waiting(seconds: float) -> Trouble:
    text, remedy = "Waiting for the NVIDIA driver to answer", ""
    if seconds >= NOTICED_SECONDS:
        waited = duration(seconds)
        text = f"Waiting for {waited} for the NVIDIA driver to answer"
        remedy = SLOW_DRIVER
    return Trouble(text, remedy, Severity.WARNING)


def machine_trouble(telemetry: Telemetry, machine: Machine) -> Trouble | None:
    """Return why a machine has no current readings, or its problem; None if it is fine."""
    problem, behind = machine.problem, telemetry.old_seconds(machine)
    if machine.state is MachineState.CONNECTING:
        return Trouble("Connecting", "", Severity.INFORMATION)
    if machine.state is MachineState.AWAY:
        what = f"AWAY for {duration(machine.age_seconds or 0.0)}"
        if problem is None:
            return Trouble(what, "")
        return Trouble(
            f"{what}: {visible(problem.why)}",
            visible(problem.remedy),
        )
    if behind is not None:
        severity = Severity.WARNING
        if behind > telemetry.silence_limit:
            severity = Severity.FAULT
        return Trouble(f"{age(behind)} behind", BEHIND_REMEDY, severity)
    if problem is not None:
        what = visible(f"{problem.what}: {problem.why}")
        return Trouble(what, visible(problem.remedy))
    if machine.driver_state is DriverState.STARTING:
        return Trouble("Waiting for its driver", "", Severity.INFORMATION)
    return None


def device_trouble(telemetry: Telemetry, device: Device) -> Trouble | None:
    """Return why a device has no current readings, or its fault; None if it is fine."""
    if telemetry.find_device(device.uuid) is None:
        return GONE
    machine = telemetry.machine_of(device)
    if machine is not None:
        late = telemetry.old_seconds(machine) is not None
        if late or machine.state is not MachineState.OK:
            return machine_trouble(telemetry, machine)
    readings = telemetry.readings(device.uuid)
    absence = readings.absent.get("processes")
    is_ok = readings.state is DeviceState.OK
    # Until it answers for the first time.
    if (
        is_ok
        and readings.age_seconds is None
        and absence is Absence.NO_DATA_YET
    ):
        return NO_ANSWER
    old = telemetry.old_seconds(readings)
    if old is not None:
        text = f"Readings are {age(old)} old"
        return Trouble(text, HANGING, Severity.WARNING)
    fault = fault_of(device, readings)
    return None if fault is None else Trouble(*fault)
