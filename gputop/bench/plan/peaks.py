"""Peak throughput of GPUs by datasheet and by formula."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gputop import text
from gputop.agent.device import Device
from gputop.bench.plan.kinds import is_turing_without_tensor_cores


@dataclass(frozen=True, slots=True)
class Peak:
    """Throughput without sparsity in TFLOP/s (TOP/s for int8), or None if unknown."""

    name: str
    pci_device_ids: str
    """PCI device ids separated by spaces, as in `Device.pci_device_id`."""
    source: str
    fp64: float | None
    """Without tensor cores."""
    fp64_tensor: float | None
    fp32: float | None
    tf32: float | None
    fp16: float | None
    """On tensor cores with float32 accumulate. GPUs with TF32 have the same figure for bfloat16.
    For a P100, which has no tensor cores, it is the figure with float16 accumulate."""
    int8: float | None
    fp8: float | None
    fp4: float | None
    memory_gigabytes_per_second: float | None
    watts: float | None


def find_peak(pci_device_id: str | None, name: str | None) -> Peak | None:
    """Return the row of a GPU by its id. The name decides between rows with one id (A2 and A16)."""
    sought = (pci_device_id or "").lower()
    rows = [row for row in PEAKS if sought in row.pci_device_ids.split()]
    if len(rows) > 1:
        rows = [
            row for row in rows if re.search(rf"\b{row.name}\b", name or "")
        ]
    return rows[0] if len(rows) == 1 else None


def _peaks() -> tuple[Peak, ...]:
    lines = (
        Path(__file__)
        .with_name("datasheet_peaks.txt")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    _, *rows = (line for line in lines if not line.startswith("#"))
    found = []
    for row in rows:
        name, ids, *figures, source = map(str.strip, row.split("|"))
        known = (
            None if figure == "–" else float(figure) for figure in figures
        )
        found.append(Peak(name, ids, source, *known))
    return tuple(found)


PEAKS = _peaks()

DATASHEET = "datasheet dense"
AT_MAXIMUM_CLOCK = "formula at the maximum clock"
BANDWIDTH = "datasheet memory bandwidth"
AT_LIVE_CLOCK = "formula at the live clock"


class Rates(NamedTuple):
    """Operations per clock and SM, without sparsity; the fields match those of `Peak`."""

    fp64: int | None
    """On tensor cores where they have it."""
    fp32: int
    tf32: int | None = None
    fp16: int | None = None
    int8: int | None = None
    fp8: int | None = None
    fp4: int | None = None


RATES = {
    "3.7": Rates(128, 384),
    "5.0": Rates(8, 256),
    "5.2": Rates(8, 256),
    "6.0": Rates(64, 128),
    "6.1": Rates(8, 256, int8=1024),
    "7.0": Rates(64, 128, fp16=1024),
    "7.5": Rates(
        4,
        128,
        fp16=1024,
        int8=2048,
    ),
    "8.0": Rates(128, 128, 1024, 2048, 4096),
    "8.6": Rates(4, 256, 512, 1024, 2048),
    "8.7": Rates(None, 256, 1024, 2048, 4096),
    "8.9": Rates(4, 256, 512, 1024, 2048, 2048),
    "9.0": Rates(256, 256, 2048, 4096, 8192, 8192),
    "10.0": Rates(
        128,
        256,
        4096,
        8192,
        16384,
        16384,
        32768,
    ),
    "11.0": Rates(None, 256, 4096, 8192, None, 16384, 32768),
    "12.0": Rates(4, 256, 512, 1024, 2048, 2048, 4096),
    "12.1": Rates(None, 256, 512, 1024, 2048, 2048, 4096),
}
"""Known rates by compute capability. Sources are the throughput table of the CUDA programming guide
and, for tensor cores, the architecture white papers.

8.7, 11.0 and 12.1 are derived from NVIDIA's figures for Orin (16 SMs at 1.3 GHz: 5.3 TFLOP/s, and
170 TOP/s of sparse int8), Thor (20 SMs at 1.57 GHz: 2070 TFLOP/s of sparse fp4) and GB10 (48 SMs:
31 TFLOP/s, and 1 PFLOP/s of sparse fp4). Their other types have the proportions of 8.0, 10.0 and
12.0.
"""

_FIELDS = {
    r"float64": "fp64",
    r"float32": "fp32",
    r"tf32": "tf32",
    r"bfloat16": "bf16",
    r"float16": "fp16",
    r"(float16|fp16).*acc.*": "fp16_accumulate",
    r"int8": "int8",
    r"(float8|fp8).*": "fp8",
    r"(float4|fp4).*": "fp4",
}
"""Fields of `Peak` and `Rates` by the test's data type."""

_FLOAT16_BY_FLOAT32_UNITS = frozenset({"6.0"})
"""Compute capabilities whose float16 products with float32 accumulate run on float32 units.

With these, a P100 reaches 34 to 45 % of its float16 figure, or 68 to 90 % of its float32 figure.
"""

_TENSOR = frozenset(
    {"tf32", "bf16", "fp16", "fp16_accumulate", "int8", "fp8", "fp4"}
)
_HALVED = {
    r"\bGeForce\b": frozenset({"tf32", "bf16", "fp16", "fp8"}),
    # The datasheets of these GPUs also halve int8. They do not mention float16
    # accumulate.
    r"\b(L40|A10G)\b": frozenset({"tf32", "bf16", "fp16", "int8", "fp8"}),
}
"""Types at half the rate, by GPU name. GeForce has half the rate only with float32 accumulate."""
_UNPUBLISHED = {
    r"\bCMP\b": _TENSOR | {"fp64", "fp32"},
    r"\bH20\b": _TENSOR | {"fp64"},
    r"\bH800\b": frozenset({"fp64"}),
    r"\b(L2|L20|L40G|5090 D|6000D)\b": _TENSOR,
    r"\b(L40|A10G)\b": frozenset({"fp16_accumulate"}),
    r"\bMX\d+\b": _TENSOR,
}
"""Types that were reduced by an unpublished factor, by GPU name."""


