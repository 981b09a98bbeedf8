"""Why a reading is missing, in words that are right for it, and what brings it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.telemetry.snapshot import GPM_READINGS, READINGS, Absence
from gputop.text import used_of

if TYPE_CHECKING:
    from gputop.telemetry.snapshot import Device, Host

_WHOLE_GPU = tuple(name for name in READINGS if name.endswith("_utilization_percent"))
_RATES = tuple(name for name in READINGS if name.endswith("_bytes_per_second"))
_MEMORY = tuple(name for name in READINGS if name.startswith("memory_") and "_bytes" in name)


def absence_text(name: str, absence: Absence, device: Device, host: Host | None = None) -> str:
    """Why the field of that name is missing, and the remedy, in a short sentence."""
    match absence:
        case Absence.NOT_SUPPORTED:
            return _not_supported(name, device, host)
        case Absence.DISABLED:
            return _disabled(name)
        case Absence.NO_PERMISSION:
            return "no permission: run as root or ask for /dev/nvidia*"
        case Absence.LOST:
            return "the device is lost or needs a reset: `dmesg` has the Xid"
        case Absence.TIMED_OUT:
            return "timed out: the driver did not answer, it is asked again"
        case Absence.NO_DATA_YET:
            if name in _RATES:
                return "no data yet: a rate needs two readings"
            return "no data yet: comes with the next reading"
        case Absence.ERROR:
            return "the driver failed: `nvidia-smi -q` may say more"


def _not_supported(name: str, device: Device, host: Host | None) -> str:
    if name in _MEMORY and device.memory_is_shared:
        text = "shares the host's memory"
        if host is None or host.memory_used_bytes is None:
            return text
        used = used_of(host.memory_used_bytes, host.memory_total_bytes).replace("/", " of ")
        return f"{text}: {used} in use there"
    if name in _WHOLE_GPU:
        if device.mig_index is not None:
            return "counted for the whole GPU only: see SM active"
        if device.mig_mode == "enabled":
            return "not counted while MIG is on: see its instances"
    if name in GPM_READINGS:
        return "needs GPM: Hopper or later, GeForce from the 50 series"
    if name in ("fan_percent", "fans_percent"):
        return "no fan that the driver knows of"
    if name.startswith("nvlink_"):
        return "no NVLink, or no link that is up"
    if name.startswith("pcie_") and device.virtualization == "vgpu":
        return "not passed on to virtual GPUs: the host has it"
    return "not supported by this device or its driver"


def _disabled(name: str) -> str:
    if name in GPM_READINGS:
        return "GPM is off: sampled while this page is open, unless --no-gpm"
    if name.startswith("ecc_"):
        return "ECC is disabled: `nvidia-smi -e 1` and a reset enable it"
    return "switched off: `nvidia-smi -q` shows what is"
