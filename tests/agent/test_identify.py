"""Identifying a device with NVML, for a choice by UUID or PCI address."""

from __future__ import annotations

import pytest

from gputop.agent.device import Absence
from gputop.agent.nvml.driver import NvmlReader, start
from tests.driver import GPU_IS_LOST, FakeDevice, FakeDriver, platforms

pytestmark = pytest.mark.driver

UUID = "GPU-00000000-fa4e-4dcf-8a3b-000000000000"


def test_a_device_is_identified_without_a_reading(nvml: FakeDriver) -> None:
    nvml.write(FakeDevice())
    driver = start()
    (reader,) = driver.readers()
    assert "uuid" in reader.device.absent
    (device,) = reader.identify()
    assert (device.uuid, device.pci_bus_id) == (UUID, "00000000:17:00.0")
    assert reader.device == device
    calls = nvml.calls(0)
    assert calls["nvmlDeviceGetUUID"] == 1
    assert not calls["nvmlDeviceGetPowerUsage"]
    assert not calls["nvmlDeviceGetUtilizationRates"]
    (reading,) = reader.read(gpm=False)
    assert reading.sample.temperature_celsius == 64
    assert nvml.calls(0)["nvmlDeviceGetUUID"] == 1


def test_instances_are_identified_with_their_gpu(nvml: FakeDriver) -> None:
    nvml.write(platforms.a100_mig())
    start()
    reader = NvmlReader(0)
    gpu, *instances = reader.identify()
    assert [each.parent_uuid for each in instances] == [gpu.uuid] * 3
    assert [each.number for each in instances] == ["0:0", "0:1", "0:3"]
    read = reader.read(gpm=True)
    assert [each.device for each in read] == [gpu, *instances]


def test_a_lost_device_is_a_placeholder_until_it_is_back(nvml: FakeDriver) -> None:
    nvml.write(FakeDevice(code=GPU_IS_LOST))
    start()
    reader = NvmlReader(0)
    (device,) = reader.identify()
    assert (device.uuid, device.absent["uuid"]) == ("unknown:0", Absence.LOST)
    nvml.change(0, code=0)
    (reading,) = reader.read(gpm=False)
    assert reading.device.uuid == UUID
