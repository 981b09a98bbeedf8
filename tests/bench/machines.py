"""A machine with a GPU in MIG mode beside one without, as a stream says it."""

import dataclasses
from typing import Any

from gputop.agent.device import READINGS, Absence, Device, DeviceSample
from gputop.agent.snapshot import Inventory, Process, ProcessKind, Sample
from tests.streams import GIB, device, inventory, readings, sample

WHOLE = device(
    3,
    name="NVIDIA A100-SXM4-40GB",
    compute_capability="8.0",
    mig_mode="enabled",
    temperature_slowdown_celsius=89,
)
PROFILES = {0: ("3g.20gb", 5 * GIB), 1: ("2g.10gb", 6 * GIB), 3: ("1g.5gb", 4 * GIB)}
"""By the number of the instance, with what is free on it."""


def instance(number: int, **changes: Any) -> Device:
    """That instance of the GPU 3, known by a UUID of its own."""
    made = Device(
        index=3,
        uuid=f"MIG-{number:08x}-1111-2222-3333-444444444444",
        name=f"{WHOLE.name} MIG {PROFILES[number][0]}",
        parent_uuid=WHOLE.uuid,
        mig_index=number,
        compute_capability="8.0",
    )
    return dataclasses.replace(made, **changes)


def trainer(pid: int, number: int) -> Process:
    return Process(pid, instance(number).uuid, ProcessKind.COMPUTE, GIB, "ada", "train")


def divided(*numbers: int, **changes: Any) -> Inventory:
    """The GPU 0 as a whole, and the GPU 3 in those instances: all, where none is named."""
    parts = [instance(number) for number in numbers or PROFILES]
    return dataclasses.replace(inventory(**changes), devices=(device(0), WHOLE, *parts))


def undivided(**changes: Any) -> Inventory:
    """The GPU 3 alone, in MIG mode without an instance."""
    return dataclasses.replace(inventory(**changes), devices=(WHOLE,))


def seen(celsius: int | None = 64, processes: tuple[Process, ...] = ()) -> Sample:
    """Their readings: of an instance its memory, and nothing else."""
    named = {"memory_free_bytes", "memory_total_bytes"}
    absent = dict.fromkeys(set(READINGS) - named, Absence.NOT_SUPPORTED)
    parts = [
        DeviceSample(
            instance(number).uuid,
            age_seconds=0.0,
            memory_free_bytes=free,
            memory_total_bytes=8 * GIB,
            absent=absent,
        )
        for number, (_, free) in PROFILES.items()
    ]
    whole = readings(
        3,
        uuid=WHOLE.uuid,
        temperature_celsius=celsius,
        power_watts=212.0,
        power_limit_watts=400.0,
        sm_clock_mhz=1410,
    )
    return dataclasses.replace(sample(0, processes), devices=(readings(0), whole, *parts))
