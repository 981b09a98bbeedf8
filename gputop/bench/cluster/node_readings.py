"""A node's nvidia-smi output as targets, inventories and samples. Pure."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gputop.bench.plan.request import Target
from gputop.schema.clock_events import words_of
from gputop.schema.device import Device, DeviceSample
from gputop.schema.snapshot import DriverState, Host, Inventory, Sample, Source
from gputop.text import fold_list, size, visible

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    has_torch: bool
    held: str | None
    """Reason why the GPU counts as in use, or None if it is free."""


def node_facts(said: Mapping[str, Any], host: str) -> NodeFacts:
    """Return an actor's facts; raise `ValueError` with the reason if it has no GPU."""
    if "why" in said:
        raise ValueError(str(said["why"]))
    device = None if "cpu" in said else _device(said["gpu"], str(said.get("heat", "")))
    target = _cpu(said, host) if device is None else _target(device, said, host)
    gpu = said.get("gpu", {})
    inventory = Inventory(
        time.time(),
        host,
        Source.NVML,
        DriverState.OK,
        INTERVAL_SECONDS,
        driver_version=gpu.get("driver_version"),
        devices=() if device is None else (device, *_instance(target, device)),
    )
    held = None if device is None else _held(gpu, str(said.get("apps", "")))
    return NodeFacts(target, inventory, str(said["python"]), bool(said["torch"]), held)


def parse_readings(line: str, inventory: Inventory) -> Sample | None:
    """Return a line of one of `node_actor.QUERIES` as a sample, or None if it is not one."""
    values = [value.strip() for value in line.split(",")]
    if len(values) not in (5, 7) or not inventory.devices:
        return None
    temperature, power, clock, limit, reasons, memory, margin, *_ = [*values, "", ""]
    now = time.time()
    readings = DeviceSample(
        inventory.devices[0].uuid,
        age_seconds=0.0,
        temperature_celsius=_whole(temperature),
        memory_temperature_celsius=_whole(memory),
        temperature_margin_celsius=_whole(margin),
        power_watts=_number(power),
        sm_clock_mhz=_whole(clock),
        power_limit_watts=_number(limit),
        clock_event_reasons=_reasons(reasons),
    )
    return Sample(now, Host(), (readings,))


def _cpu(said: Mapping[str, Any], host: str) -> Target:
    free, ids = said.get("free_bytes"), said.get("gpus") or ["0"]
    index = int(ids[0]) if ids[0].isdigit() else 0
    return Target("cpu", None, index, str(said["cpu"]), None, free, host=host)


def _device(gpu: Mapping[str, str], heat: str) -> Device:
    """Return the whole GPU, also for an instance: only the GPU has readings."""
    total = _whole(gpu.get("memory.total"))
    identity = gpu.get("pci.device_id", "").lower().removeprefix("0x")
    return Device(
        index=_whole(gpu.get("index")) or 0,
        uuid=gpu["uuid"],
        name=gpu.get("name", "GPU"),
        pci_bus_id=gpu.get("pci.bus_id"),
        pci_device_id=identity[:4] or None,  # the vendor follows
        memory_total_bytes=None if total is None else total * MIB,
        compute_capability=_known(gpu.get("compute_cap")),
        sm_clock_max_mhz=_whole(gpu.get("clocks.max.sm")),
        **thresholds(heat),
    )


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


def _target(device: Device, said: Mapping[str, Any], host: str) -> Target:
    instance, gpu = said.get("instance"), said["gpu"]
    free = _whole(gpu.get("memory.free"))
    if instance is None:
        return Target(
            "cuda",
            device.uuid,
            device.index,
            device.name,
            device.compute_capability,
            None if free is None else free * MIB,
            host=host,
        )
    number, _, profile = str(instance).partition(" ")
    return Target(
        "cuda",
        str(said["gpus"][0]),
        device.index,
        f"{device.name} MIG {profile}",
        device.compute_capability,
        None,
        device.uuid,
        int(number),
        host=host,
    )


def _instance(target: Target, gpu: Device) -> tuple[Device, ...]:
    """Return the tested instance of the GPU, if there is one."""
    if target.parent_uuid is None or target.uuid is None:
        return ()
    return (
        Device(
            gpu.index,
            target.uuid,
            target.name,
            parent_uuid=gpu.uuid,
            mig_index=target.mig_index,
            compute_capability=gpu.compute_capability,
        ),
    )


def _held(gpu: Mapping[str, str], apps: str) -> str | None:
    rows = [line.split(",") for line in apps.splitlines() if line.count(",") >= 2]
    if rows:
        named = [f"{visible(row[0].strip())} ({visible(row[1].strip(), 60)})" for row in rows]
        return f"in use by process {fold_list(named, 3)}"
    used = _whole(gpu.get("memory.used"))
    if used is not None and used * MIB > IDLE_BYTES:
        return f"in use: {size(used * MIB)} of its memory are held, the driver does not say by whom"
    return None


def _known(value: str | None) -> str | None:
    return None if value is None or value.startswith("[") or value == "N/A" else value


def _number(value: str | None) -> float | None:
    """Return a number, or None for `[N/A]` and the like."""
    try:
        return float(value or "")
    except ValueError:
        return None


def _whole(value: str | None) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _reasons(mask: str) -> tuple[str, ...] | None:
    try:
        bits = int(mask, 16)
    except ValueError:
        return None
    return words_of(bits)
