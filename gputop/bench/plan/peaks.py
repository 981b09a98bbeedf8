"""Peak throughput of GPUs, by datasheet and by formula, and percentages of it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from gputop import text

if TYPE_CHECKING:
    from gputop.schema.device import Device


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
    """With float32 accumulate on tensor cores, as fast as bfloat16 from TF32 on."""
    int8: float | None
    fp8: float | None
    fp4: float | None
    memory_gigabytes_per_second: float | None
    watts: float | None


def find_peak(pci_device_id: str | None, name: str | None) -> Peak | None:
    """Return the row of a GPU. The name decides only between rows of one id (A2 and A16)."""
    rows = _BY_ID.get((pci_device_id or "").lower(), ())
    if len(rows) > 1:
        rows = tuple(row for row in rows if re.search(rf"\b{row.name}\b", name or ""))
    return rows[0] if len(rows) == 1 else None


U = None  # not known: never published, published with two figures, or not there

_P100 = "NVIDIA Tesla P100 PCIe and SXM2 datasheets, 2016"
_V100 = "NVIDIA V100 datasheet, 2020"
_A100 = "NVIDIA A100 datasheet, 2021"
_A800 = "NVIDIA A800 datasheet, 2022: an A100 with slower NVLink"
_H100 = "NVIDIA H100 datasheet, 2023"
_H200 = "NVIDIA H200 datasheet, 2024"
_GH200 = "NVIDIA GH200 datasheet, 2023"
_H20 = "NVIDIA H20 specifications, 2023, as resellers print them"

# Ids are those of pci.ids and of the list of GPUs in the README of NVIDIA's open kernel modules;
# DCGM's list of SKUs agrees where it has them. Of a figure with sparsity, half is dense.
# fmt: off
PEAKS = (
    # fp64, and on tensor cores; fp32, tf32, fp16; int8, fp8, fp4; GB/s, W
    Peak("Tesla K80", "102d", "NVIDIA Tesla K80 datasheet, 2014; per GPU, of the board's two",
         1.46,  U,     4.37,  U,     U,     U,     U,     U,     240,   150),
    Peak("Tesla M4", "1431", "NVIDIA Tesla M4 datasheet, 2015",
         .069,  U,     2.20,  U,     U,     U,     U,     U,     88,    50),
    Peak("Tesla M40", "17fd", "NVIDIA Tesla M40 datasheet, 2015",
         .21,   U,     6.83,  U,     U,     U,     U,     U,     288,   250),
    # These two compute 16-bit products in float32: their 16-bit arithmetic has 1/64 of its rate.
    Peak("Tesla P4", "1bb3", "NVIDIA Tesla P4 datasheet, 2016",
         .17,   U,     5.44,  U,     U,     21.8,  U,     U,     192,   75),
    Peak("Tesla P40", "1b38", "NVIDIA Tesla P40 datasheet, 2016",
         .37,   U,     11.8,  U,     U,     47,    U,     U,     347,   250),
    # Without tensor cores: their 16-bit figure is one with float16 accumulate.
    Peak("P100 PCIe 12 GB", "15f7", _P100,
         4.7,   U,     9.3,   U,     18.7,  U,     U,     U,     549,   250),
    Peak("P100 PCIe 16 GB", "15f8", _P100,
         4.7,   U,     9.3,   U,     18.7,  U,     U,     U,     732,   250),
    Peak("P100 SXM2", "15f9", _P100,
         5.3,   U,     10.6,  U,     21.2,  U,     U,     U,     732,   300),
    Peak("GTX 1050 Ti", "1c82", "GeForce GTX 1050 Ti specifications, 2016: 768 cores at 1392 MHz",
         .067,  U,     2.14,  U,     U,     U,     U,     U,     112,   75),
    Peak("GTX 1080 Ti", "1b06", "GeForce GTX 1080 Ti specifications, 2017",
         .35,   U,     11.3,  U,     U,     U,     U,     U,     484,   250),
    Peak("V100 PCIe", "1db4 1db6", _V100,
         7,     U,     14,    U,     112,   U,     U,     U,     900,   250),
    Peak("V100 SXM2", "1db1 1db5", _V100,
         7.8,   U,     15.7,  U,     125,   U,     U,     U,     900,   300),
    Peak("V100S", "1df6", _V100,
         8.2,   U,     16.4,  U,     130,   U,     U,     U,     1134,  250),
    Peak("T4", "1eb8", "NVIDIA T4 datasheet, 2019",
         .25,   U,     8.1,   U,     65,    130,   U,     U,     320,   70),
    Peak("A2", "25b6", "NVIDIA A2 datasheet, 2021",
         U,     U,     4.5,   9,     18,    36,    U,     U,     200,   60),
    Peak("A16", "25b6", "NVIDIA A16 datasheet, 2021; per GPU, of the card's four",
         U,     U,     4.5,   9,     17.9,  35.9,  U,     U,     200,   62.5),
    Peak("A10", "2236", "NVIDIA A10 datasheet, 2021",
         U,     U,     31.2,  62.5,  125,   250,   U,     U,     600,   150),
    Peak("A10G", "2237", "NVIDIA A10G datasheet, 2021, as Baseten quotes it",
         U,     U,     35,    35,    70,    140,   U,     U,     600,   300),
    Peak("A30", "20b7", "NVIDIA A30 datasheet, 2021",
         5.2,   10.3,  10.3,  82,    165,   330,   U,     U,     933,   165),
    Peak("A40", "2235", "NVIDIA A40 datasheet, 2020",
         U,     U,     37.4,  74.8,  149.7, 299,   U,     U,     696,   300),
    Peak("A100 PCIe 40 GB", "20b1 20f1", _A100,
         9.7,   19.5,  19.5,  156,   312,   624,   U,     U,     1555,  250),
    Peak("A100 PCIe 80 GB", "20b5", _A100,
         9.7,   19.5,  19.5,  156,   312,   624,   U,     U,     1935,  300),
    Peak("A100 SXM4 40 GB", "20b0", _A100,
         9.7,   19.5,  19.5,  156,   312,   624,   U,     U,     1555,  400),
    Peak("A100 SXM4 80 GB", "20b2", _A100,
         9.7,   19.5,  19.5,  156,   312,   624,   U,     U,     2039,  400),
    Peak("A800 PCIe 80 GB", "20f5", _A800,
         9.7,   19.5,  19.5,  156,   312,   624,   U,     U,     1935,  300),
    Peak("A800 SXM4 40 GB", "20bd", _A800,
         9.7,   19.5,  19.5,  156,   312,   624,   U,     U,     1555,  400),
    Peak("A800 SXM4 80 GB", "20f3", _A800,
         9.7,   19.5,  19.5,  156,   312,   624,   U,     U,     2039,  400),
    Peak("RTX 3090", "2204", "NVIDIA Ampere GA102 white paper, 2020",
         .56,   U,     35.6,  35.6,  71,    284,   U,     U,     936,   350),
    Peak("RTX 4090", "2684", "NVIDIA Ada white paper, 2022",
         1.29,  U,     82.6,  82.6,  165,   661,   330,   U,     1008,  450),
    Peak("RTX 6000 Ada", "26b1", "NVIDIA RTX 6000 Ada datasheet, 2022",
         1.4,   U,     91.1,  182,   364,   728,   728,   U,     960,   300),
    Peak("L4", "27b8", "NVIDIA L4 datasheet, 2023",
         .47,   U,     30.3,  60,    121,   242,   242,   U,     300,   75),
    Peak("L40", "26b5", "NVIDIA L40 datasheet, 2022",
         1.41,  U,     90.5,  90.5,  181,   362,   362,   U,     864,   300),
    Peak("L40S", "26b9", "NVIDIA L40S datasheet, 2023",
         1.43,  U,     91.6,  183,   362,   733,   733,   U,     864,   350),
    Peak("H100 PCIe", "2331", _H100,
         26,    51,    51,    378,   756,   1513,  1513,  U,     2000,  350),
    Peak("H100 SXM", "2330", _H100,
         34,    67,    67,    494,   989,   1979,  1979,  U,     3350,  700),
    Peak("H100 NVL", "2321", _H100,
         30,    60,    60,    418,   835,   1671,  1671,  U,     3900,  400),
    Peak("H200 SXM", "2335", _H200,
         34,    67,    67,    494,   989,   1979,  1979,  U,     4800,  700),
    Peak("H200 NVL", "233b", _H200,
         30,    60,    60,    418,   835,   1671,  1671,  U,     4800,  600),
    Peak("GH200 96 GB", "2342", _GH200,
         34,    67,    67,    494,   989,   1979,  1979,  U,     4000,  900),
    Peak("GH200 144 GB", "2348", _GH200,
         34,    67,    67,    494,   989,   1979,  1979,  U,     4900,  900),
    Peak("H800 SXM", "2324", "NVIDIA H800 datasheet, 2023: an H100 with less float64",
         U,     U,     67,    494,   989,   1979,  1979,  U,     3350,  700),
    Peak("H20 96 GB", "2329", _H20,
         1,     U,     44,    74,    148,   296,   296,   U,     4000,  U),
    Peak("H20 141 GB", "232c", _H20,
         1,     U,     44,    74,    148,   296,   296,   U,     4800,  U),
    Peak("B200", "2901", "NVIDIA DGX B200 datasheet, 2024",
         37,    37,    75,    1125,  2250,  4500,  4500,  9000,  8000,  1000),
    Peak("GB200", "2941", "NVIDIA GB200 NVL72 specifications, 2024, per GPU",
         40,    40,    80,    1250,  2500,  5000,  5000,  10000, 8000,  1200),
    # Sources disagree on the rest: fp32 75 or 80, fp4 12600 to 15000, int8 188 to 4500.
    Peak("B300", "3182", "NVIDIA HGX B300 specifications, 2025, per GPU",
         1.25,  U,     U,     1125,  2250,  U,     4500,  U,     8000,  U),
    Peak("GB300", "31c2 31c3", "NVIDIA GB300 NVL72 specifications, 2025, per GPU",
         U,     U,     80,    1250,  2500,  U,     5000,  U,     8000,  U),
    Peak("RTX 5090", "2b85", "NVIDIA RTX Blackwell white paper, 2025",
         1.64,  U,     105,   105,   209.5, 838,   419,   1676,  1792,  575),
    Peak("RTX PRO 6000", "2bb1", "NVIDIA RTX PRO 6000 Workstation Edition datasheet, 2025",
         1.97,  U,     125,   252,   504,   1007,  1007,  2015,  1792,  600),
)
# fmt: on

_BY_ID: dict[str, tuple[Peak, ...]] = {}
for _peak in PEAKS:
    for _id in _peak.pci_device_ids.split():
        _BY_ID[_id] = (*_BY_ID.get(_id, ()), _peak)

DATASHEET = "datasheet dense"
AT_MAXIMUM_CLOCK = "formula at the maximum clock"
AT_LIVE_CLOCK = "formula at the live clock"


class Rates(NamedTuple):
    """Operations per clock and SM, without sparsity; the fields match those of `Peak`."""

    fp64: int
    fp32: int
    tf32: int | None = None
    fp16: int | None = None
    int8: int | None = None
    fp8: int | None = None
    fp4: int | None = None
    fp64_tensor: int | None = None


RATES = {
    "3.7": Rates(128, 384),
    "5.0": Rates(8, 256),
    "5.2": Rates(8, 256),
    "6.0": Rates(64, 128, fp16=256),
    "6.1": Rates(8, 256, int8=1024),
    "7.0": Rates(64, 128, fp16=1024),
    "7.5": Rates(4, 128, fp16=1024, int8=2048),
    "8.0": Rates(64, 128, 1024, 2048, 4096, fp64_tensor=128),
    "8.6": Rates(4, 256, 512, 1024, 2048),
    "8.9": Rates(4, 256, 512, 1024, 2048, 2048),
    "9.0": Rates(128, 256, 2048, 4096, 8192, 8192, fp64_tensor=256),
    "10.0": Rates(128, 256, 4096, 8192, 16384, 16384, 32768, fp64_tensor=128),
    "12.0": Rates(4, 256, 512, 1024, 2048, 2048, 4096),
}
"""Rates by compute capability; others are unknown. From the throughput table of the CUDA
programming guide and, for tensor cores, from the architecture white papers."""

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

_TENSOR = frozenset({"tf32", "bf16", "fp16", "fp16_accumulate", "int8", "fp8", "fp4"})
_HALVED = {
    r"\bGeForce\b": frozenset({"tf32", "bf16", "fp16", "fp8"}),
    # Their datasheets halve int8, too: nothing says what float16 accumulate does.
    r"\b(L40|A10G)\b": frozenset({"tf32", "bf16", "fp16", "int8", "fp8"}),
}
"""Types at half the rate by name: on GeForce only with float32 accumulate."""
_UNPUBLISHED = {
    r"\bCMP\b": _TENSOR | {"fp64", "fp32"},
    r"\bH20\b": _TENSOR | {"fp64"},
    r"\bH800\b": frozenset({"fp64"}),
    r"\b(L2|L20|L40G|5090 D|6000D)\b": _TENSOR,
    r"\b(L40|A10G)\b": frozenset({"fp16_accumulate"}),
    r"\bMX\d+\b": _TENSOR,
}
"""Types that were cut by an unpublished factor, by name."""
_TURING_WITH_TENSOR_CORES = r"\b(RTX|T4|T4G|T10|T40)\b"


def by_formula(
    compute_capability: str | None,
    sm_count: int | None,
    clock_mhz: float | None,
    dtype: str,
    *,
    name: str | None,
) -> float | None:
    """Return dense TFLOP/s as SMs × operations per clock × clock, or None if one is unknown.

    The name tells what a chip can do and the product cannot: GeForce has half the rate with float32
    accumulate, and so have the L40 and the A10G.
    """
    field, rates = _field(dtype), RATES.get(compute_capability or "")
    if field is None or rates is None or field in _unpublished(compute_capability, name):
        return None
    operations = _of(rates, field)
    if operations is None or sm_count is None or sm_count <= 0 or clock_mhz is None:
        return None
    if field in _matching(_HALVED, name):
        operations /= 2
    return _positive(sm_count * operations * clock_mhz / 1e6)


def denominators(
    device: Device | None, dtype: str, clock_mhz_live: float | None = None
) -> Mapping[str, float]:
    """Return the known peaks in TFLOP/s by name; none for a CPU.

    A CPU's cores, clock and vector units are not known well enough. The live clock is the mean of
    the run. A MIG instance has no datasheet, and the share of a vGPU is unknown.
    """
    if device is None or device.virtualization == "vgpu":
        return {}
    name = None if "name" in device.absent else device.name

    def at(clock_mhz: float | None) -> float | None:
        return by_formula(device.compute_capability, device.sm_count, clock_mhz, dtype, name=name)

    found = {
        DATASHEET: _datasheet(device, dtype),
        AT_MAXIMUM_CLOCK: at(device.sm_clock_max_mhz),
        AT_LIVE_CLOCK: at(clock_mhz_live),
    }
    return {denominator: peak for denominator, peak in found.items() if peak is not None}


def memory_bytes_per_second(device: Device | None) -> float | None:
    """Return the datasheet's memory bandwidth, or None if unknown."""
    peak = _row(device)
    if peak is None or peak.memory_gigabytes_per_second is None:
        return None
    return peak.memory_gigabytes_per_second * 1e9


