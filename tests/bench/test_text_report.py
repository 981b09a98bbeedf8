"""Results as text: a table for each kind, and what has to be read with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.bench.events import Conditions, Point, Result
from gputop.bench.plan.peaks import AT_LIVE_CLOCK, DATASHEET
from gputop.bench.results.facts import best_row
from gputop.bench.results.text_report import result_page
from gputop.text import brief
from tests.bench.workers import RESULT


def product(series: str, n: int, tflops: float, seconds: float, m: int | None = None) -> Point:
    return Point(series, n, {"tflops": tflops, "seconds": seconds}, (m or n, n, n))


SWEEP = (
    product("float32", 1, 2e-6, 1e-6),
    product("float32", 1024, 0.2, 0.0107),
    product("float64", 1, 1.9e-6, 1.05e-6),
)
LATENCY = (
    product("eager", 5, 2.5e-4, 1e-6),
    product("CUDA graph", 5, 1e-3, 2.5e-7),
    product("eager", 1000, 0.2, 0.01),
)
PEAK = (
    product("B row-major", 256, 3.0, 1e-5),
    product("B column-major", 384, 4.0, 1e-5),
    product("B column-major, confirmed", 512, 3.9, 1e-5, 640),
)
COPY = (
    Point("1 thread", 1 << 20, {"bytes_per_second": 5.5e10, "seconds": 4e-5}),
    Point("2 threads", 1 << 20, {"bytes_per_second": 1.1e11, "seconds": 2e-5}),
    Point("1 thread", 1 << 26, {"bytes_per_second": 2.34e10, "seconds": 5e-3}),
)


def of(kind: str, points: tuple[Point, ...], **fields: object) -> Result:
    made: Result = replace(RESULT, kind=kind, points=points, **fields)  # type: ignore[arg-type]
    return made


def lines(kind: str, points: tuple[Point, ...], **fields: object) -> list[list[str]]:
    """The words of the table's lines."""
    text = result_page(of(kind, points, **fields))
    return [line.split() for line in text.split("\n\n")[1].splitlines()]


def test_a_sweep_is_sizes_by_data_types() -> None:
    assert lines("sweep", SWEEP)[1:] == [
        ["1", "2e-06", "1", "µs", "1.9e-06", "1.05", "µs"],
        ["1024", "0.2", "10.7", "ms", "–", "–"],
    ]


def test_latency_is_ways_by_sizes() -> None:
    assert lines("latency", LATENCY) == [
        ["time", "per", "product", "5", "x", "5", "1000", "x", "1000"],
        ["eager", "1", "µs", "10", "ms"],
        ["CUDA", "graph", "250", "ns", "–"],
    ]


def test_training_steps_are_blocks_by_values() -> None:
    values = {"tflops": 0.1, "tokens_per_second": 19188.2, "seconds": 0.0133}
    eager, compiled = (Point(f"7B, {way}", 4096, values) for way in ("eager", "compiled"))
    assert lines("step", (eager,)) == [
        ["training", "step", "TFLOP/s", "tokens/s", "time"],
        ["7B,", "eager", "0.100", "19188", "13.3", "ms"],
    ]
    compiled = replace(compiled, values=values | {"percent_of_peak": 45.25})
    heading, first, second = lines("step", (eager, compiled))
    assert heading[-3:] == ["of", "peak", "time"]
    assert (first[4], second[4:6]) == ("–", ["45.2", "%"])
    text = result_page(of("step", (eager,), m=0, n=0, k=0, tflops_peak=0.1))
    assert "best       0.1 TFLOP/s at 7B, eager" in text
    assert "420, 1 row" in text


