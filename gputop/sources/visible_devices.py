"""What CUDA_VISIBLE_DEVICES leaves of a machine's devices, as CUDA reads it. Pure.

https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables says that a list
ends at its first invalid entry; that a repeated one leaves nothing, that the first entry decides
between numbers and UUIDs, and that `1gpu2` is 1, is what torch.cuda found CUDA to do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from gputop.text import visible

if TYPE_CHECKING:
    from gputop.schema.device import Device

VARIABLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
BY_BUS = "PCI_BUS_ID"


class Seen(NamedTuple):
    """The UUIDs of the devices that are visible, MIG instances with their GPU."""

    uuids: frozenset[str]
    note: str | None = None
    """What is wrong with the list, in a sentence without its end."""


def in_bus_order(devices: Sequence[Device]) -> list[Device]:
    """The GPUs as CUDA_DEVICE_ORDER=PCI_BUS_ID counts them; NVML's order where a bus is unknown."""
    gpus = [device for device in devices if device.parent_uuid is None]
    if all(gpu.pci_bus_id for gpu in gpus):
        return sorted(gpus, key=lambda gpu: (gpu.pci_bus_id or "").lower())
    return gpus


def seen(devices: Sequence[Device], value: str | None, order: str | None) -> Seen:
    """What is visible where the variables have these values, None where one is not set.

    Raises `ValueError` where numbers are ambiguous: without CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA has
    the fastest device first, which tells nothing of the others. Where all are alike it is taken to
    be the order of the bus, which it is in practice.
    """
    if value is None:
        return Seen(frozenset(device.uuid for device in devices))
    gpus = in_bus_order(devices)
    numbers = not value.startswith(("GPU-", "MIG-"))
    chosen: list[Device] = []
    note = None
    for entry in value.split(","):
        found = _numbered(gpus, entry) if numbers else _named(devices, entry, value[:4])
        if found is None:
            if value:
                note = f"{VARIABLE} ends at {visible(entry, 80)!r}: there is no such device"
            break
        if found in chosen:
            note = f"{VARIABLE} names {visible(entry, 80)!r} again, which leaves CUDA nothing"
            return Seen(frozenset(), note)
        chosen.append(found)
    kinds = {visible(gpu.name, 80) for gpu in gpus}
    if numbers and order != BY_BUS and len(kinds) > 1 and 0 < len(chosen) < len(gpus):
        raise ValueError(
            f"{VARIABLE}={visible(value, 80)} is ambiguous: CUDA counts the fastest device first, "
            f"and this machine has {', '.join(sorted(kinds))}. "
            f"Set {ORDER}={BY_BUS}, or name devices by their UUIDs"
        )
    parents = {device.uuid for device in chosen}
    uuids = (d.uuid for d in devices if d.uuid in parents or d.parent_uuid in parents)
    return Seen(frozenset(uuids), note)


def _numbered(gpus: Sequence[Device], entry: str) -> Device | None:
    digits = re.match(r"\+?([0-9]{1,9})", entry.strip())
    number = int(digits[1]) if digits else len(gpus)
    return gpus[number] if number < len(gpus) else None


def _named(devices: Sequence[Device], entry: str, prefix: str) -> Device | None:
    """A GPU by what its UUID begins with, if that is one's alone; an instance by its whole id."""
    if prefix == "MIG-":
        found = [device for device in devices if entry in _ids(device, devices)]
    else:
        found = [d for d in devices if entry.startswith(prefix) and d.uuid.startswith(entry)]
    return found[0] if len(found) == 1 else None


def _ids(instance: Device, devices: Sequence[Device]) -> set[str]:
    """Of a MIG instance, that of drivers before 470 too: `MIG-GPU-…/1/0`."""
    parent = next((d for d in devices if d.uuid == instance.parent_uuid), None)
    if parent is None:
        return set()
    gpu, compute = instance.mig_gpu_instance, instance.mig_compute_instance
    return {instance.uuid, f"MIG-{parent.uuid}/{gpu}/{compute}"}
