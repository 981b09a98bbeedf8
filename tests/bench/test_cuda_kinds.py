from dataclasses import replace

import pytest

from gputop.bench.plan.kinds import DTYPES
from tests.bench.cuda import MACHINE, Runs
from tests.bench.workers import needs_torch

pytestmark = needs_torch

LITTLE = replace(MACHINE, memory_gib=1.25)
"""A GPU with room for copies of 16 MiB, and for no larger ones."""
OLD_TORCH = replace(MACHINE, torch="2.4.1")


@pytest.mark.daily(3)
@pytest.mark.parametrize("dtype", DTYPES)
async def test_soak_in_every_data_type(runs: Runs, dtype: str) -> None:
    heard = await runs.run("soak", dtype)
    result = heard.result
    assert (result.stopped, result.wrong_elements, result.dtype) == ("time", 0, dtype)
    assert (result.device_index, result.threads, bool(result.cuda_version)) == (0, None, True)
    assert result.checks >= 4
    assert result.mismatches == {}
    assert result.tflops_device is not None


@pytest.mark.parametrize("dtype", ["tf32", "float8_e4m3"])
async def test_types_of_which_old_versions_have_another_call(runs: Runs, dtype: str) -> None:
    result = (await runs.run("soak", dtype, settings=OLD_TORCH)).result
    assert result.torch_version == "2.4.1+cu128"
    assert result.wrong_elements == 0


async def test_memory_writes_all_patterns(runs: Runs) -> None:
    heard = await runs.run("memory", size=None, seconds=1.0, settings=LITTLE)
    assert heard.result.wrong_elements == 0
    assert heard.samples[-1].bytes_per_second
    assert heard.result.points[0].series == "random"


async def test_burn_multiplies_and_copies(runs: Runs) -> None:
    heard = await runs.run("burn", settings=LITTLE)
    notes = " ".join(heard.result.notes)
    assert "operands of " in notes
    assert "GB/s of copies" in notes
    assert (heard.result.wrong_elements, heard.result.mismatches) == (0, {})
