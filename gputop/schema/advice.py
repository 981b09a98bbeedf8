"""Advice with commands that change a device. Each names the device, and the machine if remote.

Without `-i`, nvidia-smi changes every GPU of the machine. A test checks that each command has it.
"""

from __future__ import annotations

from collections.abc import Iterable

from gputop.agent.device import Absence, Device, DeviceSample, DeviceState
from gputop.text import visible

INDEX = "{index}"
"""Placeholder for the index of the device, or of all devices that share the advice."""
RESET = "{reset}"
"""Placeholder for the text of `reset_advice`."""
REBOOT = "Usually only a reboot helps"
"""Advice for a GPU that has fallen off the bus, where a reset does not work."""
_NVLINK_CHIPS = ("7.0", "8.0", "9.0", "10.0", "10.3")
"""Compute capabilities of chips that HGX machines connect by NVLink."""


def shared_command(
    options: str, device: Device, program: str = "nvidia-smi"
) -> str:
    """Return a command that changes a device, or several of a machine: see `fill_index`."""
    return f"`sudo {program} -i {INDEX} {options}`{_on_machine(device)}"


def fill_index(advice: str, devices: Iterable[Device]) -> str:
    """Return the advice with the indices of these devices in place of `INDEX`."""
    indices = dict.fromkeys(str(each.index) for each in devices)
    return advice.replace(INDEX, ",".join(indices))


def reset_advice(
    device: Device | None, readings: DeviceSample | None = None
) -> str:
    """Return how to reset the device, as part of a sentence. Use None for an unknown device.

    A MIG instance is reset with its GPU. nvidia-smi refuses a reset while the GPU is in use, and
    may refuse it while GPUs connected by NVLink are in use.
    """
    if device is None:
        return "look in `dmesg` for the GPU that needs a reset"
    if readings is not None and readings.state is DeviceState.LOST:
        return "reboot its machine: a reset rarely reaches a lost GPU"
    name = f"GPU {device.index}"
    if not device.is_here:
        name = f"{name} of {visible(device.machine or '')}"
    command = (
        f"`sudo nvidia-smi --gpu-reset -i {device.index}`{_on_machine(device)}"
    )
    text = f"quit gputop and the programs that use {name}, then {command}"
    if _has_nvlink(device, readings):
        text = f"{text}; it may be refused while its NVLink peers are in use"
    return text


def fill_in(
    advice: str, device: Device | None, readings: DeviceSample | None = None
) -> str:
    """Return the advice as a sentence, with `reset_advice` in place of `RESET`."""
    text = advice.replace(RESET, reset_advice(device, readings))
    return text[:1].upper() + text[1:]


def state_advice(device: Device, readings: DeviceSample) -> str:
    """Return the remedy for a device that does not answer."""
    if readings.state is DeviceState.LOST:
        return f"{REBOOT}; `dmesg` has the Xid"
    if readings.state is DeviceState.NEEDS_RESET:
        return fill_in(RESET, device, readings)
    return "`dmesg` may have an Xid; if it lasts, reboot its machine"


def _on_machine(device: Device) -> str:
    if device.is_here:
        return ""
    return f" on {visible(device.machine or '')}"


def _has_nvlink(device: Device, readings: DeviceSample | None) -> bool:
    """Return True if the device has NVLink. If that is unknown, decide by its chip."""
    name = "nvlink_rx_bytes_per_second"
    if readings is not None:
        if getattr(readings, name) is not None:
            return True
        if readings.absent.get(name) is Absence.NOT_SUPPORTED:
            return False
    return device.compute_capability in _NVLINK_CHIPS
