"""A node's nvidia-smi output as targets, inventories and samples. Pure."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gputop.agent.device import Device
from gputop.agent.snapshot import DriverState, Inventory, Source
from gputop.bench.plan.request import CPU_MEMORY_SHARE, Target
from gputop.bench.plan.target_choice import targets
from gputop.text import fold_list, size, visible

INTERVAL_SECONDS = 1.0
MIB = 1 << 20
IDLE_BYTES = 1 << 30
"""Most memory that driver and desktop hold. More belongs to somebody, named or not."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """An actor's node, and the GPU that Ray gave it."""

    target: Target
    inventory: Inventory
    python: str
    held: str | None
    """Reason why the GPU counts as in use, or None if it is free."""


def node_facts(said: Mapping[str, Any], host: str, beside: int = 1) -> NodeFacts:
    """Return an actor's facts; raise `ValueError` with the reason if it has no GPU.

    `beside` tests share the memory of a node's CPU.
    """
    if "why" in said:
        raise ValueError(str(said["why"]))
    gpu = said.get("gpu", {})
    devices = () if "cpu" in said else _devices(said)
    driver = (Source.NVML, DriverState.OK, INTERVAL_SECONDS)
    version = gpu.get("driver_version")
    inventory = Inventory(
        time.time(), host, *driver, driver_version=version, devices=devices
    )
    held = _held(gpu, str(said.get("apps", ""))) if devices else None
    target = _target(inventory, gpu, host) if devices else _cpu(said, host, beside)
    return NodeFacts(
        replace(target, torch=said["torch"]), inventory, str(said["python"]), held
    )


def _cpu(said: Mapping[str, Any], host: str, beside: int) -> Target:
    free, ids = said.get("free_bytes"), said.get("gpus") or ["0"]
    index = int(ids[0]) if ids[0].isdigit() else 0
    known = (None, index, str(said["cpu"]), None, free and free // beside)
    return Target("cpu", *known, memory_share=CPU_MEMORY_SHARE, host=host)


def _devices(said: Mapping[str, Any]) -> tuple[Device, ...]:
    """Return the whole GPU, which alone has readings, and the instance of it, if it is one."""
    gpu: Mapping[str, str] = said["gpu"]
    total, capability = _whole(gpu.get("memory.total")), gpu.get("compute_cap")
    identity = gpu.get("pci.device_id", "").lower().removeprefix("0x")
    whole = Device(
        index=_whole(gpu.get("index")) or 0,
        uuid=gpu["uuid"],
        name=gpu.get("name", "GPU"),
        pci_bus_id=gpu.get("pci.bus_id"),
        pci_device_id=identity[:4] or None,  # the vendor follows
        memory_total_bytes=None if total is None else total * MIB,
        compute_capability=capability if _number(capability) else None,
        sm_clock_max_mhz=_whole(gpu.get("clocks.max.sm")),
        **thresholds(str(said.get("heat", ""))),
    )
    if said.get("instance") is None:
        return (whole,)
    number, _, profile = str(said["instance"]).partition(" ")
    instance = Device(
        whole.index,
        str(said["gpus"][0]),
        f"{whole.name} MIG {profile}",
        parent_uuid=whole.uuid,
        mig_index=int(number),
        compute_capability=whole.compute_capability,
    )
    return whole, instance


THRESHOLDS = {
    "GPU Slowdown Temp": "temperature_slowdown_celsius",
    "GPU Shutdown Temp": "temperature_shutdown_celsius",
    "Memory Max Operating Temp": "memory_temperature_max_celsius",
    "GPU Slowdown T.Limit Temp": "temperature_slowdown_margin_celsius",
    "GPU Shutdown T.Limit Temp": "temperature_shutdown_margin_celsius",
    "GPU Max Operating T.Limit Temp": "temperature_max_margin_celsius",
    "Memory Max Operating T.Limit Temp": "memory_temperature_max_margin_celsius",
}
"""Fields of `Device` by their names in `nvidia-smi -q`."""


def thresholds(heat: str) -> dict[str, Any]:
    """Return the thresholds that `nvidia-smi -q -d TEMPERATURE` prints."""
    rows = (line.partition(":") for line in heat.splitlines())
    named = ((THRESHOLDS.get(label.strip()), text.split()) for label, _, text in rows)
    return {name: _whole(words[0]) for name, words in named if name and words}


def _target(inventory: Inventory, gpu: Mapping[str, str], host: str) -> Target:
    target, _ = targets(inventory, None)
    free = _whole(gpu.get("memory.free"))
    if (
        free is None or target.parent_uuid is not None
    ):  # how much an instance has is not said
        return replace(target, host=host)
    return replace(target, host=host, memory_free_bytes=free * MIB)


def _held(gpu: Mapping[str, str], apps: str) -> str | None:
    rows = [line.split(",") for line in apps.splitlines() if line.count(",") >= 2]
    if rows:
        named = [
            f"{visible(row[0].strip())} ({visible(row[1].strip(), 60)})" for row in rows
        ]
        return f"in use by process {fold_list(named, 3)}"
    used = _whole(gpu.get("memory.used"))
    if used is not None and used * MIB > IDLE_BYTES:
        return f"in use: {size(used * MIB)} of its memory are held, the driver does not say by whom"
    return None


def _number(value: str | None) -> float | None:
    with contextlib.suppress(ValueError):
        return float(value or "")
    return None


def _whole(value: str | None) -> int | None:
    number = _number(value)
    return None if number is None else int(number)
