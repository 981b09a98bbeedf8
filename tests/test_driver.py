"""The fake driver, seen by the real nvidia-ml-py in a program of its own."""

from __future__ import annotations

from collections.abc import Callable

import pynvml
import pytest

from tests.driver import NOT_FOUND, FakeDevice, FakeDriver, FakeProcess

pytestmark = pytest.mark.driver


def code_of(call: Callable[..., object], *arguments: object) -> int:
    try:
        call(*arguments)
    except pynvml.NVMLError as error:
        return int(error.value)
    return 0


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
