"""Conditions of a device in words: its state, Xid errors, memory errors.

Each condition is worded once, here. Rules, doctor and the fleet share these words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gputop.agent.device import Absence, Device, DeviceSample, DeviceState
from gputop.agent.snapshot import Event, Inventory, MachineState, Sample
from gputop.health.findings import Finding, Severity
from gputop.schema.advice import REBOOT, RESET, fill_in, state_advice
from gputop.schema.catalogue import RECOVERIES
from gputop.schema.derived import label_of
from gputop.text import count, duration, fold_list, visible


class Fault(NamedTuple):
    """A fault in words, and its remedy."""

    what: str
    remedy: str
    """Remedy. In `XIDS`, a template for `advice.fill_in`."""


STATE_NAMES: Mapping[str, str] = {
    DeviceState.LOST: "LOST",
    DeviceState.NEEDS_RESET: "NEEDS RESET",
    DeviceState.NOT_RESPONDING: "NOT RESPONDING",
}
STATES: Mapping[str, str] = {
    DeviceState.OK: "Answers again",
    DeviceState.LOST: "LOST: it no longer answers on its bus",
    DeviceState.NEEDS_RESET: "NEEDS RESET: the driver has given up on it",
    DeviceState.NOT_RESPONDING: "NOT RESPONDING: calls to its driver hang or fail",
}

STATE = "state"
"""Rule in findings about a device that does not answer."""
HANGING = "Slow to answer, or hanging: `dmesg` may have an Xid"
"""Possible fault of a device without a recent answer."""


def fault_of(device: Device, readings: DeviceSample) -> Fault | None:
    """Return the fault of a device that does not answer properly, or None."""
    state, reasons = readings.state, {*readings.absent.values()}
    if state is DeviceState.OK:
        return None
    remedy = state_advice(device, readings)
    if state is not DeviceState.NOT_RESPONDING:
        return Fault(STATES[state], remedy)
    if Absence.NO_PERMISSION in reasons:
        return Fault(
            "NOT RESPONDING: no permission to read it",
            "Ask for access to its file /dev/nvidia*, or run as root",
        )
    if Absence.ERROR in reasons:
        return Fault(
            "NOT RESPONDING: every call to its driver fails",
            f"`nvidia-smi -q -i {device.index}` and `dmesg` may say why; if it lasts, reboot its "
            "machine",
        )
    age = (
        f" for {duration(readings.age_seconds)}"
        if readings.age_seconds
        else ""
    )
    return Fault(f"NOT RESPONDING{age}: a driver call hangs", remedy)


_OURS = "A fault of the program that ran: look there first"
_AGAIN = "Start that program again; report it if it happens again"
_BY_ITSELF = "Nothing to do now; report it if it happens again"
_SAYS = "Follow the recovery action"
XIDS = {
    8: Fault("a kernel ran longer than its time limit", _OURS),
    11: Fault("a program sent commands that cannot be read", _OURS),
    13: Fault(
        "a program failed in the graphics engine, such as an index out of bounds",
        _OURS,
    ),
    31: Fault("a program touched memory that is not its own", _OURS),
    32: Fault(
        "commands arrived corrupted",
        "If it happens again, check program, driver and PCIe link",
    ),
    38: Fault("the driver's firmware failed", _BY_ITSELF),
    **dict.fromkeys((39, 40, 41), Fault("a copy engine failed", _AGAIN)),
    43: Fault("a program was stopped after a fault of its own", _OURS),
    45: Fault(
        "a program was ended, by a signal or after an earlier error",
        "Nothing to do",
    ),
    46: Fault("the device stopped working", RESET),
    48: Fault("an uncorrectable memory error (double bit)", RESET),
    54: Fault("its power cables are not connected", "Check the cables"),
    61: Fault("the device's microcontroller (PMU) gave a warning", RESET),
    62: Fault("the device's microcontroller (PMU) halted", RESET),
    63: Fault(
        "a bad row or page of memory was recorded",
        f"A reset puts a spare in its place: {RESET}",
    ),
    64: Fault("a bad row or page of memory could not be recorded", RESET),
    68: Fault("the video decoder failed", _AGAIN),
    69: Fault("the graphics engine failed on a class error", _OURS),
    74: Fault(
        "an NVLink failed",
        "Reboot its machine: that resets both ends of the link",
    ),
    79: Fault(
        "the GPU has fallen off the bus",
        f"{REBOOT}; look at its power, heat and seating",
    ),
    92: Fault(
        "many memory errors are being corrected",
        "Watch it; run a field diagnostic",
    ),
    94: Fault(
        "a memory error was contained to one program",
        f"Start that program again; when it has ended, {RESET}",
    ),
    95: Fault("a memory error was not contained", RESET),
    109: Fault("switching between contexts timed out", RESET),
    110: Fault(
        "a security fault",
        "Undo changes to the hardware, then power-cycle its machine",
    ),
    119: Fault("the device's system processor (GSP) does not answer", RESET),
    120: Fault("the device's system processor (GSP) failed", RESET),
    121: Fault("the link to the CPU (C2C) had errors, all corrected", RESET),
    136: Fault("an NVLink did not come up", RESET),
    137: Fault(
        "a program touched another GPU's memory that is not its own", _OURS
    ),
    140: Fault(
        "an uncorrectable memory error that could not be recorded", RESET
    ),
    143: Fault("the device could not be initialized", RESET),
    **dict.fromkeys(
        range(144, 151), Fault("an NVLink reported an error", _SAYS)
    ),
    151: Fault(
        "encryption keys could not be changed", "Restart the virtual machine"
    ),
    154: Fault(
        "the driver changed its recovery action",
        "See the recovery action",
    ),
    155: Fault("an NVLink was taken down on request", _SAYS),
    156: Fault("a faulty part of the device was retired", RESET),
    157: Fault("a faulty part of the device could not be retired", _BY_ITSELF),
    158: Fault("the device did not answer in time", RESET),
    171: Fault("an uncorrectable error in device memory", _SAYS),
    172: Fault("an uncorrectable error in on-chip memory", _SAYS),
}
"""The common Xid errors, each with the first thing to do.

