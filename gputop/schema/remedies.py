"""Why a reading is missing, what is wrong with a device, and what to do about it, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.schema.catalogue import CATALOGUE
from gputop.schema.device import GPM_READINGS, READINGS, Absence, Device
from gputop.text import used_of

if TYPE_CHECKING:
    from gputop.schema.snapshot import Host, Process


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
