"""The devices in CUDA_VISIBLE_DEVICES, as CUDA reads it.

A list ends at its first invalid entry, according to
https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables. Tests with
torch.cuda showed three more rules: a repeated entry leaves no devices, the first entry decides
between numbers and UUIDs, and `1gpu2` is 1.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gputop.agent.device import Device
from gputop.agent.text import visible

VARIABLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
BY_BUS = "PCI_BUS_ID"


class Seen(NamedTuple):
    """UUIDs of the visible devices; a GPU includes its MIG instances."""

    uuids: frozenset[str]
    note: str | None = None
    """Problem with the list, as a sentence without its full stop."""


def is_identified(device: Device) -> bool:
    """Return True if the UUID of the device is known."""
    return "uuid" not in device.absent


def in_bus_order(devices: Sequence[Device]) -> list[Device]:
    """Return the GPUs in the order of CUDA_DEVICE_ORDER=PCI_BUS_ID, or in NVML's order."""
    gpus = [device for device in devices if device.parent_uuid is None]
    if all(gpu.pci_bus_id for gpu in gpus):
        return sorted(gpus, key=lambda gpu: (gpu.pci_bus_id or "").lower())
    return gpus


def seen(
    devices: Sequence[Device], environment: Mapping[str, str] = os.environ
) -> Seen:
    """Return the devices that the environment leaves visible.

    Raises `ValueError` if numbers are ambiguous: without CUDA_DEVICE_ORDER=PCI_BUS_ID, CUDA puts
    the fastest device first and does not define the order of the others. Identical devices are
    assumed to be in bus order, as they are in practice.
    """
    value = environment.get(VARIABLE)
    if value is None:
        return Seen(frozenset(device.uuid for device in devices))
    gpus = in_bus_order(devices)
    numbers = not value.startswith(("GPU-", "MIG-"))
    chosen: list[Device] = []
    note = None
    for entry in value.split(","):
        found = (
            _numbered(gpus, entry)
            if numbers
            else _named(devices, entry, value[:4])
        )
        if found is None:
            if value:
                note = (
                    f"{VARIABLE} ends at {visible(entry)!r}: {_no_such(gpus)}"
                )
            break
        if found in chosen:
            note = f"{VARIABLE} names {visible(entry)!r} twice, so CUDA sees no device"
            return Seen(frozenset(), note)
        chosen.append(found)
    if numbers and 0 < len(chosen) < len(gpus):
        _check_order(
            value,
            gpus,
            chosen,
            by_bus=environment.get(ORDER) == BY_BUS,
        )
    parents = {device.uuid for device in chosen}
    uuids = (
        d.uuid
        for d in devices
        if d.uuid in parents or d.parent_uuid in parents
    )
    return Seen(frozenset(uuids), note)


def _no_such(gpus: Sequence[Device]) -> str:
    if all(map(is_identified, gpus)):
        return "there is no such device"
    return "no GPU that answers matches it"


def _check_order(
    value: str,
    gpus: Sequence[Device],
    chosen: Sequence[Device],
    *,
    by_bus: bool,
) -> None:
    """Raise `ValueError` if CUDA may number these GPUs differently."""
    shown = f"{VARIABLE}={visible(value, 80)} is ambiguous"
    last = max(gpus.index(gpu) for gpu in chosen)
    for gpu in gpus[: last + 1]:
        if not is_identified(gpu):
            raise ValueError(
                f"{shown}: GPU {gpu.number} does not answer, and CUDA may not count it. "
                "Name devices by their UUIDs"
            )
    kinds = {visible(gpu.name) for gpu in gpus if is_identified(gpu)}
    if len(kinds) > 1 and not by_bus:
        raise ValueError(
            f"{shown}: CUDA counts the fastest device first, "
            f"and this machine has {', '.join(sorted(kinds))}. "
            f"Set {ORDER}={BY_BUS}, or name devices by their UUIDs"
        )


def _numbered(gpus: Sequence[Device], entry: str) -> Device | None:
    digits = re.match(r"\+?([0-9]{1,9})", entry.strip())
    number = int(digits[1]) if digits else len(gpus)
    return gpus[number] if number < len(gpus) else None


def _named(
    devices: Sequence[Device],
    entry: str,
    prefix: str,
) -> Device | None:
    """Return the GPU with that unique prefix of its UUID, or the instance with that id."""
    found = []
    for device in devices:
        if prefix == "MIG-":
            fits = device.parent_uuid is not None and entry == device.uuid
        else:
            fits = entry.startswith(prefix) and device.uuid.startswith(entry)
        if fits:
            found.append(device)
    return found[0] if len(found) == 1 else None
