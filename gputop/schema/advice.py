"""Commands that change a device, in words: each names its device, and its machine if it is another.

Without `-i`, nvidia-smi changes every GPU of the machine. A test looks for commands without it.
"""

from __future__ import annotations

from collections.abc import Iterable

from gputop.agent.device import Absence, Device, DeviceSample, DeviceState
from gputop.text import visible

INDEX = "{index}"
"""Placeholder for the index of the device, or of all devices that share the advice."""
RESET = "{reset}"
"""Placeholder for how to reset the device."""
REBOOT = "Usually only a reboot helps"
"""Advice for a GPU that has fallen off the bus. A reset does not reach it."""
_NVLINK_CHIPS = ("7.0", "8.0", "9.0", "10.0", "10.3")
"""Compute capabilities of the chips that HGX machines connect by NVLink."""


def smi_command(options: str, device: Device) -> str:
    """Return an nvidia-smi command that changes the device."""
    return _command("nvidia-smi", device, options, str(device.index))


def shared_command(options: str, device: Device) -> str:
    """Return an nvidia-smi command for all devices of a machine that need it: see `fill_index`."""
    return _command("nvidia-smi", device, options, INDEX)


def mig_command(options: str, device: Device) -> str:
    """Return a command of `nvidia-smi mig` for the device."""
    return _command("nvidia-smi mig", device, options, str(device.index))


def _command(program: str, device: Device, options: str, index: str) -> str:
    return f"`sudo {program} -i {index} {options}`{_on_machine(device)}"


def fill_index(advice: str, devices: Iterable[Device]) -> str:
    """Return the advice for these devices: their indices take the place of `INDEX`."""
    indices = dict.fromkeys(str(each.index) for each in devices)
    return advice.replace(INDEX, ",".join(indices))


def reset_advice(device: Device | None, readings: DeviceSample | None = None) -> str:
    """Return how to reset the device, to follow other words; None is a device that is not known.

    A MIG instance is reset with its GPU. nvidia-smi refuses a reset while the GPU is in use, and
    may refuse one while GPUs that are connected to it are in use.
    """
    if device is None:
        return "look in `dmesg` for the GPU that needs a reset"
    if readings is not None and readings.state is DeviceState.LOST:
        return "reboot its machine: a reset rarely reaches a lost GPU"
    name = f"GPU {device.index}"
    if not device.is_here:
        name = f"{name} of {visible(device.machine or '')}"
    command = f"`sudo nvidia-smi --gpu-reset -i {device.index}`{_on_machine(device)}"
    text = f"quit gputop and the programs that use {name}, then {command}"
    if _has_nvlink(device, readings):
        text = f"{text}; it may be refused while its NVLink peers are in use"
    return text


def fill_in(
    advice: str, device: Device | None, readings: DeviceSample | None = None
) -> str:
    """Return the advice as a sentence, with how to reset the device in place of `RESET`."""
    text = advice.replace(RESET, reset_advice(device, readings))
    return text[:1].upper() + text[1:]


def state_advice(device: Device, readings: DeviceSample) -> str:
    """Return what to do about the state of a device that does not answer."""
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
    """Return True if the device has NVLink, or may have it and no longer says so."""
    name = "nvlink_rx_bytes_per_second"
    if readings is not None:
        if getattr(readings, name) is not None:
            return True
        if readings.absent.get(name) is Absence.NOT_SUPPORTED:
            return False
    return device.compute_capability in _NVLINK_CHIPS
