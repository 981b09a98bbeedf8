"""The questions to a GPU: names of the readings, intervals, and the NVML calls that answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gputop.agent.device import Absence
from gputop.agent.nvml.bindings import nvml
from gputop.agent.nvml.fields import (
    Durations,
    FieldBatch,
    FieldSum,
    FirstField,
    signed,
)
from gputop.agent.nvml.processes import process_lists, process_utilization
from gputop.agent.nvml.query import (
    EVERY_10_SECONDS,
    EVERY_SECOND,
    ONCE,
    Clock,
    Question,
    Source,
    scalar,
)
from gputop.agent.nvml.traffic import NvLinks, NvLinkTotal, Pcie
from gputop.agent.nvml.utilization import BusySamples
from gputop.agent.nvml.values import UNAVAILABLE
from gputop.agent.words import (
    ARCHITECTURES,
    COMPUTE_MODES,
    ON_OR_OFF,
    RECOVERY_ACTIONS,
    VIRTUALIZATIONS,
    clock_event_words,
)

_CORES_PER_SM = {
    "3": 192,
    **dict.fromkeys(("5", "6", "8", "9", "10", "11", "12"), 128),
}
_CORES_PER_SM |= dict.fromkeys(("6.0", "7", "8.0"), 64)
"""CUDA cores per SM, by compute capability or its major version. Source: CUDA's helper_cuda.h."""
_CLOCK_EVENT_TIMES = {
    "sw_power_cap": (74,),
    "sync_boost": (76,),
    "board_limit": (77,),
    "low_utilization": (78,),
    "reliability": (79,),
}


def clock_event_times(
    driver_version: tuple[int, ...],
) -> Mapping[str, tuple[int, ...]]:
    """Return the fields by cause, best first. Some of the numbers differ between drivers.

    Slowdown by heat has two numbers for one counter.
    """
    if driver_version >= (580, 82):
        numbers = {
            "sw_thermal": (269, 75),
            "hw_thermal": (270,),
            "hw_power_brake": (271,),
        }
    elif (575, 51) <= driver_version <= (580, 65):
        numbers = {
            "sw_thermal": (251, 75),
            "hw_thermal": (252,),
            "hw_power_brake": (253,),
        }
    # These drivers use the numbers for something else.
    else:
        numbers = {"sw_thermal": (75,)}
    return _CLOCK_EVENT_TIMES | numbers


def _utilization(handle: Any) -> tuple[Any, ...]:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return rates.gpu, rates.memory


def _memory(handle: Any, *version: int) -> tuple[Any, ...]:
    """Return total, used, free and reserved bytes, by that version of the call or the first.

    Used and free bytes are missing if a part of them is, because users choose devices by free
    memory.
    """
    memory = nvml.nvmlDeviceGetMemoryInfo(handle, *version)
    total, used, free = memory.total, memory.used, memory.free
    # Some devices without memory of their own answer 0.
    if total == 0:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    if used in UNAVAILABLE or free in UNAVAILABLE:
        used = free = Absence.NOT_SUPPORTED
    elif max(used, free) > total:
        used = free = Absence.ERROR
    # `used` of version 1 includes reserved memory of unknown size.
    return (
        total,
        used,
        free,
        memory.reserved if version else Absence.NOT_SUPPORTED,
    )


def _memory_v2(handle: Any) -> tuple[Any, ...]:
    return _memory(handle, nvml.nvmlMemory_v2)


def _pci(handle: Any) -> tuple[str, str]:
    # The text has a domain of four or eight digits, depending on the driver,
    # so use the numbers.
    pci = nvml.nvmlDeviceGetPciInfo(handle)
    bus_id = f"{pci.domain:08X}:{pci.bus:02X}:{pci.device:02X}.0"
    # The lower half is the vendor.
    return bus_id, f"{pci.pciDeviceId >> 16:04x}"


def _word(words: Mapping[int, str], number: int) -> str | Absence:
    """Return the word for a number. Numbers of later drivers are kept."""
    if number in UNAVAILABLE:
        return Absence.NOT_SUPPORTED
    return words.get(number, f"unknown_{number}")


def _clock_events(call: Callable[[Any], int], handle: Any) -> Any:
    mask = call(handle)
    if mask in UNAVAILABLE:
        return Absence.NOT_SUPPORTED
    return clock_event_words(mask)


def _fans(handle: Any) -> tuple[int, ...] | Absence:
    speeds = []
    for fan in range(nvml.nvmlDeviceGetNumFans(handle)):
        speeds.append(nvml.nvmlDeviceGetFanSpeed_v2(handle, fan))
    if not speeds or 0xFFFF_FFFF in speeds:
        return Absence.NOT_SUPPORTED
    return tuple(speeds)