def percent_of_peak(tflops: float | None, peaks: Mapping[str, float]) -> dict[str, float]:
    """Return percentages by denominator for `Conditions.percent_of_peak`; above 100 as is."""
    if tflops is None or not math.isfinite(tflops):
        return {}
    return {name: 100 * tflops / peak for name, peak in peaks.items() if _positive(peak)}


def percent_lines(
    tflops: float | None, percent: Mapping[str, float], dtype: str
) -> tuple[str, ...]:
    """Return a line per denominator: `78 % of 989 TFLOP/s (datasheet dense)`.

    Without any there is one line that says so.
    """
    unit = "TOP/s" if _field(dtype) == "int8" else "TFLOP/s"
    lines = tuple(
        f"{_digits(share)} % of {text.tflops(tflops / share * 100)} {unit} ({name})"
        for name, share in percent.items()
        if tflops is not None and _positive(share)
    )
    return lines or ("no peak is known to compare with",)


def _row(device: Device | None) -> Peak | None:
    """Return the datasheet of a whole GPU."""
    if device is None or device.virtualization == "vgpu" or device.mig_index is not None:
        return None
    return find_peak(device.pci_device_id, device.name)


def _datasheet(device: Device, dtype: str) -> float | None:
    field, peak = _field(dtype), _row(device)
    if field is None or peak is None:
        return None
    value = _of(peak, field)
    if field != "fp16_accumulate" or value is None:
        return value
    if field in _unpublished(device.compute_capability, device.name):
        return None
    return value * (2 if "fp16" in _matching(_HALVED, device.name) else 1)


