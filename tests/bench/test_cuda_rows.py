"""Rows of tables on a fake GPU: stopped, too long, of another exactness, failed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.bench.events import Done
from tests.bench.cuda import MACHINE, Runs, fake_cuda, with_faults
from tests.bench.workers import QUICK, STOP_SECONDS, RawWorker, needs_torch
from tests.fake_cuda.settings import Fault

pytestmark = needs_torch

LITTLE = replace(MACHINE, memory_gib=1.25)
"""A GPU with room for copies of 16 MiB, and for no larger ones."""


def halted_where(condition: str) -> str:
    """Return a fault by which the run is halted before the time of a row is taken."""
    return f"""
time_row = rows.Rows.time
def halted(self, *arguments, **options):
    if {condition}:
        self.run.halt.set()
    return time_row(self, *arguments, **options)
rows.Rows.time = halted
"""


@pytest.mark.daily(3)
@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("sweep", "self.table.rows == 1"),
        ("peak", "self.table.rows == 1"),
        ("peak", "self.to_come == 6"),  # the first one of three that are confirmed
        ("peak", "self.to_come == 5"),  # the second one of three that are confirmed
        ("peak", "self.to_come == 2"),  # the second one of three other ways
        ("latency", "self.table.rows == 1"),
        ("latency", "self.table.rows == 6"),  # the first one of the second size
        ("copy", "self.table.rows == 1"),
        ("step", "self.table.rows == 1"),
    ],
)
async def test_a_row_that_is_stopped_before_it_was_timed_is_not_there(
    runs: Runs, kind: str, where: str
) -> None:
    machine = replace(MACHINE, memory_gib=1.25)
    size = 256 if kind in ("sweep", "peak") else None
    fault = QUICK + halted_where(where)
    heard = await runs.run(kind, size=size, seconds=20.0, settings=machine, fault=fault)
    assert heard.rows
    assert all(row.values["seconds"] > 0 for row in heard.rows)
    assert heard.result.wrong_elements == 0


async def test_a_peak_of_which_nothing_was_timed_has_no_best_shape(runs: Runs) -> None:
    fault = fake_cuda(MACHINE, QUICK + halted_where("True"))
    with RawWorker(runs.request("peak", seconds=20.0), fault) as worker:
        done = worker.until("done")
        worker.process.wait(STOP_SECONDS)
    assert done["tflops_peak"] is None
    assert done["notes"] == []


@pytest.mark.slow
async def test_a_stop_between_gpus_keeps_the_rows_before(runs: Runs) -> None:
    fault = QUICK + halted_where("self.table.rows == 10")
    for heard in await runs.together("copy", 2, 8.0, settings=LITTLE, fault=fault):
        assert len(heard.result.points) == 10
        assert all(": " not in point.series for point in heard.result.points)


@pytest.mark.slow
async def test_gpus_for_which_there_was_no_time_are_named(runs: Runs) -> None:
    for heard in await runs.together("copy", 3, 0.5, settings=LITTLE, fault=QUICK):
        assert heard.result.wrong_elements == 0
        late = [note for note in heard.result.notes if "the time was up: give --seconds" in note]
        assert len(late) == 1
        assert late[0].startswith("GPU ")


@pytest.mark.slow
async def test_gpus_without_memory_for_copies_are_no_faulty_ones(runs: Runs) -> None:
    fault = QUICK + "copies.DEVICE_SIZES = (1 << 40,)\n"
    for heard in await runs.together("copy", 2, 4.0, settings=LITTLE, fault=fault):
        assert heard.failed.status == 3


@pytest.mark.slow
async def test_a_link_that_kills_a_gpu_is_a_fault(runs: Runs) -> None:
    machine = with_faults(Fault("peer copy", "die"), settings=LITTLE)
    statuses = [
        0 if isinstance(heard.last, Done) else heard.failed.status
        for heard in await runs.together("copy", 2, 4.0, settings=machine, fault=QUICK)
    ]
    assert 1 in statuses


HALTED_COLLECTIVE = """
def measure(device, run):
    run.halt.set()
    raise RuntimeError("another rank is gone")
