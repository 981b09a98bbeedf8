"""Machines whose drivers say less than that of an H100: what is in use on them is made up."""

from dataclasses import fields
from typing import Any

from tests.driver import FIELDS, NOT_SUPPORTED, FakeDevice, FakeProcess

GIB = 1 << 30
MIB = 1 << 20
NOT_OF_GB10 = (3, 4, 5, 6, 82, 83, 91, 94, 142, 143, 144, 145, 193, 194, 195, 196, 197, 198)
"""Fields: ECC, the memory's temperature, energy, NVLink, remapped rows, margins and PCIe."""


def gb10(**changes: Any) -> FakeDevice:
    """GB10 (DGX Spark): the host's memory is its memory, and so neither memory call is supported.

    Processes still have theirs. No power limit, no fan, no memory clock, no ECC, no BAR1. Source:
    https://github.com/XuehaiPan/nvitop/pull/208, https://github.com/Syllo/nvtop/pull/511
    """
    memory = ("memory_total", "memory_used", "memory_reserved", "bar1_total", "bar1_used")
    limits = ("", "enforced_", "default_", "min_", "max_")
    missing = (
        *(f"{name}_bytes" for name in memory),
        *(f"power_limit_{which}milliwatts" for which in limits),
        *("memory_clock_mhz", "memory_clock_max_mhz", "temperature_margin_celsius"),
        *("ecc_mode", "mig_mode"),
    )
    known: dict[str, Any] = {
        **dict.fromkeys(missing),
        "name": "NVIDIA GB10",
        "compute_capability_major": 12,
        "compute_capability_minor": 1,
        "gpu_utilization_percent": 94,
        "pcie_generation": 1,
        "pcie_width": 1,
        "processes": (
            FakeProcess(2311, "graphics", 43 * MIB),
            FakeProcess(4501, memory_bytes=61 * GIB),
        ),
        "values": {f"field.{n}": value for n, value in FIELDS.items() if n not in NOT_OF_GB10},
    }
    return FakeDevice(**known | changes)


def orin(**changes: Any) -> FakeDevice:
    """Jetson AGX Orin with JetPack 6: its driver says who it is, and next to nothing else.

    Source: https://github.com/OE4T/linux-tegra-5.10/issues/17
    """
    lists = (
        f"nvmlDeviceGet{kind}RunningProcesses_{version}"
        for kind in ("Compute", "Graphics")
        for version in ("v2", "v3")
    )
    nothing = {f.name: None for f in fields(FakeDevice) if str(f.type).endswith("| None")}
    known: dict[str, Any] = {
        "name": "Orin (nvgpu)",
        "uuid": "GPU-7a1f0c9e-2b64-5c8d-9e3f-4d5b6a7c8e90",
        "compute_mode": 0,
        "samples": (),
        "values": {},
        "fail": dict.fromkeys(lists, NOT_SUPPORTED),
    }
    return FakeDevice(**nothing | known | changes)


def orin_of_zeros() -> FakeDevice:
    """Jetson AGX Orin whose driver, or what stands in for it, has 0 for what it does not have.

    Source: https://github.com/wentbackward/nv-monitor/issues/17
    """
    names = (
        *(f"{engine}_utilization_percent" for engine in ("gpu", "memory", "encoder", "decoder")),
        *("temperature_celsius", "fan_percent", "power_milliwatts", "graphics_clock_mhz"),
        *("power_limit_milliwatts", "power_limit_enforced_milliwatts"),
        *("sm_clock_mhz", "memory_clock_mhz", "sm_clock_max_mhz", "memory_clock_max_mhz"),
        *("performance_state", "clock_event_reasons", "pcie_generation", "pcie_width"),
        *("memory_total_bytes", "memory_used_bytes"),
    )
    zeros: dict[str, Any] = dict.fromkeys(names, 0)
    return orin(**zeros, compute_capability_major=8, compute_capability_minor=7)


def n1x() -> FakeDevice:
    """N1X, whose driver has a part of the host's memory as the device's, smaller than what is held.

    Source: https://github.com/unslothai/unsloth/issues/10283
    """
    memory = {"memory_total_bytes": 4 * GIB, "memory_used_bytes": 4 * GIB - 30 * MIB}
    return gb10(name="NVIDIA N1X", **memory, memory_reserved_bytes=0)
