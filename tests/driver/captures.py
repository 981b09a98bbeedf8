"""Rows that a real nvidia-smi printed, and a fake device with the values behind such a row.

The values are worked out from the text alone, with nothing of gputop: a mistake that gputop makes
in a unit, a rounding or a word is not made here a second time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.driver import FakeDevice

_FOLDER = Path(__file__).parent.parent / "data" / "captures"
_MIB = 1 << 20
_COMPUTE_MODES = {"Default": 0, "Exclusive_Thread": 1, "Prohibited": 2, "Exclusive_Process": 3}
_YES = {"Enabled": 1, "Disabled": 0, "Yes": 1, "No": 0}
_RECOVERIES = {"None": 0, "Reset": 1}
_FIELDS = {
    3: "ecc.errors.corrected.volatile.total",
    4: "ecc.errors.uncorrected.volatile.total",
    5: "ecc.errors.corrected.aggregate.total",
    6: "ecc.errors.uncorrected.aggregate.total",
    82: "temperature.memory",
    143: "remapped_rows.uncorrectable",
    144: "remapped_rows.pending",
    145: "remapped_rows.failure",
}
"""Fields of GetFieldValues, and the column that shows each."""
_POWER_FIELDS = {185: "power.draw.average", 186: "power.draw.instant"}


@dataclass(frozen=True, slots=True)
class Capture:
    """A card in one state: `idle` or `load`."""

    name: str
    titles: Mapping[str, str]
    """What the header has, by the name that was asked for."""
    row: Mapping[str, str]
    gpus: Sequence[str]
    """Lines of `nvidia-smi -L`."""

    def __str__(self) -> str:
        return self.name


def _read(path: Path) -> tuple[Capture, Capture]:
    header, idle, load = (line.split(", ") for line in path.read_text().splitlines())
    gpus = path.with_suffix(".txt").read_text().splitlines()
    names = [re.sub(r" \[.*\]$", "", title) for title in header]
    titles = dict(zip(names, header, strict=True))
    return (
        Capture(f"{path.stem} idle", titles, dict(zip(names, idle, strict=True)), gpus),
        Capture(f"{path.stem} load", titles, dict(zip(names, load, strict=True)), gpus),
    )


CAPTURES = tuple(capture for path in sorted(_FOLDER.glob("*.csv")) for capture in _read(path))


def device_of(capture: Capture) -> FakeDevice:
    """Return a device whose driver says what the one of the capture must have said."""
    row = capture.row
    major, minor = row["compute_cap"].split(".")
    memory = _memory(row)
    fields = {number: _whole(row[name]) for number, name in _FIELDS.items()}
    fields |= {number: _milliwatts(row[name]) for number, name in _POWER_FIELDS.items()}
    fields |= {230: _RECOVERIES[row["gpu_recovery_action"]]}
    values = {f"field.{number}": n for number, n in fields.items() if n is not None}
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
        mig_mode=_whole(row["mig.mode.current"]),
        values=values,
        gpm_supported=0,
    )


def _is_missing(text: str) -> bool:
    return text in ("[N/A]", "N/A")


def _whole(text: str) -> int | None:
    """Return the number before the unit, or that of a word; None where the driver has none."""
    if _is_missing(text):
        return None
    return _YES[text] if text in _YES else int(text.partition(" ")[0], 0)


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
