"""MIG instances, as devices under their GPU, while they come and go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pynvml
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputop.agent.device import GPM_READINGS, READINGS, Absence, DeviceState
from gputop.agent.interface import UTILIZATIONS, DeviceReading
from gputop.agent.nvml.driver import NvmlReader, start
from gputop.agent.snapshot import Process, ProcessKind
from gputop.schema.derived import label_of
from tests.driver import (
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    INVALID_ARGUMENT,
    NO_PERMISSION,
    NOT_FOUND,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    TIMEOUT,
    UNKNOWN,
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
HANDLE = "nvmlDeviceGetMigDeviceHandleByIndex"
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


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


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
    parent, small, large = (reading.device for reading in read(reader))
    assert (parent.mig_index, parent.parent_uuid, parent.mig_mode) == (None, None, "enabled")
    assert reader.device is parent
    assert [device.index for device in (small, large)] == [0, 0]
    assert [label_of(device) for device in (parent, small, large)] == ["0", "0:0", "0:1"]
    assert [device.mig_index for device in (small, large)] == [0, 1]
    assert {small.parent_uuid, large.parent_uuid} == {parent.uuid}
    assert small.uuid == "MIG-00000000-0000-5d7e-9a51-000000000000"
    assert (small.mig_gpu_instance, small.mig_compute_instance) == (7, 0)
    assert (large.mig_gpu_instance, large.mig_compute_instance) == (2, 0)
    assert large.name == "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    assert (large.sm_count, large.memory_total_bytes) == (60, 40_448 * MIB)
    assert large.bar1_total_bytes == 16_383 * MIB
    # True of the whole chip and so of a part of it.
    assert (large.compute_capability, large.architecture) == ("9.0", "hopper")
    assert (large.virtualization, large.memory_is_shared) == ("none", False)
    for name in ("power_limit_max_watts", "sm_clock_max_mhz", "pci_bus_id", "mig_mode"):
        assert getattr(large, name) is None
        assert large.absent[name] is Absence.NOT_SUPPORTED
    assert "parent_uuid" not in large.absent


def test_memory_is_the_instances_own_and_all_else_is_missing(nvml: FakeDriver) -> None:
    # A driver that takes the handle for the GPU's: what it says so must not be shown.
    wrong = {
        "temperature_celsius": 64,
        "power_milliwatts": 612_340,
        "gpu_utilization_percent": 97,
        "sm_clock_mhz": 1755,
        "fan_percent": 30,
        "field.83": 5,
    }
    parent, _, large = read(reader_of(nvml, gpu(SMALL, replace(LARGE, values=wrong))))
    sample = large.sample
    assert (sample.memory_used_bytes, sample.memory_total_bytes) == (8 * GIB, 40_448 * MIB)
    assert sample.memory_free_bytes == 40_448 * MIB - 8 * GIB
    assert (sample.memory_attributed_bytes, sample.memory_unattributed_bytes) == (7 * GIB, GIB)
    assert (sample.bar1_used_bytes, sample.state, sample.age_seconds) == (0, DeviceState.OK, 0.0)
    assert sample.absent == {
        name: Absence.DISABLED if name in GPM_READINGS else Absence.NOT_SUPPORTED
        for name in READINGS
        if name not in MEMORY
    }
    assert parent.sample.temperature_celsius == 64
    assert parent.sample.absent["gpu_utilization_percent"] is Absence.NOT_SUPPORTED


def test_a_process_is_listed_once_under_its_instance(nvml: FakeDriver) -> None:
    own = (FakeProcess(5, "graphics", MIB),)
    parent, small, large = read(reader_of(nvml, gpu(SMALL, LARGE, processes=own)))
    assert pids(parent) == [5]
    assert small.processes == (
        Process(
            11,
            small.device.uuid,
            ProcessKind.COMPUTE,
            GIB,
            absent=dict.fromkeys(UTILIZATIONS, Absence.NOT_SUPPORTED),
        ),
    )
    assert pids(large) == [12, 13]
    # The GPU's memory is that of all, and so are those who hold it.
    assert parent.sample.memory_attributed_bytes == 8 * GIB + MIB
    assert parent.sample.memory_unattributed_bytes == 4 * GIB - MIB


def test_a_process_on_an_instance_that_nobody_may_see_stays_with_the_gpu(nvml: FakeDriver) -> None:
    device = gpu(SMALL, LARGE, fail={f"{HANDLE}.1": NO_PERMISSION})
    parent, small = read(reader_of(nvml, device))
    assert (pids(parent), pids(small)) == ([12, 13], [11])


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION])
def test_an_instance_that_cannot_list_its_processes_has_them_from_the_gpu(
    nvml: FakeDriver, code: int
) -> None:
    large = replace(LARGE, fail=dict.fromkeys(LISTS, code))
    parent, small, found = read(reader_of(nvml, gpu(SMALL, large)))
    assert (pids(parent), pids(small), pids(found)) == ([], [11], [12, 13])
    assert "processes" not in found.sample.absent


def test_a_process_that_ends_between_the_lists_is_not_left_with_the_gpu(
    nvml: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reader_of(nvml, gpu(SMALL))
    ended = (replace(SMALL, processes=()),)
    before(monkeypatch, LISTS[1], 2, lambda: nvml.change(0, instances=ended))
    parent, small = read(reader)
    assert pids(parent) == pids(small) == []


def test_a_driver_that_lists_a_gpu_instance_for_each_part_of_it(
    nvml: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_of = getattr(pynvml, LISTS[1])
    whole: list[Any] = []

    def rows(handle: Any) -> Any:
        whole[:] = whole or list_of(handle)  # the GPU is asked first
        return [*whole]

    monkeypatch.setattr(pynvml, LISTS[1], rows)
    halves = [
        replace(LARGE, compute_instance=n, processes=(FakeProcess(21 + n),)) for n in range(2)
    ]
    parent, first, second = read(reader_of(nvml, gpu(*halves)))
    assert (pids(parent), pids(first), pids(second)) == ([], [21], [22])


def test_a_driver_that_does_not_say_on_which_instance_a_process_is(
    nvml: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_of = getattr(pynvml, LISTS[1])

    def rows(handle: Any) -> Any:
        found = list_of(handle)
        for row in found:
            row.gpuInstanceId = row.computeInstanceId = 0xFFFF_FFFF
        return found

    monkeypatch.setattr(pynvml, LISTS[1], rows)
    parent, small = read(reader_of(nvml, gpu(SMALL)))
    assert (pids(parent), pids(small)) == ([], [11])


def test_a_user_who_may_only_see_the_processes_of_instances(nvml: FakeDriver) -> None:
    device = gpu(SMALL, LARGE, fail=dict.fromkeys(LISTS, NO_PERMISSION))
    parent, small, large = read(reader_of(nvml, device))
    assert (pids(parent), pids(small), pids(large)) == ([], [11], [12, 13])
    assert parent.sample.absent["processes"] is Absence.NO_PERMISSION
    assert parent.sample.absent["memory_attributed_bytes"] is Absence.NO_PERMISSION
    assert small.sample.memory_attributed_bytes == GIB


def test_nobody_may_see_the_processes(nvml: FakeDriver) -> None:
    codes = dict.fromkeys(LISTS, NO_PERMISSION)
    parent, small = read(reader_of(nvml, gpu(replace(SMALL, fail=codes), fail=codes)))
    for sample in (parent.sample, small.sample):
        assert sample.absent["processes"] is Absence.NO_PERMISSION
        assert sample.absent["memory_unattributed_bytes"] is Absence.NO_PERMISSION


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


def test_without_its_ids_an_instance_shares_with_nobody(nvml: FakeDriver) -> None:
    instances = [replace(i, gpu_instance=None) for i in (SMALL, LARGE)]
    parent, small, large = read(reader_of(nvml, gpu(*instances)))
    assert small.device.absent["mig_gpu_instance"] is Absence.NOT_SUPPORTED
    assert (pids(parent), pids(small), pids(large)) == ([], [11], [12, 13])
    assert large.sample.memory_unattributed_bytes == GIB


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


def test_an_index_that_is_given_to_another_instance(nvml: FakeDriver) -> None:
    """The driver uses the handle again, so that nothing fails."""
    clock = Clock()
    reader = reader_of(nvml, gpu(SMALL), clock=clock)
    read(reader)
    nvml.change(0, instances=(replace(LARGE, uuid="MIG-other", bar1_used_bytes=3 * MIB),))
    clock.seconds += 0.25
    _, other = read(reader)
    assert (other.device.uuid, other.device.sm_count) == ("MIG-other", 60)
    assert other.sample.memory_used_bytes == 8 * GIB
    # What is asked for less often is of the new one, too.
    assert other.sample.bar1_used_bytes == 3 * MIB
    assert pids(other) == [12, 13]


def before(monkeypatch: pytest.MonkeyPatch, function: str, nth: int, do: Any) -> None:
    """Does something just before that call of the driver's function from now on."""
    calls = []

    def noting(call: Any) -> Any:
        def noted(name: str, *arguments: Any) -> Any:
            if name == function:
                calls.append(name)
                if len(calls) == nth:
                    do()
            return call(name, *arguments)

        return noted

    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", noting(pynvml._nvmlGetFunctionPointer))