Source: the immediate actions in https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html.
"""
NO_NUMBER = 999
"""The Xid that NVML reports if it does not have the number."""
PROGRAM_XIDS = frozenset({8, 11, 13, 31, 32, 39, 40, 41, 43, 45, 68, 69, 137})
"""Xids of a program that failed or was ended, for example by Ctrl+C. The device is fine."""


def event_text(
    event: Event, device: Device | None, readings: DeviceSample | None = None
) -> Fault:
    """Return an event in words with its remedy. An unknown kind of event is returned unchanged.

    `device` is None if the driver does not name it.
    """
    if event.kind == "xid":
        if event.code is None or event.code == NO_NUMBER:
            return Fault("Xid without a number", "`dmesg` has its number")
        fault = xid_text(event.code)
        return fault._replace(remedy=fill_in(fault.remedy, device, readings))
    if event.kind in STATES:
        return Fault(
            STATES[event.kind],
            "`dmesg` has the Xid" * (event.kind == DeviceState.LOST),
        )
    code = "" if event.code is None else f" {event.code}"
    return Fault(f"{visible(event.kind)}{code}", "")


def xid_text(code: int) -> Fault:
    """Return an Xid in words with its remedy, as in `XIDS`."""
    known = XIDS.get(code)
    if known is None:
        return Fault(f"Xid {code}", "See NVIDIA's list of Xid errors")
    return Fault(f"Xid {code}: {known.what}", known.remedy)


def xid_severity(code: int | None) -> Severity:
    """Return the severity of an Xid. A failed program is not a fault of the device."""
    return Severity.WARNING if code in PROGRAM_XIDS else Severity.FAULT


def gravest_xid(xids: Iterable[Event]) -> Event:
    """Return the last Xid, preferring those of the device over those of a program."""
    return max(
        xids, key=lambda event: (event.code not in PROGRAM_XIDS, event.time)
    )


NO_SPARE_ROWS = "no spare memory rows left"
ROW_PENDING = "a memory row to remap at the next reset"
ALMOST_FULL = "almost out of memory"


def ecc_text(number: int) -> str:
    """Return the text for uncorrected memory errors."""
    return count(number, "uncorrected ECC error")


def recovery_text(action: str) -> str:
    """Return the text for the recovery action that the driver recommends."""
    known = RECOVERIES.get(action)
    need = known.need if known else visible(action).replace("_", " ")
    return f"needs {need}"


UNLISTED_REMEDY = (
    "`sudo dmesg | grep NVRM` says why the driver did not start it"
)


def machine_findings(
    sample: Sample, inventory: Inventory | None
) -> list[Finding]:
    """Return findings about machines: unreachable ones, unlisted GPUs, and incomplete samples."""
    found = []
    unlisted = {}
    for each in sample.machines:
        if each.state is MachineState.AWAY:
            found.append(
                Finding(
                    Severity.FAULT, "unreachable", rule="away", label=each.name
                )
            )
        if each.unlisted_gpus:
            unlisted[each.name] = each.unlisted_gpus
    hostname = inventory.hostname if inventory else ""
    if inventory is not None and inventory.unlisted_gpus:
        unlisted = {hostname: inventory.unlisted_gpus}
    if sample.problem is not None:
        title = f"shown only in part, {visible(sample.problem.why)}"
        label = visible(hostname)
        found.append(
            Finding(
                Severity.INFORMATION, title, rule="incomplete", label=label
            )
        )
    for name, addresses in unlisted.items():
        found.append(_unlisted(name, addresses))
    return found


def _unlisted(hostname: str, addresses: Sequence[str]) -> Finding:
    shown = list(map(visible, addresses))
    many = "a GPU" if len(addresses) == 1 else count(len(addresses), "GPU")
    return Finding(
        Severity.WARNING,
        f"{many} that the driver does not list, {fold_list(shown)}",
        remedy=UNLISTED_REMEDY,
        rule="unlisted",
        label=visible(hostname),
    )


def state_findings(devices: Iterable[Device], sample: Sample) -> list[Finding]:
    """Return a finding for each device that does not answer.

    An instance is lost with its GPU. Only the GPU has the finding.
    """
    found = []
    for device in devices:
        readings = sample.device(device.uuid)
        if readings is None or device.parent_uuid is not None:
            continue
        fault = fault_of(device, readings)
        if fault is not None:
            found.append(
                Finding(
                    Severity.FAULT,
                    fault.what,
                    remedy=fault.remedy,
                    rule=STATE,
                    device_uuid=device.uuid,
                    label=label_of(device),
                    rank=math.inf,
                )
            )
    return found