def _sm_count(handle: Any) -> int | Absence:
    """Return the SM count of a whole GPU from its CUDA cores. NVML has an SM count for MIG only."""
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    cores = _CORES_PER_SM.get(
        f"{major}.{minor}", _CORES_PER_SM.get(f"{major}")
    )
    count, rest = divmod(nvml.nvmlDeviceGetNumGpuCores(handle), cores or 1)
    if cores is None or rest or not count:
        return Absence.NOT_SUPPORTED
    return int(count)


def _first(call: Callable[[Any], Any]) -> Source:
    """Return a source that takes the first value of the call's pair."""
    return lambda handle: call(handle)[0]


def _mode(
    call: Callable[[Any], Any], words: Mapping[int, str] = ON_OR_OFF
) -> Source:
    return lambda handle: _word(words, call(handle))


def _threshold(which: int) -> Source:
    return scalar(nvml.nvmlDeviceGetTemperatureThreshold, which)


_MARGIN_THRESHOLDS = {
    "temperature_shutdown_margin_celsius": nvml.NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT,
    "temperature_slowdown_margin_celsius": nvml.NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT,
    "memory_temperature_max_margin_celsius": nvml.NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT,
    "temperature_max_margin_celsius": nvml.NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT,
}
"""T.Limit temperatures. Negative degrees are above the maximum operating temperature."""


def _margin_thresholds(handle: Any) -> tuple[Any, ...]:
    fields = (
        FirstField(name, key, convert=signed)
        for name, key in _MARGIN_THRESHOLDS.items()
    )
    return FieldBatch(time.monotonic, *fields)(handle)


once = partial(Question, interval=ONCE)
each_second = partial(Question, interval=EVERY_SECOND)
slowly = partial(Question, interval=EVERY_10_SECONDS)

MEMORY = Question(
    "memory_total_bytes memory_used_bytes memory_free_bytes memory_reserved_bytes",
    _memory_v2,
    _memory,
)
BAR1 = slowly(
    "bar1_used_bytes", lambda h: nvml.nvmlDeviceGetBAR1MemoryInfo(h).bar1Used
)
MEMORY_TOTAL = once(
    "memory_total_bytes", lambda h: _memory_v2(h)[0], lambda h: _memory(h)[0]
)
BAR1_TOTAL = once(
    "bar1_total_bytes", lambda h: nvml.nvmlDeviceGetBAR1MemoryInfo(h).bar1Total
)
"""Total of BAR1 memory. MIG instances are asked these four questions, too."""

