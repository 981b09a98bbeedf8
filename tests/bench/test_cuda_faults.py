import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from gputop.bench.events import Event, Failed, Point, Progress
from gputop.console import INTERRUPTED
from tests.bench.cuda import Runs, from_the_plan_on, in_the_middle, is_wrong, with_faults
from tests.bench.test_cuda_kinds import LITTLE
from tests.bench.workers import QUICK, needs_torch
from tests.fake_cuda.settings import Fault, Settings
from tests.sessions import Session

pytestmark = needs_torch

HANGS = Fault("product", "hang", size=8)


async def test_a_device_that_dies_is_a_fault(runs: Runs, tmp_path: Path) -> None:
    file = tmp_path / "now"
    dies = with_faults(Fault("product", "die", file=str(file)))
    heard = await runs.run(seconds=30.0, settings=dies, hear=in_the_middle(file))
    assert heard.failed.status == 1
    assert "an illegal memory access" in heard.failed.problem.why
    assert "Xid" in heard.failed.problem.remedy


@pytest.mark.parametrize(
    ("kind", "size", "machine"),
    [
        ("soak", 512, LITTLE),
        ("memory", None, LITTLE),
        ("copy", None, LITTLE),
        ("sweep", 8, with_faults(HANGS)),  # in one call: only the watching thread can end that
    ],
)
async def test_a_run_is_stopped_at_once_and_keeps_what_it_has(
    runs: Runs, kind: str, size: int | None, machine: Settings
) -> None:
    stops: list[asyncio.Task[None]] = []

    def hear(event: Event, session: Session) -> None:
        has_some = isinstance(event, Point) or (isinstance(event, Progress) and event.iterations)
        if has_some and not stops:
            stops.append(asyncio.create_task(session.stop()))

    heard = await runs.run(kind, size=size, seconds=600.0, settings=machine, fault=QUICK, hear=hear)
    assert heard.result.stopped == "user"
    assert heard.samples or heard.rows


@pytest.mark.parametrize(
    ("kind", "dtype", "verify_all", "fault", "kinds"),
    [
        ("soak", "bfloat16", False, Fault("product", "wrong"), {"wrong"}),
        ("soak", "int8", True, Fault("product", "wrong"), {"wrong"}),
        ("burn", "bfloat16", False, Fault("copy", "wrong"), set()),
    ],
)
async def test_wrong_elements_in_the_middle_are_counted(
    runs: Runs,
    tmp_path: Path,
    kind: str,
    dtype: str,
    verify_all: bool,
    fault: Fault,
    kinds: set[str],
) -> None:
    file = tmp_path / "now"
    heard = await runs.run(
        kind,
        dtype,
        seconds=600.0,
        settings=with_faults(replace(fault, file=str(file)), settings=LITTLE),
        hear=in_the_middle(file, is_wrong),
        verify_all=verify_all,
    )
    assert heard.result.wrong_elements > 0
    assert set(heard.result.mismatches) == kinds


@pytest.mark.parametrize("spare", ["", "loads.room_beside = lambda *_: 0\n"], ids=["", "no room"])
async def test_other_bits_are_no_fault(runs: Runs, tmp_path: Path, spare: str) -> None:
    file = tmp_path / "now"
    heard = await runs.run(
        "soak",
        seconds=600.0,
        settings=with_faults(Fault("product", "other bits", file=str(file))),
        fault=spare + from_the_plan_on(file),
        hear=in_the_middle(file, lambda _: True),
    )
    assert heard.result.wrong_elements == 0
    assert heard.result.mismatches["other bits"] > 0


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


HALTED_WITH_A_CHECK_IN_FLIGHT = """
launch = backends.Cuda.launch
def launch_and_halt(self, product, products, *, check):
    launch(self, product, products, check=check)
    if check:
        self._halt.set()
backends.Cuda.launch = launch_and_halt
"""


async def test_a_stop_right_after_the_first_check_finds_nothing_wrong(runs: Runs) -> None:
    """C was set aside, and the other C, which is compared last, has no product yet."""
    fault = HALTED_WITH_A_CHECK_IN_FLIGHT
    heard = await runs.run("soak", seconds=600.0, settings=LITTLE, fault=fault)
    if isinstance(heard.last, Failed):  # on a busy machine it comes before a product is timed
        assert heard.failed.status == INTERRUPTED
        return
    assert (heard.result.wrong_elements, heard.result.mismatches) == (0, {})


async def test_a_device_that_hangs_in_a_table_is_a_fault_and_its_rows_are_kept(runs: Runs) -> None:
    fault, machine = (
        QUICK + "main.HANG_SECONDS, main.WATCH_SECONDS = 0.5, 0.1\n",
        with_faults(HANGS),
    )
    heard = await runs.run("sweep", size=8, seconds=1.0, settings=machine, fault=fault)
    assert heard.failed.status == 1
    assert heard.failed.problem.what == "The device hangs"
    assert [row.x for row in heard.rows] == [1, 2, 4]


async def test_collective_that_cannot_begin_is_no_fault_of_the_devices(runs: Runs) -> None:
    machine = with_faults(Fault("collective", message="NCCL error: unhandled system error"))
    ends = [heard.failed for heard in await runs.together("collective", 2, 2.0, settings=machine)]
    assert [end.status for end in ends] == [3, 3]
    assert any("unhandled system error" in end.problem.why for end in ends)
