"""What is wrong with the devices right now, in a few words each; the worst first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum

from gputop.frozen import dataclass
from gputop.schema.clock_events import gravest
from gputop.schema.device import Device, DeviceSample, DeviceState
from gputop.schema.snapshot import Event, Machine, MachineState, Sample
from gputop.text import visible

ALMOST_FULL = 0.98
"""Share of the memory that can be had which is in use. Allocators that take 90 % ahead are none."""
RECENT_SECONDS = 3600.0
"""How long an Xid is an alert."""
PROGRAM_XIDS = frozenset({8, 11, 13, 31, 32, 39, 40, 41, 43, 45, 68, 69, 137})
"""Those of a program that failed or was ended, as by Ctrl+C: the device is well."""


class Severity(IntEnum):
    """How bad it is."""

    INFORMATION = 0
    """Nothing is wrong: it explains what one sees. No alert is this."""
    WARNING = 1
    FAULT = 2


@dataclass(frozen=True, slots=True)
class Alert:
    """One thing that is wrong. `kind` with the device says whether it is the same as before."""

    severity: Severity
    device_uuid: str
    """Of what is wrong with a whole machine, its name."""
    label: str
    """The device's, as on screen."""
    kind: str
    text: str
    noun: str = "GPU"

    def __str__(self) -> str:
        return f"{self.noun} {self.label} {self.text}"


_STATES = {
    DeviceState.LOST: "is LOST",
    DeviceState.NEEDS_RESET: "NEEDS RESET",
    DeviceState.NOT_RESPONDING: "is NOT RESPONDING",
}
_RECOVERIES = {
    "gpu_reset": "needs a reset",
    "node_reboot": "needs a reboot of its machine",
    "system_reboot": "needs a reboot of its machine",
    "bus_reset": "needs a reset of its bus",
    "drain_p2p": "needs its peer-to-peer processes ended",
    "drain_and_reset": "needs a reset, once its work has ended",
    "recover_imex_domain": "needs its IMEX domain recovered",
}


NAMED = 3
"""Devices with the same alert that are named; of more they are counted."""
_PLURALS = {"is ": "are ", "has ": "have ", "NEEDS ": "NEED ", "needs ": "need ", "remaps": "remap"}


def summed(found: Iterable[Alert]) -> list[tuple[Severity, str]]:
    """The alerts in words, in their order; what is wrong with several devices is said once."""
    groups: dict[tuple[Severity, str, str], list[str]] = {}
    for alert in found:
        groups.setdefault((alert.severity, alert.noun, alert.text), []).append(alert.label)
    return [
        (severity, _words(noun, text, labels)) for (severity, noun, text), labels in groups.items()
    ]


def _words(noun: str, text: str, labels: list[str]) -> str:
    if len(labels) == 1:
        return f"{noun} {labels[0]} {text}"
    for one, many in _PLURALS.items():
        if text.startswith(one):
            text = many + text.removeprefix(one)
    if len(labels) > NAMED:
        return f"{len(labels)} {noun}s {text}"
    return f"{noun}s {', '.join(labels[:-1])} and {labels[-1]} {text}"


def away(machines: Iterable[Machine]) -> list[Alert]:
    """The machines that do not answer, of several."""
    return [
        Alert(Severity.FAULT, machine.name, machine.name, machine.state, "is away", "Host")
        for machine in machines
        if machine.state is MachineState.AWAY
    ]


def incomplete(sample: Sample, hostname: str) -> list[Alert]:
    """Return an alert if something was left out of the sample."""
    if sample.problem is None:
        return []
    text = f"is not shown whole: {visible(sample.problem.why)}"
    label = visible(hostname, 64)
    return [Alert(Severity.WARNING, hostname, label, "incomplete", text, "Host")]


def alerts(
    devices: Iterable[Device],
    samples: Mapping[str, DeviceSample],
    events: Iterable[Event] = (),
    now: float = 0.0,
) -> list[Alert]:
    """What is wrong, given the readings by UUID and what was reported, at the Unix time `now`."""
    devices = tuple(devices)
    found = [alert for device in devices for alert in _of_device(device, samples.get(device.uuid))]
    found += _xids({device.uuid: device for device in devices}, events, now)
    return sorted(found, key=lambda alert: -alert.severity)  # stable: by device


def _of_device(device: Device, sample: DeviceSample | None) -> Iterator[Alert]:
    if sample is None:
        return

    def alert(severity: Severity, kind: str, text: str) -> Alert:
        return Alert(severity, device.uuid, device.label, kind, text)

    # An instance is lost with its GPU, which says so.
    if sample.state in _STATES and device.parent_uuid is None:
        yield alert(Severity.FAULT, sample.state, _STATES[sample.state])
    if sample.ecc_uncorrected:
        many = "error" if sample.ecc_uncorrected == 1 else "errors"
        yield alert(Severity.FAULT, "ecc", f"has {sample.ecc_uncorrected} uncorrected ECC {many}")
    if sample.remap_failed:
        yield alert(Severity.FAULT, "remap_failed", "has no spare memory rows left")
    elif sample.remap_pending:
        yield alert(Severity.WARNING, "remap_pending", "remaps a memory row at its next reset")
    action = sample.recovery_action
    if action not in (None, "none") and sample.state is DeviceState.OK:
        other = f"needs {visible(action, 40).replace('_', ' ')}"
        yield alert(Severity.FAULT, "recovery", _RECOVERIES.get(action, other))
    slowdown = gravest(sample.clock_event_reasons or ())
    if slowdown:
        yield alert(Severity.WARNING, "slowdown", f"is {slowdown.fault}")
    used, free = sample.memory_used_bytes, sample.memory_free_bytes
    if used and free is not None and used >= ALMOST_FULL * (used + free):
        yield alert(Severity.WARNING, "memory", "is almost out of memory")


def _xids(devices: Mapping[str, Device], events: Iterable[Event], now: float) -> Iterator[Alert]:
    """The last Xid of each device, while it is recent; a program's only where there is no other."""
    recent = [e for e in events if e.kind == "xid" and now - e.time < RECENT_SECONDS]
    recent.sort(key=lambda event: event.code not in PROGRAM_XIDS)  # stable: by time
    last = {event.device_uuid: event for event in recent}
    for uuid, event in last.items():
        device = devices.get(uuid or "")
        if device is not None:
            code = "unknown" if event.code is None else event.code
            kind = f"xid at {event.time}"  # each is news
            severity = Severity.WARNING if event.code in PROGRAM_XIDS else Severity.FAULT
            yield Alert(severity, device.uuid, device.label, kind, f"had Xid {code}")