def _field(dtype: str) -> str | None:
    return next((field for form, field in _FIELDS.items() if re.fullmatch(form, dtype)), None)


def _of(figures: Peak | Rates, field: str) -> float | None:
    """Return the figure of a field. float64 uses tensor cores if possible."""
    match field:
        case "fp64":
            return figures.fp64 if figures.fp64_tensor is None else figures.fp64_tensor
        case "bf16":
            return None if figures.tf32 is None else figures.fp16
        case "fp16_accumulate":
            return figures.fp16
    value: float | None = getattr(figures, field)
    return value


def _matching(rules: Mapping[str, frozenset[str]], name: str | None) -> frozenset[str]:
    """Return the fields of all rules that match a name."""
    found = (fields for form, fields in rules.items() if re.search(form, name or ""))
    return frozenset[str]().union(*found)


def _unpublished(compute_capability: str | None, name: str | None) -> frozenset[str]:
    """Return the fields that are unknown, whatever the compute capability says."""
    found = _matching(_UNPUBLISHED, name)
    if compute_capability == "7.5" and not re.search(_TURING_WITH_TENSOR_CORES, name or ""):
        found |= _TENSOR
    return found if name else _TENSOR


def _digits(share: float) -> str:
    return text.percentage(share, "") if share >= 9.95 else text.number(share)


def _positive(value: float) -> float | None:
    return value if math.isfinite(value) and value > 0 else None
