"""What goes wrong with CUDA, by the real worker on a fake one: the exit status and what is kept."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gputop.bench.events import Done, Event, Failed, Point, Progress
from tests.bench.cuda import MACHINE, Runs, in_the_middle, with_faults
from tests.bench.workers import QUICK, needs_torch
from tests.fake_cuda.settings import Fault

if TYPE_CHECKING:
    from pathlib import Path

    from gputop.bench.run.session import Session

pytestmark = needs_torch


@pytest.mark.daily(1)
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


async def test_a_size_that_does_not_fit_after_all_ends_the_rows_of_its_type(runs: Runs) -> None:
    """As if somebody else had taken the memory since the plan."""
    full = Fault("product", exception="OutOfMemoryError", message="CUDA out of memory.", size=32)
    settings = with_faults(full)
    result = (await runs.run("sweep", "bfloat16", 64, 20.0, settings=settings, fault=QUICK)).result
    assert "bfloat16: no size from 32 on, it does not fit after all" in result.notes
    assert [row.x for row in result.points] == [1, 2, 4, 8, 16]


async def test_memory_that_cannot_be_pinned_is_a_note(runs: Runs) -> None:
    machine = with_faults(
        Fault("pin", after=2, message="CUDA error: OS call failed"),
        settings=replace(MACHINE, memory_gib=1.25),
    )
    heard = await runs.run("copy", size=None, seconds=20.0, settings=machine, fault=QUICK)
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


@pytest.mark.daily(3)
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
