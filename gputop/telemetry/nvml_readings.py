"""What is asked of NVML for each reading, and how often."""

from __future__ import annotations

from typing import Any

import pynvml as nvml

from gputop.telemetry.nvml_question import SLOW, Question, one, text
from gputop.telemetry.snapshot import Absence


def _utilization(handle: Any) -> tuple[Any, ...]:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return rates.gpu, rates.memory


def _memory_v2(handle: Any) -> tuple[Any, ...]:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
    return memory.total, memory.used, memory.free, memory.reserved


def _memory_v1(handle: Any) -> tuple[Any, ...]:
    # `used` includes what version 2 reports as reserved, and nothing says how much that is.
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return memory.total, memory.used, memory.free, Absence.NOT_SUPPORTED


def _pci(handle: Any) -> tuple[str, str]:
    # From the numbers: the domain of the text has four or eight digits, depending on the driver.
    pci = nvml.nvmlDeviceGetPciInfo(handle)
    bus_id = f"{pci.domain:08X}:{pci.bus:02X}:{pci.device:02X}.0"
    return bus_id, f"{pci.pciDeviceId >> 16:04x}"  # the lower half is the vendor


IDENTITY = (
    Question("uuid", text(nvml.nvmlDeviceGetUUID)),
    Question("name", text(nvml.nvmlDeviceGetName)),
    Question("pci_bus_id pci_device_id", _pci),
    Question("memory_total_bytes", lambda h: _memory_v2(h)[:1], lambda h: _memory_v1(h)[:1]),
    Question(
        "compute_capability",
        lambda h: ("{}.{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(h)),),
    ),
    Question("sm_clock_max_mhz", one(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM)),
    Question("memory_clock_max_mhz", one(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_MEM)),
    Question("power_limit_default_watts", one(nvml.nvmlDeviceGetPowerManagementDefaultLimit)),
    Question(
        "temperature_slowdown_celsius",
        one(nvml.nvmlDeviceGetTemperatureThreshold, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
    ),
)
QUESTIONS = (
    Question("gpu_utilization_percent memory_utilization_percent", _utilization),
    Question(
        "memory_total_bytes memory_used_bytes memory_free_bytes memory_reserved_bytes",
        _memory_v2,
        _memory_v1,
    ),
    Question(
        "temperature_celsius",
        one(nvml.nvmlDeviceGetTemperatureV, nvml.NVML_TEMPERATURE_GPU),
        one(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
    ),
    Question("power_watts", one(nvml.nvmlDeviceGetPowerUsage)),
    Question("sm_clock_mhz", one(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM)),
    Question("memory_clock_mhz", one(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM)),
    Question("performance_state", one(nvml.nvmlDeviceGetPerformanceState)),
    Question("fan_percent", one(nvml.nvmlDeviceGetFanSpeed), seconds=SLOW),
    Question(
        "power_limit_watts",
        one(nvml.nvmlDeviceGetEnforcedPowerLimit),
        one(nvml.nvmlDeviceGetPowerManagementLimit),
        seconds=SLOW,
    ),
)
