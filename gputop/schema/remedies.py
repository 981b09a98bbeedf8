"""Why a reading is missing, what is wrong with a device, and what to do about it, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gputop.schema.catalogue import CATALOGUE
from gputop.schema.device import GPM_READINGS, READINGS, Absence, DeviceState
from gputop.text import duration, used_of, visible

if TYPE_CHECKING:
    from gputop.schema.device import Device, DeviceSample
    from gputop.schema.snapshot import Event, Host, Process


class Fault(NamedTuple):
    """A problem with a device, and its remedy."""

    what: str
    remedy: str


def fault_of(readings: DeviceSample) -> Fault | None:
    """Return why a device does not answer as it should, or None if it does."""
    match readings.state:
        case DeviceState.LOST:
            return Fault(
                "LOST: it no longer answers on its bus",
                "`dmesg` has the Xid; a reset or a reboot brings it back",
            )
        case DeviceState.NEEDS_RESET:
            return Fault(
                "NEEDS RESET: the driver has given it up",
                "End its processes, `nvidia-smi --gpu-reset`, or reboot",
            )
        case DeviceState.NOT_RESPONDING:
            return _no_response(readings)
    return None


def _no_response(readings: DeviceSample) -> Fault:
    reasons = {*readings.absent.values()}
    if Absence.NO_PERMISSION in reasons:
        return Fault(
            "NOT RESPONDING: no permission to ask it",
            "Ask for access to its file /dev/nvidia*, or run as root",
        )
    if Absence.ERROR in reasons:
        return Fault(
            "NOT RESPONDING: every call to its driver fails",
            "`nvidia-smi` and `dmesg` may say why; it may need a reset or a reboot",
        )
    age = f" for {duration(readings.age_seconds)}" if readings.age_seconds else ""
    return Fault(
        f"NOT RESPONDING{age}: a driver call hangs",
        "`dmesg` may have an Xid; it may need a reset or a reboot",
    )


_RESET = "Let its processes end, then reset or reboot"
_OURS = "A fault of the program that ran: look there first"
_AGAIN = "Start that program again; report it if it comes again"
_BY_ITSELF = "Nothing by itself; report it if it comes again"
_SAYS = "The recovery action says whether to reset"
XIDS = {
    8: Fault("a kernel ran longer than its time limit", _OURS),
    11: Fault("a program sent commands that cannot be read", _OURS),
    13: Fault("a program failed in the graphics engine, such as an index out of bounds", _OURS),
    31: Fault("a program touched memory that is not its own", _OURS),
    32: Fault("commands arrived broken", "If it comes again: program, driver or PCIe link"),
    38: Fault("the driver's firmware failed", _BY_ITSELF),
    **dict.fromkeys((39, 40, 41), Fault("a copy engine failed", _AGAIN)),
    43: Fault("a program was stopped after a fault of its own", _OURS),
    45: Fault("a program was ended, by a signal or after an earlier error", "Nothing by itself"),
    46: Fault("the device stopped working", _RESET),
    48: Fault("an uncorrectable memory error (double bit)", _RESET),
    54: Fault("its power cables are not connected", "Look at the cables"),
    61: Fault("the device's microcontroller (PMU) gave a warning", _RESET),
    62: Fault("the device's microcontroller (PMU) halted", _RESET),
    63: Fault("a bad row or page of memory was recorded", "A reset puts a spare in its place"),
    64: Fault("a bad row or page of memory could not be recorded", _RESET),
    68: Fault("the video decoder failed", _AGAIN),
    69: Fault("the graphics engine failed on a class error", _OURS),
    74: Fault("an NVLink failed", "See `nvidia-smi nvlink -e`; reset both ends, or reboot"),
    79: Fault("the GPU has fallen off the bus", "Reboot; look at its power, heat and seating"),
    92: Fault("many memory errors are being corrected", "Watch it; run a field diagnostic"),
    94: Fault("a memory error was contained to one program", "Start it again; reset when idle"),
    95: Fault("a memory error was not contained", _RESET),
    109: Fault("switching between contexts timed out", _RESET),
    110: Fault("a security fault", "Undo changes to the hardware, then power it off and on"),
    119: Fault("the device's system processor (GSP) does not answer", _RESET),
    120: Fault("the device's system processor (GSP) failed", _RESET),
    121: Fault("the link to the CPU (C2C) had errors, all corrected", "Reset it when idle"),
    136: Fault("an NVLink did not come up", _RESET),
    137: Fault("a program touched another GPU's memory that is not its own", _OURS),
    140: Fault("an uncorrectable memory error that could not be recorded", _RESET),
    143: Fault("the device could not be initialized", _RESET),
    **dict.fromkeys(range(144, 151), Fault("an NVLink reported an error", _SAYS)),
    151: Fault("encryption keys could not be changed", "Restart the virtual machine"),
    154: Fault("the driver wants it recovered, or no longer", "The recovery action says how"),
    155: Fault("an NVLink went down, as it was told to", _SAYS),
    156: Fault("a faulty part of the device was retired", _RESET),
    157: Fault("a faulty part of the device could not be retired", _BY_ITSELF),
    158: Fault("the device did not answer in time", _RESET),
    171: Fault("an uncorrectable error in device memory", _SAYS),
    172: Fault("an uncorrectable error in on-chip memory", _SAYS),
}
"""The common Xid errors, each with the first thing to do.

