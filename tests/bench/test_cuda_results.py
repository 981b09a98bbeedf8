"""Wrong results, other bits, and wrong words on a fake GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.bench.cuda import MACHINE, Runs, from_the_plan_on, in_the_middle, is_wrong, with_faults
from tests.bench.workers import QUICK, needs_torch
from tests.fake_cuda.settings import Fault

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = needs_torch

LITTLE = replace(MACHINE, memory_gib=1.25)


@pytest.mark.daily(1)
@pytest.mark.parametrize(
    ("dtype", "verify_all"),
    [("bfloat16", False), ("bfloat16", True), ("int8", False), ("int8", True)],
)
async def test_wrong_elements_in_the_middle_are_counted(
    runs: Runs, tmp_path: Path, dtype: str, verify_all: bool
) -> None:
    file = tmp_path / "now"
    heard = await runs.run(
        "soak",
        dtype,
        seconds=600.0,
        settings=with_faults(Fault("product", "wrong", file=str(file))),
        hear=in_the_middle(file, is_wrong),
        verify_all=verify_all,
    )
    assert heard.result.wrong_elements > 0
    assert set(heard.result.mismatches) == {"wrong"}


async def test_a_device_that_is_wrong_from_the_first_product_on_is_a_fault(runs: Runs) -> None:
    heard = await runs.run("soak", settings=with_faults(Fault("product", "wrong")))
    assert heard.failed.status == 1
    assert heard.failed.problem.what == "The device computes wrong results"


@pytest.mark.daily(1)
@pytest.mark.parametrize("verify_all", [False, True])
async def test_other_bits_are_no_fault(runs: Runs, tmp_path: Path, verify_all: bool) -> None:
    file = tmp_path / "now"
    heard = await runs.run(
        "soak",
        settings=with_faults(Fault("product", "other bits", file=str(file))),
        fault=from_the_plan_on(file),
        verify_all=verify_all,
    )
    assert heard.result.wrong_elements == 0
    assert heard.result.mismatches["other bits"] > 0


async def test_without_room_for_a_spare_product_other_bits_are_no_fault(
    runs: Runs, tmp_path: Path
) -> None:
    file = tmp_path / "now"
    heard = await runs.run(
        "soak",
        settings=with_faults(Fault("product", "other bits", file=str(file))),
        fault="loads.room_beside = lambda *_: 0\n" + from_the_plan_on(file),
    )
    assert heard.result.wrong_elements == 0
    assert heard.result.mismatches["other bits"] > 0


@pytest.mark.slow
async def test_products_that_are_wrong_at_times_are_unexplained(runs: Runs, tmp_path: Path) -> None:
    file = tmp_path / "now"
    heard = await runs.run(
        "soak",
        seconds=600.0,
        settings=with_faults(Fault("product", "wrong", every=3, file=str(file))),
        hear=in_the_middle(file, is_wrong),
    )
    assert heard.result.wrong_elements > 0
    assert set(heard.result.mismatches) == {"unexplained"}


async def test_a_wrong_word_of_memory_is_described(runs: Runs, tmp_path: Path) -> None:
    wrong = Fault("write", "wrong", after=3, times=1)
    heard = await runs.run(
        "memory",
        size=None,
        seconds=600.0,
        settings=with_faults(wrong, settings=LITTLE),
        hear=in_the_middle(tmp_path / "now", is_wrong),
    )
    assert heard.result.wrong_elements == 1
    (note,) = (note for note in heard.result.notes if note.startswith("wrong word at offset 0x"))
    assert "flipped bits 3 (random, pass 1)" in note


@pytest.mark.slow
async def test_wrong_copies_beside_products_are_counted(runs: Runs, tmp_path: Path) -> None:
    file = tmp_path / "now"
    wrong = Fault("copy", "wrong", file=str(file))
    heard = await runs.run(
        "burn",
        seconds=600.0,
        settings=with_faults(wrong, settings=LITTLE),
        hear=in_the_middle(file, is_wrong),
    )
    assert heard.result.wrong_elements > 0


async def test_a_wrong_corner_of_the_first_product_is_found(runs: Runs) -> None:
    machine = with_faults(Fault("product", "wrong", size=32, after=1, times=1))
    heard = await runs.run("sweep", size=64, seconds=20.0, settings=machine, fault=QUICK)
    assert heard.result.wrong_elements > 0


HALTED_WITH_A_CHECK_IN_FLIGHT = """
launch = backends.Cuda.launch
def launch_and_halt(self, product, products, *, check):
    launch(self, product, products, check=check)
    if check:
        self._halt.set()
backends.Cuda.launch = launch_and_halt
"""


@pytest.mark.daily(1)
@pytest.mark.parametrize("kind", ["soak", "burn"])
async def test_a_stop_right_after_the_first_check_finds_nothing_wrong(
    runs: Runs, kind: str
) -> None:
    """C was set aside, and the other C, which is compared last, has no product yet."""
    fault = HALTED_WITH_A_CHECK_IN_FLIGHT
    heard = await runs.run(kind, seconds=600.0, settings=LITTLE, fault=fault)
    assert (heard.result.wrong_elements, heard.result.mismatches) == (0, {})
