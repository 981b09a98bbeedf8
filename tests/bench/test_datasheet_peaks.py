import dataclasses
import math
from typing import Any

import pytest

from gputop.agent.device import Device
from gputop.bench.plan.peaks import (
    AT_LIVE_CLOCK,
    AT_MAXIMUM_CLOCK,
    DATASHEET,
    PEAKS,
    Peak,
    by_formula,
    denominators,
    find_peak,
    memory_bytes_per_second,
    percent_lines,
    percent_of_peak,
)
from tests.bench.chips import CHIPS, Chip

DTYPES = {
    "fp64": "float64",
    "fp32": "float32",
    "tf32": "tf32",
    "fp16": "float16",
    "int8": "int8",
    "fp8": "float8_e4m3fn",
    "fp4": "float4_e2m1fn_x2",
}
"""The fields of a row, and a data type for each."""


TENSOR = frozenset({"tf32", "fp16", "int8", "fp8"})
DIFFERS = {
    # The figure is for float16 accumulate, and products with float32 are slower.
    **dict.fromkeys(("P100 PCIe 12 GB", "P100 PCIe 16 GB", "P100 SXM2"), frozenset({"fp16"})),
    # The figures are those of tensor cores at 1545 MHz, others those of the maximum of 1785.
    **dict.fromkeys(("H100 NVL", "H200 NVL"), TENSOR),
    # Cut for export, and 44 TFLOP/s of fp32 would take 2.2 GHz. Its maximum is 1.98 GHz.
    **dict.fromkeys(("H20 96 GB", "H20 141 GB"), TENSOR | {"fp64", "fp32"}),
    # Capability 10.3 cut fp64 and int8: what its SM does is not published for every type.
    "B300": {"fp64", "tf32", "fp16", "fp8"},
    "GB300": {"fp32", "tf32", "fp16", "fp8"},
}
"""Figures from which SMs × clock × operations is off by more than a tenth, by GPU."""


def computed(chip: Chip, dtype: str) -> float | None:
    return by_formula(chip.capability, chip.sms, chip.boost, dtype, name=chip.name)


def named(name: str) -> Device:
    chip, peak = CHIPS[name], next(peak for peak in PEAKS if peak.name == name)
    return Device(
        index=0,
        uuid="GPU-0",
        name=chip.name,
        pci_device_id=peak.pci_device_ids.split()[0],
        compute_capability=chip.capability,
        sm_count=chip.sms,
        sm_clock_max_mhz=chip.boost,
    )


@pytest.mark.parametrize("peak", PEAKS, ids=lambda peak: peak.name)
def test_a_row_has_a_source_is_found_and_agrees_with_the_formula(peak: Peak) -> None:
    assert any(f", {year}" in peak.source for year in range(2014, 2027))
    figures = {field: getattr(peak, field) for field in DTYPES}
    figures["fp64"] = peak.fp64_tensor or peak.fp64  # that a product reaches
    known = {field: value for field, value in figures.items() if value is not None}
    assert {"fp32", "fp16"} & set(known)
    assert all(value > 0 for value in known.values())
    for pci_device_id in peak.pci_device_ids.split():
        assert len(pci_device_id) == 4
        assert find_peak(pci_device_id.upper(), CHIPS[peak.name].name) is peak
    differs = set()
    for field, figure in known.items():
        value = computed(CHIPS[peak.name], DTYPES[field])
        if value is None or abs(value / figure - 1) > 0.1:
            differs.add(field)
    assert differs == DIFFERS.get(peak.name, set())


def test_one_id_with_two_products_is_told_by_the_name() -> None:
    found = [find_peak("25b6", name) for name in ("NVIDIA A2", "NVIDIA A16", "NVIDIA A20", None)]
    assert [peak and peak.name for peak in found] == ["A2", "A16", None, None]


@pytest.mark.parametrize(
    ("name", "dtype", "tflops"),
    [
        ("A100 SXM4 80 GB", "float16 with float16 accumulate", 311.9),
        ("RTX 4090", "bfloat16", 165.2),  # half, with float32 accumulate
        ("L40", "float16_accumulate", None),
        ("V100 SXM2", "bfloat16", None),
        ("Tesla P40", "float16", None),
        ("H20 96 GB", "float16", None),
        ("H800 SXM", "float64", None),
    ],
)
def test_the_formula(name: str, dtype: str, tflops: float | None) -> None:
    assert computed(CHIPS[name], dtype) == (tflops and pytest.approx(tflops, abs=0.05))