def by_formula(
    compute_capability: str | None,
    sm_count: int | None,
    clock_mhz: float | None,
    dtype: str,
    *,
    name: str | None,
) -> float | None:
    """Return dense TFLOP/s as SMs × operations per clock × clock, or None if one is unknown.

    The name identifies products that are slower than their chip. For example, GeForce, L40 and A10G
    have half the rate with float32 accumulate.
    """
    field = _field(dtype, compute_capability)
    rates = RATES.get(compute_capability or "")
    if field is None or rates is None:
        return None
    if field in _unpublished(compute_capability, name):
        return None
    operations = _of(rates, field)
    if (
        operations is None
        or sm_count is None
        or sm_count <= 0
        or clock_mhz is None
    ):
        return None
    if field in _matching(_HALVED, name):
        operations /= 2
    return _positive(sm_count * operations * clock_mhz / 1e6)


def denominators(
    device: Device | None, dtype: str, clock_mhz_live: float | None = None
) -> Mapping[str, float]:
    """Return the known peaks in TFLOP/s by name; none for a CPU.

    A CPU has none, because its cores, clock and vector units are not known well enough. The live
    clock is the mean of the run. A MIG instance has no datasheet, and a vGPU's share is unknown.
    """
    if device is None or device.virtualization == "vgpu":
        return {}
    name = None if "name" in device.absent else device.name

    def at(clock_mhz: float | None) -> float | None:
        return by_formula(
            device.compute_capability,
            device.sm_count,
            clock_mhz,
            dtype,
            name=name,
        )

    found = {
        DATASHEET: _datasheet(device, dtype),
        AT_MAXIMUM_CLOCK: at(device.sm_clock_max_mhz),
        AT_LIVE_CLOCK: at(clock_mhz_live),
    }
    return {name: peak for name, peak in found.items() if peak is not None}


def memory_bytes_per_second(device: Device | None) -> float | None:
    """Return the datasheet's memory bandwidth, or None if unknown."""
    peak = _row(device)
    if peak is None or peak.memory_gigabytes_per_second is None:
        return None
    return peak.memory_gigabytes_per_second * 1e9


def percent_of_peak(
    tflops: float | None, peaks: Mapping[str, float]
) -> dict[str, float]:
    """Return percentages by denominator for `Conditions.percent_of_peak`. They may exceed 100."""
    if tflops is None or not math.isfinite(tflops):
        return {}
    return {
        name: 100 * tflops / peak
        for name, peak in peaks.items()
        if _positive(peak)
    }


def percent_lines(
    tflops: float | None, percent: Mapping[str, float], dtype: str
) -> tuple[str, ...]:
    """Return a line per denominator: `78 % of 989 TFLOP/s (datasheet dense)`.

    Without a denominator, return one line about that.
    """
    unit = "TOP/s" if _field(dtype) == "int8" else "TFLOP/s"
    lines = []
    for name, share in percent.items():
        if tflops is not None and _positive(share):
            said = (
                text.percentage(share, "")
                if share >= 9.95
                else text.number(share)
            )
            lines.append(
                f"{said} % of {text.tflops(tflops / share * 100)} {unit} ({name})"
            )
    return tuple(lines) or ("no peak is known to compare with",)


def _row(device: Device | None) -> Peak | None:
    if (
        device is None
        or device.virtualization == "vgpu"
        or device.mig_index is not None
    ):
        return None
    return find_peak(device.pci_device_id, device.name)


def _datasheet(device: Device, dtype: str) -> float | None:
    field, peak = _field(dtype, device.compute_capability), _row(device)
    if field is None or peak is None:
        return None
    value = _of(peak, field)
    if field != "fp16_accumulate" or value is None:
        return value
    if field in _unpublished(device.compute_capability, device.name):
        return None
    if "fp16" in _matching(_HALVED, device.name):
        value *= 2
    return value


def _field(dtype: str, compute_capability: str | None = None) -> str | None:
    """Return the field with the figure of a data type."""
    for form, field in _FIELDS.items():
        if not re.fullmatch(form, dtype):
            continue
        if field == "fp16" and compute_capability in _FLOAT16_BY_FLOAT32_UNITS:
            return "fp32"
        return field
    return None


def _of(figures: Peak | Rates, field: str) -> float | None:
    """Return the figure of a field. float64 uses tensor cores if possible."""
    if (
        field == "fp64"
        and isinstance(figures, Peak)
        and figures.fp64_tensor is not None
    ):
        return figures.fp64_tensor
    if field == "bf16" and figures.tf32 is None:
        return None
    as_fast = {"bf16": "fp16", "fp16_accumulate": "fp16"}
    value: float | None = getattr(figures, as_fast.get(field, field))
    return value


def _matching(
    rules: Mapping[str, frozenset[str]], name: str | None
) -> frozenset[str]:
    found = (
        fields for form, fields in rules.items() if re.search(form, name or "")
    )
    return frozenset[str]().union(*found)


def _unpublished(
    compute_capability: str | None, name: str | None
) -> frozenset[str]:
    found = _matching(_UNPUBLISHED, name)
    if is_turing_without_tensor_cores(compute_capability, name):
        found |= _TENSOR
    return found if name else _TENSOR


def _positive(value: float) -> float | None:
    return value if math.isfinite(value) and value > 0 else None