# The GPU's memory is asked for first; its uuid no longer.
MIDWAY = [("nvmlDeviceGetUUID", 1), ("nvmlDeviceGetMemoryInfo_v2", 2)]


@pytest.mark.parametrize("gone", [NOT_FOUND, INVALID_ARGUMENT, GPU_IS_LOST])
@pytest.mark.parametrize(("function", "nth"), MIDWAY)
def test_an_instance_that_goes_while_it_is_asked(
    nvml: FakeDriver, monkeypatch: pytest.MonkeyPatch, gone: int, function: str, nth: int
) -> None:
    reader = reader_of(nvml, gpu(SMALL, LARGE, instance_gone_code=gone))
    read(reader)
    before(monkeypatch, function, nth, lambda: nvml.change(0, instances=(None, LARGE)))
    readings = read(reader)
    assert labels(readings) == ["0", "0:1"]
    assert [reading.sample.state for reading in readings] == [DeviceState.OK] * 2


@pytest.mark.parametrize(("function", "nth"), MIDWAY)
def test_a_gpu_that_is_lost_while_its_instance_is_asked(
    nvml: FakeDriver, monkeypatch: pytest.MonkeyPatch, function: str, nth: int
) -> None:
    reader = reader_of(nvml, gpu(SMALL, LARGE))
    read(reader)
    before(monkeypatch, function, nth, lambda: nvml.change(0, code=GPU_IS_LOST))
    readings = read(reader)
    assert labels(readings) == ["0", "0:0", "0:1"]
    assert {reading.sample.state for reading in readings} == {DeviceState.LOST}


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


