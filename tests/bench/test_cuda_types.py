"""Data types on fake GPUs and versions of torch that do not have them, or not all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.bench.cuda import MACHINE, Runs, target
from tests.bench.workers import QUICK, needs_torch

pytestmark = needs_torch

OLD_TORCH = replace(MACHINE, torch="2.4.1")
WITHOUT_FLOAT8 = replace(MACHINE, capability="8.0")
"""A GPU that NVML says has float8, as `target` is of `MACHINE`."""


@pytest.mark.parametrize("dtype", ["tf32", "float8_e4m3"])
async def test_types_of_which_old_versions_have_another_call(runs: Runs, dtype: str) -> None:
    result = (await runs.run("soak", dtype, settings=OLD_TORCH)).result
    assert result.torch_version == "2.4.1+cu128"
    assert result.wrong_elements == 0


async def test_sums_in_float16_are_not_in_old_versions(runs: Runs) -> None:
    failed = (await runs.run("soak", "float16_acc16", settings=OLD_TORCH)).failed
    assert failed.status == 3
    assert "allow_fp16_accumulation" in failed.problem.why


async def test_float4_is_not_in_old_versions(runs: Runs) -> None:
    old = replace(OLD_TORCH, capability="10.0")
    failed = (await runs.run("soak", "float4", settings=old)).failed
    assert failed.status == 3
    assert "no float4_e2m1fn_x2" in failed.problem.why


async def test_a_type_that_the_gpu_does_not_have_is_a_note_beside_others(runs: Runs) -> None:
    heard = await runs.run(
        "sweep",
        "bfloat16,float8_e4m3",
        64,
        20.0,
        settings=WITHOUT_FLOAT8,
        fault=QUICK,
        target=target(),
    )
    assert heard.series() == ["bfloat16"]
    assert any(note.startswith("float8_e4m3: torch._scaled_mm") for note in heard.result.notes)


async def test_a_type_that_the_gpu_does_not_have_is_refused_alone(runs: Runs) -> None:
    heard = await runs.run("sweep", "float8_e4m3", 64, settings=WITHOUT_FLOAT8, target=target())
    assert heard.failed.status == 3
    assert heard.failed.problem.what == "float8_e4m3 cannot be run here"


async def test_a_sweep_without_a_possible_size_is_refused(runs: Runs) -> None:
    blackwell = replace(MACHINE, capability="10.0")
    failed = (await runs.run("sweep", "float4", 64, settings=blackwell)).failed
    assert failed.problem.what == "There are no float4 products of size 64 or less"


async def test_step_has_only_types_that_one_trains_in(runs: Runs) -> None:
    failed = (await runs.run("step", "int8", None)).failed
    assert failed.problem.why.startswith("a step trains in float32, tf32, ")
