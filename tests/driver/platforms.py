"""Machines as they are found in the wild: what their drivers say, and what they do not.

What is not supported where is from NVML's documentation, from what `nvidia-smi -q` shows on such
machines, and from the issues of other monitors. Sizes, limits and clocks are those of the products;
what is in use is made up. Each takes changes to its fields.
"""

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
LIMITS = tuple(f"power_limit_{which}milliwatts" for which in ("", "enforced_", "default_"))
LIMIT_RANGE = ("power_limit_min_milliwatts", "power_limit_max_milliwatts")
CLOCKS = ("sm_clock_mhz", "memory_clock_mhz", "video_clock_mhz")
MAX_CLOCKS = ("sm_clock_max_mhz", "memory_clock_max_mhz", "video_clock_max_mhz")


def _limits(usual: int | None, least: int | None, most: int | None) -> dict[str, int | None]:
    return {**dict.fromkeys(LIMITS, usual), **dict(zip(LIMIT_RANGE, (least, most), strict=True))}


def _clocks(now: tuple[int | None, ...], most: tuple[int | None, ...]) -> dict[str, int | None]:
    """Return the clocks of the SMs, the memory and the video engines."""
    return dict(zip((*CLOCKS, *MAX_CLOCKS), (*now, *most), strict=True))


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
    """H100 SXM 80 GB: has everything but a fan, as the fake driver's device does by itself."""
    return _preset(changes, processes=(FakeProcess(4101, memory_bytes=23 * GIB),))


def _a100_part(profile: str, uuid: str, sms: int, bar1_mib: int, **said: Any) -> FakeInstance:
    name = f"NVIDIA A100-SXM4-40GB MIG {profile}"
    bar1 = bar1_mib * MIB
    return FakeInstance(name=name, uuid=uuid, sm_count=sms, bar1_total_bytes=bar1, **said)


A100_PARTS = (
    _a100_part(
        "3g.20gb",
        "MIG-6f1c3b52-3d0e-5b1c-9f6a-0d8f0f6f5c11",
        42,
        32_767,
        gpu_instance=2,
        memory_total_bytes=20_096 * MIB,
        memory_used_bytes=15 * GIB,
        processes=(FakeProcess(4201, memory_bytes=14 * GIB),),
    ),
    _a100_part(
        "2g.10gb",
        "MIG-0b9f5e0d-0a4b-5e07-8a5f-2f4d1c7f9e22",
        28,
        16_383,
        gpu_instance=3,
        memory_total_bytes=9_856 * MIB,
        memory_used_bytes=4 * GIB,
        processes=(FakeProcess(4202, memory_bytes=4 * GIB - 25 * MIB),),
    ),
    None,
    _a100_part(
        "1g.5gb",
        "MIG-c7a4ad7e-57a9-5f8e-bb3e-7a1e4d2c8b33",
        14,
        8_191,
        gpu_instance=9,
        memory_total_bytes=4_864 * MIB,
        memory_used_bytes=3 * MIB,
    ),
)


def a100_mig(**changes: Any) -> FakeDevice:
    """A100 SXM 40 GB in MIG mode, as 3g.20gb, 2g.10gb and 1g.5gb, at the indices 0, 1 and 3.

    Utilization is not supported while MIG is on, says NVML's documentation, whatever the engine.
    Power is not averaged on GA100, says its header. Source of the sizes: NVIDIA's MIG user guide.
    """
    engines = ("gpu", "memory", "encoder", "decoder", "jpeg", "ofa")
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
        samples=(),
        **{f"{engine}_utilization_percent": None for engine in engines},
        temperature_celsius=47,
        temperature_margin_celsius=None,
        power_milliwatts=211_300,
        **_limits(400_000, 100_000, 400_000),
        **_clocks((1_410, 1_215, 1_275), (1_410, 1_215, 1_290)),
        clock_event_reasons=0,
        pcie_generation=4,
        pcie_generation_max=4,
        mig_mode=1,
        instances=A100_PARTS,
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
        **_limits(450_000, 150_000, 600_000),
        **_clocks((2_610, 10_251, 2_040), (3_105, 10_501, 2_415)),
        performance_state=2,
        clock_event_reasons=0,
        pcie_generation=4,
        pcie_generation_max=4,
        persistence_mode=0,
        ecc_mode=0,
        mig_mode=None,
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


