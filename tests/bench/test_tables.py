import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gputop.bench.plan import request as plan
from gputop.bench.run.worker_order import worker_request
from gputop.bench.worker import errors, rows, shapes, throughput
from tests.bench.forked import load_torch
from tests.bench.workers import RecordedRun, needs_torch, request


def test_sizes_are_log_spaced_from_one_to_the_largest() -> None:
    assert shapes.sizes(200) == [1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 200]
    assert shapes.sizes(1) == [1]
    assert shapes.sizes(64) == [1, 2, 4, 8, 16, 32, 64]
    long = shapes.sizes(100_000)
    assert len(long) == 29
    assert all(1.3 < after / before <= 2 for before, after in itertools.pairwise(long[:-1]))


@pytest.mark.parametrize(
    ("dtype", "largest", "expected"),
    [("float8_e4m3", 96, [16, 32, 64, 96]), ("int8", 40, [24, 32, 40]), ("float32", 3, [1, 2, 3])],
)
def test_sizes_are_those_that_a_gpu_can_multiply_in_the_type(
    dtype: str, largest: int, expected: list[int]
) -> None:
    target = plan.Target("cuda", "GPU-0a", 0, "a GPU", "9.0", 8 << 30)
    asked = recorded(dtype=dtype, size=largest)
    dtypes = worker_request(plan.Request(target, dtype, largest, 1.0)).dtypes
    asked.request = replace(asked.request, dtypes=dtypes)
    device: Any = SimpleNamespace(place="cuda")
    assert shapes._planned(rows.Rows(device, asked, 0), dtype) == expected
    asked.request = replace(asked.request, size=8)
    if dtype != "float32":
        with pytest.raises(errors.RunError) as refusal:
            shapes._planned(rows.Rows(device, asked, 0), dtype)
        assert "or larger" in refusal.value.remedy


def recorded(**asked: Any) -> RecordedRun:
    """A run whose events are kept."""
    return RecordedRun(worker_request(request(**asked)))


def test_the_best_row_of_a_table_has_the_shape() -> None:
    table = throughput.TableTotals()
    table.add(10, 2.0, 1e12)
    table.best(3.0, (1, 2, 3))
    table.best(2.0, (4, 5, 6))
    figures = table.figures()
    assert figures.shape == (1, 2, 3)
    assert figures.tflops_peak == 3.0
    assert figures.tflops_mean == pytest.approx(5.0)
    empty = throughput.TableTotals().figures()
    assert empty.tflops_mean is empty.tflops_peak is None
    assert empty.shape is None


class Hill(shapes.Search):
    """A search on a device whose best shape is known, and which needs no time."""

    def __init__(self, best: tuple[int, int, int], largest: int = 4096) -> None:
        self.top = best
        self.timed: list[tuple[shapes.Candidate, str]] = []
        device: Any = SimpleNamespace(place="cpu", torch=load_torch(), free_bytes=lambda: None)
        asked = recorded(seconds=60.0, kind="peak")
        super().__init__(rows.Rows(device, asked, 0), "float32", largest, (True, False))

    def _time(self, candidate: shapes.Candidate, seconds: float, mark: str = "") -> None:
        shape, column_major = candidate
        away = sum(abs(a - b) for a, b in zip(shape, self.top, strict=True))
        self.timed.append((candidate, mark))
        self.found[candidate] = 100 / (1 + away / 1000) + column_major
        self.rows.table.best(self.found[candidate], shape)

    def _compare(self, candidate: shapes.Candidate) -> None:
        pass


@needs_torch
@pytest.mark.parametrize("best", [(2048, 2048, 2048), (1600, 1088, 704), (4096, 64, 512)])
def test_the_search_finds_the_best_shape_and_layout(best: tuple[int, int, int]) -> None:
    search = Hill(best)
    for candidate in search.coarse():
        search.probe(candidate)
    search.climb()
    assert search.best() == (best, True)
    tried = [candidate for candidate, _ in search.timed]
    assert len(set(tried)) == len(tried), "nothing is tried twice"
    search.confirm()
    again = [candidate for candidate, mark in search.timed if mark]
    assert len(again) == shapes.CONFIRMED
    assert search.rows.table.shape == best
    assert "1" in search.rows.run.notes[-1]
