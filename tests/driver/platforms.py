"""Machines as they are found in the wild: what their drivers say, and what they do not.

What is not supported where is from NVML's documentation, from what `nvidia-smi -q` shows on such
machines, and from the issues of other monitors. Sizes, limits and clocks are those of the products;
what is in use is made up. Each takes changes to its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from tests.driver import ALL_LINKS, FIELDS, NOT_SUPPORTED, FakeDevice, FakeInstance, FakeProcess

GIB = 1 << 30
MIB = 1 << 20

POWER_AVERAGES = (185, 186)
"""Since Ampere, but not on GA100."""
MEMORY_TEMPERATURE = (82,)
ENERGY = (83,)
REMAPPED_ROWS = (142, 143, 144, 145)
RECOVERY = (230,)
PCIE_COUNTERS = (197, 198)
REPLAYS = (94,)
ECC = (3, 4, 5, 6)
LINK_COUNT = (91,)
MARGIN_THRESHOLDS = (193, 194, 195, 196)
EVENT_TIMES = (74, 75, 76, 77, 78, 79, 269, 270, 271)


def _values(
    *without: int,
    thresholds: Mapping[int, int] | None = None,
    throughput_kib: tuple[int, int] | None = None,
    links: int = 0,
) -> dict[str, int]:
    """The keys with a number: thresholds are 0 shutdown, 1 slowdown, 2 of the memory.

    Who has these has none on the scale of the margin.
    """
    left_out = (*without, *LINK_COUNT, *MARGIN_THRESHOLDS)
    kept = {n: value for n, value in FIELDS.items() if n not in left_out}
    linked = {
        f"field.{field}.{link}": (links if link == ALL_LINKS else 1) << 30
        for field in (138, 139)
        for link in (*range(links), ALL_LINKS)
        if links
    }
    return {
        **{f"field.{n}": value for n, value in kept.items()},
        **({f"field.{LINK_COUNT[0]}": links} if links else {}),
        **linked,
        **{f"temperature_threshold.{n}": c for n, c in (thresholds or {}).items()},
        **{f"pcie_throughput_kib.{n}": kib for n, kib in enumerate(throughput_kib or ())},
    }


def _preset(changes: Mapping[str, Any], **said: Any) -> FakeDevice:
    return replace(FakeDevice(**said), **changes)


def h100(**changes: Any) -> FakeDevice:
    """H100 SXM 80 GB: has everything but a fan, as the fake driver's device does by itself.

    Source: the data sheet, and `nvidia-smi -q` of driver 580.
    """
    return _preset(changes, processes=(FakeProcess(4101, memory_bytes=23 * GIB),))


def a100_mig(**changes: Any) -> FakeDevice:
    """A100 SXM 40 GB in MIG mode, as 3g.20gb, 2g.10gb and 1g.5gb, at the indices 0, 1 and 3.

    Utilization is not supported while MIG is on, says NVML's documentation, whatever the engine.
    Power is not averaged on GA100, says its header. Source of the sizes: NVIDIA's MIG user guide.
    """
    uuids = (
        "MIG-6f1c3b52-3d0e-5b1c-9f6a-0d8f0f6f5c11",
        "MIG-0b9f5e0d-0a4b-5e07-8a5f-2f4d1c7f9e22",
        "MIG-c7a4ad7e-57a9-5f8e-bb3e-7a1e4d2c8b33",
    )
    name = "NVIDIA A100-SXM4-40GB MIG"
    instances = (
        FakeInstance(
            uuid=uuids[0],
            name=f"{name} 3g.20gb",
            gpu_instance=2,
            sm_count=42,
            memory_total_bytes=20_096 * MIB,
            memory_used_bytes=15 * GIB,
            bar1_total_bytes=32_767 * MIB,
            processes=(FakeProcess(4201, memory_bytes=14 * GIB),),
        ),
        FakeInstance(
            uuid=uuids[1],
            name=f"{name} 2g.10gb",
            gpu_instance=3,
            sm_count=28,
            memory_total_bytes=9_856 * MIB,
            memory_used_bytes=4 * GIB,
            bar1_total_bytes=16_383 * MIB,
            processes=(FakeProcess(4202, memory_bytes=4 * GIB - 25 * MIB),),
        ),
        None,
        FakeInstance(
            uuid=uuids[2],
            name=f"{name} 1g.5gb",
            gpu_instance=9,
            sm_count=14,
            memory_total_bytes=4_864 * MIB,
            memory_used_bytes=3 * MIB,
            bar1_total_bytes=8_191 * MIB,
        ),
    )
    return _preset(
        changes,
        name="NVIDIA A100-SXM4-40GB",
        pci_device_id="20b0",
        compute_capability_major=8,
        gpu_cores=6_912,
        architecture=7,
        memory_total_bytes=40_960 * MIB,
        memory_used_bytes=19 * GIB + 3 * MIB,
        memory_reserved_bytes=571 * MIB,
        bar1_total_bytes=64 * GIB,
        gpu_utilization_percent=None,
        samples=(),
        memory_utilization_percent=None,
        encoder_utilization_percent=None,
        decoder_utilization_percent=None,
        jpeg_utilization_percent=None,
        ofa_utilization_percent=None,
        temperature_celsius=47,
        temperature_margin_celsius=None,
        power_milliwatts=211_300,
        power_limit_milliwatts=400_000,
        power_limit_enforced_milliwatts=400_000,
        power_limit_default_milliwatts=400_000,
        power_limit_min_milliwatts=100_000,
        power_limit_max_milliwatts=400_000,
        sm_clock_mhz=1_410,
        memory_clock_mhz=1_215,
        video_clock_mhz=1_275,
        sm_clock_max_mhz=1_410,
        memory_clock_max_mhz=1_215,
        video_clock_max_mhz=1_290,
        clock_event_reasons=0,
        pcie_generation=4,
        pcie_generation_max=4,
        mig_mode=1,
        mig_mode_pending=1,
        instances=instances,
        values=_values(
            *POWER_AVERAGES, thresholds={0: 92, 1: 89, 2: 95}, throughput_kib=(2_100, 900), links=12
        ),
    )


def rtx4090(**changes: Any) -> FakeDevice:
    """GeForce RTX 4090: fans, no NVLink, no MIG, ECC off, no sensor in the memory.

    Source: the data sheet, and `nvidia-smi -q` of driver 580.
    """
    return _preset(
        changes,
        name="NVIDIA GeForce RTX 4090",
        pci_device_id="2684",
        serial=None,
        compute_capability_major=8,
        compute_capability_minor=9,
        gpu_cores=16_384,
        architecture=8,
        memory_total_bytes=24_564 * MIB,
        memory_used_bytes=9 * GIB,
        memory_reserved_bytes=347 * MIB,
        bar1_total_bytes=32 * GIB,
        temperature_celsius=66,
        temperature_margin_celsius=17,
        fan_percent=52,
        fans=2,
        power_milliwatts=318_400,
        power_limit_milliwatts=450_000,
        power_limit_enforced_milliwatts=450_000,
        power_limit_default_milliwatts=450_000,
        power_limit_min_milliwatts=150_000,
        power_limit_max_milliwatts=600_000,
        sm_clock_mhz=2_610,
        memory_clock_mhz=10_251,
        video_clock_mhz=2_040,
        sm_clock_max_mhz=3_105,
        memory_clock_max_mhz=10_501,
        video_clock_max_mhz=2_415,
        performance_state=2,
        clock_event_reasons=0,
        pcie_generation=4,
        pcie_generation_max=4,
        persistence_mode=0,
        ecc_mode=0,
        ecc_mode_pending=0,
        mig_mode=None,
        mig_mode_pending=None,
        processes=(
            FakeProcess(2207, "graphics", 412 * MIB),
            FakeProcess(4301, memory_bytes=8 * GIB),
        ),
        values=_values(
            *MEMORY_TEMPERATURE,
            *REMAPPED_ROWS,
            *ECC,
            thresholds={0: 100, 1: 97},
            throughput_kib=(120_000, 31_000),
        ),
    )


def v100(**changes: Any) -> FakeDevice:
    """Tesla V100 SXM2 32 GB: no JPEG or optical-flow engine, no row remaps, power as it is now.

    PCIe has no byte counters, so that the driver measures for 20 ms a direction. Source: the data
    sheet, and NVML's header, which says since which architecture there is what.
    """
    return _preset(
        changes,
        name="Tesla V100-SXM2-32GB",
        pci_device_id="1db5",
        compute_capability_major=7,
        gpu_cores=5_120,
        architecture=5,
        memory_total_bytes=32_768 * MIB,
        memory_used_bytes=12 * GIB,
        memory_reserved_bytes=258 * MIB,
        bar1_total_bytes=32 * GIB,
        jpeg_utilization_percent=None,
        ofa_utilization_percent=None,
        temperature_celsius=54,
        temperature_margin_celsius=None,
        power_milliwatts=268_100,
        power_limit_milliwatts=300_000,
        power_limit_enforced_milliwatts=300_000,
        power_limit_default_milliwatts=300_000,
        power_limit_min_milliwatts=150_000,
        power_limit_max_milliwatts=300_000,
        sm_clock_mhz=1_530,
        memory_clock_mhz=877,
        video_clock_mhz=1_372,
        sm_clock_max_mhz=1_530,
        memory_clock_max_mhz=877,
        video_clock_max_mhz=1_372,
        pcie_generation=3,
        pcie_generation_max=3,
        mig_mode=None,
        mig_mode_pending=None,
        processes=(FakeProcess(4401, memory_bytes=11 * GIB),),
        values=_values(
            *POWER_AVERAGES,
            *REMAPPED_ROWS,
            *RECOVERY,
            *PCIE_COUNTERS,
            thresholds={0: 90, 1: 87, 2: 85},
            throughput_kib=(41_000, 23_000),
            links=6,
        ),
    )


def gb10(**changes: Any) -> FakeDevice:
    """GB10 (DGX Spark): the host's memory is its memory, and so neither memory call is supported.

    Processes still have theirs. No power limit, no fan, no memory clock, no ECC, no BAR1. Source:
    https://github.com/XuehaiPan/nvitop/pull/208, https://github.com/Syllo/nvtop/pull/511
    """
    return _preset(
        changes,
        name="NVIDIA GB10",
        pci_bus_id="0000000F:01:00.0",
        pci_device_id="2e12",
        serial=None,
        compute_capability_major=12,
        compute_capability_minor=1,
        gpu_cores=6_144,
        architecture=10,
        memory_total_bytes=None,
        memory_used_bytes=None,
        memory_reserved_bytes=None,
        bar1_total_bytes=None,
        bar1_used_bytes=None,
        gpu_utilization_percent=94,
        memory_utilization_percent=0,
        temperature_celsius=71,
        temperature_margin_celsius=None,
        power_milliwatts=68_900,
        power_limit_milliwatts=None,
        power_limit_enforced_milliwatts=None,
        power_limit_default_milliwatts=None,
        power_limit_min_milliwatts=None,
        power_limit_max_milliwatts=None,
        sm_clock_mhz=2_405,
        memory_clock_mhz=None,
        video_clock_mhz=2_003,
        sm_clock_max_mhz=3_003,
        memory_clock_max_mhz=None,
        video_clock_max_mhz=3_003,
        clock_event_reasons=0,
        pcie_generation=1,
        pcie_width=1,
        pcie_generation_max=5,
        pcie_width_max=16,
        ecc_mode=None,
        ecc_mode_pending=None,
        mig_mode=None,
        mig_mode_pending=None,
        processes=(
            FakeProcess(2311, "graphics", 43 * MIB),
            FakeProcess(4501, memory_bytes=61 * GIB),
        ),
        values=_values(
            *MEMORY_TEMPERATURE, *REMAPPED_ROWS, *ECC, *PCIE_COUNTERS, *REPLAYS, *ENERGY
        ),
    )


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
    known = {
        "name": "Orin (nvgpu)",
        "uuid": "GPU-7a1f0c9e-2b64-5c8d-9e3f-4d5b6a7c8e90",
        "compute_mode": 0,
        "samples": (),
        "values": {},
        "fail": dict.fromkeys(lists, NOT_SUPPORTED),
    }
    return _preset(changes, **nothing | known)


def orin_of_zeros(**changes: Any) -> FakeDevice:
    """Jetson AGX Orin whose driver, or what stands in for it, has 0 for what it does not have.

    Source: https://github.com/wentbackward/nv-monitor/issues/17
    """
    names = ("gpu_utilization", "memory_utilization", "encoder_utilization", "decoder_utilization")
    zeros = dict.fromkeys((f"{name}_percent" for name in names), 0)
    zeros |= dict.fromkeys(("temperature_celsius", "fan_percent", "power_milliwatts"), 0)
    zeros |= dict.fromkeys(("power_limit_milliwatts", "power_limit_enforced_milliwatts"), 0)
    zeros |= dict.fromkeys(("graphics_clock_mhz", "sm_clock_mhz", "memory_clock_mhz"), 0)
    zeros |= dict.fromkeys(("sm_clock_max_mhz", "memory_clock_max_mhz", "performance_state"), 0)
    zeros |= dict.fromkeys(("clock_event_reasons", "pcie_generation", "pcie_width"), 0)
    zeros |= {"memory_total_bytes": 0, "memory_used_bytes": 0}
    zeros |= {"compute_capability_major": 8, "compute_capability_minor": 7}
    return orin(**{**zeros, **changes})


def n1x(**changes: Any) -> FakeDevice:
    """N1X, whose driver has a part of the host's memory as the device's, smaller than what is held.

    Source: https://github.com/unslothai/unsloth/issues/10283
    """
    memory = {"memory_total_bytes": 4 * GIB, "memory_used_bytes": 4 * GIB - 30 * MIB}
    return gb10(**{"name": "NVIDIA N1X", **memory, "memory_reserved_bytes": 0, **changes})


def wsl(**changes: Any) -> FakeDevice:
    """RTX 4090 under WSL2: processes without their memory, no fan, no minor number, no counters.

    Source: https://github.com/NVIDIA/nvidia-container-toolkit/issues/271
    """
    return rtx4090(
        **{
            "fan_percent": None,
            "fans": None,
            "minor_number": None,
            "persistence_mode": 1,
            "processes": (FakeProcess(4601, memory_bytes=None),),
            "values": _values(
                *MEMORY_TEMPERATURE,
                *REMAPPED_ROWS,
                *ECC,
                *PCIE_COUNTERS,
                *REPLAYS,
                *RECOVERY,
                thresholds={0: 100, 1: 97},
            ),
            **changes,
        }
    )


def vgpu_guest(**changes: Any) -> FakeDevice:
    """A guest with half an A40: memory, utilization, processes; no sensors, clocks or PCIe.

    Source: what NVIDIA's vGPU user guide says that a guest can see.
    """
    return _preset(
        changes,
        name="NVIDIA A40-24Q",
        pci_bus_id="00000000:02:00.0",
        pci_device_id="2235",
        serial=None,
        compute_capability_major=8,
        compute_capability_minor=6,
        gpu_cores=10_752,
        architecture=7,
        memory_total_bytes=24_576 * MIB,
        memory_used_bytes=6 * GIB,
        memory_reserved_bytes=1_700 * MIB,
        bar1_total_bytes=256 * MIB,
        gpu_utilization_percent=38,
        memory_utilization_percent=12,
        temperature_celsius=None,
        temperature_margin_celsius=None,
        power_milliwatts=None,
        power_limit_milliwatts=None,
        power_limit_enforced_milliwatts=None,
        power_limit_default_milliwatts=None,
        power_limit_min_milliwatts=None,
        power_limit_max_milliwatts=None,
        sm_clock_mhz=None,
        memory_clock_mhz=None,
        video_clock_mhz=None,
        sm_clock_max_mhz=None,
        memory_clock_max_mhz=None,
        video_clock_max_mhz=None,
        clock_event_reasons=None,
        pcie_generation=None,
        pcie_width=None,
        pcie_generation_max=None,
        pcie_width_max=None,
        mig_mode=None,
        mig_mode_pending=None,
        virtualization_mode=2,
        processes=(FakeProcess(4701, memory_bytes=5 * GIB),),
        values=_values(
            *MEMORY_TEMPERATURE,
            *POWER_AVERAGES,
            *ENERGY,
            *REMAPPED_ROWS,
            *RECOVERY,
            *PCIE_COUNTERS,
            *REPLAYS,
            *EVENT_TIMES,
        ),
    )


PLATFORMS: Mapping[str, Callable[..., FakeDevice]] = {
    "h100": h100,
    "a100_mig": a100_mig,
    "rtx4090": rtx4090,
    "v100": v100,
    "gb10": gb10,
    "orin": orin,
    "wsl": wsl,
    "vgpu_guest": vgpu_guest,
}
"""All of them, by name."""