@pytest.mark.parametrize(
    ("code", "state", "absence"),
    [
        (RESET_REQUIRED, DeviceState.NEEDS_RESET, Absence.LOST),
        (GPU_IS_LOST, DeviceState.LOST, Absence.LOST),
        (TIMEOUT, DeviceState.NOT_RESPONDING, Absence.TIMED_OUT),
        (UNKNOWN, DeviceState.NOT_RESPONDING, Absence.ERROR),
    ],
)
def test_an_instance_that_is_there_and_says_nothing(
    nvml: FakeDriver, code: int, state: DeviceState, absence: Absence
) -> None:
    reader = reader_of(nvml, gpu(SMALL, LARGE))
    read(reader)
    nvml.change(0, instances=(replace(SMALL, code=code), LARGE))
    parent, small, large = read(reader)
    assert small.sample.state is state
    known = {"memory_attributed_bytes"}  # from the GPU's list
    assert {small.sample.absent[name] for name in MEMORY - known} == {absence}
    assert pids(small) == [11]
    assert parent.sample.state is large.sample.state is DeviceState.OK


@pytest.mark.parametrize("code", [TIMEOUT, UNKNOWN])
def test_a_handle_that_this_time_is_refused(nvml: FakeDriver, code: int) -> None:
    reader = reader_of(nvml, gpu(SMALL, LARGE))
    read(reader)
    nvml.change(0, fail={f"{HANDLE}.0": code})
    _, small, large = read(reader)
    assert small.sample.memory_used_bytes is None
    assert large.sample.memory_used_bytes == 8 * GIB


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


