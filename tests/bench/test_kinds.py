"""Every kind of run on the CPU: end to end, stopped in the middle, and on a device that fails."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import pytest

from gputop.bench.events import Done, Failed, Planned
from gputop.bench.plan.kinds import KINDS
from gputop.bench.plan.request import Request
from gputop.bench.run.worker_launch import ChildProcess
from tests.bench.workers import (
    CPU,
    QUICK,
    STOP_SECONDS,
    RawWorker,
    broken_worker,
    fake_interpreter,
    needs_torch,
    request,
)
from tests.sessions import Session

if TYPE_CHECKING:
    from pathlib import Path

    from gputop.bench.events import Event

pytestmark = needs_torch

TABLES = tuple(
    name
    for name, kind in KINDS.items()
    if not (kind.over_time or kind.several_devices or name == "check")  # runs of the others
)
PRODUCTS = tuple(kind for kind in TABLES if kind not in ("copy", "step"))
SIZES = {"sweep": 96, "peak": 384}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where other tests use the cores, threads wait for each other longer than they compute."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def asked(kind: str, seconds: float = 3.0, dtype: str = "float32") -> Request:
    return request(dtype, SIZES.get(kind), seconds, kind)


@pytest.fixture(params=TABLES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.slow
def test_a_table_from_hello_to_its_result(kind: str) -> None:
    with RawWorker(asked(kind)) as raw:
        events = list(raw.events())
    names = [event["event"] for event in events]
    assert names[:2] == ["hello", "plan"]
    assert names[-1] == "done", events[-1]
    assert set(names[2:-1]) == {"point", "verify"}
    points = [event for event in events if event["event"] == "point"]
    done = events[-1]
    assert 0 < len(points) <= events[1]["rows"]
    figures = done["figures"]
    assert figures["wrong_elements"] == 0
    assert figures["checks"] >= figures["verified_products"] == len(points)
    assert done["stopped"] == "time"
    # A slow machine may have no time for a step more than each row needs.
    assert figures["iterations"] >= len(points) + (kind != "step")
    for point in points:
        values = point["values"]
        assert values["seconds"] > 0
        if kind == "copy":
            assert values["bytes_per_second"] == pytest.approx(2 * point["x"] / values["seconds"])
        elif kind == "step":
            tokens = point["x"] / values["seconds"]
            assert values["tokens_per_second"] == pytest.approx(tokens)
        else:
            m, n, k = point["shape"]
            assert values["tflops"] == pytest.approx(2 * m * n * k / values["seconds"] / 1e12)
    if kind != "copy":
        best = max(points, key=lambda point: float(point["values"]["tflops"]))
        if kind != "peak":  # where only what was confirmed counts
            assert figures["tflops_peak"] == best["values"]["tflops"]
            assert figures["shape"] == (best["shape"] or [0, 0, 0])
        assert 0 < figures["tflops_mean"] <= best["values"]["tflops"] * 1.5
    else:
        assert figures["tflops_mean"] is figures["tflops_peak"] is None


def broken(folder: Path, kind: str, fault: str, seconds: float = 600.0) -> Session:
    path = fake_interpreter(folder, broken_worker(fault))
    return Session(Request(CPU, "float32", SIZES.get(kind), seconds, path, kind))


def errors_of(session: Session) -> bytes:
    """What the worker has written to its standard error so far."""
    worker = session.runner._worker
    return worker._errors if isinstance(worker, ChildProcess) else b""


async def heard(session: Session) -> list[Event]:
    async with asyncio.timeout(60), contextlib.aclosing(session.events()) as events:
        return [event async for event in events]


AT_ONE_PRODUCT = """
multiply, seen = Product.multiply, set()
def failing(self, times=1):
    multiply(self, times)
    seen.add(self)
    if len(seen) > 2 and times > 1:
        self.c[0, 0] = {value}
Product.multiply = failing
"""
"""From the third product on, and only where they are timed."""


@pytest.mark.slow
@pytest.mark.parametrize("value", ["float('nan')", "self.c[0, 0] * 1.01"])
@pytest.mark.parametrize("kind", PRODUCTS)
async def test_a_wrong_element_of_a_table_is_found(tmp_path: Path, kind: str, value: str) -> None:
    session = broken(tmp_path, kind, AT_ONE_PRODUCT.format(value=value) + QUICK, 3.0)
    *_, last = await heard(session)
    assert isinstance(last, Done)
    assert 0 < last.result.wrong_elements < last.result.checks


LONG = """
work, add, sent = {work}, rows.Rows.add, []
def failing(self, times=1):
    if sent and times > 1:
        print("long", file=sys.stderr, flush=True)
        threading.Event().wait()
    work(self, times)
def sending(self, *arguments):
    add(self, *arguments)
    sent.append(arguments)
{work}, rows.Rows.add = failing, sending
fit = rows.products_in
rows.products_in = lambda *arguments, **options: max(2, fit(*arguments, **options))
"""
"""Once there is a row, a call for several products has no end; slow ones come in twos, too."""
WORK = {"copy": "copies.CopyPath.copy", "step": "step.Step.run"}


@pytest.mark.slow
async def test_a_table_that_is_stuck_in_one_call_is_stopped_with_its_rows(
    tmp_path: Path, kind: str
) -> None:
    """As in a product that takes a minute: only the watching thread can end that."""
    session = broken(tmp_path, kind, LONG.format(work=WORK.get(kind, "Product.multiply")))
    stopping: list[asyncio.Task[float]] = []
    last: Event | None = None

    async def stop() -> float:
        while b"long" not in errors_of(session):  # noqa: ASYNC110 - another process says it
            await asyncio.sleep(0.01)
        began = time.monotonic()
        await session.stop()
        return time.monotonic() - began

    async with asyncio.timeout(180), contextlib.aclosing(session.events()) as events:
        async for last in events:
            if isinstance(last, Planned):
                stopping.append(asyncio.create_task(stop()))
    assert await stopping[0] < STOP_SECONDS
    assert isinstance(last, Done)
    assert last.result.stopped == "user"
    assert last.result.points


@pytest.mark.slow
async def test_a_table_whose_device_hangs_is_a_fault(tmp_path: Path, kind: str) -> None:
    fault = LONG.format(work=WORK.get(kind, "Product.multiply")) + "main.HANG_SECONDS = 1.0\n"
    *_, last = await heard(broken(tmp_path, kind, fault))
    assert isinstance(last, Failed)
    assert last.status == 1
    assert "hangs" in last.problem.what
