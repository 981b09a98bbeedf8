"""What is wrong with a device and what to do about it, in words: its state, and its Xid errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gputop.schema.snapshot import Absence, DeviceState
from gputop.text import duration, visible

if TYPE_CHECKING:
    from gputop.schema.snapshot import DeviceSample, Event


class Fault(NamedTuple):
    """What is wrong, and what to do about it."""

    what: str
    remedy: str


def fault_of(readings: DeviceSample) -> Fault | None:
    """What is wrong with a device that does not answer as it should; None where it does."""
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
"""The common ones; in each, what to do first.

After the immediate actions in https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html.
"""
NO_NUMBER = 999
"""The Xid that NVML gives where it does not know it."""

_STATES = {
    DeviceState.OK: Fault("answers again", ""),
    DeviceState.NOT_RESPONDING: Fault("not responding: calls to its driver hang or fail", ""),
    DeviceState.LOST: Fault("lost: it no longer answers on its bus", "`dmesg` has the Xid"),
    DeviceState.NEEDS_RESET: Fault("needs a reset: the driver has given it up", ""),
}


def event_text(event: Event) -> Fault:
    """An event in words: what happened, and what to do; an unknown kind as it came."""
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