Source: the immediate actions in
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html.
"""
NO_NUMBER = 999
"""Xid that NVML reports if it does not know the number."""

_STATES = {
    DeviceState.OK: Fault("answers again", ""),
    DeviceState.NOT_RESPONDING: Fault("not responding: calls to its driver hang or fail", ""),
    DeviceState.LOST: Fault("lost: it no longer answers on its bus", "`dmesg` has the Xid"),
    DeviceState.NEEDS_RESET: Fault("needs a reset: the driver has given it up", ""),
}


def event_text(event: Event) -> Fault:
    """Return what happened and what to do; an event of an unknown kind keeps its name."""
    if event.kind == "xid":
        if event.code in (None, NO_NUMBER):
            return Fault("Xid: the driver does not say which", "`dmesg` has its number")
        known = XIDS.get(event.code or 0)
        if known is None:
            return Fault(f"Xid {event.code}", "NVIDIA's list of Xid errors says what it is")
        return Fault(f"Xid {event.code}: {known.what}", known.remedy)
    if event.kind in _STATES:
        return _STATES[DeviceState(event.kind)]
    code = "" if event.code is None else f" {event.code}"
    return Fault(f"{visible(event.kind, 40)}{code}", "")


_WHOLE_GPU = tuple(name for name in READINGS if name.endswith("_utilization_percent"))
_RATES = tuple(name for name in READINGS if name.endswith("_bytes_per_second"))
_MEMORY = tuple(name for name in READINGS if name.startswith("memory_") and "_bytes" in name)

UNSEEN = {
    Absence.LOST: "gone, or in another namespace: try --pid=host",
    Absence.NO_PERMISSION: "not permitted to look: run as its user or root",
    Absence.TIMED_OUT: "the host did not say in time: wait for the next sample",
    Absence.NOT_SCRAPED: "Prometheus knows no processes: look on the host",
    Absence.NO_DATA_YET: "not looked up yet: wait for the next sample",
}
"""Reasons why only the pid of a process is known, and what to do about it."""
UNSEEN_BRIEFLY = {
    Absence.LOST: "gone, or elsewhere: --pid=host",
    Absence.NO_PERMISSION: "no permission: needs root",
}
"""Shorter texts for a narrow column."""

_ALWAYS = {
    Absence.NO_PERMISSION: "no permission: run as root",
    Absence.LOST: "the device is lost or needs a reset: `dmesg` has the Xid",
    Absence.TIMED_OUT: "timed out: the driver did not answer, it is asked again",
    Absence.UNREACHABLE: "its host is away: the monitor says why",
    Absence.NOT_SCRAPED: "not scraped: no exporter there counts it",
    Absence.ERROR: "the driver failed: `nvidia-smi -q` may say more",
}
"""Texts that are the same for every reading."""


def absence_text(name: str, absence: Absence, device: Device, host: Host | None = None) -> str:
    """Return why the field is missing, and the remedy, in a short sentence."""
    match absence:
        case Absence.NOT_SUPPORTED:
            return _not_supported(name, device, host)
        case Absence.DISABLED:
            return _disabled(name)
        case Absence.NO_DATA_YET:
            if name in _RATES:
                return "no data yet: needs two comparable readings"
            return "no data yet: comes with the next reading"
    return _ALWAYS[absence]


def _not_supported(name: str, device: Device, host: Host | None) -> str:
    if name in _MEMORY and device.memory_is_shared:
        text = "shares the host's memory"
        if host is None or host.memory_used_bytes is None:
            return text
        used = used_of(host.memory_used_bytes, host.memory_total_bytes, " of ")
        return f"{text}: {used} in use there"
    if name in _WHOLE_GPU:
        if device.mig_index is not None:
            return "counted for the whole GPU only: see SM active"
        if device.mig_mode == "enabled":
            return "not counted while MIG is on: see its instances"
    if name in GPM_READINGS:
        return "needs GPM: Hopper or later, GeForce from the 50 series"
    reading = CATALOGUE.get(name)  # None for the list of processes
    if reading is not None and reading.not_supported:
        return reading.not_supported
    if name.startswith("nvlink_"):
        return "no NVLink, or no link that is up"
    if name.startswith("pcie_") and device.virtualization == "vgpu":
        return "not passed on to virtual GPUs: the host has it"
    return "not supported by this device or its driver"


def _disabled(name: str) -> str:
    if name in GPM_READINGS:
        return "GPM is off (--no-gpm), or not sampled yet"
    if name.startswith("ecc_"):
        return "ECC is disabled: `nvidia-smi -e 1` and a reset enable it"
    return "switched off: `nvidia-smi -q` shows what is"


def unseen(process: Process, room: int | None = None) -> str:
    """Return why a process has no command, and the remedy; briefly if `room` is small."""
    reason = process.absent.get("command", Absence.LOST)
    text = UNSEEN.get(reason, "the host does not say what it is")
    return text if room is None or len(text) <= room else UNSEEN_BRIEFLY.get(reason, text)