def test_a_mode_that_fails_to_be_said_takes_no_instance_away(nvml: FakeDriver) -> None:
    clock = Clock()
    reader = reader_of(nvml, gpu(SMALL), clock=clock)
    read(reader)
    nvml.change(0, fail={"nvmlDeviceGetMigMode": UNKNOWN})
    clock.seconds += 5.0
    assert labels(read(reader)) == ["0", "0:0"]
    assert reader.device.absent["mig_mode"] is Absence.ERROR
    nvml.change(0, fail={"nvmlDeviceGetMaxMigDeviceCount": UNKNOWN})
    clock.seconds += 5.0
    assert labels(read(reader)) == ["0", "0:0"]


def test_the_modes_are_followed(nvml: FakeDriver) -> None:
    clock = Clock()
    reader = reader_of(nvml, FakeDevice(), clock=clock)
    read(reader)
    device = reader.device
    modes = (device.compute_mode, device.persistence_mode, device.ecc_enabled)
    assert modes == ("default", "enabled", True)
    nvml.change(0, compute_mode=3, persistence_mode=0, ecc_mode=0)
    clock.seconds += 9.0
    read(reader)
    assert reader.device is device
    clock.seconds += 1.0
    (reading,) = read(reader)
    device = reading.device
    modes = (device.compute_mode, device.persistence_mode, device.ecc_enabled)
    assert modes == ("exclusive_process", "disabled", False)


@pytest.mark.parametrize(
    "fail",
    [
        {"nvmlDeviceGetMaxMigDeviceCount": FUNCTION_NOT_FOUND},
        {"nvmlDeviceGetMaxMigDeviceCount": NOT_SUPPORTED},
        {HANDLE: NOT_SUPPORTED},
        {HANDLE: FUNCTION_NOT_FOUND},
        {HANDLE: NO_PERMISSION},
    ],
)
def test_a_driver_that_names_no_instances(nvml: FakeDriver, fail: dict[str, int]) -> None:
    (parent,) = read(reader_of(nvml, gpu(SMALL, fail=fail)))
    assert pids(parent) == [11]
    assert parent.sample.state is DeviceState.OK


CODES = st.sampled_from([0, 1, 2, 3, 4, 6, 7, 10, 13, 15, 16, 21, 25, 999, 4711])
OF_THE_GPU = st.sampled_from(
    [HANDLE, f"{HANDLE}.0", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigMode", *LISTS]
)
OF_AN_INSTANCE = st.sampled_from(
    [
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetName",
        "nvmlDeviceGetGpuInstanceId",
        "nvmlDeviceGetComputeInstanceId",
        "nvmlDeviceGetAttributes_v2",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetBAR1MemoryInfo",
        *LISTS,
    ]
)
NUMBERS = st.one_of(st.none(), st.integers(0, 120), st.integers(0, (1 << 64) - 1))
FUZZED = st.builds(
    FakeInstance,
    uuid=st.sampled_from(["", "MIG-a"]),
    gpu_instance=st.sampled_from([None, 2, 7]),
    compute_instance=st.sampled_from([None, 0]),
    sm_count=NUMBERS,
    memory_total_bytes=NUMBERS,
    memory_used_bytes=NUMBERS,
    bar1_used_bytes=NUMBERS,
    processes=st.sampled_from([(), SMALL.processes, LARGE.processes]),
    fail=st.dictionaries(OF_AN_INSTANCE, CODES, max_size=3),
)


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    states=st.lists(
        st.tuples(FUZZED, st.dictionaries(OF_THE_GPU, CODES, max_size=2), st.integers(0, 1)),
        min_size=1,
        max_size=4,
    )
)
def test_whatever_a_driver_says_every_reading_is_whole_and_every_process_listed_once(
    nvml: FakeDriver, states: list[tuple[FakeInstance, dict[str, int], int]]
) -> None:
    start()
    clock = Clock()
    reader = NvmlReader(0, "580.95.05", clock)
    for instance, fail, mode in states:
        other = replace(LARGE, gpu_instance=3, processes=(FakeProcess(99),))
        nvml.write(gpu(instance, other, fail=fail, mig_mode=mode))
        clock.seconds += 5.0
        for reading in read(reader):
            device = reading.device
            assert device.mig_index is None or device.parent_uuid == reader.device.uuid
            for name in ("sm_count", "memory_total_bytes", "bar1_total_bytes", "pci_bus_id"):
                assert (getattr(device, name) is None) == (name in device.absent)


