"""The fake driver, seen by the real nvidia-ml-py in a program of its own."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.driver import (
    DRIVER_NOT_LOADED,
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    INVALID_ARGUMENT,
    NO_DATA,
    NOT_FOUND,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    TIMEOUT,
    XID,
    FakeDevice,
    FakeDriver,
    FakeProcess,
    FakeSample,
    FakeUsage,
    loaded,
)

pytestmark = pytest.mark.driver

PROGRAM = """
import json, pynvml as n
def ask(call, *arguments):
    try:
        return call(*arguments)
    except n.NVMLError as error:
        return {"code": error.value}
result = ask(n.nvmlInit)
if result is None:
    result = []
    for index in range(n.nvmlDeviceGetCount()):
        handle = ask(n.nvmlDeviceGetHandleByIndex, index)
        result.append(handle if isinstance(handle, dict) else {
            "name": ask(n.nvmlDeviceGetName, handle),
            "uuid": ask(n.nvmlDeviceGetUUID, handle),
            "power": ask(n.nvmlDeviceGetPowerUsage, handle),
            "fan": ask(n.nvmlDeviceGetFanSpeed, handle),
        })
print(json.dumps(result))
"""


def run(driver: FakeDriver, program: str = PROGRAM) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **driver.environment()},
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    return json.loads(done.stdout)


def code_of(call: Callable[..., object], *arguments: object) -> int:
    try:
        call(*arguments)
    except pynvml.NVMLError as error:
        return int(error.value)
    return 0


@pytest.mark.parametrize("count", [0, 1, 8])
def test_a_program_sees_the_devices(driver: FakeDriver, count: int) -> None:
    driver.write(*(FakeDevice(power_milliwatts=100_000 + n) for n in range(count)))
    rows = run(driver)
    assert [row["power"] for row in rows] == [100_000 + n for n in range(count)]
    assert {row["name"] for row in rows} <= {"NVIDIA H100 80GB HBM3"}
    assert len({row["uuid"] for row in rows}) == count


def test_without_a_state_file_there_are_no_devices(driver: FakeDriver) -> None:
    os.unlink(driver.environment()["FAKE_NVML"])  # noqa: PTH108
    assert run(driver) == []


@pytest.mark.parametrize("code", [DRIVER_NOT_LOADED, 4, 18, 999])
def test_init_fails_with_any_code(driver: FakeDriver, code: int) -> None:
    driver.write(FakeDevice(), init_code=code)
    assert run(driver) == {"code": code}


def test_a_device_that_is_lost_leaves_the_others(driver: FakeDriver) -> None:
    driver.write(FakeDevice(), FakeDevice(code=GPU_IS_LOST), FakeDevice(name="third"))
    first, second, third = run(driver)
    assert first["power"] == FakeDevice().power_milliwatts
    assert second == {"code": GPU_IS_LOST}
    assert third["name"] == "third"


def test_a_program_that_init_holds_up_goes_on_when_released(driver: FakeDriver) -> None:
    driver.write(FakeDevice(), init_hang=True)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **driver.environment()},
        stdout=subprocess.PIPE,
    ) as child:
        with pytest.raises(subprocess.TimeoutExpired):
            child.communicate(timeout=0.5)
        driver.change_machine(init_hang=False)
        output, _ = child.communicate(timeout=60)
    assert len(json.loads(output)) == 1


def test_a_hanging_device_holds_up_its_own_callers_only(nvml: FakeDriver) -> None:
    nvml.write(FakeDevice(), FakeDevice())
    pynvml.nvmlInit()
    sick, well = (pynvml.nvmlDeviceGetHandleByIndex(n) for n in (0, 1))
    nvml.change(0, hang=True)
    released = threading.Event()

    def call() -> None:
        pynvml.nvmlDeviceGetPowerUsage(sick)
        released.set()

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    assert not released.wait(0.2)
    assert pynvml.nvmlDeviceGetPowerUsage(well) == FakeDevice().power_milliwatts
    nvml.change(0, hang=False)
    assert released.wait(10)
    thread.join(10)


def test_a_delay_holds_up_a_call_and_init(nvml: FakeDriver) -> None:
    nvml.write(FakeDevice(delay_ms=120), init_delay_ms=120)
    before = time.monotonic()
    pynvml.nvmlInit()
    initialized = time.monotonic()
    pynvml.nvmlDeviceGetHandleByIndex(0)
    assert initialized - before >= 0.12
    assert time.monotonic() - initialized >= 0.12


def test_a_function_that_takes_time_holds_up_others_where_they_take_turns(nvml: FakeDriver) -> None:
    slow = "nvmlDeviceGetFanSpeed"
    nvml.write(FakeDevice(fan_percent=30, delays={slow: 200}), FakeDevice(), one_at_a_time=True)
    pynvml.nvmlInit()
    first, second = (pynvml.nvmlDeviceGetHandleByIndex(n) for n in (0, 1))
    nvml.forget_calls()
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        fan = pool.submit(pynvml.nvmlDeviceGetFanSpeed, first)
        while not nvml.calls(0)[slow]:
            assert not fan.done()
        assert pynvml.nvmlDeviceGetPowerUsage(second) == FakeDevice().power_milliwatts
        assert time.monotonic() - began >= 0.2
        assert fan.result(10) == 30


def test_codes_of_a_device_a_function_and_a_field(nvml: FakeDriver) -> None:
    nvml.write(
        FakeDevice(
            fail={"nvmlDeviceGetPowerUsage": NO_DATA, "field.83": NOT_FOUND},
            values={"field.82": 71, "field.83": 5},
        ),
        FakeDevice(),
        fail={"nvmlDeviceGetMinorNumber": FUNCTION_NOT_FOUND},
    )
    pynvml.nvmlInit()
    first, second = (pynvml.nvmlDeviceGetHandleByIndex(n) for n in (0, 1))
    assert code_of(pynvml.nvmlDeviceGetPowerUsage, first) == NO_DATA
    assert code_of(pynvml.nvmlDeviceGetPowerUsage, second) == 0
    assert code_of(pynvml.nvmlDeviceGetMinorNumber, second) == FUNCTION_NOT_FOUND
    fields = pynvml.nvmlDeviceGetFieldValues(first, [82, 83, 84])
    assert [row.nvmlReturn for row in fields] == [0, NOT_FOUND, NOT_SUPPORTED]
    assert fields[0].value.ullVal == 71
    nvml.change(0, code=RESET_REQUIRED)
    assert code_of(pynvml.nvmlDeviceGetName, first) == RESET_REQUIRED
    assert code_of(pynvml.nvmlDeviceGetName, second) == 0


def test_fields_of_links_their_types_and_codes(nvml: FakeDriver) -> None:
    values = {"field.138.1": 7, "field.138.4294967295": 9, "field.94": 5, "field_type.94": 1}
    nvml.write(FakeDevice(values=values, fail={"field.138.1": NO_DATA}))
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    asked = [(138, 0), (138, 1), (138, 0xFFFFFFFF), 94]
    fields = pynvml.nvmlDeviceGetFieldValues(handle, asked)
    assert [row.nvmlReturn for row in fields] == [NOT_SUPPORTED, NO_DATA, 0, 0]
    assert fields[2].value.ullVal == 9
    assert (fields[3].valueType, fields[3].value.uiVal) == (1, 5)


def test_every_value_reaches_its_call(nvml: FakeDriver) -> None:
    device = FakeDevice(
        fan_percent=37,
        fans=2,
        mig_mode=0,
        mig_mode_pending=1,
        temperature_margin_celsius=-3,
        sm_count=16,
        jpeg_utilization_percent=3,
        ofa_utilization_percent=4,
        processes=(
            FakeProcess(11, memory_bytes=1 << 33, sm_percent=55),
            FakeProcess(12, kind="graphics", memory_bytes=None),
            FakeProcess(13, kind="mps"),
        ),
    )
    nvml.write(device)
    n = pynvml
    n.nvmlInit()
    handle = n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(0)))
    assert n.nvmlSystemGetDriverVersion() == "580.95.05"
    assert n.nvmlSystemGetNVMLVersion() == "13.580.95.05"
    assert n.nvmlSystemGetCudaDriverVersion_v2() == n.nvmlSystemGetCudaDriverVersion() == 13_000
    assert n.nvmlDeviceGetIndex(handle) == 0
    assert n.nvmlDeviceGetSerial(handle) == device.serial
    assert n.nvmlDeviceGetCudaComputeCapability(handle) == (9, 0)
    pci, extended = n.nvmlDeviceGetPciInfo(handle), n.nvmlPciInfoExt_v1_t()
    extended.version = n.nvmlPciInfoExt_v1
    n.nvmlDeviceGetPciInfoExt(handle, n.byref(extended))
    assert pci.busId == extended.busId == "00000000:17:00.0"
    assert (pci.bus, pci.pciDeviceId) == (extended.bus, extended.pciDeviceId) == (0x17, 0x233010DE)
    new = n.nvmlDeviceGetMemoryInfo(handle, n.nvmlMemory_v2)
    old = n.nvmlDeviceGetMemoryInfo(handle)
    assert (new.used, new.reserved) == (device.memory_used_bytes, device.memory_reserved_bytes)
    assert old.used == new.used + new.reserved
    assert old.total == new.total == new.used + new.reserved + new.free == old.used + old.free
    assert n.nvmlDeviceGetBAR1MemoryInfo(handle).bar1Used == device.bar1_used_bytes
    rates = n.nvmlDeviceGetUtilizationRates(handle)
    assert (rates.gpu, rates.memory) == (97, 41)
    assert n.nvmlDeviceGetTemperature(handle, 0) == n.nvmlDeviceGetTemperatureV(handle, 0) == 64
    assert [n.nvmlDeviceGetTemperatureThreshold(handle, k) for k in range(4)] == [92, 89, 95, 87]
    assert n.nvmlDeviceGetFanSpeed(handle) == n.nvmlDeviceGetFanSpeed_v2(handle, 1) == 37
    assert n.nvmlDeviceGetNumFans(handle) == 2
    assert n.nvmlDeviceGetPowerUsage(handle) == device.power_milliwatts
    assert n.nvmlDeviceGetPowerManagementLimitConstraints(handle) == [200_000, 700_000]
    assert n.nvmlDeviceGetTotalEnergyConsumption(handle) == device.energy_millijoules
    assert [n.nvmlDeviceGetClockInfo(handle, k) for k in range(4)] == [1755, 1755, 2619, 1545]
    assert [n.nvmlDeviceGetMaxClockInfo(handle, k) for k in range(4)] == [1980, 1980, 2619, 1545]
    assert n.nvmlDeviceGetPerformanceState(handle) == 0
    assert n.nvmlDeviceGetCurrentClocksEventReasons(handle) == 0x4
    assert n.nvmlDeviceGetCurrentClocksThrottleReasons(handle) == 0x4
    assert n.nvmlDeviceGetPcieThroughput(handle, 1) == 23_000
    assert n.nvmlDeviceGetCurrPcieLinkGeneration(handle) == 5
    assert n.nvmlDeviceGetTotalEccErrors(handle, 1, 0) == 0
    assert n.nvmlDeviceGetMigMode(handle) == [0, 1]
    assert n.nvmlDeviceGetMarginTemperature(handle) == -3
    assert n.nvmlDeviceGetAttributes_v2(handle).multiprocessorCount == 16
    assert n.nvmlDeviceGetJpgUtilization(handle)[0] == 3
    assert n.nvmlDeviceGetOfaUtilization(handle)[0] == 4
    for version in ("_v2", "_v3"):
        lists = [
            [
                (row.pid, row.usedGpuMemory, row.gpuInstanceId)
                for row in getattr(n, f"nvmlDeviceGet{kind}RunningProcesses{version}")(handle)
            ]
            for kind in ("Compute", "Graphics", "MPSCompute")
        ]
        outside = 0xFFFFFFFF
        assert lists == [[(11, 1 << 33, outside)], [(12, None, outside)], [(13, 1 << 30, outside)]]
    (usage,) = n.nvmlDeviceGetProcessUtilization(handle, 0)
    assert (usage.pid, usage.smUtil) == (11, 55)
    assert code_of(n.nvmlDeviceGetProcessUtilization, handle, 1 << 62) == NOT_FOUND
    (row,) = n.nvmlDeviceGetProcessesUtilizationInfo(handle, 0)
    assert (row.pid, row.smUtil, row.timeStamp >= usage.timeStamp) == (11, 55, True)
    assert code_of(n.nvmlDeviceGetProcessesUtilizationInfo, handle, 1 << 62) == NOT_FOUND


def test_rows_of_usage_come_as_they_are(nvml: FakeDriver) -> None:
    rows = (FakeUsage(1, 2, 3, 4, 5, age_ms=1_000), FakeUsage(0xFFFFFFFF, 0xFFFFFFFF, age_ms=-500))
    nvml.write(FakeDevice(usage=rows))
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    for call in (
        pynvml.nvmlDeviceGetProcessUtilization,
        pynvml.nvmlDeviceGetProcessesUtilizationInfo,
    ):
        old, garbage = call(handle, 0)
        found = (old.pid, old.smUtil, old.memUtil, old.encUtil, old.decUtil)
        assert found == (1, 2, 3, 4, 5)
        assert (garbage.pid, garbage.smUtil) == (0xFFFFFFFF, 0xFFFFFFFF)
        assert 1_400_000 < garbage.timeStamp - old.timeStamp < 1_600_000


def metrics(first: Any, second: Any, *numbers: int) -> list[tuple[int, float]]:
    """Return code and value of each metric between two samples."""
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version, request.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(numbers)
    request.sample1, request.sample2 = first, second
    for row, number in zip(request.metrics, numbers, strict=False):
        row.metricId = number
    pynvml.nvmlGpmMetricsGet(request)
    return [(row.nvmlReturn, row.value) for row in request.metrics[: len(numbers)]]


def test_gpm_is_the_mean_of_two_samples(nvml: FakeDriver) -> None:
    nvml.write(FakeDevice(gpm={2: 10.0, 5: 1.0, "5.7": 30.0}, fail={"gpm.5": NO_DATA}))
    n = pynvml
    n.nvmlInit()
    handle = n.nvmlDeviceGetHandleByIndex(0)
    assert n.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice == 1
    first, second, other = (n.nvmlGpmSampleAlloc() for _ in range(3))
    assert code_of(metrics, first, second) == INVALID_ARGUMENT  # which are empty
    n.nvmlGpmSampleGet(handle, first)
    nvml.change(0, gpm={2: 20.5})
    n.nvmlGpmSampleGet(handle, second)
    assert metrics(first, second, 2, 5, 9) == [(0, 15.25), (NO_DATA, 0.0), (NOT_SUPPORTED, 0.0)]
    assert code_of(metrics, second, first) == INVALID_ARGUMENT
    n.nvmlGpmMigSampleGet(handle, 7, other)
    assert code_of(metrics, first, other) == INVALID_ARGUMENT  # of another part of the device
    nvml.change(0, gpm_supported=0)
    assert n.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice == 0
    assert code_of(n.nvmlGpmSampleGet, handle, first) == NOT_SUPPORTED
    for sample in (first, second, other):
        n.nvmlGpmSampleFree(sample)


def test_samples_newer_than_a_time_come_with_their_type(nvml: FakeDriver) -> None:
    nvml.write(FakeDevice(samples=(FakeSample(10, 41), FakeSample(30, 43), FakeSample(20, 42))))
    n = pynvml
    n.nvmlInit()
    handle = n.nvmlDeviceGetHandleByIndex(0)

    def ask(since: int, kind: int = n.NVML_GPU_UTILIZATION_SAMPLES) -> tuple[int, dict[int, int]]:
        type_, found = n.nvmlDeviceGetSamples(handle, kind, since)
        return type_, {row.timeStamp: row.sampleValue.uiVal for row in found}

    assert ask(0) == (n.NVML_VALUE_TYPE_UNSIGNED_INT, {10: 41, 30: 43, 20: 42})
    assert ask(10) == (n.NVML_VALUE_TYPE_UNSIGNED_INT, {30: 43, 20: 42})
    assert code_of(ask, 30) == NOT_FOUND
    assert code_of(ask, 0, n.NVML_MEMORY_UTILIZATION_SAMPLES) == NOT_SUPPORTED
    nvml.change(0, samples_type=n.NVML_VALUE_TYPE_DOUBLE, samples=(FakeSample(10, 2.5),))
    type_, (row,) = n.nvmlDeviceGetSamples(handle, n.NVML_GPU_UTILIZATION_SAMPLES, 0)
    assert (type_, row.sampleValue.dVal) == (n.NVML_VALUE_TYPE_DOUBLE, 2.5)
    nvml.change(0, fail={"nvmlDeviceGetSamples": NO_DATA})
    assert code_of(ask, 0) == NO_DATA
    nvml.change(0, fail={}, samples=())
    assert code_of(ask, 0) == NOT_SUPPORTED


def test_samples_of_a_wave_are_even_and_the_means_of_their_time(nvml: FakeDriver) -> None:
    nvml.write(FakeDevice(samples=(), samples_type=None, samples_wave="10 30 90 0"))
    n = pynvml
    n.nvmlInit()
    handle = n.nvmlDeviceGetHandleByIndex(0)
    _, found = n.nvmlDeviceGetSamples(handle, n.NVML_GPU_UTILIZATION_SAMPLES, 0)
    assert len(found) == 100  # as many as the driver keeps
    assert {b.timeStamp - a.timeStamp for a, b in itertools.pairwise(found)} == {10_000}
    values = [row.sampleValue.uiVal for row in found]
    assert sorted(values[:3]) == [0, 45, 90]
    assert values[:-3] == values[3:]


def test_events_go_to_each_set_that_has_the_device_and_their_type(nvml: FakeDriver) -> None:
    nvml.write(FakeDevice(), FakeDevice(event_types=None))
    n = pynvml
    n.nvmlInit()
    handle, other = (n.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
    nvml.report_xid(0, 13)
    first, second = n.nvmlEventSetCreate(), n.nvmlEventSetCreate()
    assert n.nvmlDeviceGetSupportedEventTypes(handle) & XID
    assert code_of(n.nvmlDeviceGetSupportedEventTypes, other) == NOT_SUPPORTED
    assert code_of(n.nvmlDeviceRegisterEvents, other, XID, first) == NOT_SUPPORTED
    for set_ in (first, second):
        n.nvmlDeviceRegisterEvents(handle, XID, set_)
    assert code_of(n.nvmlDeviceRegisterEvents, handle, XID, first) == INVALID_ARGUMENT
    assert code_of(n.nvmlEventSetWait_v2, first, 0) == TIMEOUT
    nvml.report_xid(0, 2, kind=2)
    nvml.report_xid(0, 79)
    for set_ in (first, second):
        event = n.nvmlEventSetWait_v2(set_, 0)
        assert (event.eventType, event.eventData) == (XID, 79)
        assert n.nvmlDeviceGetIndex(event.device) == 0
        assert code_of(n.nvmlEventSetWait_v2, set_, 1) == TIMEOUT
    nvml.change(0, code=GPU_IS_LOST)
    assert code_of(n.nvmlEventSetWait_v2, first, 60_000) == GPU_IS_LOST
    for set_ in (first, second):
        n.nvmlEventSetFree(set_)


def test_what_the_file_leaves_out_is_not_supported(nvml: FakeDriver) -> None:
    nvml.write(FakeDevice(power_milliwatts=None, memory_total_bytes=None, mig_mode=None))
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    for call in (
        pynvml.nvmlDeviceGetFanSpeed,
        pynvml.nvmlDeviceGetPowerUsage,
        pynvml.nvmlDeviceGetMemoryInfo,
        pynvml.nvmlDeviceGetMigMode,
    ):
        assert code_of(call, handle) == NOT_SUPPORTED


def test_calls_are_counted_by_device(nvml: FakeDriver) -> None:
    nvml.write(FakeDevice(), FakeDevice())
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(1)
    nvml.forget_calls()
    for _ in range(3):
        pynvml.nvmlDeviceGetName(handle)
    assert nvml.calls(1) == {"nvmlDeviceGetName": 3}
    assert not nvml.calls(0)


def test_an_older_driver_lacks_functions(build_driver: Callable[..., Path], tmp_path: Path) -> None:
    older = FakeDriver(tmp_path, build_driver("nvmlDeviceGetTemperatureV"))
    older.write(FakeDevice())
    with loaded(older):
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert code_of(pynvml.nvmlDeviceGetTemperatureV, handle, 0) == FUNCTION_NOT_FOUND
        assert pynvml.nvmlDeviceGetTemperature(handle, 0) == 64
    assert older.calls()["nvmlDeviceGetTemperatureV"] == 0


def test_without_init_nothing_answers(nvml: FakeDriver) -> None:
    nvml.write(FakeDevice())
    assert code_of(pynvml.nvmlDeviceGetHandleByIndex, 0) == pynvml.NVML_ERROR_UNINITIALIZED
    pynvml.nvmlInit()
    pynvml.nvmlShutdown()
    assert code_of(pynvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_UNINITIALIZED
