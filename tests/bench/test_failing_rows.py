"""Rows of a table that cannot be measured: the others are kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gputop.bench.events import Done, Failed, Point
from gputop.bench.results import verdict
from gputop.bench.run.session import Session
from tests.bench.test_faults import heard
from tests.bench.test_kinds import PRODUCTS, TABLES, broken, one_thread
from tests.bench.workers import QUICK, broken_worker, fake_interpreter, needs_torch, request

if TYPE_CHECKING:
    from pathlib import Path

    from gputop.bench.events import Event, Result

pytestmark = needs_torch
__all__ = ["one_thread"]  # a fixture of these tests, too

FAILING = """
time_row, calls = rows.Rows.time, []
def failing(self, *arguments, **options):
    calls.append(self)
    if {when}:
        {fails}
    return time_row(self, *arguments, **options)
rows.Rows.time = failing
"""
"""Measuring a row fails."""
SECONDS = 3.0
TYPE_ERROR = 'raise TypeError("unsupported operand")'
DEATH = 'raise RuntimeError("CUDA error: an illegal memory access was encountered")'


def failing(when: str, fails: str = TYPE_ERROR) -> str:
    return QUICK + FAILING.format(when=when, fails=fails)


async def result_of(folder: Path, kind: str, fault: str) -> Result:
    *_, last = await heard(broken(folder, kind, fault, SECONDS))
    assert isinstance(last, Done), last
    return last.result


@pytest.mark.parametrize("kind", PRODUCTS)
async def test_a_row_that_fails_is_noted_and_the_others_are_measured(
    tmp_path: Path, kind: str
) -> None:
    result = await result_of(tmp_path, kind, failing("len(calls) == 2"))
    whole = await result_of(tmp_path, kind, failing("len(calls) == 0"))
    assert len(result.points) > 1
    if kind not in ("peak", "latency"):  # whose rows depend on the time
        assert len(result.points) == len(whole.points) - 1
    (note,) = (each for each in result.notes if "TypeError" in each)
    assert note.endswith(": not measured, TypeError: unsupported operand")
    assert verdict.status(result) == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", TABLES)
async def test_the_rows_before_an_error_are_kept(tmp_path: Path, kind: str) -> None:
    result = await result_of(tmp_path, kind, failing("len(calls) > 1"))
    assert result.points
    assert any("TypeError: unsupported operand" in each for each in result.notes)


async def failure_of(folder: Path, kind: str, fault: str) -> tuple[Failed, list[Event]]:
    *events, last = await heard(broken(folder, kind, fault, SECONDS))
    assert isinstance(last, Failed), last
    return last, events


@pytest.mark.parametrize("kind", PRODUCTS)
async def test_a_table_without_a_row_ends_with_its_first_error(tmp_path: Path, kind: str) -> None:
    failed, _ = await failure_of(tmp_path, kind, failing("True"))
    assert failed.status == 3
    assert "TypeError: unsupported operand" in failed.problem.why


async def test_a_device_that_dies_ends_a_table_and_is_faulty(tmp_path: Path) -> None:
    failed, events = await failure_of(tmp_path, "sweep", failing("len(calls) == 3", DEATH))
    assert failed.status == 1
    assert failed.problem.what == "The device died"
    assert len([event for event in events if isinstance(event, Point)]) == 2


WRONG_THEN_FAILS = """
exact, fill = Product.exact, Product.fill
Product.exact = lambda self: 7 if self.n == 4 else exact(self)
def failing(self):
    if self.n == 4:
        raise TypeError("unsupported operand")
    fill(self)
Product.fill = failing
"""


async def test_wrong_results_of_a_row_that_fails_are_not_lost(tmp_path: Path) -> None:
    result = await result_of(tmp_path, "sweep", QUICK + WRONG_THEN_FAILS)
    assert result.wrong_elements == 7
    assert result.state == "faulty"


async def test_a_sweep_of_types_that_this_torch_lacks_says_so(tmp_path: Path) -> None:
    fault = """
def lacking(torch, name, place):
    raise errors.no_dtype(name, "it has none")
shapes.require = lacking
"""
    path = fake_interpreter(tmp_path, broken_worker(fault))
    asked_for = replace(request("int8", 64, 1.0, "sweep", "float8_e4m3"), python=path)
    *_, last = await heard(Session(asked_for))
    assert isinstance(last, Failed)
    assert last.status == 3
    assert last.problem.what == "int8 cannot be run here"
