"""From which size on a GPU is faster than a CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.bench.events import Point, Result
from gputop.bench.results.compare import (
    Crossover,
    crossover_in_words,
    crossovers,
    newest_series,
    other_sweeps,
    times_text,
    with_earlier,
)
from tests.bench.kept import BASE, table


def line(series: str, rates: dict[int, float]) -> tuple[Point, ...]:
    return tuple(Point(series, float(n), {"tflops": rate}) for n, rate in rates.items())


GPU = line("float32", {1: 0.1, 64: 1.0, 96: 3.0, 128: 8.0, 4096: 50.0})
CPU = line("float32", {128: 2.0, 96: 2.0, 64: 2.0, 1: 1.0, 2048: 2.0})
"""In another order, and not of the same sizes."""


def test_sizes_of_both_are_compared_one_by_one() -> None:
    (found,) = crossovers(GPU, CPU)
    assert found == Crossover("float32", ((1, 0.1), (64, 0.5), (96, 1.5), (128, 4.0)))
    assert found.wins_from == 96


@pytest.mark.parametrize(
    ("ratios", "start"),
    [
        (((1, 2.0), (2, 3.0)), 1),
        (((1, 0.5), (2, 3.0)), 2),
        (((1, 0.5), (2, 0.6)), None),
        (((1, 0.5), (2, 1.0)), None),
        # faster for a while is not faster from there on
        (((1, 0.5), (2, 1.2), (4, 0.9), (8, 3.0), (16, 9.0)), 8),
        (((1, 5.0), (2, 0.9)), None),
        (((512, 7.0),), 512),
    ],
)
def test_the_size_from_which_on_it_wins(
    ratios: tuple[tuple[int, float], ...], start: int | None
) -> None:
    assert Crossover("float32", ratios).wins_from == start


@pytest.mark.parametrize(
    ("ratios", "words"),
    [
        (
            ((1, 0.1), (96, 1.3), (4096, 88.4)),
            "float64: the GPU is faster from 96 on, 88 times at 4096",
        ),
        (((1, 0.1), (96, 1.3)), "float64: the GPU is faster from 96 on, 1.3 times"),
        (((1, 2.0), (96, 13.0)), "float64: the GPU is faster from 1 on, 13 times at 96"),
        (((1, 0.1), (96, 0.65)), "float64: the GPU is not faster even at 96, 0.65 times"),
    ],
)
def test_it_is_said_in_words(ratios: tuple[tuple[int, float], ...], words: str) -> None:
    assert crossover_in_words(Crossover("float64", ratios)) == words


def test_types_that_one_of_them_lacks_are_not_compared() -> None:
    both = (*GPU, *line("bfloat16", {1: 1.0}))
    assert [each.series for each in crossovers(both, CPU)] == ["float32"]
    assert crossovers(line("bfloat16", {1: 1.0}), CPU) == []
    assert crossovers(line("float32", {3: 1.0}), CPU) == [], "nor sizes"


def test_rows_without_a_rate_are_left_out() -> None:
    broken = (Point("float32", 64.0, {"seconds": 1.0}), *line("float32", {1: 0.0, 128: 2.0}))
    (found,) = crossovers(GPU, broken)
    assert found.ratios == ((128, 4.0),)


def sweep(device: str, uuid: str | None, points: tuple[Point, ...], ago: float = 0.0) -> Result:
    return table("sweep", points, ago, device=device, device_uuid=uuid)


ON_CPU = sweep("AMD EPYC", None, CPU)
ON_GPU = sweep("NVIDIA H200", "GPU-a", GPU)


def test_other_devices_have_other_uuids_and_a_cpu_another_name() -> None:
    twin = sweep("NVIDIA H200", "GPU-b", GPU)
    kept = [ON_CPU, ON_GPU, twin, BASE]
    assert other_sweeps(kept, "NVIDIA H200", "GPU-a") == [ON_CPU, twin]
    assert other_sweeps(kept, "AMD EPYC", None) == [ON_GPU, twin]
    assert other_sweeps(kept, "Intel Xeon", None) == [ON_CPU, ON_GPU, twin]


def test_the_newest_of_each_device_and_type_counts() -> None:
    older = sweep("AMD EPYC", None, (*line("float32", {1: 9.0}), *line("float64", {1: 8.0})), 60.0)
    found = newest_series([ON_CPU, older])
    assert {key: result for key, (result, _) in found.items()} == {
        ("AMD EPYC", "float32"): ON_CPU,
        ("AMD EPYC", "float64"): older,
    }
    assert [point.values["tflops"] for point in found["AMD EPYC", "float64"][1]] == [8.0]


@pytest.mark.parametrize(
    ("points", "uuid", "earlier"), [(GPU, "GPU-a", ON_CPU), (CPU, None, ON_GPU)]
)
def test_a_run_on_either_is_compared_with_the_other(
    points: tuple[Point, ...], uuid: str | None, earlier: Result
) -> None:
    (found,) = with_earlier(points, uuid, [earlier])
    assert found.wins_from == 96


def test_two_gpus_are_not_compared_so() -> None:
    assert with_earlier(GPU, "GPU-b", [ON_GPU]) == []
    assert with_earlier(CPU, None, [replace(ON_CPU, device="another")]) == []


@pytest.mark.parametrize(
    ("ratio", "said"),
    [(0.0423, "0.042"), (1.26, "1.3"), (9.94, "9.9"), (9.96, "10"), (312.4, "312")],
)
def test_ratios_have_two_digits(ratio: float, said: str) -> None:
    assert times_text(ratio) == said