def gb10(**changes: Any) -> FakeDevice:
    """GB10 (DGX Spark): the host's memory is its memory, and so neither memory call is supported.

    Processes still have theirs. No power limit, no fan, no memory clock, no ECC, no BAR1. Source:
    https://github.com/XuehaiPan/nvitop/pull/208, https://github.com/Syllo/nvtop/pull/511
    """
    memory = ("memory_total", "memory_used", "memory_reserved", "bar1_total", "bar1_used")
    return _preset(
        changes,
        name="NVIDIA GB10",
        pci_bus_id="0000000F:01:00.0",
        pci_device_id="2e12",
        compute_capability_major=12,
        compute_capability_minor=1,
        gpu_cores=6_144,
        architecture=10,
        **{f"{name}_bytes": None for name in memory},
        gpu_utilization_percent=94,
        memory_utilization_percent=0,
        temperature_celsius=71,
        temperature_margin_celsius=None,
        power_milliwatts=68_900,
        **_limits(None, None, None),
        **_clocks((2_405, None, 2_003), (3_003, None, 3_003)),
        clock_event_reasons=0,
        pcie_generation=1,
        pcie_width=1,
        pcie_generation_max=5,
        pcie_width_max=16,
        ecc_mode=None,
        mig_mode=None,
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


def orin_of_zeros() -> FakeDevice:
    """Jetson AGX Orin whose driver, or what stands in for it, has 0 for what it does not have.

    Source: https://github.com/wentbackward/nv-monitor/issues/17
    """
    engines = ("gpu", "memory", "encoder", "decoder")
    names = (
        *(f"{engine}_utilization_percent" for engine in engines),
        *("temperature_celsius", "fan_percent", "power_milliwatts", "graphics_clock_mhz"),
        *(*LIMITS[:2], *CLOCKS[:2], *MAX_CLOCKS[:2]),
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


def wsl(**changes: Any) -> FakeDevice:
    """RTX 4090 under WSL2: processes without their memory, no fan, no minor number, no counters.

    Source: https://github.com/NVIDIA/nvidia-container-toolkit/issues/271
    """
    missing = (*MEMORY_TEMPERATURE, *REMAPPED_ROWS, *ECC, *PCIE_COUNTERS, *REPLAYS, *RECOVERY)
    said = {
        **dict.fromkeys(("fan_percent", "fans", "minor_number")),
        "persistence_mode": 1,
        "processes": (FakeProcess(4601, memory_bytes=None),),
        "values": _values(*missing, thresholds={0: 100, 1: 97}),
    }
    return rtx4090(**said | changes)


def vgpu_guest(**changes: Any) -> FakeDevice:
    """A guest with half an A40: memory, utilization, processes; no sensors, clocks or PCIe.

    Source: what NVIDIA's vGPU user guide says that a guest can see.
    """
    hidden = (
        *("temperature_celsius", "temperature_margin_celsius", "power_milliwatts"),
        *(*LIMITS, *LIMIT_RANGE, *CLOCKS, *MAX_CLOCKS, "clock_event_reasons"),
        *("pcie_generation", "pcie_width", "pcie_generation_max", "pcie_width_max", "mig_mode"),
    )
    nothing: dict[str, Any] = dict.fromkeys(hidden)
    return _preset(
        changes,
        name="NVIDIA A40-24Q",
        pci_bus_id="00000000:02:00.0",
        pci_device_id="2235",
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
        **nothing,
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
    function.__name__: function
    for function in (h100, a100_mig, rtx4090, gb10, orin, wsl, vgpu_guest)
}
