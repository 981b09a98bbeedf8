"""Rows that a real nvidia-smi printed, and a fake device with the values behind such a row.

The values are worked out from the text alone, with nothing of gputop: a mistake that gputop makes
in a unit, a rounding or a word is not made here a second time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.driver import DEPRECATED, FakeDevice

_FOLDER = Path(__file__).parent.parent / "data" / "captures"
_MIB = 1 << 20
_COMPUTE_MODES = {"Default": 0, "Exclusive_Thread": 1, "Prohibited": 2, "Exclusive_Process": 3}
_YES = {"Enabled": 1, "Disabled": 0, "Yes": 1, "No": 0}
_WORDS = {"None": 0, "HMM": 1, "ATS": 2, "Success": 0, "Completed": 3, "Direct Connected": 0}
_RECOVERIES = {"None": 0, "Reset": 1}
_FIELDS = {
    3: "ecc.errors.corrected.volatile.total",
    4: "ecc.errors.uncorrected.volatile.total",
    5: "ecc.errors.corrected.aggregate.total",
    6: "ecc.errors.uncorrected.aggregate.total",
    82: "temperature.memory",
    142: "remapped_rows.correctable",
    143: "remapped_rows.uncorrectable",
    144: "remapped_rows.pending",
    145: "remapped_rows.failure",
}
"""Fields of GetFieldValues, and the column that shows each."""
_POWER_FIELDS = {185: "power.draw.average", 186: "power.draw.instant"}
_COUNTERS = {
    74: "sw_power_cap",
    76: "sync_boost",
    269: "sw_thermal_slowdown",
    270: "hw_thermal_slowdown",
    271: "hw_power_brake_slowdown",
}
"""Fields in nanoseconds, and the counter in microseconds that shows each."""
_LOCATIONS = (
    *("l1_cache", "l2_cache", "dram", "register_file"),
    *("texture_memory", "shared_memory", "cbu", "sram"),
)
_SRAM = (
    *("aggregate.sram.parity", "aggregate.sram.secded", "not shown"),
    *("volatile.sram.parity", "volatile.sram.secded", "not shown"),
    *("aggregate.sram.l2", "aggregate.sram.sm", "aggregate.sram.pcie"),
    *("aggregate.sram.mcu", "aggregate.sram.other"),
)
"""Counts of `nvmlDeviceGetSramEccErrorStatus` in its order, as far as they are shown."""
_SELDOM = {
    "accounting_buffer_size": "accounting.buffer_size",
    "accounting_mode": "accounting.mode",
    "addressing_mode": "addressing_mode",
    "c2c_mode": "c2c.mode",
    "display_active": "display_active",
    "display_mode": "display_attached",
    "driver_model": "driver_model.current",
    "encoder_fps": "encoder.stats.averageFps",
    "encoder_latency": "encoder.stats.averageLatency",
    "encoder_sessions": "encoder.stats.sessionCount",
    "fabric.clique": "fabric.cliqueId",
    "fabric.state": "fabric.state",
    "fabric.status": "fabric.status",
    "gsp_mode": "gsp.mode.current",
    "gsp_mode_default": "gsp.mode.default",
    "operation_mode": "gom.current",
    "pci_sub_class": "pci.subClass",
    "pcie_generation_gpu_max": "pcie.link.gen.gpumax",
    "platform.host": "platform.host_id",
    "platform.module": "platform.module_id",
    "platform.peer": "platform.peer_type",
    "platform.slot": "platform.slot_number",
    "platform.tray": "platform.tray_index",
    "retired_pages.0": "retired_pages.single_bit_ecc.count",
    "retired_pages.1": "retired_pages.double_bit.count",
    "retired_pages_pending": "retired_pages.pending",
    "sram_errors.exceeded": "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",
    **{
        f"row_remapper.{number}": f"remapped_rows.histogram.{name}"
        for number, name in enumerate(("max", "high", "partial", "low", "none"))
    },
    **{
        f"memory_errors.{kind}.{counter}.{number}": f"ecc.errors.{error}.{life}.{location}"
        for kind, error in enumerate(("corrected", "uncorrected"))
        for counter, life in enumerate(("volatile", "aggregate"))
        for number, location in enumerate(_LOCATIONS)
    },
    **{f"sram_errors.{n}": f"ecc.errors.uncorrected.{name}" for n, name in enumerate(_SRAM)},
}
"""Keys of the state file with whole numbers, and the column that shows each."""
_TEXTS = {
    "inforom_image": "inforom.img",
    "inforom_version.0": "inforom.oem",
    "inforom_version.1": "inforom.ecc",
    "inforom_version.2": "inforom.pwr",
    "pci_subsystem_id": "pci.sub_device_id",
    "platform.chassis": "platform.chassis_serial_number",
    "platform.guid": "platform.gpu_fabric_guid",
    "vbios_version": "vbios_version",
}
_DEPRECATED = "[Requested functionality has been deprecated]"
_DEPRECATIONS = {
    "nvmlDeviceGetApplicationsClock": "clocks.applications.graphics",
    "nvmlDeviceGetDefaultApplicationsClock": "clocks.default_applications.graphics",
    "nvmlDeviceGetPowerManagementMode": "power.management",
}


@dataclass(frozen=True, slots=True)
class Capture:
    """A card in one state: `idle` or `load`."""

    name: str
    titles: Mapping[str, str]
    """What the header has, by the name that was asked for."""
    row: Mapping[str, str]
    gpus: Sequence[str]
    """Lines of `nvidia-smi -L`."""
    topology: Sequence[str]
    """Lines of `nvidia-smi topo -m`, without the legend and the escapes of the terminal."""
    apps: Sequence[str]
    """Lines of `nvidia-smi --query-compute-apps` under load."""

    def __str__(self) -> str:
        return self.name


def _read(path: Path) -> tuple[Capture, Capture]:
    header, idle, load = (line.split(", ") for line in path.read_text().splitlines())
    pages = [page.splitlines() for page in path.with_suffix(".txt").read_text().split("\n\n")]
    names = [re.sub(r" \[.*\]$", "", title) for title in header]
    titles = dict(zip(names, header, strict=True))
    return (
        Capture(f"{path.stem} idle", titles, dict(zip(names, idle, strict=True)), *pages),
        Capture(f"{path.stem} load", titles, dict(zip(names, load, strict=True)), *pages),
    )


CAPTURES = tuple(capture for path in sorted(_FOLDER.glob("*.csv")) for capture in _read(path))


def device_of(capture: Capture) -> FakeDevice:
    """Return a device whose driver says what the one of the capture must have said."""
    row = capture.row
    major, minor = row["compute_cap"].split(".")
    memory = _memory(row)
    fields = {number: _whole(row[name]) for number, name in _FIELDS.items()}
    fields |= {number: _milliwatts(row[name]) for number, name in _POWER_FIELDS.items()}
    fields |= {
        number: _nanoseconds(row[f"clocks_event_reasons_counters.{name}"])
        for number, name in _COUNTERS.items()
    }
    fields |= {274: _hundredths(row["edpp_multiplier"])}
    fields |= {301: _whole(row.get("remapped_rows.correctable_inactive", "[N/A]"))}
    fields |= {302: _whole(row.get("remapped_rows.uncorrectable_inactive", "[N/A]"))}
    fields |= {230: _RECOVERIES[row["gpu_recovery_action"]]}
    seldom = {key: _whole(row.get(name, "[N/A]")) for key, name in _SELDOM.items()}
    values = {f"field.{number}": n for number, n in fields.items()} | seldom
    texts = {key: row[name] for key, name in _TEXTS.items() if not _is_missing(row[name])}
    return FakeDevice(
        name=row["name"],
        uuid=row["uuid"],
        pci_bus_id=row["pci.bus_id"],
        pci_device_id=row["pci.device_id"].removeprefix("0x").removesuffix("10DE").lower(),
        compute_capability_major=int(major),
        compute_capability_minor=int(minor),
        memory_total_bytes=memory["total"],
        memory_used_bytes=memory["used"],
        memory_reserved_bytes=memory["reserved"],
        gpu_utilization_percent=_whole(row["utilization.gpu"]),
        memory_utilization_percent=_whole(row["utilization.memory"]),
        encoder_utilization_percent=_whole(row["utilization.encoder"]),
        decoder_utilization_percent=_whole(row["utilization.decoder"]),
        jpeg_utilization_percent=_whole(row["utilization.jpeg"]),
        ofa_utilization_percent=_whole(row["utilization.ofa"]),
        samples=(),
        temperature_celsius=_whole(row["temperature.gpu"]),
        temperature_margin_celsius=_whole(row["temperature.gpu.tlimit"]),
        fan_percent=_whole(row["fan.speed"]),
        power_milliwatts=_milliwatts(row["power.draw"]),
        power_limit_milliwatts=_milliwatts(row["power.limit"]),
        power_limit_enforced_milliwatts=_milliwatts(row["enforced.power.limit"]),
        power_limit_default_milliwatts=_milliwatts(row["power.default_limit"]),
        power_limit_min_milliwatts=_milliwatts(row["power.min_limit"]),
        power_limit_max_milliwatts=_milliwatts(row["power.max_limit"]),
        graphics_clock_mhz=_whole(row["clocks.current.graphics"]),
        sm_clock_mhz=_whole(row["clocks.current.sm"]),
        memory_clock_mhz=_whole(row["clocks.current.memory"]),
        video_clock_mhz=_whole(row["clocks.current.video"]),
        graphics_clock_max_mhz=_whole(row["clocks.max.graphics"]),
        sm_clock_max_mhz=_whole(row["clocks.max.sm"]),
        memory_clock_max_mhz=_whole(row["clocks.max.memory"]),
        performance_state=int(row["pstate"].removeprefix("P")),
        clock_event_reasons=int(row["clocks_event_reasons.active"], 16),
        clock_event_reasons_supported=int(row["clocks_event_reasons.supported"], 16),
        pcie_generation=_whole(row["pcie.link.gen.current"]),
        pcie_generation_max=_whole(row["pcie.link.gen.max"]),
        pcie_width=_whole(row["pcie.link.width.current"]),
        pcie_width_max=_whole(row["pcie.link.width.max"]),
        persistence_mode=_YES[row["persistence_mode"]],
        compute_mode=_COMPUTE_MODES[row["compute_mode"]],
        ecc_mode=_whole(row["ecc.mode.current"]),
        ecc_mode_pending=_whole(row["ecc.mode.pending"]),
        mig_mode=_whole(row["mig.mode.current"]),
        mig_mode_pending=_whole(row["mig.mode.pending"]),
        values={
            **{key: value for key, value in values.items() if value is not None},
            "protected_memory_total_bytes": 0,
            "protected_memory_used_bytes": 0,
        },
        texts=texts,
        fail={
            function: DEPRECATED
            for function, name in _DEPRECATIONS.items()
            if row[name] == _DEPRECATED
        },
        serial=None if _is_missing(row["serial"]) else row["serial"],
        gpm_supported=0,
    )


def _is_missing(text: str) -> bool:
    return text in ("[N/A]", "N/A")


def _whole(text: str) -> int | None:
    """Return the number before the unit, or that of a word; None where the driver has none."""
    if _is_missing(text):
        return None
    words = _YES | _WORDS
    return words[text] if text in words else int(text.partition(" ")[0], 0)


def _nanoseconds(text: str) -> int | None:
    """Return nanoseconds that are not whole microseconds, unless they are 0."""
    microseconds = _whole(text)
    return microseconds * 1000 + 999 if microseconds else microseconds


def _hundredths(text: str) -> int | None:
    return None if _is_missing(text) else int(float(text.removesuffix(" %")))


def _milliwatts(text: str) -> int | None:
    """Return milliwatts that are not whole hundredths of a watt, as a driver's are not either."""
    if _is_missing(text):
        return None
    watts, hundredths = text.removesuffix(" W").split(".")
    return int(watts) * 1000 + int(hundredths) * 10 + (4 if int(hundredths) else 0)


def _memory(row: Mapping[str, str]) -> dict[str, int]:
    """Return bytes that become the row's MiB where each number is rounded up, and never else.

    The parts of a row are 1 or 2 MiB more than its total: that much they are short of whole MiB
    together, each by the same.
    """
    mib = {part: int(row[f"memory.{part}"].split()[0]) for part in ("reserved", "used", "free")}
    total = int(row["memory.total"].split()[0]) * _MIB
    parts = [part for part, size in mib.items() if size]
    short = (sum(mib.values()) * _MIB - total) // len(parts)
    assert 0 < short < _MIB, "these numbers are not rounded up"
    found = {part: size * _MIB - (short if size else 0) for part, size in mib.items()}
    found["free"] = total - found["used"] - found["reserved"]
    assert {part: -(-found[part] // _MIB) for part in mib} == mib
    return {**found, "total": total}