def test_an_absurd_number_of_instances(nvml: FakeDriver) -> None:
    reader = reader_of(nvml, gpu(SMALL, max_instances=0xFFFF_FFFF))
    assert labels(read(reader)) == ["0", "0:0"]


def test_an_instance_without_a_uuid_has_no_key(
    nvml: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(SMALL, fail={"nvmlDeviceGetUUID": UNKNOWN})
    reader = reader_of(nvml, gpu(small, LARGE))
    parent, large = read(reader)
    assert (pids(parent), pids(large)) == ([11], [12, 13])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda _handle: "")
    (parent,) = read(reader_of(nvml, gpu(SMALL)))
    assert pids(parent) == [11]


def test_what_an_instance_does_not_say_about_itself(nvml: FakeDriver) -> None:
    small = replace(
        SMALL,
        name=None,
        sm_count=None,
        compute_instance=None,
        fail={f"nvmlDeviceGetMemoryInfo{version}": NOT_SUPPORTED for version in ("", "_v2")},
    )
    device = gpu(small, compute_capability_major=None)
    parent, reading = read(reader_of(nvml, device))
    found = reading.device
    assert found.name == "NVIDIA H100 80GB HBM3 MIG"
    # Its attributes say how large its memory is, its memory does not.
    assert found.absent["sm_count"] is Absence.NOT_SUPPORTED
    assert found.absent["name"] is found.absent["mig_compute_instance"] is Absence.NOT_SUPPORTED
    assert found.absent["compute_capability"] is parent.device.absent["compute_capability"]
    assert reading.sample.absent["memory_used_bytes"] is Absence.NOT_SUPPORTED


def test_the_attributes_say_the_memory_where_nothing_else_does(nvml: FakeDriver) -> None:
    codes = {f"nvmlDeviceGetMemoryInfo{version}": NOT_SUPPORTED for version in ("", "_v2")}
    _, small = read(reader_of(nvml, gpu(replace(SMALL, fail=codes))))
    assert small.device.memory_total_bytes == 9_984 * MIB
    assert small.sample.memory_total_bytes is None


def test_nothing_is_not_a_size(nvml: FakeDriver) -> None:
    _, small = read(reader_of(nvml, gpu(replace(SMALL, sm_count=0, memory_total_bytes=0))))
    for name in ("sm_count", "memory_total_bytes"):
        assert small.device.absent[name] is Absence.NOT_SUPPORTED


def test_memory_of_a_driver_without_version_2(nvml: FakeDriver) -> None:
    code = {"nvmlDeviceGetMemoryInfo_v2": FUNCTION_NOT_FOUND}
    _, small = read(reader_of(nvml, gpu(replace(SMALL, fail=code))))
    assert small.sample.memory_used_bytes == 2 * GIB
    assert small.sample.absent["memory_reserved_bytes"] is Absence.NOT_SUPPORTED


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


def test_gpm_gives_back_what_it_took(nvml: FakeDriver) -> None:
    clock = Clock()
    reader = reader_of(nvml, gpu(SMALL, LARGE), clock=clock)
    for _ in range(2):
        clock.seconds += 1.0
        read(reader, gpm=True)
    nvml.change(0, instances=(None, LARGE))
    read(reader, gpm=True)
    assert nvml.calls()["nvmlGpmSampleFree"] == 2
    read(reader, gpm=False)
    calls = nvml.calls()
    assert calls["nvmlGpmSampleFree"] == calls["nvmlGpmSampleAlloc"]


