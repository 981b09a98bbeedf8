"""What is wrong with a device and what to do about it, in words: its state, and its Xid errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gputop.telemetry.snapshot import DeviceState
from gputop.text import duration, visible

if TYPE_CHECKING:
    from gputop.telemetry.snapshot import DeviceSample, Event


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
            age = f" for {duration(readings.age_seconds)}" if readings.age_seconds else ""
            return Fault(
                f"NOT RESPONDING{age}: a driver call hangs",
                "Other devices are not held up; `dmesg` may have an Xid",
            )
    return None


_RESET = "Let its processes end, then reset or reboot"
_OURS = "A fault of the program that ran: look there first"
_NVLINK = Fault("an NVLink failed", "Look at the link's errors; reset the device")
XIDS = {
    8: Fault("a kernel ran longer than its time limit", _OURS),
    13: Fault("a program failed in the graphics engine, such as an index out of bounds", _OURS),
    31: Fault("a program touched memory that is not its own", _OURS),
    32: Fault("a program's commands were unreadable", "If it comes again: driver or PCIe link"),
    38: Fault("the driver's firmware failed", "Reset the device; report it if it comes again"),
    43: Fault("a program was stopped after a fault of its own", _OURS),
    45: Fault("a program was ended, by a signal or after an earlier error", "Nothing by itself"),
    46: Fault("the device stopped working", _RESET),
    48: Fault("an uncorrectable memory error (double bit)", _RESET),
    61: Fault("the device's microcontroller gave a warning", _RESET),
    62: Fault("the device's microcontroller halted", _RESET),
    63: Fault("a bad row or page of memory was recorded", "A reset puts a spare in its place"),
    64: Fault("a bad row or page of memory could not be recorded", _RESET),
    68: Fault("the video processor failed", "Reset the device; report it if it comes again"),
    69: Fault("the graphics engine failed on a class error", _OURS),
    74: _NVLINK,
    79: Fault("the GPU has fallen off the bus", "Reboot; look at its power, heat and seating"),
    92: Fault("many memory errors are being corrected", "Watch it; run a field diagnostic"),
    94: Fault("a memory error was contained to one program", "Start that program again"),
    95: Fault("a memory error was not contained", _RESET),
    109: Fault("switching between contexts timed out", _RESET),
    119: Fault("the device's system processor does not answer", _RESET),
    120: Fault("the device's system processor failed", _RESET),
    121: Fault("the link between processors had a correctable error", "Reset it when idle"),
    140: Fault("an uncorrectable memory error that ECC does not recover", _RESET),
    143: Fault("the device could not be initialized", _RESET),
    **dict.fromkeys(range(144, 151), _NVLINK),
    154: Fault("the driver wants it recovered", "The recovery action says how"),
}
"""The common ones, after NVIDIA's catalogue of Xid errors; in each, what to do first."""
NO_NUMBER = 999
"""The Xid that NVML gives where it does not know it."""

_STATES = {
    DeviceState.OK: Fault("answers again", ""),
    DeviceState.NOT_RESPONDING: Fault("not responding: a driver call hangs", ""),
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
