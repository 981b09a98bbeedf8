"""What goes wrong with CUDA, by the real worker on a fake one: the exit status and what is kept."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gputop.bench.events import Done, Event, Failed, Point, Progress
from tests.bench.cuda import MACHINE, Runs, target
from tests.bench.workers import QUICK, needs_torch
from tests.fake_cuda.settings import Fault, Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gputop.bench.run.session import Session

pytestmark = needs_torch

BUSY = "CUDA error: CUDA-capable device(s) is/are busy or unavailable"
NOT_INITIALIZED = (
    "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
    "NumCudaDevices() that might have already set an error? Error 802: system not yet initialized"
)
NO_ROOM = Fault("allocate", exception="OutOfMemoryError", message="CUDA out of memory.")
NO_KERNEL = "CUDA error: no kernel image is available for execution on the device"


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """Runs on fake GPUs."""
    return Runs(tmp_path)


def with_faults(*faults: Fault, settings: Settings = MACHINE) -> Settings:
    """Return a machine with these faults."""
    return replace(settings, faults=faults)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (with_faults(Fault("context", message=BUSY)), "busy or unavailable"),
        (with_faults(Fault("init", message=NOT_INITIALIZED)), "system not yet initialized"),
        (with_faults(Fault("product", message=NO_KERNEL)), "no kernel image"),
        (replace(MACHINE, archs="sm_50 sm_60"), "built for sm_50 sm_60"),
        (with_faults(NO_ROOM), "CUDA out of memory"),
        (with_faults(Fault("pin", message="no pinned memory")), "no pinned memory"),
    ],
)
async def test_a_device_that_cannot_be_used_is_not_called_faulty(
    runs: Runs, settings: Settings, says: str
) -> None:
    failed = (await runs.run("soak", settings=settings)).failed
    assert failed.status == 3
    assert says in failed.problem.why
    assert "\n" not in str(failed.problem)


async def test_products_that_do_not_fit_are_refused(runs: Runs) -> None:
    slow = replace(MACHINE, rates={"bfloat16": 0.1})
    unknown = replace(target(slow), memory_free_bytes=None)
    heard = await runs.run("soak", "bfloat16", 32768, 6000.0, settings=slow, target=unknown)
    assert heard.failed.status == 3
    assert heard.failed.problem.what.startswith("Products of size 32768 do not fit")


def in_the_middle(file: Path) -> Callable[[Event, Session], None]:
    """Let the faults of that file happen from the first sample or row on."""

    def hear(event: Event, _: Session) -> None:
        if isinstance(event, Progress | Point):
            file.touch()

    return hear


@pytest.mark.parametrize("kind", ["soak", "latency"])
async def test_a_device_that_dies_is_a_fault(runs: Runs, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "now"
    dies = with_faults(Fault("product", "die", file=str(file)))
    size = 256 if kind == "soak" else None
    heard = await runs.run(
        kind, size=size, seconds=30.0, settings=dies, fault=QUICK, hear=in_the_middle(file)
    )
    assert heard.failed.status == 1
    assert "an illegal memory access" in heard.failed.problem.why
    assert "Xid" in heard.failed.problem.remedy


async def test_a_device_that_hangs_is_a_fault(runs: Runs, tmp_path: Path) -> None:
    file = tmp_path / "now"
    hangs = with_faults(Fault("product", "hang", file=str(file)))
    heard = await runs.run(
        "soak",
        seconds=30.0,
        settings=hangs,
        fault="backends.Cuda.patience = 0.5\n",
        hear=in_the_middle(file),
    )
    assert heard.failed.status == 1
    assert heard.failed.problem.what == "The device hangs"


@pytest.mark.parametrize("verify_all", [False, True])
async def test_wrong_elements_in_the_middle_are_counted(
    runs: Runs, tmp_path: Path, verify_all: bool
) -> None:
    file = tmp_path / "now"
    wrong = with_faults(Fault("product", "wrong", file=str(file)))
    result = (
        await runs.run(
            "soak", seconds=2.0, settings=wrong, hear=in_the_middle(file), verify_all=verify_all
        )
    ).result
    assert result.wrong_elements > 0
    assert result.mismatches["wrong"] > 0


async def test_a_device_that_is_wrong_from_the_first_product_on_is_a_fault(runs: Runs) -> None:
    heard = await runs.run("soak", settings=with_faults(Fault("product", "wrong")))
    assert heard.failed.status == 1
    assert heard.failed.problem.what == "The device computes wrong results"


@pytest.mark.parametrize("verify_all", [False, True])
async def test_other_bits_are_no_fault(runs: Runs, tmp_path: Path, verify_all: bool) -> None:
    file = tmp_path / "now"
    other = with_faults(Fault("product", "other bits", file=str(file)))
    result = (
        await runs.run(
            "soak", seconds=2.0, settings=other, hear=in_the_middle(file), verify_all=verify_all
        )
    ).result
    assert result.wrong_elements == 0
    assert result.mismatches["other bits"] > 0


async def test_a_size_that_does_not_fit_after_all_ends_the_rows_of_its_type(runs: Runs) -> None:
    """As if somebody else had taken the memory since the plan."""
    full = Fault("product", exception="OutOfMemoryError", message="CUDA out of memory.", size=32)
    settings = with_faults(full)
    result = (await runs.run("sweep", "bfloat16", 64, settings=settings, fault=QUICK)).result
    assert "bfloat16: no size from 32 on, it does not fit after all" in result.notes
    assert [row.x for row in result.points] == [1, 2, 4, 8, 16]


async def test_memory_that_cannot_be_pinned_is_a_note(runs: Runs) -> None:
    machine = with_faults(
        Fault("pin", after=2, message="CUDA error: OS call failed"),
        settings=replace(MACHINE, memory_gib=1.25),
    )
    heard = await runs.run("copy", size=None, settings=machine, fault=QUICK)
    assert "pinned: absent at 1 MiB, CUDA error: OS call failed" in heard.result.notes
    assert heard.series() == [
        "device to device",
        "host to device, pageable",
        "device to host, pageable",
    ]


@pytest.mark.slow
async def test_a_step_that_does_not_compile_is_left_out(runs: Runs) -> None:
    machine = with_faults(Fault("compile", message="no compiler"))
    result = (await runs.run("step", size=None, seconds=20.0, settings=machine, fault=QUICK)).result
    assert [row.series for row in result.points] == ["7B/16, eager", "70B/16, eager"]
    assert "7B/16, compiled: left out, torch.compile: no compiler" in result.notes


@pytest.mark.parametrize("kind", ["soak", "sweep", "memory", "copy", "latency"])
async def test_a_run_is_stopped_at_once_and_keeps_what_it_has(runs: Runs, kind: str) -> None:
    stops: list[asyncio.Task[None]] = []

    def hear(event: Event, session: Session) -> None:
        if isinstance(event, Progress | Point) and not stops:
            stops.append(asyncio.create_task(session.stop()))

    size = 512 if kind in ("soak", "sweep") else None
    machine = replace(MACHINE, memory_gib=1.25)
    heard = await runs.run(kind, size=size, seconds=600.0, settings=machine, fault=QUICK, hear=hear)
    assert isinstance(heard.last, Done | Failed)
    assert heard.result.stopped == "user"
    assert heard.samples or heard.rows


HALTED_WITH_A_CHECK_IN_FLIGHT = """
launch = backends.Cuda.launch
def launch_and_halt(self, product, products, *, check):
    launch(self, product, products, check=check)
    if check:
        self._halt.set()
backends.Cuda.launch = launch_and_halt
"""


@pytest.mark.parametrize("kind", ["soak", "burn"])
async def test_a_stop_right_after_the_first_check_finds_nothing_wrong(
    runs: Runs, kind: str
) -> None:
    """C was set aside, and the other C, which is compared last, has no product yet."""
    machine = replace(MACHINE, memory_gib=1.25)
    result = (
        await runs.run(kind, seconds=30.0, settings=machine, fault=HALTED_WITH_A_CHECK_IN_FLIGHT)
    ).result
    assert result.seconds < 10
    assert (result.wrong_elements, result.mismatches) == (0, {})
