from dataclasses import replace

import pytest

from gputop.bench.plan.kinds import DTYPES
from tests.bench.cuda import MACHINE, Runs
from tests.bench.workers import QUICK, needs_torch

pytestmark = needs_torch

LITTLE = replace(MACHINE, memory_gib=1.25)
"""A GPU with room for copies of 16 MiB, and for no larger ones."""
SLOW = replace(MACHINE, rates={"float32": 0.02})
"""Products of size 640 take 26 ms."""
OLD_TORCH = replace(MACHINE, torch="2.4.1")


@pytest.mark.daily(3)
@pytest.mark.parametrize("dtype", DTYPES)
async def test_soak_in_every_data_type(runs: Runs, dtype: str) -> None:
    heard = await runs.run("soak", dtype)
    result = heard.result
    assert (result.stopped, result.wrong_elements, result.dtype) == ("time", 0, dtype)
    assert (result.device_index, result.threads, bool(result.cuda_version)) == (0, None, True)
    assert result.seconds > 0.4
    assert result.checks >= 4
    assert result.mismatches == {}
    assert result.tflops_device is not None
    assert heard.samples[-1].iterations <= result.iterations
    assert result.method.startswith(heard.plan.method[:20])


async def test_the_rate_is_that_of_the_device_and_two_batches_are_in_flight(runs: Runs) -> None:
    result = (await runs.run("soak", "float32", settings=SLOW)).result
    assert result.tflops_device == pytest.approx(0.02, rel=0.02)
    mean = 2 * 256**3 * result.iterations / result.seconds / 1e12
    assert result.tflops_mean == pytest.approx(mean)
    assert mean <= 0.0202
    assert ", 2 in flight; " in result.method


@pytest.mark.parametrize("dtype", ["tf32", "float8_e4m3"])
async def test_types_of_which_old_versions_have_another_call(runs: Runs, dtype: str) -> None:
    result = (await runs.run("soak", dtype, settings=OLD_TORCH)).result
    assert result.torch_version == "2.4.1+cu128"
    assert result.wrong_elements == 0


async def test_sweep_has_rows_of_each_data_type(runs: Runs) -> None:
    heard = await runs.run("sweep", "bfloat16,float32", 64, 20.0, fault=QUICK)
    assert heard.series() == ["bfloat16", "float32"]
    assert {row.x for row in heard.rows} == {1, 2, 4, 8, 16, 32, 64}
    for row in heard.rows:
        m, n, k = row.shape
        rate = 2 * m * n * k / row.values["seconds"] / 1e12
        assert row.values["tflops"] == pytest.approx(rate)
    result = heard.result
    assert (result.stopped, result.wrong_elements) == ("time", 0)
    assert result.tflops_peak == max(row.values["tflops"] for row in heard.rows)
    assert result.checks >= len(heard.rows) == result.verified_products


async def test_copy_has_rows_of_each_way(runs: Runs) -> None:
    heard = await runs.run("copy", size=None, seconds=20.0, settings=LITTLE, fault=QUICK)
    assert heard.series() == [
        "device to device",
        "host to device, pageable",
        "device to host, pageable",
        "host to device, pinned",
        "device to host, pinned",
    ]
    for row in heard.rows:
        moved = (2 if row.series == "device to device" else 1) * row.x
        rate = moved / row.values["seconds"]
        assert row.values["bytes_per_second"] == pytest.approx(rate)
    assert heard.result.wrong_elements == 0
    assert heard.result.tflops_mean is heard.result.tflops_peak is None
    assert (heard.plan.m, heard.plan.n, heard.plan.k) == (0, 0, 0)


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


async def test_memory_writes_all_patterns(runs: Runs) -> None:
    heard = await runs.run("memory", size=None, seconds=1.0, settings=LITTLE)
    assert heard.result.wrong_elements == 0
    assert heard.samples[-1].bytes_per_second
    assert heard.result.points[0].series == "random"
    assert heard.plan.layout.startswith("blocks of ")
    assert (heard.plan.m, heard.plan.n, heard.plan.k) == (0, 0, 0)


async def test_burn_multiplies_and_copies(runs: Runs) -> None:
    heard = await runs.run("burn", settings=LITTLE)
    notes = " ".join(heard.result.notes)
    assert "operands of " in notes
    assert "GB/s of copies" in notes
    assert (heard.result.wrong_elements, heard.result.mismatches) == (0, {})


async def test_pulse_says_how_long_it_was_loaded(runs: Runs) -> None:
    heard = await runs.run("pulse", hertz=4.0)
    (note,) = (each for each in heard.result.notes if each.startswith("loaded for "))
    assert note.partition(" %")[2].startswith(" of the time, at 4 Hz, with ")
    assert 0 < float(note.split()[2]) < 100
    assert heard.plan.data == "random normal in pulses of 4 Hz"
    assert any("power is read once a second" in note for note in heard.result.notes)
