"""Prepared streams: what a sampler would send, for tests of what is made of it."""

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Iterable
from typing import Any

from gputop.agent.device import READINGS, Absence, Device, DeviceSample, DeviceState
from gputop.agent.problem import Problem
from gputop.agent.snapshot import (
    DriverState,
    Host,
    Inventory,
    Process,
    ProcessKind,
    Record,
    Sample,
    Source,
)
from gputop.stream.child import Interruption

GIB = 1 << 30
NOW = 1_763_640_000.0
"""2025-11-20 12:00:00 UTC."""
NO_DRIVER = Problem(
    "No NVIDIA driver", "libnvidia-ml.so.1 is not found", "Install the driver from nvidia.com"
)


def device(index: int, **changes: Any) -> Device:
    made = Device(
        index=index,
        uuid=f"GPU-{index:08d}-aaaa-bbbb-cccc-000000000000",
        name="NVIDIA H100 80GB HBM3",
        pci_bus_id=f"00000000:{0x10 + index:02X}:00.0",
        pci_device_id="2330",
        memory_total_bytes=80 * GIB,
        compute_capability="9.0",
        sm_clock_max_mhz=1980,
        memory_clock_max_mhz=2619,
        power_limit_default_watts=700.0,
        temperature_slowdown_celsius=89,
    )
    return dataclasses.replace(made, **changes)


def readings(index: int, **changes: Any) -> DeviceSample:
    made = DeviceSample(
        uuid=device(index).uuid,
        age_seconds=0.0,
        gpu_utilization_percent=(97 * (index + 1)) % 101,
        memory_utilization_percent=(41 * (index + 1)) % 101,
        memory_used_bytes=(3 + 7 * index) % 79 * GIB,
        memory_total_bytes=80 * GIB,
        memory_free_bytes=(80 - (3 + 7 * index) % 79) * GIB,
        memory_reserved_bytes=GIB // 2,
        temperature_celsius=40 + index,
        power_watts=100.0 + 37 * index,
        power_limit_watts=700.0,
        power_limit_requested_watts=700.0,
        sm_clock_mhz=1980 - 15 * index,
        memory_clock_mhz=2619,
        performance_state=0,
        absent={"fan_percent": Absence.NOT_SUPPORTED},
    )
    return dataclasses.replace(made, **changes)


def lost(index: int, state: DeviceState = DeviceState.LOST) -> DeviceSample:
    reason = Absence.TIMED_OUT if state is DeviceState.NOT_RESPONDING else Absence.LOST
    return DeviceSample(device(index).uuid, state, 12.0, absent=dict.fromkeys(READINGS, reason))


def process(pid: int, index: int, **changes: Any) -> Process:
    made = Process(
        pid=pid,
        device_uuid=device(index).uuid,
        kind=ProcessKind.COMPUTE,
        memory_used_bytes=(2 + index) * GIB,
        user="ada",
        command=f"python train.py --rank {index}",
        start_time=NOW - 3600,
    )
    return dataclasses.replace(made, **changes)


def unseen(pid: int, index: int, reason: Absence = Absence.LOST, **changes: Any) -> Process:
    owned = "user command start_time cpu_percent memory_resident_bytes parent_pid"
    names = [*owned.split(), "container", "pod", "slurm_job"]
    nothing: dict[str, Any] = dict.fromkeys(names)
    return process(pid, index, **nothing, absent=dict.fromkeys(names, reason), **changes)


def crowd(count: int, devices: int = 8) -> list[Process]:
    """So many processes of all kinds on that many devices; no two have the same numbers."""
    kinds = list(ProcessKind)
    users = ["ada", "grace", "carol", "wei", "a-very-long-user-name"]
    made = []
    for n in range(count):
        pid = 10_000 + 7 * ((n * 389) % count)
        if n % 50 == 49:
            made.append(unseen(pid, n % devices))
            continue
        made.append(
            process(
                pid,
                n % devices,
                kind=kinds[n % len(kinds)],
                memory_used_bytes=(n * 7919 % count + 1) << 24,
                user=users[n % len(users)],
                command=f"/opt/env/bin/python -m train.run --rank {n} --config llama-8b.yaml "
                f"--data /scratch/shard-{n * 31 % count:05d} --名前 テスト",
                start_time=NOW - 60 * n,
                sm_utilization_percent=n * 13 % 101,
                memory_utilization_percent=n * 17 % 101,
                encoder_utilization_percent=n * 3 % 101 if n % 4 == 0 else None,
                decoder_utilization_percent=0,
                cpu_percent=n * 31 % 1600 / 4,
                memory_resident_bytes=(n * 4219 % count + 1) << 22,
                parent_pid=pid - 7 if n % 4 else 1,
                container=f"{n * 0x9E3779B1 % (1 << 48):012x}" if n % 3 == 0 else None,
                slurm_job=str(71_000 + n // 8) if n % 3 == 1 else None,
            )
        )
    return made


def inventory(devices: int = 0, **changes: Any) -> Inventory:
    made = Inventory(
        time=NOW,
        hostname="node07",
        source=Source.NVML,
        driver_state=DriverState.OK,
        interval_seconds=1.0,
        cpu_name="AMD EPYC 9654",
        driver_version="580.65.06",
        cuda_version="13.0",
        devices=tuple(device(index) for index in range(devices)),
        gputop_version="0.1.0",
    )
    return dataclasses.replace(made, **changes)


def no_driver() -> Inventory:
    return inventory(
        driver_state=DriverState.UNAVAILABLE,
        driver_version=None,
        cuda_version=None,
        problem=NO_DRIVER,
    )


def host(cores: int = 8) -> Host:
    percent = tuple(float((13 * (n + 1)) % 100) for n in range(cores))
    return Host(
        cpu_percent=round(sum(percent) / cores, 1),
        cpu_core_percent=percent,
        memory_used_bytes=120 * GIB,
        memory_total_bytes=512 * GIB,
        memory_available_bytes=392 * GIB,
        load_average=(3.2, 2.5, 1.0),
        cpu_clock_mhz=3100.0,
        absent={"cpu_temperature_celsius": Absence.NOT_SUPPORTED},
    )


def sample(devices: int = 0, processes: Iterable[Process] | None = None, **changes: Any) -> Sample:
    """Readings of that many devices, with a process on each unless told otherwise."""
    if processes is None:
        processes = (process(4000 + index, index) for index in range(devices))
    made = Sample(
        time=NOW,
        host=host(),
        devices=tuple(readings(index) for index in range(devices)),
        processes=tuple(processes),
    )
    return dataclasses.replace(made, **changes)


class PreparedStream:
    """Stands for the child process: sends what it was given, then what is sent through it."""

    def __init__(self, *records: Record | Interruption) -> None:
        self._queue: asyncio.Queue[Record | Interruption] = asyncio.Queue()
        self.closed = False
        self.asked: dict[str, Any] = {}
        for record in records:
            self._queue.put_nowait(record)

    def send(self, record: Record | Interruption) -> None:
        self._queue.put_nowait(record)

    async def records(self) -> AsyncGenerator[Record | Interruption]:
        while True:
            yield await self._queue.get()

    def ask(self, **wanted: Any) -> None:
        self.asked |= wanted

    async def close(self) -> None:
        self.closed = True
