"""What a table is judged by: copies by direction, sweeps by data type, and the scatter of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gputop.bench.events import Point, Result
from gputop.bench.results.page import figure_facts
from gputop.bench.results.verdict import judge
from tests.bench.kept import BASE, CONDITIONS

if TYPE_CHECKING:
    from gputop.bench.events import VerdictPart


def copies(**rates: float) -> Result:
    """A run of copies, in GB/s by series."""
    points = tuple(
        Point(name.replace("_", " "), 1 << 30, {"bytes_per_second": 1e9 * rate, "seconds": 1.0})
        for name, rate in rates.items()
    )
    return replace(BASE, kind="copy", points=points, tflops_mean=None, tflops_peak=None)


def part(result: Result, others: list[Result], name: str) -> VerdictPart:
    return next(each for each in judge(result, others).parts if each.name == name)


def test_copies_are_judged_by_direction_and_pageable_memory_is_not() -> None:
    fine = copies(device=4000, host_to_device_pinned=55, host_to_device_pageable=12)
    assert part(copies(device=4000, host_to_device_pinned=55, host_to_device_pageable=3),
                [fine, fine], "like devices").state == "ok"  # fmt: skip
    slow = part(copies(device=4000, host_to_device_pinned=27, host_to_device_pageable=12),
                [fine, fine], "like devices")  # fmt: skip
    assert slow.state == "degraded"
    assert slow.why.startswith("host to device pinned 50.9 % under")


UNCAPPED: dict[str, Any] = {"power_watts_mean": 450.0, "clock_event_seconds": {}}


def sweep(peaks: dict[str, float], conditions: dict[str, Any] = UNCAPPED, **rates: float) -> Result:
    """A sweep of two types, each with a small and a large size."""
    points = tuple(
        Point(name, n, {"tflops": rate * n / 8192, "seconds": 1.0}, (n, n, n))
        for name, rate in rates.items()
        for n in (1024, 8192)
    )
    known = replace(CONDITIONS, percent_of_peak=peaks, **conditions)
    return replace(BASE, kind="sweep", dtype=",".join(rates), points=points, conditions=known)


def test_a_sweep_is_judged_by_data_type() -> None:
    peaks = {"datasheet dense float32": 90.0, "datasheet dense bfloat16": 30.0}
    fine = sweep(peaks, float32=50.0, bfloat16=780.0)
    slow = sweep(peaks, float32=30.0, bfloat16=780.0)
    found = part(slow, [fine, fine], "like devices")
    assert found.state == "degraded"
    assert found.why.startswith("float32 40.0 % under"), "though bfloat16 is faster than both"
    sheet = part(slow, [], "datasheet")
    assert sheet.state == "degraded"
    assert sheet.why.startswith("float32 90.0 %, bfloat16 30.0 % of the dense peak")
    assert [text for name, text in figure_facts(slow) if name == "of peak"] == [
        "float32: 90 % of 33.3 TFLOP/s (datasheet dense)",
        "bfloat16: 30 % of 2600 TFLOP/s (datasheet dense)",
    ]


def test_a_sweep_with_rows_at_the_power_limit_is_not_judged_by_its_mean_clock() -> None:
    of_datasheet = {"datasheet dense float32": 90.0, "datasheet dense float16": 36.0}
    at_live_clock = {"formula at the live clock float32": 95.0}
    capped: dict[str, Any] = {
        "power_watts_mean": 48.0,
        "power_limit_watts": 70.0,
        "clock_event_seconds": {"sw_power_cap": 9.0},
    }

    def judged(float16: float) -> VerdictPart:
        live = at_live_clock | {"formula at the live clock float16": float16}
        return part(sweep(of_datasheet | live, capped, float32=7.0, float16=24.0), [], "datasheet")

    assert judged(64.0).state == "ok"
    found = judged(45.0)
    assert found.state == "not judged"
    assert found.why.endswith("holds it back, and its clock differs from row to row: try soak")


def test_a_search_is_judged_with_the_scatter_of_the_others() -> None:
    def peak(rate: float, spread: float) -> Result:
        values = {"tflops": rate, "seconds": 1.0, "spread_percent": spread}
        points = (Point("B column-major, confirmed", 8192, values, (8192,) * 3),)
        return replace(BASE, kind="peak", points=points, tflops_peak=rate)

    fine = peak(780.0, 0.2)
    assert part(peak(690.0, 0.2), [fine, fine], "like devices").state == "degraded"
    assert part(peak(690.0, 4.0), [fine, fine], "like devices").state == "degraded"
    noisy = peak(780.0, 4.0)
    assert part(peak(690.0, 0.2), [noisy, noisy], "like devices").state == "ok"
    said = dict(figure_facts(fine))["best"]
    assert said == "780 TFLOP/s at 8192, ± 0.2 %"
