"""The devices that `--id` names, or that CUDA_VISIBLE_DEVICES leaves visible, as CUDA reads it.

A list ends at its first invalid entry, as
https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables says. torch.cuda
found that a repeated entry leaves nothing, that the first entry decides between numbers and UUIDs,
and that `1gpu2` is 1.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gputop.schema.device import Device
from gputop.text import visible

VARIABLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
BY_BUS = "PCI_BUS_ID"


class Seen(NamedTuple):
    """UUIDs of the visible devices, MIG instances with their GPU."""

    uuids: frozenset[str]
    note: str | None = None
    """Problem with the list, in a sentence without its full stop."""


def in_bus_order(devices: Sequence[Device]) -> list[Device]:
    """Return the GPUs as CUDA_DEVICE_ORDER=PCI_BUS_ID counts them, or in NVML's order."""
    gpus = [device for device in devices if device.parent_uuid is None]
    if all(gpu.pci_bus_id for gpu in gpus):
        return sorted(gpus, key=lambda gpu: (gpu.pci_bus_id or "").lower())
    return gpus


def seen(devices: Sequence[Device], environment: Mapping[str, str] = os.environ) -> Seen:
    """Return the devices that the environment leaves visible.

    Raises `ValueError` if numbers are ambiguous: without CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA puts
    the fastest device first, and does not define the order of the others. Identical devices are
    taken to be in the order of the bus, which they are in practice.
    """
    value = environment.get(VARIABLE)
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
    if (
        numbers
        and environment.get(ORDER) != BY_BUS
        and len(kinds) > 1
        and 0 < len(chosen) < len(gpus)
    ):
        raise ValueError(
            f"{VARIABLE}={visible(value, 80)} is ambiguous: CUDA counts the fastest device first, "
            f"and this machine has {', '.join(sorted(kinds))}. "
            f"Set {ORDER}={BY_BUS}, or name devices by their UUIDs"
        )
    parents = {device.uuid for device in chosen}
    uuids = (d.uuid for d in devices if d.uuid in parents or d.parent_uuid in parents)
    return Seen(frozenset(uuids), note)


_ID = re.compile(r"[0-9]{1,4}|GPU-[0-9a-f-]+|[0-9a-f:.]{7,16}", re.IGNORECASE)


def parse_ids(text: str) -> tuple[str, ...]:
    """Parse what `--id` takes: indices, PCI addresses or starts of UUIDs. Raises `ValueError`."""
    ids = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if not all(map(_ID.fullmatch, ids)):
        raise ValueError(
            f"{text!r} names no GPUs. Give indices, PCI addresses or the start of UUIDs, such as "
            "0,2 or GPU-4f2a; `gputop status -L` lists them. MIG instances come with their GPU."
        )
    return ids


def chosen(gpus: Sequence[Device], ids: Sequence[str], *, only_visible: bool) -> frozenset[str]:
    """Return the UUIDs of the GPUs with these ids, or of all without any.

    With `only_visible` CUDA_VISIBLE_DEVICES must leave them visible. Raises `ValueError` for an id
    without a GPU, for ambiguous numbers, and if none is left.
    """
    found = frozenset(gpu.uuid for gpu in gpus)
    if only_visible:
        found, note = seen(gpus)
        if not found:
            raise ValueError(note or f"{VARIABLE} leaves none of them visible")
    named = set()
    for each in ids:
        has = {gpu.uuid for gpu in gpus if _has_id(gpu, each.lower())}
        if len(has) != 1:
            raise ValueError(f"{len(has) or 'none'} of its {len(gpus)} GPUs have the id {each}")
        named |= has & found
    if ids and not named:
        raise ValueError(f"{VARIABLE} hides the GPUs with the id {', '.join(ids)}")
    return frozenset(named) if ids else found


def _has_id(gpu: Device, wanted: str) -> bool:
    bus = (gpu.pci_bus_id or "").lower()
    return (
        wanted == str(gpu.index)
        or gpu.uuid.lower().startswith(wanted)
        or (len(wanted) > 4 and bus.endswith(wanted))
    )


def _numbered(gpus: Sequence[Device], entry: str) -> Device | None:
    digits = re.match(r"\+?([0-9]{1,9})", entry.strip())
    number = int(digits[1]) if digits else len(gpus)
    return gpus[number] if number < len(gpus) else None


def _named(devices: Sequence[Device], entry: str, prefix: str) -> Device | None:
    """Return the GPU whose UUID alone begins so, or the instance with that whole id."""
    if prefix == "MIG-":
        found = [d for d in devices if d.parent_uuid and entry in (d.uuid, _old_id(d))]
    else:
        found = [d for d in devices if entry.startswith(prefix) and d.uuid.startswith(entry)]
    return found[0] if len(found) == 1 else None


def _old_id(instance: Device) -> str:
    """Return the id that drivers before 470 give a MIG instance: `MIG-GPU-…/1/0`."""
    parts = instance.parent_uuid, instance.mig_gpu_instance, instance.mig_compute_instance
    return "MIG-" + "/".join(map(str, parts))