def test_a_search_has_what_was_confirmed_first() -> None:
    table = lines("peak", PEAK)
    assert [line[0] for line in table] == ["TFLOP/s", "3.90", "4.00", "3.00"]
    assert table[1][1:4] == ["640", "512", "512"]
    zeros = product("B column-major, zeros", 512, 9.0, 1e-5, 640)
    assert [line[0] for line in lines("peak", (zeros, *PEAK))][1:] == [
        "3.90",
        "9.00",
        "4.00",
        "3.00",
    ]
    assert best_row((zeros, *PEAK)) is PEAK[-1], "zeros are no speed of a device"
    many = tuple(product("B row-major", 64 * n, 1.0, 1e-5) for n in range(1, 100))
    assert len(lines("peak", many)) == 11


def test_a_copy_has_bandwidths_and_no_throughput() -> None:
    none = {"tflops_mean": None, "tflops_peak": None}
    assert lines("copy", COPY, **none)[1:] == [
        ["1.00", "MiB", "55", "110"],
        ["64.0", "MiB", "23.4", "–"],
    ]
    text = result_page(of("copy", COPY, tflops_mean=None, tflops_peak=None))
    assert "TFLOP/s" not in text
    assert "copies" in text


@pytest.mark.parametrize("points", [SWEEP, LATENCY, PEAK, COPY])
def test_columns_are_aligned(points: tuple[Point, ...]) -> None:
    kinds = {id(SWEEP): "sweep", id(LATENCY): "latency", id(PEAK): "peak", id(COPY): "copy"}
    text = result_page(of(kinds[id(points)], points))
    assert len({len(line) for line in text.split("\n\n")[1].splitlines()}) == 1


def test_notes_memory_and_the_ending_are_said() -> None:
    text = result_page(
        of(
            "sweep",
            SWEEP,
            notes=("int8: this torch has none", "the time was up"),
            context_bytes=500 << 20,
            cache_bytes=1 << 30,
            tensor_bytes=2 << 30,
            stopped="limit",
        )
    )
    assert text.count("note ") == 2
    assert "tensors 2.00 GiB, torch's cache 1.00 GiB, CUDA context 500 MiB" in text
    assert "ended by the temperature limit" in text
    assert "best       0.2 TFLOP/s at 1024 x 1024 x 1024" in text


def test_a_soak_says_when_it_was_steady() -> None:
    long = replace(RESULT, tflops_sustained=0.15, droop_percent=25.0)
    assert "not within this run" in result_page(long)
    assert "after 4.5 s" in result_page(replace(long, time_to_steady_seconds=4.5))


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(3.2e-8, "32 ns"), (1.234e-6, "1.23 µs"), (0.0123, "12.3 ms"), (62.0, "62 s"), (None, "–")],
)
def test_times_are_in_the_unit_that_suits_them(seconds: float | None, said: str) -> None:
    assert brief(seconds) == said


KNOWN = Conditions(percent_of_peak={DATASHEET: 70.78, AT_LIVE_CLOCK: 93.4})


def test_of_a_gpu_each_denominator_has_a_line() -> None:
    ran = {"device_uuid": "GPU-1", "dtype": "bfloat16", "tflops_mean": 700.0}
    said = result_page(replace(RESULT, conditions=KNOWN, **ran))  # type: ignore[arg-type]
    assert "of peak    71 % of 989 TFLOP/s (datasheet dense)" in said
    assert "of peak    93 % of 749 TFLOP/s (formula at the live clock)" in said


def test_a_peak_that_is_not_known_is_said_of_a_gpu_and_not_of_a_cpu() -> None:
    assert "no peak is known to compare with" in result_page(replace(RESULT, device_uuid="GPU-1"))
    assert "of peak" not in result_page(RESULT)


def test_copies_are_of_a_bandwidth() -> None:
    known = Conditions(percent_of_peak={"datasheet memory bandwidth": 91.6})
    copies = of("copy", COPY, tflops_mean=None, tflops_peak=None, device_uuid="GPU-1")
    assert "of peak    92 % of datasheet memory bandwidth" in result_page(
        replace(copies, conditions=known)
    )
    assert "of peak" not in result_page(copies)
