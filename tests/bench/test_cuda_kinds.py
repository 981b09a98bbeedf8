"""Every kind of run by the real worker on a fake CUDA: its rows, samples and notes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.bench.plan.kinds import DTYPES
from gputop.bench.plan.request import PROCESS_BYTES
from tests.bench.cuda import MACHINE, Runs, target, with_faults
from tests.bench.workers import QUICK, needs_torch
from tests.fake_cuda.settings import Fault

pytestmark = needs_torch

BLACKWELL = replace(MACHINE, capability="10.0", name="NVIDIA B200")
SLOW = replace(MACHINE, rates={"float32": 0.02})
"""Products of the smallest size take 0.1 s."""


@pytest.mark.daily(3)
@pytest.mark.parametrize("dtype", DTYPES)
async def test_soak_in_every_data_type(runs: Runs, dtype: str) -> None:
    # Small products of float4 are exact in bfloat16, which looks like another data type.
    size = 1024 if dtype == "float4" else 256
    heard = await runs.run("soak", dtype, size, settings=BLACKWELL)
    result = heard.result
    assert (result.stopped, result.wrong_elements, result.dtype) == ("time", 0, dtype)
    assert result.seconds > 0.4
    assert result.checks >= 4
    assert result.mismatches == {}
    assert result.tflops_device is not None
    assert heard.samples[-1].iterations <= result.iterations
    assert result.method.startswith(heard.plan.method[:20])


async def test_sweep_has_rows_of_each_data_type(runs: Runs) -> None:
    heard = await runs.run("sweep", "bfloat16,float32", 64, 20.0, fault=QUICK)
    assert heard.series() == ["bfloat16", "float32"]
    assert {row.x for row in heard.rows} == {1, 2, 4, 8, 16, 32, 64}
    assert (heard.result.stopped, heard.result.wrong_elements) == ("time", 0)


async def test_latency_has_a_row_for_each_way(runs: Runs) -> None:
    heard = await runs.run("latency", "bfloat16", None, 20.0, fault=QUICK)
    assert heard.series() == [
        "eager",
        "launch alone",
        "CUDA graph",
        "synchronised each time",
        "norm fetched at the end",
        "norm fetched each step",
    ]
    assert len(heard.rows) == 18
    assert any("in a CUDA graph" in note for note in heard.result.notes)


@pytest.mark.parametrize(
    ("dtype", "ways"),
    [("bfloat16", ["cuBLAS", "cuBLASLt", "zeros"]), ("float8_e4m3", ["fast accumulate", "zeros"])],
)
async def test_peak_measures_the_best_shape_in_other_ways(
    runs: Runs, dtype: str, ways: list[str]
) -> None:
    heard = await runs.run("peak", dtype, seconds=20.0, fault=QUICK)
    last = [row.series.rpartition(", ")[2] for row in heard.rows][-len(ways) :]
    assert last == ways
    assert heard.result.tflops_peak is not None
    assert heard.result.notes[0].startswith("the best of ")


async def test_copy_within_the_device_and_to_the_host(runs: Runs) -> None:
    machine = replace(MACHINE, memory_gib=1.25)
    heard = await runs.run("copy", size=None, seconds=20.0, settings=machine, fault=QUICK)
    assert heard.series() == [
        "device to device",
        "host to device, pageable",
        "device to host, pageable",
        "host to device, pinned",
        "device to host, pinned",
    ]
    assert heard.result.wrong_elements == 0


async def test_memory_writes_all_patterns(runs: Runs) -> None:
    machine = replace(MACHINE, memory_gib=1.25)
    heard = await runs.run("memory", size=None, seconds=1.0, settings=machine)
    assert heard.result.wrong_elements == 0
    assert heard.samples[-1].bytes_per_second
    assert heard.result.points[0].series == "random"
    assert heard.plan.layout.startswith("blocks of ")


async def test_burn_multiplies_and_copies(runs: Runs) -> None:
    machine = replace(MACHINE, memory_gib=1.25)
    heard = await runs.run("burn", settings=machine)
    notes = " ".join(heard.result.notes)
    assert "operands of " in notes
    assert "GB/s of copies" in notes
    assert (heard.result.wrong_elements, heard.result.mismatches) == (0, {})


async def test_pulse_says_how_long_it_was_loaded(runs: Runs) -> None:
    heard = await runs.run("pulse", seconds=1.0, hertz=4.0)
    assert any("at 4 Hz" in note for note in heard.result.notes)
    assert any("power is read once a second" in note for note in heard.result.notes)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "tf32"])
async def test_step_has_rows_of_both_ways(runs: Runs, dtype: str) -> None:
    heard = await runs.run("step", dtype, None, 20.0, fault=QUICK)
    names = ["7B/16, eager", "70B/16, eager", "7B/16, compiled", "70B/16, compiled"]
    assert heard.series() == names
    assert heard.result.wrong_elements == 0


@pytest.mark.slow
async def test_collective_between_two_devices(runs: Runs) -> None:
    for heard in await runs.together("collective", 2, 2.0, fault=QUICK):
        assert heard.series() == ["all-reduce", "all-gather", "reduce-scatter"]
        assert heard.plan.layout == "2 ranks, nccl"
        assert heard.result.wrong_elements == 0


async def test_collective_that_cannot_begin_is_no_fault_of_the_devices(runs: Runs) -> None:
    machine = with_faults(Fault("collective", message="NCCL error: unhandled system error"))
    ends = [heard.failed for heard in await runs.together("collective", 2, 2.0, settings=machine)]
    assert [end.status for end in ends] == [3, 3]
    assert any("unhandled system error" in end.problem.why for end in ends)


async def test_products_that_are_too_long_for_pulses_are_refused(runs: Runs) -> None:
    failed = (await runs.run("pulse", "float32", 1024, hertz=4.0, settings=SLOW)).failed
    assert failed.status == 3
    assert failed.problem.what == "The products are too long for these pulses"


@pytest.mark.slow
async def test_sweep_ends_where_products_do_not_fit(runs: Runs) -> None:
    machine = replace(MACHINE, memory_gib=0.7)
    unknown = replace(target(machine), memory_free_bytes=None)
    heard = await runs.run(
        "sweep", "bfloat16", None, 20.0, settings=machine, fault=QUICK, target=unknown
    )
    (note,) = heard.result.notes
    assert note.endswith(" on, it does not fit in what is free")


async def test_copies_that_the_host_has_no_room_for_are_left_out(runs: Runs) -> None:
    machine = replace(MACHINE, memory_gib=1.25)
    heard = await runs.run(
        "copy",
        size=None,
        seconds=20.0,
        settings=machine,
        fault=QUICK,
        host_bytes=PROCESS_BYTES + (32 << 20),
    )
    assert {row.x for row in heard.rows} == {1 << 20}
    assert heard.result.notes[0].startswith("no copies of 16 MiB and more: ")


@pytest.mark.slow
async def test_a_step_that_does_not_fit_is_left_out(runs: Runs) -> None:
    machine = replace(MACHINE, memory_gib=0.64)
    unknown = replace(target(machine), memory_free_bytes=None)
    failed = (
        await runs.run("step", size=None, seconds=5.0, settings=machine, target=unknown)
    ).failed
    assert failed.status == 3
    assert "70B/16, compiled: left out, it needs " in failed.problem.why
