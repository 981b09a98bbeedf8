"""MIG instances, as devices under their GPU, while they come and go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gputop.agent.device import GPM_READINGS, READINGS, Absence, DeviceState
from gputop.agent.interface import UTILIZATIONS, DeviceReading
from gputop.agent.nvml.driver import NvmlReader, start
from gputop.schema.derived import label_of
from tests.agent.reader import Clock
from tests.driver import (
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    FakeDevice,
    FakeDriver,
    FakeInstance,
    FakeProcess,
)

pytestmark = pytest.mark.driver

GIB = 1 << 30
MIB = 1 << 20
LISTS = tuple(
    f"nvmlDeviceGet{kind}RunningProcesses_{version}"
    for kind in ("Compute", "Graphics", "MPSCompute")
    for version in ("v2", "v3")
)
SMALL = FakeInstance(gpu_instance=7, processes=(FakeProcess(11, memory_bytes=GIB),))
LARGE = FakeInstance(
    name="NVIDIA H100 80GB HBM3 MIG 3g.40gb",
    gpu_instance=2,
    sm_count=60,
    memory_total_bytes=40_448 * MIB,
    memory_used_bytes=8 * GIB,
    processes=(FakeProcess(12, memory_bytes=6 * GIB), FakeProcess(13, "graphics", GIB)),
)
MEMORY = {
    "memory_total_bytes",
    "memory_used_bytes",
    "memory_free_bytes",
    "memory_reserved_bytes",
    "memory_attributed_bytes",
    "memory_unattributed_bytes",
    "bar1_used_bytes",
}
"""All readings that there are of an instance."""


def gpu(*instances: FakeInstance | None, **changes: Any) -> FakeDevice:
    """An H100 with those instances, in MIG mode."""
    said = {"gpu_utilization_percent": None, "memory_used_bytes": 12 * GIB, "mig_mode": 1}
    return FakeDevice(**{**said, "instances": instances, **changes})


def reader_of(nvml: FakeDriver, *devices: FakeDevice, clock: Clock | None = None) -> NvmlReader:
    nvml.write(*devices)
    start()
    return NvmlReader(0, "580.95.05", clock or Clock())


def check(readings: tuple[DeviceReading, ...]) -> None:
    """All are whole, each has its own key, and no process is listed twice."""
    for reading in readings:
        sample = reading.sample
        assert sample.uuid == reading.device.uuid
        missing = {name for name in READINGS if getattr(sample, name) is None}
        assert missing == set(sample.absent) - {"processes"}
    uuids = [reading.device.uuid for reading in readings]
    assert len(set(uuids)) == len(uuids)
    pids = [process.pid for reading in readings for process in reading.processes]
    assert len(set(pids)) == len(pids)


def read(reader: NvmlReader, *, gpm: bool = False) -> tuple[DeviceReading, ...]:
    readings = reader.read(gpm=gpm)
    check(readings)
    return readings


def labels(readings: tuple[DeviceReading, ...]) -> list[str]:
    return [label_of(reading.device) for reading in readings]


def pids(reading: DeviceReading) -> list[int]:
    return [process.pid for process in reading.processes]


def test_who_an_instance_is(nvml: FakeDriver) -> None:
    reader = reader_of(nvml, gpu(SMALL, LARGE))
    readings = read(reader)
    assert labels(readings) == ["0", "0:0", "0:1"]
    parent, small, large = (reading.device for reading in readings)
    assert (parent.mig_index, parent.parent_uuid, parent.mig_mode) == (None, None, "enabled")
    assert [device.index for device in (small, large)] == [0, 0]
    assert {small.parent_uuid, large.parent_uuid} == {parent.uuid}
    assert small.uuid == "MIG-00000000-0000-5d7e-9a51-000000000000"
    assert (large.mig_gpu_instance, large.mig_compute_instance) == (2, 0)
    assert large.name == "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    assert (large.sm_count, large.memory_total_bytes) == (60, 40_448 * MIB)
    # True of the whole chip and so of a part of it.
    assert (large.compute_capability, large.architecture) == ("9.0", "hopper")
    for name in ("power_limit_max_watts", "sm_clock_max_mhz", "pci_bus_id", "mig_mode"):
        assert large.absent[name] is Absence.NOT_SUPPORTED


def test_memory_is_the_instances_own_and_all_else_is_missing(nvml: FakeDriver) -> None:
    # A driver that takes the handle for the GPU's: what it says so must not be shown.
    wrong = {"temperature_celsius": 64, "power_milliwatts": 612_340, "field.83": 5}
    parent, _, large = read(reader_of(nvml, gpu(SMALL, replace(LARGE, values=wrong))))
    sample = large.sample
    assert (sample.memory_used_bytes, sample.memory_total_bytes) == (8 * GIB, 40_448 * MIB)
    assert (sample.memory_attributed_bytes, sample.memory_unattributed_bytes) == (7 * GIB, GIB)
    assert (sample.bar1_used_bytes, sample.state, sample.age_seconds) == (0, DeviceState.OK, 0.0)
    assert sample.absent == {
        name: Absence.DISABLED if name in GPM_READINGS else Absence.NOT_SUPPORTED
        for name in READINGS
        if name not in MEMORY
    }
    assert parent.sample.temperature_celsius == 64


def test_a_process_is_listed_once_under_its_instance(nvml: FakeDriver) -> None:
    own = (FakeProcess(5, "graphics", MIB),)
    parent, small, large = read(reader_of(nvml, gpu(SMALL, LARGE, processes=own)))
    assert (pids(parent), pids(small), pids(large)) == ([5], [11], [12, 13])
    (process,) = small.processes
    assert process.absent == dict.fromkeys(UTILIZATIONS, Absence.NOT_SUPPORTED)
    # The GPU's memory is that of all, and so are those who hold it.
    assert parent.sample.memory_attributed_bytes == 8 * GIB + MIB
    assert parent.sample.memory_unattributed_bytes == 4 * GIB - MIB


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION])
def test_processes_of_an_instance_that_cannot_list_them_stay_with_the_gpu(
    nvml: FakeDriver, code: int
) -> None:
    large = replace(LARGE, fail=dict.fromkeys(LISTS, code))
    parent, small, found = read(reader_of(nvml, gpu(SMALL, large)))
    assert (pids(parent), pids(small), pids(found)) == ([12, 13], [11], [])
    assert "processes" in found.sample.absent


def test_compute_instances_share_the_memory_of_their_gpu_instance(nvml: FakeDriver) -> None:
    halves = (
        replace(LARGE, compute_instance=0, processes=(FakeProcess(21, memory_bytes=GIB),)),
        replace(LARGE, compute_instance=1, processes=(FakeProcess(22, memory_bytes=4 * GIB),)),
    )
    parent, first, second = read(reader_of(nvml, gpu(*halves)))
    assert (pids(parent), pids(first), pids(second)) == ([], [21], [22])
    assert first.sample.memory_attributed_bytes == GIB
    assert second.sample.memory_attributed_bytes == 4 * GIB
    # Neither counts what the other one's processes hold as nobody's.
    assert first.sample.memory_unattributed_bytes == 3 * GIB
    assert second.sample.memory_unattributed_bytes == 3 * GIB


def test_instances_come_and_go_and_leave_gaps(nvml: FakeDriver) -> None:
    reader = reader_of(nvml, gpu())
    assert labels(read(reader)) == ["0"]
    nvml.change(0, instances=(SMALL, LARGE))
    assert labels(read(reader)) == ["0", "0:0", "0:1"]
    nvml.change(0, instances=(None, LARGE))
    parent, large = read(reader)
    assert label_of(large.device) == "0:1"
    assert parent.sample.state is DeviceState.OK
    nvml.change(0, instances=(replace(SMALL, uuid="MIG-new", sm_count=32), LARGE))
    _, small, large = read(reader)
    assert (small.device.uuid, small.device.sm_count) == ("MIG-new", 32)


def test_a_lost_gpu_takes_its_instances_along_and_brings_them_back(nvml: FakeDriver) -> None:
    reader = reader_of(nvml, gpu(SMALL, LARGE))
    devices = [reading.device for reading in read(reader)]
    nvml.change(0, code=GPU_IS_LOST)
    for _ in range(2):
        lost = read(reader)
        assert [reading.device for reading in lost] == devices
        for reading in lost:
            assert reading.sample.state is DeviceState.LOST
            assert set(reading.sample.absent.values()) == {Absence.LOST}
            assert reading.processes == ()
    nvml.change(0, code=0, instances=(replace(SMALL, bar1_used_bytes=MIB),))
    _, small = read(reader)
    assert (small.device, small.sample.state) == (devices[1], DeviceState.OK)
    # Nothing from before the loss, however seldom it is asked for.
    assert small.sample.bar1_used_bytes == MIB


def test_mig_is_switched_on_and_off(nvml: FakeDriver) -> None:
    clock = Clock()
    reader = reader_of(nvml, gpu(SMALL, mig_mode=0, gpu_utilization_percent=97), clock=clock)
    assert labels(read(reader)) == ["0"]
    assert reader.device.mig_mode == "disabled"
    nvml.change(0, mig_mode=1)
    clock.seconds += 5.0
    assert labels(read(reader)) == ["0", "0:0"]
    assert reader.device.mig_mode == "enabled"
    nvml.change(0, mig_mode=0)
    clock.seconds += 5.0
    assert labels(read(reader)) == ["0"]
    assert reader.device.mig_mode == "disabled"


def test_gpm_is_the_instances_own(nvml: FakeDriver) -> None:
    clock = Clock()
    metrics: dict[int | str, float] = {5: 99.0, "5.7": 12.5, "5.2": 70.0, "2.2": 80.0}
    nameless = replace(SMALL, gpu_instance=None, processes=())
    reader = reader_of(nvml, gpu(SMALL, LARGE, nameless, gpm=metrics), clock=clock)
    for _ in range(2):
        clock.seconds += 1.0
        _, small, large, unnamed = (reading.sample for reading in read(reader, gpm=True))
    assert (small.tensor_active_percent, large.tensor_active_percent) == (12.5, 70.0)
    assert large.sm_active_percent == 80.0
    assert small.absent["sm_active_percent"] is Absence.NOT_SUPPORTED
    # Without an id it would be that of the whole GPU.
    assert {unnamed.absent[name] for name in GPM_READINGS} == {Absence.NOT_SUPPORTED}
