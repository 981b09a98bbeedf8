"""The session: one ending whatever the worker does, and no worker left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import TYPE_CHECKING

import pytest

from gputop.bench.events import Done, Event, Failed, Hello, Planned, Progress, Verified
from gputop.bench.plan.request import Request
from gputop.bench.run import device_runner as module
from tests.bench.workers import CPU, fake_interpreter, needs_torch, request
from tests.sessions import Session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HELLO = (
    '{"event": "hello", "python": "3.11.0", "torch_version": "9.9.9", "device_name": "a CPU", '
    '"threads": 2, "pid": %d}'
)
REFUSED = (
    '{"event": "error", "kind": "k", "what": "W", "remedy": "R", '
    '"why": "Resource temporarily unavailable"}'
)
DONE = (
    '{"event": "done", "stopped": "time", "figures": {"seconds": 1.0, "iterations": 3, '
    '"checks": 0, "verified_products": 0, "wrong_elements": 0}}'
)
SAYS_HELLO = f"import os, sys, time, signal\nprint({HELLO!r} % os.getpid(), flush=True)\n"
BOUND = 120.0
"""Seconds for a run of a real worker: to import torch takes long where others need the disk."""
WAITS = "import select\nselect.select([], [], [])\n"


async def heard(session: Session) -> list[Event]:
    async with asyncio.timeout(BOUND), contextlib.aclosing(session.events()) as events:
        return [event async for event in events]


def gone(pid: int) -> bool:
    """Whether that process has ended and was collected."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def fake(folder: Path, body: str, seconds: float = 1.0) -> Session:
    return Session(Request(CPU, "float32", 256, seconds, fake_interpreter(folder, body)))


@needs_torch
async def test_a_run_from_hello_to_its_result() -> None:
    asked = request(size=256, seconds=1.0)
    events = await heard(Session(asked))
    assert [type(event) for event in events[:3]] == [Hello, Planned, Verified]
    assert any(isinstance(event, Progress) for event in events)
    assert [event for event in events if isinstance(event, Done | Failed)] == [events[-1]]
    hello, last = events[0], events[-1]
    assert isinstance(hello, Hello)
    assert isinstance(last, Done)
    result = last.result
    assert (result.m, result.n, result.k, result.dtype) == (256, 256, 256, "float32")
    assert result.device == "a CPU"
    assert result.device_uuid is None
    assert result.python == asked.python
    assert result.stopped == "time"
    assert result.tflops_peak is not None
    assert result.tflops_mean is not None
    assert result.tflops_peak >= result.tflops_mean > 0
    assert (result.kind, result.points) == ("soak", ())
    assert result.wrong_elements == 0
    assert abs(result.started_at - time.time()) < 60
    assert "256×256×256 float32" in result.method
    assert gone(hello.pid)


@needs_torch
@pytest.mark.daily(1)
@pytest.mark.parametrize(
    "printed", [b"(base) activated\n\nWelcome\n", b"(base) activated \x1b]0;x\x07"]
)
async def test_an_interpreter_may_print_when_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: bytes
) -> None:
    """As a `sitecustomize` or a `.pth` file does, also without a newline."""
    (tmp_path / "sitecustomize.py").write_text(f"import os; os.write(1, {printed!r})\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    hello, *_, last = await heard(Session(request(size=256, seconds=0.5)))
    assert isinstance(hello, Hello)
    assert isinstance(last, Done)
    (note,) = (each for each in last.result.notes if "printed" in each)
    assert note.startswith("the interpreter printed before the run: (base) activated")
    assert note.isprintable()


@pytest.mark.parametrize(
    "body",
    [
        "while True: print('welcome', flush=True)",
        "while True: print(flush=True)",
        "print('x' * 60000); print('x' * 60000)",
    ],
)
async def test_an_interpreter_that_prints_for_ever_is_ended(tmp_path: Path, body: str) -> None:
    (last,) = await heard(fake(tmp_path, body))
    assert isinstance(last, Failed)
    assert "sent something that is not an event" in last.problem.what
    assert last.status == 3


async def test_what_an_interpreter_printed_in_place_of_hello_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (last,) = await heard(fake(tmp_path, "print('no licence'); print('bye')"))
    assert isinstance(last, Failed)
    assert last.problem.why == "exit status 0, after it printed 'no licence'"
    monkeypatch.setattr("gputop.bench.run.device_runner.SILENT_SECONDS", 0.5)
    (last,) = await heard(fake(tmp_path, f"print('Choose:', flush=True)\n{WAITS}"))
    assert isinstance(last, Failed)
    assert last.problem.why == "it sent nothing for 0.5 s, after it printed 'Choose:'"


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        ("soak", "choose a smaller --size or --memory-share"),
        ("memory", "choose a smaller --memory-share"),
    ],
)
async def test_the_remedy_of_a_killed_worker_names_options_of_its_kind(
    tmp_path: Path, kind: str, remedy: str
) -> None:
    python = fake_interpreter(tmp_path, "import os\nos.kill(os.getpid(), 9)\n")
    asked = Request(CPU, "float32", None, 1.0, python, kind)
    async with asyncio.timeout(BOUND), contextlib.aclosing(Session(asked).events()) as stream:
        events = [event async for event in stream]
    last = events[-1]
    assert isinstance(last, Failed)
    assert last.problem.remedy == f"If memory ran out (`dmesg` says so), {remedy}"