@pytest.mark.parametrize(
    ("name", "capability", "sms", "clock", "tflops"),
    [
        ("GTX 750 Ti", "5.0", 5, 1085, [0.0434, 1.39, None, None, None, None, None]),
        ("Orin", "8.7", 16, 1300, [None, 5.3, 21.3, 42.6, 85, None, None]),
        ("Thor", "11.0", 20, 1570, [None, 8.0, 129, 257, None, 515, 1035]),
        ("GB10", "12.1", 48, 2520, [None, 31, 62, 124, 248, 248, 500]),
    ],
)
def test_the_formula_for_chips_without_a_row(
    name: str, capability: str, sms: int, clock: int, tflops: list[float | None]
) -> None:
    found = [by_formula(capability, sms, clock, each, name=name) for each in DTYPES.values()]
    assert found == [each and pytest.approx(each, rel=0.01) for each in tflops]


H100 = named("H100 SXM")
AT_MOST = pytest.approx(1070.5, abs=0.05)
PART: dict[str, Any] = {"name": f"{H100.name} MIG 1g.10gb", "mig_index": 0, "sm_count": 16}


@pytest.mark.parametrize(
    ("changes", "clock", "expected"),
    [
        (
            {},
            1400.0,
            {DATASHEET: 989, AT_MAXIMUM_CLOCK: AT_MOST, AT_LIVE_CLOCK: pytest.approx(757, abs=0.2)},
        ),
        ({}, None, {DATASHEET: 989, AT_MAXIMUM_CLOCK: AT_MOST}),
        ({"sm_clock_max_mhz": None, "sm_count": None}, 1500.0, {DATASHEET: 989}),
        ({"pci_device_id": "1234"}, None, {AT_MAXIMUM_CLOCK: AT_MOST}),
        (PART, None, {AT_MAXIMUM_CLOCK: pytest.approx(1070.5 * 16 / 132, abs=0.05)}),
        ({"virtualization": "vgpu"}, 1500.0, {}),
        ({"virtualization": "passthrough"}, None, {DATASHEET: 989, AT_MAXIMUM_CLOCK: AT_MOST}),
    ],
)
def test_the_denominators_have_names_and_what_is_not_known_is_left_out(
    changes: dict[str, Any], clock: float | None, expected: dict[str, Any]
) -> None:
    assert denominators(dataclasses.replace(H100, **changes), "bfloat16", clock) == expected


def test_the_datasheets_that_halve_float16_do_not_halve_float16_sums() -> None:
    halved = denominators(named("RTX 4090"), "float16")[DATASHEET]
    assert denominators(named("RTX 4090"), "float16_acc16")[DATASHEET] == 2 * halved
    assert denominators(H100, "float16_acc16")[DATASHEET] == 989
    assert denominators(named("L40"), "float16_acc16") == {}
    assert denominators(H100, "fp4", 1500.0) == denominators(H100, "complex64", 1500.0) == {}


def test_the_bandwidth_of_a_whole_gpu() -> None:
    assert memory_bytes_per_second(H100) == 3.35e12
    for changes in (PART, {"pci_device_id": None}, {"virtualization": "vgpu"}):
        assert memory_bytes_per_second(dataclasses.replace(H100, **changes)) is None
    assert memory_bytes_per_second(None) is None


def test_percentages_and_their_words() -> None:
    percent = percent_of_peak(771.4, {DATASHEET: 989.0, AT_LIVE_CLOCK: 756.9})
    assert percent == pytest.approx({DATASHEET: 78.0, AT_LIVE_CLOCK: 101.9}, abs=0.05)
    assert percent_lines(9.94, {DATASHEET: 9.94}, "int8") == (
        "9.94 % of 100 TOP/s (datasheet dense)",
    )
    assert percent_lines(771.4, percent, "bfloat16") == (
        "78 % of 989 TFLOP/s (datasheet dense)",
        "102 % of 757 TFLOP/s (formula at the live clock)",
    )


def test_nothing_known_is_said() -> None:
    unknown = ("no peak is known to compare with",)
    for tflops in (None, math.nan, math.inf, 0.0, 500.0):
        assert percent_lines(tflops, percent_of_peak(tflops, {}), "float32") == unknown
    assert percent_of_peak(None, {DATASHEET: 989.0}) == {}
    assert percent_lines(None, {DATASHEET: 78.0}, "float32") == unknown
