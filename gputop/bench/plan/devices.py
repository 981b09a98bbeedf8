"""The devices of a stream under stress: how they are named, what they share, whom it disturbs."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.bench.plan import request as plan
from gputop.bench.plan.request import Target, cpu_target
from gputop.problem import Problem
from gputop.schema.device import DeviceState
from gputop.schema.snapshot import ProcessKind
from gputop.sources.visible_devices import ORDER, VARIABLE, seen
from gputop.text import visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gputop.bench.plan.request import Request
    from gputop.schema.device import Device
    from gputop.schema.snapshot import Inventory, Process, Sample

ALL = "all"
HIDDEN = f"{VARIABLE} hides every GPU"
_NUMBER = re.compile(r"(?:cuda:|gpu:)?([0-9]{1,4})(?::([0-9]{1,4}))?", re.IGNORECASE)
_UUID = re.compile(r"(?:GPU|MIG|MIG-GPU)-[0-9a-f-]*(?:/[0-9]{1,4}){0,2}", re.IGNORECASE)
"""Drivers before 470 name an instance `MIG-GPU-…/1/0`."""


def targets(inventory: Inventory, sample: Sample | None) -> tuple[Target, ...]:
    """Every device of a stream that can be put under stress, in its order, then the CPU."""
    cpu, whole = cpu_target(), divided(inventory)
    gpus = []
    for device in inventory.devices:
        if device.uuid in whole:
            continue
        readings = sample.device(device.uuid) if sample else None
        free = readings.memory_free_bytes if readings else None
        gpus.append(
            Target(
                "cuda",
                device.uuid,
                device.index,
                device.name,
                device.compute_capability,
                cpu.memory_free_bytes if device.memory_is_shared else free,
                device.parent_uuid,
                device.mig_index,
            )
        )
    return (*gpus, cpu)


def divided(inventory: Inventory) -> dict[str, Problem]:
    """By UUID the GPUs in MIG mode, and why they cannot be put under stress as a whole."""
    found = {}
    for gpu in inventory.devices:
        instances = [device for device in inventory.devices if device.parent_uuid == gpu.uuid]
        if gpu.mig_mode != "enabled" and not instances:
            continue
        what = f"GPU {gpu.label}, {gpu.name}, cannot be put under stress as a whole"
        why, remedy = "MIG is on, and it has no instance", "Create one with `nvidia-smi mig -cgi`"
        if instances:
            named = ", ".join(f"{each.label} ({_profile(each, gpu)})" for each in instances)
            why, remedy = "MIG is on, and CUDA runs on its instances only", f"Choose one: {named}"
        found[gpu.uuid] = Problem(what, why, remedy)
    return found


def _profile(instance: Device, gpu: Device) -> str:
    """What it is besides a part of that GPU: `MIG 3g.20gb`."""
    return visible(instance.name.removeprefix(gpu.name).strip())


def choose(inventory: Inventory, sample: Sample | None, device: str | None) -> Target:
    """The target that `device` (of `parse_device`) names; None is the first, a GPU if there is one.

    Raises `ValueError` where there is none, or more than one, or a GPU in MIG mode.
    """
    among = targets(inventory, sample)
    if device is None:
        return among[0]
    if device == "cpu":
        return among[-1]
    start = device.lower()
    found = [
        each.uuid
        for each in inventory.devices
        if each.label == device or each.uuid.lower().startswith(start)
    ]
    if len(found) == 1:
        problem = divided(inventory).get(found[0])
        if problem is not None:
            raise ValueError(f"{problem}.")
        return next(target for target in among if target.uuid == found[0])
    names = ", ".join("cpu" if t.kind == "cpu" else f"{t.number} ({t.uuid})" for t in among)
    why = f"{len(found)} devices match it" if found else "this machine has no such device"
    raise ValueError(f"Device {device!r} cannot be used: {why}. There are: {names}.")


def left_by_cuda(
    inventory: Inventory, environment: Mapping[str, str]
) -> tuple[Inventory, str | None]:
    """With the devices alone that CUDA_VISIBLE_DEVICES leaves to programs of this environment.

    Beside it what is wrong with that list; raises `ValueError` where its numbers are ambiguous.
    """
    try:
        left = seen(inventory.devices, environment.get(VARIABLE), environment.get(ORDER))
    except ValueError as error:
        raise ValueError(f"{error}, or choose one with --device.") from None
    devices = tuple(device for device in inventory.devices if device.uuid in left.uuids)
    return replace(inventory, devices=devices), left.note


def choose_all(
    inventory: Inventory, left: Inventory, sample: Sample | None, named: Sequence[str]
) -> list[Target]:
    """The targets of several names (of `parse_devices`), each once; `all` are those `left`.

    Raises `ValueError` as `choose` does, and where `all` is none.
    """
    found: list[Target] = []
    for name in named:
        if name == ALL:
            gpus = [each for each in targets(left, sample) if each.kind == "cuda"]
            usable = [each for each in gpus if unusable(sample, each) is None]
            if not usable:
                why = "none of them answers" if gpus else "there is none"
                if inventory.devices and not left.devices:
                    why = HIDDEN
                raise ValueError(f"No GPU can be used: {why}. Choose --device cpu.")
            found += usable
        else:
            found.append(choose(inventory, sample, name))
    return list(dict.fromkeys(found))


def parse_devices(text: str) -> tuple[str, ...]:
    """Devices with commas between them, or `all`: what `choose_all` takes; raises `ValueError`."""
    names = (name.strip() for name in text.split(","))
    found = (ALL if name.lower() == ALL else parse_device(name) for name in names)
    return tuple(dict.fromkeys(found))


def parse_device(text: str) -> str:
    """What `choose` takes; raises `ValueError` with what, why and the remedy.

    It is `cpu`, an index (`cuda:1` is `1`), that of a MIG instance (`3:1`) or the start of a UUID.
    """
    device = text.strip()
    if device.lower() == "cpu":
        return "cpu"
    number = _NUMBER.fullmatch(device)
    if number:
        return ":".join(str(int(part)) for part in number.groups() if part is not None)
    if _UUID.fullmatch(device):
        return device
    raise ValueError(
        f"{text!r} is not a device: it is cpu, an index, or the start of a UUID. "
        "Give one such as cpu, 0, 0:1 (a MIG instance) or GPU-4f2a; `gputop status` lists them."
    )


def holders(sample: Sample | None, target: Target) -> list[Process] | None:
    """Whom a stress test would disturb: those that compute on the device; None if unknown."""
    if target.kind == "cpu":
        return []
    readings = sample.device(target.uuid or "") if sample else None
    if sample is None or readings is None or "processes" in readings.absent:
        return None
    return [
        process
        for process in sample.processes
        if process.device_uuid == target.uuid and process.kind is not ProcessKind.GRAPHICS
    ]


def unusable(sample: Sample | None, target: Target) -> Problem | None:
    """Why no stress test is started on a device that does not answer; None for one that does."""
    if target.kind == "cpu":
        return None
    readings = sample.device(target.uuid or "") if sample else None
    what = f"{target.label} cannot be put under stress"
    remedy = "Look for Xid errors in `dmesg`; `nvidia-smi` may reset it"
    if readings is None or (readings.state is DeviceState.OK and readings.age_seconds is None):
        return Problem(what, "it has not answered yet", remedy)
    if readings.state is not DeviceState.OK:
        return Problem(what, f"its state is {readings.state.replace('_', ' ')}", remedy)
    return None


def shared_dtypes(targets: Sequence[Target]) -> tuple[str, ...]:
    """The data types that every one of them has, in the order in which they are offered."""
    first, *others = map(plan.offered_dtypes, targets)
    return tuple(dtype for dtype in first if all(dtype in other for other in others))


def common_dtype(targets: Sequence[Target]) -> str:
    """What one of them trains with and all of them have; with a CPU among them, its own."""
    shared = shared_dtypes(targets)
    with_cpu = any(target.kind == "cpu" for target in targets)
    wanted = [] if with_cpu else [plan.default_dtype(target) for target in targets]
    return next((dtype for dtype in wanted if dtype in shared), "float32")


def with_peers(requests: Sequence[Request]) -> list[Request]:
    """Copies between GPUs: each also copies to the next one, and the last one to the first.

    A process sees one MIG instance and nothing beside it: those have no peer.
    """
    ring = [each.target for each in requests if _has_peers(each)]
    if len(ring) < 2:
        return list(requests)
    peers = dict(zip(ring, [*ring[1:], ring[0]], strict=True))
    return [replace(each, peer=peers.get(each.target)) for each in requests]


def _has_peers(request: Request) -> bool:
    target = request.target
    return request.kind == "copy" and target.kind == "cuda" and target.parent_uuid is None


def numbers(targets: Sequence[Target]) -> str:
    """Which devices, in short: `GPU 0, 2`, `GPU 1, CPU`."""
    known = [target.number for target in targets if target.number is not None]
    gpus = [f"GPU {', '.join(known)}"] if known else []
    return ", ".join([*gpus, *("CPU" for target in targets if target.number is None)])