@pytest.mark.daily(1)
@needs_torch
@pytest.mark.parametrize("awaited", [Hello, Progress])
async def test_cancelling_the_task_leaves_no_worker(awaited: type[Event]) -> None:
    pids: asyncio.Queue[int] = asyncio.Queue()

    async def watch() -> None:
        pid = 0
        async for event in Session(request(seconds=600.0)).events():
            pid = event.pid if isinstance(event, Hello) else pid
            if isinstance(event, awaited):
                pids.put_nowait(pid)

    task = asyncio.create_task(watch())
    pid = await asyncio.wait_for(pids.get(), BOUND)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task
    await eventually(lambda: gone(pid))


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - another process makes it true
            await asyncio.sleep(0.01)


async def test_kill_ends_it_at_once(tmp_path: Path) -> None:
    session = fake(tmp_path, f"{SAYS_HELLO}signal.signal(15, signal.SIG_IGN)\n{WAITS}")
    events = []
    async with asyncio.timeout(30), contextlib.aclosing(session.events()) as stream:
        async for event in stream:
            events.append(event)
            session.kill()
    assert isinstance(events[0], Hello)
    assert isinstance(events[-1], Failed)
    assert events[-1].status == 130
    assert gone(events[0].pid)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("print('not an event')", "not an event"),
        ('print(\'{"event": "what"}\')', "what"),
        ("print('[]')", "[]"),
        ('print(\'{"event": "hello"}\')', "hello"),
        ('print(\'{"event": "done", "iterations": 3}\')', "done"),
        (f"{SAYS_HELLO}print({DONE!r})", "done"),
        ("print('\\x1b[2J garbage')", "␛[2J garbage"),
        ("print('x' * 200000)", "a line without an end"),
        ("import sys; sys.exit('first\\nlast \\x1b[31mwords')", "exit status 1, last ␛[31mwords"),
        ("pass", "exit status 0"),
        ("raise SystemExit(7)", "exit status 7"),
        ('raise RuntimeError("can\'t start new thread")', "RLIMIT_NPROC"),
        (
            f"print({REFUSED!r})",
            "RLIMIT_NPROC",
        ),
        ("import os; os.kill(os.getpid(), 11)", "SIGSEGV"),
        ("import os; os.kill(os.getpid(), 40)", "40"),
        (f"import os; os.close(1); os.close(2)\n{WAITS}", "closed its output"),
        (
            'print(\'{"event": "error", "kind": "k", "what": "W", "why": "Y", "remedy": "R"}\')',
            "W: Y. R",
        ),
    ],
)
async def test_whatever_a_worker_does_there_is_one_ending(
    tmp_path: Path, body: str, says: str
) -> None:
    events = await heard(fake(tmp_path, body))
    endings = [event for event in events if isinstance(event, Done | Failed)]
    assert endings == [events[-1]]
    last = events[-1]
    assert isinstance(last, Failed)
    assert says in str(last.problem)
    assert "\n" not in str(last.problem)
    assert "\x1b" not in str(last.problem)
    assert last.status == 3


@pytest.mark.parametrize("body", [WAITS, f"{SAYS_HELLO}{WAITS}"])
async def test_a_silent_worker_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    monkeypatch.setattr("gputop.bench.run.device_runner.SILENT_SECONDS", 0.5)
    events = await heard(fake(tmp_path, body))
    assert isinstance(events[-1], Failed)
    assert events[-1].problem.what == "The stress test's worker does not answer"
    assert events[-1].status == 3
    assert all(gone(event.pid) for event in events if isinstance(event, Hello))


async def test_a_worker_that_does_not_listen_is_ended_by_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEP_SECONDS", 0.2)
    session = fake(
        tmp_path, f"import signal; signal.signal(15, signal.SIG_IGN)\n{SAYS_HELLO}{WAITS}"
    )
    events = []
    stopping: asyncio.Task[None] | None = None
    async with asyncio.timeout(30), contextlib.aclosing(session.events()) as stream:
        async for event in stream:
            events.append(event)
            if isinstance(event, Hello):
                stopping = asyncio.create_task(session.stop())
    assert stopping is not None
    await stopping
    assert isinstance(events[0], Hello)
    assert isinstance(events[-1], Failed)
    assert events[-1].status == 130
    assert gone(events[0].pid)


async def test_a_stop_before_the_worker_speaks_ends_it(tmp_path: Path) -> None:
    session = fake(tmp_path, f"open('{tmp_path}/begun', 'w').close()\n{WAITS}")
    listening = asyncio.create_task(heard(session))
    await eventually((tmp_path / "begun").exists)
    await asyncio.wait_for(session.stop(), 10)
    (last,) = await listening
    assert isinstance(last, Failed)
    assert last.status == 130


async def test_what_does_not_fit_starts_nothing(tmp_path: Path) -> None:
    path = fake_interpreter(tmp_path, "raise SystemExit('started')")
    (last,) = await heard(Session(Request(CPU, "float32", 1 << 20, 1.0, path)))
    assert isinstance(last, Failed)
    assert last.status == 3
    assert "do not fit" in last.problem.what