def test_an_instance_is_asked_for_little_and_that_not_too_often(nvml: FakeDriver) -> None:
    clock = Clock()
    reader = reader_of(nvml, gpu(SMALL), clock=clock)
    read(reader)
    nvml.forget_calls()
    for _ in range(40):  # 20 s, twice a second
        clock.seconds += 0.5
        read(reader)
    assert nvml.calls(0, instance=0) == {
        "nvmlDeviceGetUUID": 40,
        "nvmlDeviceGetMemoryInfo_v2": 40,
        "nvmlDeviceGetBAR1MemoryInfo": 2,
        # Once for the size of a list that is not empty, and once for the list.
        "nvmlDeviceGetComputeRunningProcesses_v3": 40,
        "nvmlDeviceGetGraphicsRunningProcesses_v3": 20,
        "nvmlDeviceGetMPSComputeRunningProcesses_v3": 20,
    }
    assert nvml.calls(0)[HANDLE] == 40 * 7


def run(driver: FakeDriver, *command: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "gputop", *command],
        env={**os.environ, **driver.environment()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    ).stdout


def test_the_page_has_instances_under_their_gpu(driver: FakeDriver) -> None:
    driver.write(gpu(SMALL, None, LARGE), FakeDevice())
    devices, processes = run(driver, "status", "--processes").split("\n\n")
    lines = devices.splitlines()[2:]
    assert [line.split()[0] for line in lines] == ["0", "0:0", "0:2", "1"]
    assert "H100 80GB HBM3 MIG 3g.40gb" in lines[2]
    assert " 8.0/39.5 GiB " in lines[2]
    rows = [line.split()[:2] for line in processes.splitlines()[1:]]
    assert rows == [["0:0", "11"], ["0:2", "12"], ["0:2", "13"]]


def test_the_stream_follows_instances(driver: FakeDriver) -> None:
    """A new inventory before the first sample that has others."""
    driver.write(gpu(SMALL))
    with subprocess.Popen(
        [sys.executable, "-m", "gputop", "stream", "--interval", "0.25"],
        env={**os.environ, **driver.environment()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        uuids = inventory_of(child.stdout, 2)
        driver.change(0, instances=(SMALL, LARGE))
        assert inventory_of(child.stdout, 3)[:2] == uuids
        driver.change(0, instances=(None, LARGE))
        assert inventory_of(child.stdout, 2)[0] == uuids[0]
        child.stdin.close()
        child.stdout.close()


def inventory_of(lines: Any, count: int) -> list[str]:
    """The uuids of the next inventory with so many devices, whose sample has the same."""
    for _ in range(200):
        document = json.loads(next(lines))
        if document["type"] == "inventory" and len(document["devices"]) == count:
            uuids = [device["uuid"] for device in document["devices"]]
            sample = json.loads(next(lines))
            assert [device["uuid"] for device in sample["devices"]] == uuids
            return uuids
    raise AssertionError(f"no inventory with {count} devices")


def test_the_fake_drivers_handles(nvml: FakeDriver) -> None:
    nvml.write(FakeDevice(), gpu(SMALL, None, LARGE))
    n = pynvml
    n.nvmlInit()
    plain, parent = (n.nvmlDeviceGetHandleByIndex(index) for index in range(2))
    assert [n.nvmlDeviceGetMaxMigDeviceCount(handle) for handle in (plain, parent)] == [0, 7]
    for handle, index in ((plain, 0), (parent, 1), (parent, 6)):
        with pytest.raises(n.NVMLError_NotFound):
            n.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
    large = n.nvmlDeviceGetMigDeviceHandleByIndex(parent, 2)
    assert [n.nvmlDeviceIsMigDeviceHandle(h).value for h in (parent, large)] == [0, 1]
    back = n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(large)
    assert n.nvmlDeviceGetUUID(back) == n.nvmlDeviceGetUUID(parent)
    attributes = n.nvmlDeviceGetAttributes_v2(large)
    assert (attributes.multiprocessorCount, attributes.memorySizeMB) == (60, 40_448)
    rows = n.nvmlDeviceGetComputeRunningProcesses_v3(parent)
    assert [(row.pid, row.gpuInstanceId, row.computeInstanceId) for row in rows] == [
        (11, 7, 0),
        (12, 2, 0),
    ]
    with pytest.raises(n.NVMLError_NotSupported):
        n.nvmlDeviceGetTemperatureV(large, 0)
    nvml.change(1, mig_mode=0)
    with pytest.raises(n.NVMLError_NotFound):
        n.nvmlDeviceGetUUID(large)
    assert n.nvmlDeviceGetComputeRunningProcesses_v3(parent) == []
