from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputop.bench.events import Comparison, Conditions, Point, Result
from gputop.bench.plan.peaks import AT_LIVE_CLOCK, DATASHEET
from gputop.bench.results.measures import best_row, best_row_text
from gputop.bench.results.page import (
    Facts,
    condition_facts,
    device_blocks,
    figure_facts,
    result_page,
)
from gputop.bench.results.tables import table as table_of
from gputop.bench.results.verdict import with_verdicts
from gputop.output.result_pages import page_text
from tests.bench.kept import BASE, table
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

TABLES = {
    "sweep": SWEEP,
    "peak": PEAK,
    "copy": COPY,
    "step": STEP,
    "memory": MEMORY,
    "collective": COLLECTIVE,
}


def test_the_tables_of_all_kinds() -> None:
    text = ""
    for kind, points in TABLES.items():
        lines = table_of(kind, points).lines
        text += f"{kind}\n" + "".join("  ".join(line) + "\n" for line in lines)
    assert text == Path(__file__).with_name("tables.txt").read_text()


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


def result_text(result: Result) -> str:
    return page_text(result_page(result), details=True)


def of(kind: str, points: tuple[Point, ...], **fields: Any) -> Result:
    return replace(RESULT, kind=kind, points=points, **fields)


FULL = replace(
    BASE,
    tflops_mean_interval=(774.0, 786.0),
    tflops_sustained=760.0,
    tflops_burst=810.0,
    droop_percent=6.2,
    droop_interval_percent=(5.1, 7.3),
    time_to_steady_seconds=1.5,
    iterations=25_811,
    verified_products=8_000,
    mismatches={"other bits": 2, "of later": 1},
    notes=("\x1b[2Ja note",),
    unset=("OMP_NUM_THREADS",),
    cublas_version="13.1.0",
    bound_to="CPUs 0-7",
    cuda_version="13.0",
    comparison=Comparison(0.4, None, 10),
    conditions=Conditions(
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
        memory_errors={"ecc_corrected": (0.0, 3.0)},
        percent_of_peak={DATASHEET: 78.1, AT_LIVE_CLOCK: 99.0},
        other_load=("9 (ada: train)",),
    ),
)


def test_the_whole_page_of_a_run() -> None:
    expected = Path(__file__).with_name("page.txt").read_text()
    (judged,) = with_verdicts([FULL])
    page = result_page(judged)
    assert page_text(page, details=True) + "\n" == expected
    short = page_text(page)
    assert set(short.splitlines()) < set(expected.splitlines())
    assert "Method" not in short


DROOPED: dict[str, Any] = {"tflops_sustained": 0.25, "droop_percent": 15.2}
EVEN: dict[str, Any] = DROOPED | {"droop_percent": 0.0, "droop_interval_percent": (-5.0, 5.0)}
ROWS: dict[str, Any] = {"kind": "sweep", "points": SWEEP}


@pytest.mark.parametrize(
    ("changes", "name", "text"),
    [
        ({"tflops_mean": 0.0312}, "mean", "31.2 GFLOP/s over 5.0 s"),
        (DROOPED, "sustained", "0.250 TFLOP/s, 15.2 % below the peak"),
        (EVEN, "sustained", "0.250 TFLOP/s, no droop beyond the noise"),
        (DROOPED, "steady", "not within this run"),
        ({}, "products", "420, time was up"),
        ({"stopped": "limit"}, "products", "420, ended by the temperature limit"),
        (ROWS, "best", "0.200 TFLOP/s at 1024"),
        (ROWS | {"m": 0, "n": 0, "k": 0}, "best", "0.200 TFLOP/s at float32"),
        (ROWS, "products", "420, 3 rows"),
        ({"verified_products": 420}, "verified", "all 420 of 420 products (100.0 %), no wrong ele"),
        ({"wrong_elements": 3}, "verified", "6 checks, 3 wrong elements"),
    ],
)
def test_figures_have_one_format(changes: dict[str, Any], name: str, text: str) -> None:
    assert dict(figure_facts(replace(RESULT, **changes)))[name].startswith(text)


def test_a_table_has_its_notes_and_no_throughput() -> None:
    text = result_text(of("sweep", SWEEP, notes=("int8: this torch has none", "the time was up")))
    assert text.count("note ") == 2
    of_several, *_ = device_blocks("GPU 1", replace(RESULT, notes=("a note",)))
    assert of_several == Facts("", [("GPU 1", "a note")])
    assert "TFLOP/s" not in result_text(of("copy", COPY, tflops_mean=None, tflops_peak=None))


def test_copies_have_their_share_of_the_bandwidth_and_a_cpu_has_none() -> None:
    known = Conditions(percent_of_peak={"datasheet memory bandwidth": 91.6})
    gpu = of("copy", (), conditions=known, device_uuid="GPU-1")
    assert dict(figure_facts(gpu))["of peak"] == "92 % of datasheet memory bandwidth"
    assert "of peak" not in dict(figure_facts(replace(gpu, device_uuid=None)))


def test_conditions_that_are_known() -> None:
    assert list(condition_facts(Conditions())) == []
    assert list(condition_facts(Conditions(power_watts_mean=70.0, energy_joules=700.0))) == [
        ("power", "70 W on average"),
        ("energy", "700 J by the device's counter"),
    ]