collective._measure = measure
"""


async def test_a_rank_that_is_stopped_says_no_error_of_another(runs: Runs) -> None:
    fault = fake_cuda(MACHINE, HALTED_COLLECTIVE)
    with RawWorker(runs.request("collective", size=None), fault) as worker:
        assert worker.until("done")["stopped"] == "time"
        worker.process.wait(STOP_SECONDS)


def with_errors(low: float, high: float) -> str:
    """Return a fault by which products have to have such a relative error."""
    return f"formats.Plain.errors = lambda *_: ({low}, {high})\n"


@pytest.mark.parametrize(
    ("dtype", "label"),
    [
        ("float16_acc16", "summed in float32, not in float16"),
        ("bfloat16", "more exact than bfloat16 is"),
    ],
)
async def test_rows_that_are_more_exact_than_their_type_are_labelled(
    runs: Runs, dtype: str, label: str
) -> None:
    heard = await runs.run("sweep", dtype, 16, 20.0, fault=QUICK + with_errors(0.5, 1.0))
    assert any(note.endswith(label) for note in heard.result.notes)
    assert len(heard.rows) == 5


async def test_rows_that_are_less_exact_than_their_type_are_left_out(runs: Runs) -> None:
    fault = QUICK + with_errors(0.0, 1e-9)
    failed = (await runs.run("sweep", size=256, seconds=20.0, fault=fault)).failed
    assert failed.status == 3
    assert "was not made in bfloat16" in str(failed.problem)


async def test_many_rows_with_the_same_note_are_counted(runs: Runs) -> None:
    not_float32 = Fault("product", kind="float32", exception="TypeError", message="not today")
    settings, fault = with_faults(not_float32), QUICK + "rows.MOST_NAMED = 3\n"
    heard = await runs.run("sweep", "bfloat16,float32", 32, 20.0, settings=settings, fault=fault)
    (note,) = (note for note in heard.result.notes if "not today" in note)
    assert note.endswith(" and 3 more: not measured, TypeError: not today")
    assert heard.series() == ["bfloat16"]


NO_FILES = """
def no_file(_):
    raise OSError
backends.Path = no_file
"""


@pytest.mark.parametrize("fault", ["", NO_FILES], ids=["known", "unknown"])
async def test_a_gpu_without_memory_of_its_own_uses_that_of_the_host(
    runs: Runs, fault: str
) -> None:
    machine = replace(MACHINE, is_integrated=True)
    result = (await runs.run("soak", settings=machine, fault=fault)).result
    assert result.wrong_elements == 0


@pytest.mark.slow
@pytest.mark.parametrize("rate", [1.29, 0.2])
async def test_latency_of_slow_products_keeps_to_its_time(runs: Runs, rate: float) -> None:
    """float64 on an L40S: 500 launches took 0.8 s, of which the clock saw 3 ms."""
    machine = replace(MACHINE, rates={"float64": rate})
    result = (await runs.run("latency", "float64", None, 12.0, settings=machine)).result
    assert len(result.points) == 18, result.notes
    known = {point.series: point.values["seconds"] for point in result.points if point.x == 1000}
    assert known["eager"] > 1e-3 / rate
    assert known["launch alone"] < known["eager"] / 5
    assert known["CUDA graph"] > 1e-3 / rate


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "size", "fault", "says"),
    [
        (
            "latency",
            None,
            Fault("capture", message="CUDA error: not permitted when stream is capturing"),
            "CUDA graph of 5×5, CUDA graph of 100×100, CUDA graph of 1000×1000: not measured",
        ),
        (
            "peak",
            256,
            Fault("library", exception="TypeError", message="no such one", kind="cublaslt"),
            "256×256 with cuBLASLt: not measured, TypeError: no such one",
        ),
    ],
)
async def test_a_way_that_fails_is_noted_and_the_others_are_measured(
    runs: Runs, kind: str, size: int | None, fault: Fault, says: str
) -> None:
    heard = await runs.run(kind, size=size, seconds=10.0, settings=with_faults(fault), fault=QUICK)
    assert any(says in note for note in heard.result.notes), heard.result.notes
    assert heard.rows


async def test_a_product_that_does_not_end_leaves_the_rows_before_it(runs: Runs) -> None:
    machine = with_faults(Fault("product", "hang", size=8))
    fault = QUICK + "rows.COLD_SECONDS = 0.1\n"
    result = (await runs.run("sweep", size=8, seconds=1.0, settings=machine, fault=fault)).result
    assert [point.x for point in result.points] == [1, 2, 4]
    assert any(note.startswith("the run ended early, ") for note in result.notes)