IDENTITY = (
    once("uuid", nvml.nvmlDeviceGetUUID),
    once("name", nvml.nvmlDeviceGetName),
    once("pci_bus_id pci_device_id", _pci),
    once("minor_number", scalar(nvml.nvmlDeviceGetMinorNumber)),
    once("architecture", _mode(nvml.nvmlDeviceGetArchitecture, ARCHITECTURES)),
    once(
        "compute_capability",
        lambda h: "{}.{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(h)),
    ),
    once("sm_count", _sm_count),
    MEMORY_TOTAL,
    BAR1_TOTAL,
    once(
        "sm_clock_max_mhz",
        scalar(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM),
    ),
    once(
        "graphics_clock_max_mhz",
        scalar(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_GRAPHICS),
    ),
    once(
        "memory_clock_max_mhz",
        scalar(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_MEM),
    ),
    once(
        "video_clock_max_mhz",
        scalar(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_VIDEO),
    ),
    once(
        "power_limit_default_watts",
        scalar(nvml.nvmlDeviceGetPowerManagementDefaultLimit),
    ),
    once(
        "power_limit_min_watts power_limit_max_watts",
        nvml.nvmlDeviceGetPowerManagementLimitConstraints,
    ),
    once(
        "temperature_slowdown_celsius",
        _threshold(nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
    ),
    once(
        "temperature_shutdown_celsius",
        _threshold(nvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN),
    ),
    once(
        "memory_temperature_max_celsius",
        _threshold(nvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX),
    ),
    once(" ".join(_MARGIN_THRESHOLDS), _margin_thresholds),
    once(
        "pcie_generation_max", scalar(nvml.nvmlDeviceGetMaxPcieLinkGeneration)
    ),
    once("pcie_width_max", scalar(nvml.nvmlDeviceGetMaxPcieLinkWidth)),
    once(
        "virtualization",
        _mode(nvml.nvmlDeviceGetVirtualizationMode, VIRTUALIZATIONS),
    ),
)
"""Questions that identify a device."""

MODES = (
    slowly(
        "compute_mode", _mode(nvml.nvmlDeviceGetComputeMode, COMPUTE_MODES)
    ),
    slowly("persistence_mode", _mode(nvml.nvmlDeviceGetPersistenceMode)),
    slowly("mig_mode", _mode(_first(nvml.nvmlDeviceGetMigMode))),
    slowly("ecc_enabled", lambda h: bool(nvml.nvmlDeviceGetEccMode(h)[0])),
)
"""Questions about settings that an administrator may change while the device runs."""


def reading_queries(
    driver_version: tuple[int, ...] = (),
    clock: Clock = time.monotonic,
) -> tuple[Question, ...]:
    """Return the questions that are repeated for one device, with new counters."""
    samples = BusySamples(clock)
    pcie = Pcie()
    often = FieldBatch(
        clock,
        FirstField("memory_temperature_celsius", nvml.NVML_FI_DEV_MEMORY_TEMP),
        FirstField("power_instant_watts", nvml.NVML_FI_DEV_POWER_INSTANT),
        FirstField(
            "energy_joules",
            nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
            nvml.NVML_FI_DEV_ENERGY,
        ),
    )
    second = FieldBatch(
        clock,
        FirstField("power_average_watts", nvml.NVML_FI_DEV_POWER_AVERAGE),
        pcie,
        NvLinkTotal(),
        # Benchmarks are judged by these, so the last seconds of a run count.
        Durations("clock_event_seconds", clock_event_times(driver_version)),
        FirstField("ecc_corrected", nvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL),
        FirstField("ecc_uncorrected", nvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL),
    )
    slow = FieldBatch(
        clock,
        NvLinks(),
        FirstField("pcie_replays", nvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER),
        FirstField(
            "ecc_corrected_lifetime", nvml.NVML_FI_DEV_ECC_SBE_AGG_TOTAL
        ),
        FirstField(
            "ecc_uncorrected_lifetime", nvml.NVML_FI_DEV_ECC_DBE_AGG_TOTAL
        ),
        FieldSum(
            "remapped_rows",
            nvml.NVML_FI_DEV_REMAPPED_COR,
            nvml.NVML_FI_DEV_REMAPPED_UNC,
        ),
        FirstField("remapped_rows_uncorrected", nvml.NVML_FI_DEV_REMAPPED_UNC),
        FirstField(
            "remap_pending", nvml.NVML_FI_DEV_REMAPPED_PENDING, convert=bool
        ),
        FirstField(
            "remap_failed", nvml.NVML_FI_DEV_REMAPPED_FAILURE, convert=bool
        ),
        FirstField(
            "recovery_action",
            nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
            convert=lambda number: _word(RECOVERY_ACTIONS, number),
        ),
    )
    return (
        Question(
            "gpu_utilization_percent memory_utilization_percent", _utilization
        ),
        Question(samples.names, samples),
        MEMORY,
        Question(
            "temperature_celsius",
            scalar(nvml.nvmlDeviceGetTemperatureV, nvml.NVML_TEMPERATURE_GPU),
            scalar(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
        ),
        Question("power_watts", scalar(nvml.nvmlDeviceGetPowerUsage)),
        Question(
            "sm_clock_mhz",
            scalar(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
        ),
        Question(
            "memory_clock_mhz",
            scalar(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
        ),
        Question(
            "performance_state", scalar(nvml.nvmlDeviceGetPerformanceState)
        ),
        Question(
            "clock_event_reasons",
            partial(
                _clock_events, nvml.nvmlDeviceGetCurrentClocksEventReasons
            ),
            partial(
                _clock_events, nvml.nvmlDeviceGetCurrentClocksThrottleReasons
            ),
        ),
        Question(often.names, often),
        each_second(
            "encoder_utilization_percent",
            _first(nvml.nvmlDeviceGetEncoderUtilization),
        ),
        each_second(
            "decoder_utilization_percent",
            _first(nvml.nvmlDeviceGetDecoderUtilization),
        ),
        # This reading ends a stress test: heat rises several degrees in a few
        # seconds.
        each_second(
            "temperature_margin_celsius",
            scalar(nvml.nvmlDeviceGetMarginTemperature),
        ),
        each_second(second.names, second),
        slowly(pcie.names, pcie.measured),
        slowly(
            "video_clock_mhz",
            scalar(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_VIDEO),
        ),
        # On most devices it is the SM clock.
        slowly(
            "graphics_clock_mhz",
            scalar(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_GRAPHICS),
        ),
        slowly(
            "jpeg_utilization_percent",
            _first(nvml.nvmlDeviceGetJpgUtilization),
        ),
        slowly(
            "ofa_utilization_percent", _first(nvml.nvmlDeviceGetOfaUtilization)
        ),
        slowly("fan_percent", scalar(nvml.nvmlDeviceGetFanSpeed)),
        slowly("fans_percent", _fans),
        slowly(
            "pcie_generation", scalar(nvml.nvmlDeviceGetCurrPcieLinkGeneration)
        ),
        slowly("pcie_width", scalar(nvml.nvmlDeviceGetCurrPcieLinkWidth)),
        slowly(slow.names, slow),
        BAR1,
        slowly(
            "power_limit_watts", scalar(nvml.nvmlDeviceGetEnforcedPowerLimit)
        ),
        slowly(
            "power_limit_requested_watts",
            scalar(nvml.nvmlDeviceGetPowerManagementLimit),
        ),
        *process_lists(driver_version),
        process_utilization(),
    )
