"""Pages of results: the tables of each kind, figures, conditions, and several devices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gputop.bench.events import Conditions, Point, Result
from gputop.bench.plan.peaks import AT_LIVE_CLOCK, DATASHEET
from gputop.bench.results.measures import best_row, best_row_text
from gputop.bench.results.page import Sentence, condition_facts, figure_facts, result_page
from gputop.bench.results.tables import table as table_of
from gputop.bench.results.verdict import with_verdicts
from gputop.output.result_pages import page_text
from tests.bench.kept import BASE, table
from tests.bench.pages import result_text
from tests.bench.workers import RESULT


def product(series: str, n: int, tflops: float, seconds: float, m: int | None = None) -> Point:
    return Point(series, n, {"tflops": tflops, "seconds": seconds}, (m or n, n, n))


SWEEP = (
    product("float64", 1, 2e-3, 1.05e-6),
    product("float32", 1024, 0.2, 0.0107),
    product("float32", 1, 3e-3, 1e-6),
)
PEAK = (
    product("B row-major", 256, 3.0, 1e-5),
    product("B column-major", 384, 4.0, 1e-5),
    product("B column-major, confirmed", 512, 3.9, 1e-5, 640),
    product("B column-major, zeros", 512, 9.0, 1e-5, 640),
)
COPY = (
    Point("1 thread", 1 << 20, {"bytes_per_second": 5.5e10, "seconds": 4e-5}),
    Point("2 threads", 1 << 20, {"bytes_per_second": 1.1e11, "seconds": 2e-5}),
    Point("1 thread", 1 << 26, {"bytes_per_second": 2.34e10, "seconds": 5e-3}),
)
STEPS = {"tflops": 0.1, "tokens_per_second": 19188.2, "seconds": 0.0133}
STEP = (
    Point("7B", 4096, STEPS),
    Point("70B", 4096, STEPS | {"percent_of_peak": 45.25}),
)
MEMORY = (Point("walking ones", 1 << 30, {"bytes_per_second": 1.5e12, "passes": 2.0}),)
REDUCED = {"bytes_per_second": 4e9, "seconds": 5e-5, "p99_seconds": 9e-5, "wrong": 0.0}
COLLECTIVE = (
    Point("all-reduce", 1 << 10, REDUCED),
    Point("all-gather", 1 << 10, REDUCED),
    Point("all-reduce", 1 << 12, REDUCED),
)

TABLES: dict[str, tuple[Any, ...]] = {
    "sweep": (
        SWEEP,
        ["N", "float64, TFLOP/s", "float32, TFLOP/s", "float64, time", "float32, time"],
        ["1", "2.00G", "3.00G", "1.05 µs", "1 µs"],
        ["1024", "–", "0.200", "–", "10.7 ms"],
    ),
    "peak": (
        PEAK,
        ["shape", "TFLOP/s", "time"],
        ["B column-major, confirmed, 640×512×512", "3.90", "10 µs"],
        ["B column-major, zeros, 640×512×512", "9.00", "10 µs"],
        ["B column-major, 384", "4.00", "10 µs"],
        ["B row-major, 256", "3.00", "10 µs"],
    ),
    "copy": (
        COPY,
        ["GB/s", "1 thread", "2 threads"],
        ["1.00 MiB", "55.0", "110"],
        ["64.0 MiB", "23.4", "–"],
    ),
    "step": (
        STEP,
        ["training step", "TFLOP/s", "tokens/s", "of peak", "time"],
        ["7B", "0.100", "19,188", "–", "13.3 ms"],
        ["70B", "0.100", "19,188", "45.2 %", "13.3 ms"],
    ),
    "memory": (MEMORY, ["pattern", "GB/s", "passes"], ["walking ones", "1500", "2.0"]),
    "collective": (
        COLLECTIVE,
        ["operation", "bus GB/s", "mean", "p99", "wrong"],
        ["all-reduce, 1.00 KiB", "4.00", "50 µs", "90 µs", "0"],
        ["all-reduce, 4.00 KiB", "4.00", "50 µs", "90 µs", "0"],
        ["all-gather, 1.00 KiB", "4.00", "50 µs", "90 µs", "0"],
    ),
}


@pytest.mark.parametrize("kind", TABLES)
def test_the_table_of_a_kind(kind: str) -> None:
    points, *expected = TABLES[kind]
    assert table_of(kind, points).lines == expected


def test_the_best_of_each_column_is_marked() -> None:
    assert table_of("copy", COPY).best == {(1, 1)}
    assert table_of("peak", PEAK).best == {(1, 1)}, "zeros are no speed of a device"
    assert best_row(PEAK) is PEAK[2]
    assert table_of("memory", MEMORY).best == frozenset()
    many = tuple(product("B row-major", 64 * n, 1.0, 1e-5) for n in range(1, 100))
    assert len(table_of("peak", many).lines) == 11, "the fastest shapes"
    larger = (replace(COPY[0], x=1 << 30, values={"bytes_per_second": 23e9}), *COPY[:1])
    assert best_row_text(table("copy", larger)) == "1 thread: 23.0 GB/s", "of the largest size"


def test_the_scatter_is_a_column_and_marks_what_it_spoils() -> None:
    points = []
    for series, n, spread in (("float32", 64, 0.4), ("float64", 64, 1.2), ("float32", 128, 7.5)):
        point = product(series, n, 0.1, 1e-3)
        points.append(replace(point, values={**point.values, "spread_percent": spread}))
    found = table_of("sweep", points)
    assert [line[-1] for line in found.lines] == ["±", "1.2 %", "7.5 %"]
    assert found.spoiled == {(2, 1), (2, 3), (2, 5)}, "the row, and the largest of the line"
    assert found.transposed().spoiled == {(1, 2), (3, 2), (5, 2)}


def of(kind: str, points: tuple[Point, ...], **fields: Any) -> Result:
    return replace(RESULT, kind=kind, points=points, **fields)


def test_the_text_begins_with_the_sentence_and_details_are_optional() -> None:
    (judged,) = with_verdicts([BASE])
    page = result_page(judged)
    assert page[0] == Sentence(judged.verdict.summary if judged.verdict else "", "good")
    short, long = page_text(page), page_text(page, details=True)
    assert short.splitlines()[1:3] == ["", "NVIDIA H200, soak, bfloat16, 8192"]
    for detail in ("method ", "software ", "not judged: 0 runs like it before"):
        assert detail not in short
        assert detail in long
    assert short.splitlines()[-1].startswith("Verdict: ok (")


def test_figures_have_one_format() -> None:
    cpu = replace(
        RESULT, tflops_mean=0.0312, tflops_peak=0.0413, tflops_mean_interval=(0.03, 0.032)
    )
    facts = dict(figure_facts(cpu))
    assert facts["mean"] == "31.2 GFLOP/s over 5.0 s, ± 3.2 %"
    assert facts["peak"] == "41.3 GFLOP/s in the best window"
    assert facts["products"] == "420, time was up"
    facts = dict(figure_facts(replace(BASE, iterations=25_811)))
    assert facts["products"] == "25,811, time was up"


def test_a_table_has_its_best_row_its_notes_and_how_it_ended() -> None:
    text = result_text(
        of(
            "sweep",
            SWEEP,
            notes=("int8: this torch has none", "the time was up"),
            stopped="limit",
        )
    )
    assert text.count("note ") == 2
    assert "ended by the temperature limit" in text
    assert "best       0.200 TFLOP/s at 1024" in text
    steps = result_text(of("step", STEP, m=0, n=0, k=0, tflops_peak=0.1))
    assert "best       0.100 TFLOP/s at 7B" in steps
    assert "420, 2 rows" in steps
    assert "TFLOP/s" not in result_text(of("copy", COPY, tflops_mean=None, tflops_peak=None))


def test_each_peak_has_a_line() -> None:
    known = Conditions(percent_of_peak={DATASHEET: 70.78, AT_LIVE_CLOCK: 93.4})
    ran: dict[str, Any] = {"device_uuid": "GPU-1", "dtype": "bfloat16", "tflops_mean": 700.0}
    said = result_text(replace(RESULT, conditions=known, **ran))
    assert "of peak    71 % of 989 TFLOP/s (datasheet dense)" in said
    assert "of peak    93 % of 749 TFLOP/s (formula at the live clock)" in said
    assert "no peak is known to compare with" in result_text(replace(RESULT, device_uuid="GPU-1"))
    assert "of peak" not in result_text(RESULT)
    known = Conditions(percent_of_peak={"datasheet memory bandwidth": 91.6})
    copies = of("copy", COPY, tflops_mean=None, tflops_peak=None, device_uuid="GPU-1")
    assert "of peak    92 % of datasheet memory bandwidth" in result_text(
        replace(copies, conditions=known)
    )


FULL = Conditions(
    driver_version="580.65.06",
    pci_device_id="2330",
    power_watts_mean=655.4,
    power_limit_watts=700.0,
    sm_clock_mhz_mean=1755.2,
    sm_clock_max_mhz=1980.0,
    temperature_celsius_max=71.0,
    heat_limit="84°C (slowdown at 87°C)\x1b",
    energy_joules=40_800.0,
    tflop_per_joule=1.0294,
    clock_event_seconds={"sw_thermal": 6.0, "sw_power_cap": 54.0, "bit_0x1\x1b": 0.5},
)


def test_conditions_that_are_known() -> None:
    assert list(condition_facts(FULL)) == [
        ("power", "655 W on average, 94 % of the limit of 700 W"),
        ("energy", "40.8 kJ by the device's counter, 1.03 TFLOP/J"),
        ("clock", "1755 MHz on average, maximum 1980 MHz"),
        ("heat", "up to 71°C"),
        ("heat limit", "84°C (slowdown at 87°C)\x1b"),
        ("held back", "power cap 54.0 s, software thermal slowdown 6.0 s, bit_0x1\x1b 500 ms"),
        ("driver", "580.65.06"),
    ]
    assert "\x1b" not in result_text(replace(RESULT, conditions=FULL))
    assert list(condition_facts(Conditions())) == []
    assert list(condition_facts(Conditions(power_watts_mean=70.0, energy_joules=700.0))) == [
        ("power", "70 W on average"),
        ("energy", "700 J by the device's counter"),
    ]
