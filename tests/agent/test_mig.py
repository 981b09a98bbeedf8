from dataclasses import replace
from typing import Any

import pytest

from gputop.agent.device import GPM_READINGS, READINGS, Absence, DeviceState
from gputop.agent.interface import UTILIZATIONS, DeviceReading
from gputop.schema.derived import label_of
from tests.agent.reader import OneDevice
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
    f"memory_{which}_bytes"
    for which in ("total", "used", "free", "reserved", "attributed", "unattributed")
}


class Gpu(OneDevice):
    def __init__(self, nvml: FakeDriver, *instances: FakeInstance, **changes: Any) -> None:
        said = {"gpu_utilization_percent": None, "memory_used_bytes": 12 * GIB, "mig_mode": 1}
        super().__init__(nvml, FakeDevice(**{**said, "instances": instances, **changes}))

    def now(self, seconds: float = 0.0, **changes: Any) -> tuple[DeviceReading, ...]:
        if changes:
            self.nvml.change(0, **changes)
        readings = self.readings(seconds)
        listed = [process.pid for reading in readings for process in reading.processes]
        assert len(set(listed)) == len(listed), "no process is listed twice"
        return readings


def labels(readings: tuple[DeviceReading, ...]) -> list[str]:
    return [label_of(reading.device) for reading in readings]


def pids(readings: tuple[DeviceReading, ...]) -> list[list[int]]:
    return [[process.pid for process in reading.processes] for reading in readings]


def test_who_an_instance_is(nvml: FakeDriver) -> None:
    readings = Gpu(nvml, SMALL, LARGE).now()
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
    parent, _, large = Gpu(nvml, SMALL, replace(LARGE, values=wrong)).now()
    sample = large.sample
    assert (sample.memory_used_bytes, sample.memory_total_bytes) == (8 * GIB, 40_448 * MIB)
    assert (sample.memory_attributed_bytes, sample.memory_unattributed_bytes) == (7 * GIB, GIB)
    assert (sample.bar1_used_bytes, sample.state, sample.age_seconds) == (0, DeviceState.OK, 0.0)
    assert sample.absent == {
        name: Absence.DISABLED if name in GPM_READINGS else Absence.NOT_SUPPORTED
        for name in READINGS
        if name not in MEMORY | {"bar1_used_bytes"}
    }
    assert parent.sample.temperature_celsius == 64


def test_a_process_is_listed_once_under_its_instance(nvml: FakeDriver) -> None:
    own = (FakeProcess(5, "graphics", MIB),)
    # Its list need not have its ids.
    nameless = replace(SMALL, values={"nameless": 1})
    readings = Gpu(nvml, nameless, LARGE, processes=own).now()
    assert pids(readings) == [[5], [11], [12, 13]]
    (process,) = readings[1].processes
    assert process.absent == dict.fromkeys(UTILIZATIONS, Absence.NOT_SUPPORTED)
    # The GPU's memory is that of all, and so are those who hold it.
    parent = readings[0].sample
    assert parent.memory_attributed_bytes == 8 * GIB + MIB
    assert parent.memory_unattributed_bytes == 4 * GIB - MIB


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION])
def test_processes_of_an_instance_that_cannot_list_them_stay_with_the_gpu(
    nvml: FakeDriver, code: int
) -> None:
    readings = Gpu(nvml, SMALL, replace(LARGE, fail=dict.fromkeys(LISTS, code))).now()
    assert pids(readings) == [[12, 13], [11], []]
    assert "processes" in readings[2].sample.absent


def test_compute_instances_share_the_memory_of_their_gpu_instance(nvml: FakeDriver) -> None:
    halves = [
        replace(LARGE, compute_instance=n, processes=(FakeProcess(21 + n, memory_bytes=size),))
        for n, size in enumerate((GIB, 4 * GIB))
    ]
    readings = Gpu(nvml, *halves).now()
    assert pids(readings) == [[], [21], [22]]
    samples = [reading.sample for reading in readings[1:]]
    assert [sample.memory_attributed_bytes for sample in samples] == [GIB, 4 * GIB]
    # Neither counts what the other one's processes hold as nobody's.
    assert [sample.memory_unattributed_bytes for sample in samples] == [3 * GIB, 3 * GIB]


def test_instances_come_and_go_and_leave_gaps(nvml: FakeDriver) -> None:
    gpu = Gpu(nvml)
    assert labels(gpu.now()) == ["0"]
    assert labels(gpu.now(instances=(SMALL, LARGE))) == ["0", "0:0", "0:1"]
    parent, large = gpu.now(instances=(None, LARGE))
    assert label_of(large.device) == "0:1"
    assert parent.sample.state is DeviceState.OK
    _, small, _ = gpu.now(instances=(replace(SMALL, uuid="MIG-new", sm_count=32), LARGE))
    assert (small.device.uuid, small.device.sm_count) == ("MIG-new", 32)


def test_a_lost_gpu_takes_its_instances_along_and_brings_them_back(nvml: FakeDriver) -> None:
    gpu = Gpu(nvml, SMALL, LARGE)
    devices = [reading.device for reading in gpu.now()]
    for _ in range(2):
        lost = gpu.now(code=GPU_IS_LOST)
        assert [reading.device for reading in lost] == devices
        assert pids(lost) == [[], [], []]
        for reading in lost:
            assert reading.sample.state is DeviceState.LOST
            assert set(reading.sample.absent.values()) == {Absence.LOST}
    _, small = gpu.now(code=0, instances=(replace(SMALL, bar1_used_bytes=MIB),))
    assert (small.device, small.sample.state) == (devices[1], DeviceState.OK)
    # Nothing from before the loss, however seldom it is asked for.
    assert small.sample.bar1_used_bytes == MIB


def test_mig_is_switched_on_and_off(nvml: FakeDriver) -> None:
    gpu = Gpu(nvml, SMALL)
    for mode, word, found in ((0, "disabled", ["0"]), (1, "enabled", ["0", "0:0"])) * 2:
        assert labels(gpu.now(10.0, mig_mode=mode, fan_percent=40 + mode)) == found
        assert gpu.now(1.0)[0].sample.fan_percent == 40 + mode, "nothing from before"
        assert gpu.reader.device.mig_mode == word


def test_gpm_is_the_instances_own(nvml: FakeDriver) -> None:
    metrics: dict[int | str, float] = {5: 99.0, "5.7": 12.5, "5.2": 70.0, "2.2": 80.0}
    nameless = replace(SMALL, gpu_instance=None, processes=())
    gpu = Gpu(nvml, SMALL, LARGE, nameless, gpm=metrics)
    gpu.readings(gpm=True)
    _, small, large, unnamed = (each.sample for each in gpu.readings(1.0, gpm=True))
    assert (small.tensor_active_percent, large.tensor_active_percent) == (12.5, 70.0)
    assert large.sm_active_percent == 80.0
    assert small.absent["sm_active_percent"] is Absence.NOT_SUPPORTED
    # Without an id it would be that of the whole GPU.
    assert {unnamed.absent[name] for name in GPM_READINGS} == {Absence.NOT_SUPPORTED}
