"""Conditions of a device: device states, Xid errors and what one sample shows, in words.

Each condition is worded here once. `find_alerts` finds those that hold now, for the header and the
status page; the rules, doctor and the fleet use the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gputop.agent.device import Absence, Device, DeviceSample, DeviceState
from gputop.agent.snapshot import Event, Host, Inventory, Machine, MachineState, Sample
from gputop.health import thresholds as t
from gputop.health.findings import Finding, Severity
from gputop.schema.advice import REBOOT, RESET, fill_in, state_advice
from gputop.schema.catalogue import RECOVERIES
from gputop.schema.clock_events import gravest
from gputop.schema.derived import label_of
from gputop.text import count, duration, fold_list, visible


class Fault(NamedTuple):
    """A fault in words, and its remedy."""

    what: str
    remedy: str
    """In `XIDS` a template for `advice.fill_in`."""


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

HANGING = "Slow to answer, or hanging: `dmesg` may have an Xid"
"""Possible faults of a device that has not answered lately."""


def fault_of(device: Device, readings: DeviceSample) -> Fault | None:
    """Return the fault of a device that does not answer properly, or None if it does."""
    state, reasons = readings.state, {*readings.absent.values()}
    if state is DeviceState.OK:
        return None
    remedy = state_advice(device, readings)
    if state is not DeviceState.NOT_RESPONDING:
        return Fault(STATES[state], remedy)
    if Absence.NO_PERMISSION in reasons:
        return Fault(
            "NOT RESPONDING: no permission to ask it",
            "Ask for access to its file /dev/nvidia*, or run as root",
        )
    if Absence.ERROR in reasons:
        return Fault(
            "NOT RESPONDING: every call to its driver fails",
            f"`nvidia-smi -q -i {device.index}` and `dmesg` may say why; if it lasts, reboot its "
            "machine",
        )
    age = f" for {duration(readings.age_seconds)}" if readings.age_seconds else ""
    return Fault(f"NOT RESPONDING{age}: a driver call hangs", remedy)


_OURS = "A fault of the program that ran: look there first"
_AGAIN = "Start that program again; report it if it comes again"
_BY_ITSELF = "Nothing by itself; report it if it comes again"
_SAYS = "The recovery action says what to do"
XIDS = {
    8: Fault("a kernel ran longer than its time limit", _OURS),
    11: Fault("a program sent commands that cannot be read", _OURS),
    13: Fault(
        "a program failed in the graphics engine, such as an index out of bounds", _OURS
    ),
    31: Fault("a program touched memory that is not its own", _OURS),
    32: Fault(
        "commands arrived broken", "If it comes again: program, driver or PCIe link"
    ),
    38: Fault("the driver's firmware failed", _BY_ITSELF),
    **dict.fromkeys((39, 40, 41), Fault("a copy engine failed", _AGAIN)),
    43: Fault("a program was stopped after a fault of its own", _OURS),
    45: Fault(
        "a program was ended, by a signal or after an earlier error",
        "Nothing by itself",
    ),
    46: Fault("the device stopped working", RESET),
    48: Fault("an uncorrectable memory error (double bit)", RESET),
    54: Fault("its power cables are not connected", "Look at the cables"),
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
        "an NVLink failed", "Reboot its machine: that resets both ends of the link"
    ),
    79: Fault(
        "the GPU has fallen off the bus",
        f"{REBOOT}; look at its power, heat and seating",
    ),
    92: Fault(
        "many memory errors are being corrected", "Watch it; run a field diagnostic"
    ),
    94: Fault(
        "a memory error was contained to one program",
        f"Start that program again; when it has ended, {RESET}",
    ),
    95: Fault("a memory error was not contained", RESET),
    109: Fault("switching between contexts timed out", RESET),
    110: Fault(
        "a security fault",
        "Undo changes to the hardware, then power its machine off and on",
    ),
    119: Fault("the device's system processor (GSP) does not answer", RESET),
    120: Fault("the device's system processor (GSP) failed", RESET),
    121: Fault("the link to the CPU (C2C) had errors, all corrected", RESET),
    136: Fault("an NVLink did not come up", RESET),
    137: Fault("a program touched another GPU's memory that is not its own", _OURS),
    140: Fault("an uncorrectable memory error that could not be recorded", RESET),
    143: Fault("the device could not be initialized", RESET),
    **dict.fromkeys(range(144, 151), Fault("an NVLink reported an error", _SAYS)),
    151: Fault("encryption keys could not be changed", "Restart the virtual machine"),
    154: Fault(
        "the driver wants it recovered, or no longer", "The recovery action says how"
    ),
    155: Fault("an NVLink went down, as it was told to", _SAYS),
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
"""The Xid that NVML reports if it does not know the number."""
PROGRAM_XIDS = frozenset({8, 11, 13, 31, 32, 39, 40, 41, 43, 45, 68, 69, 137})
"""Xids of a program that failed or was ended, as by Ctrl+C. The device itself is fine."""


def event_text(
    event: Event, device: Device | None, readings: DeviceSample | None = None
) -> Fault:
    """Return an event in words with its remedy; an event of unknown kind as it came.

    `device` is None if the driver does not say on which one it was.
    """
    if event.kind == "xid":
        if event.code in (None, NO_NUMBER):
            return Fault("Xid: the driver does not say which", "`dmesg` has its number")
        fault = xid_text(event.code or 0)
        return fault._replace(remedy=fill_in(fault.remedy, device, readings))
    if event.kind in STATES:
        return Fault(
            STATES[event.kind], "`dmesg` has the Xid" * (event.kind == DeviceState.LOST)
        )
    code = "" if event.code is None else f" {event.code}"
    return Fault(f"{visible(event.kind, 40)}{code}", "")


def xid_text(code: int) -> Fault:
    """Return an Xid in words with its remedy, as in `XIDS`."""
    known = XIDS.get(code)
    if known is None:
        return Fault(f"Xid {code}", "NVIDIA's list of Xid errors says what it is")
    return Fault(f"Xid {code}: {known.what}", known.remedy)


def xid_severity(code: int | None) -> Severity:
    """Return how severe an Xid is: a failed program is not a fault of the device."""
    return Severity.WARNING if code in PROGRAM_XIDS else Severity.FAULT


def gravest_xid(xids: Iterable[Event]) -> Event:
    """Return the last Xid, preferring those of the device over those of a program."""
    return max(xids, key=lambda event: (event.code not in PROGRAM_XIDS, event.time))


NO_SPARE_ROWS = "no spare memory rows left"
ROW_PENDING = "a memory row to remap at the next reset"
ALMOST_FULL = "almost out of memory"


def ecc_text(number: int) -> str:
    """Return the words for uncorrected memory errors."""
    return count(number, "uncorrected ECC error")


def recovery_text(action: str) -> str:
    """Return the words for the recovery action that the driver asks for."""
    known = RECOVERIES.get(action)
    need = known.need if known else visible(action, 40).replace("_", " ")
    return f"needs {need}"


UNLISTED_REMEDY = "`sudo dmesg | grep NVRM` says why the driver did not start it"


def unlisted_alert(hostname: str, addresses: Sequence[str]) -> Finding:
    """Return the alert about GPUs on the bus that the driver does not list."""
    shown = [visible(address, 20) for address in addresses]
    many = "a GPU" if len(addresses) == 1 else count(len(addresses), "GPU")
    return Finding(
        Severity.WARNING,
        f"{many} that the driver does not list, {fold_list(shown, 3)}",
        remedy=UNLISTED_REMEDY,
        rule="unlisted",
        label=visible(hostname, 64),
    )


def machine_alerts(
    machines: Iterable[Machine], sample: Sample, inventory: Inventory | None
) -> list[Finding]:
    """Return alerts about machines: that they do not answer, have GPUs that the driver does not
    list, or sent a sample with parts left out.
    """
    hostname = inventory.hostname if inventory else ""
    if inventory is not None and inventory.unlisted_gpus:
        unlisted = {inventory.hostname: inventory.unlisted_gpus}
    else:
        unlisted = {
            each.name: each.unlisted_gpus for each in machines if each.unlisted_gpus
        }
    found = [
        Finding(
            Severity.FAULT,
            "unreachable",
            rule="away",
            label=each.name,
        )
        for each in machines
        if each.state is MachineState.AWAY
    ]
    if sample.problem is not None:
        title = f"shown only in part, {visible(sample.problem.why)}"
        found.append(
            Finding(
                Severity.WARNING,
                title,
                rule="incomplete",
                label=visible(hostname, 64),
            )
        )
    return found + [
        unlisted_alert(name, addresses) for name, addresses in unlisted.items()
    ]


def find_alerts(
    devices: Iterable[Device],
    samples: Mapping[str, DeviceSample],
    events: Iterable[Event] = (),
    now: float = 0.0,
    host_of: Callable[[Device], Host] = lambda _: Host(),
) -> list[Finding]:
    """Return what is wrong at the Unix time `now`, worst first; `samples` are by UUID.

    `host_of` returns the machine that a device is in.
    """
    known = {device.uuid: device for device in devices}
    there = [device for device in known.values() if device.uuid in samples]
    found: list[Finding] = []
    for device in there:
        found += _device_alerts(device, samples[device.uuid], host_of(device))
    found += _xid_alerts(known, events, now)
    return sorted(found, key=lambda alert: -alert.severity)  # stable: by device


def usable_memory(
    device: Device, sample: DeviceSample, host: Host
) -> tuple[int, int] | None:
    """Return bytes in use and free: of the host if the device uses its memory. None if unknown."""
    used, free = sample.memory_used_bytes, sample.memory_free_bytes
    if device.memory_is_shared:
        used, free = host.memory_used_bytes, host.memory_available_bytes
    if used is None or free is None:
        return None
    return used, free


def _device_alerts(
    device: Device, sample: DeviceSample, host: Host
) -> Iterator[Finding]:
    def alert(
        severity: Severity,
        title: str,
        rule: str,
    ) -> Finding:
        return Finding(
            severity, title, rule=rule, device_uuid=device.uuid, label=label_of(device)
        )

    state = sample.state
    # An instance is lost with its GPU, which says so.
    if state is not DeviceState.OK and device.parent_uuid is None:
        yield alert(Severity.FAULT, STATE_NAMES[state], state.value)
    if sample.ecc_uncorrected:
        yield alert(Severity.FAULT, ecc_text(sample.ecc_uncorrected), "ecc")
    if sample.remap_failed:
        yield alert(Severity.FAULT, NO_SPARE_ROWS, "remap")
    elif sample.remap_pending:
        yield alert(Severity.WARNING, ROW_PENDING, "remap")
    action = sample.recovery_action
    if action is not None and action != "none" and state is DeviceState.OK:
        yield alert(Severity.FAULT, recovery_text(action), "recovery")
    slowdown = gravest(sample.clock_event_reasons or ())
    if slowdown:
        rule = "thermal" if slowdown.is_heat else "hardware_slowdown"
        yield alert(Severity.WARNING, slowdown.fault, rule)
    used, free = usable_memory(device, sample, host) or (0, 0)
    if used and 100 * used >= t.FULL.begin * (used + free):
        yield alert(Severity.WARNING, ALMOST_FULL, "almost_full")


def _xid_alerts(
    devices: Mapping[str, Device], events: Iterable[Event], now: float
) -> Iterator[Finding]:
    recent: dict[str, list[Event]] = {}
    for event in events:
        uuid = event.device_uuid or ""
        if event.kind == "xid" and now - event.time < t.XID_SECONDS and uuid in devices:
            recent.setdefault(uuid, []).append(event)
    for uuid, xids in recent.items():
        event = gravest_xid(xids)
        code = "unknown" if event.code is None else event.code
        yield Finding(
            xid_severity(event.code),
            f"Xid {code}",
            since=event.time,  # each is news
            rule="xid",
            device_uuid=uuid,
            label=label_of(devices[uuid]),
        )
