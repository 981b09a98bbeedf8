import asyncio
import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputop.bench.events import Done, Event, Failed, Hello, Planned, Progress, Verified
from gputop.bench.plan.request import Request, Target
from gputop.bench.run import device_runner as module
from gputop.bench.run import worker_launch
from gputop.bench.worker import environment
from tests.bench.workers import CPU, broken_worker, fake_interpreter, needs_torch, request
from tests.sessions import Session

HELLO = (
    '{"event": "hello", "python": "3.11.0", "torch_version": "9.9.9", "device_name": "a CPU", '
    '"threads": 2, "pid": %d}'
)
ERROR = {"event": "error", "kind": "torch", "what": "W", "why": "Y", "remedy": "R"}
REFUSED = json.dumps(ERROR | {"why": "Resource temporarily unavailable"})
DONE = (
    '{"event": "done", "stopped": "time", "figures": {"seconds": 1.0, "iterations": 3, '
    '"checks": 0, "verified_products": 0, "wrong_elements": 0}}'
)
SAYS_HELLO = f"import os, sys, time, signal\nprint({HELLO!r} % os.getpid(), flush=True)\n"
WAITS = "import select\nselect.select([], [], [])\n"
DEAF = f"import signal; signal.signal(15, signal.SIG_IGN)\n{SAYS_HELLO}{WAITS}"


def gone(pid: int) -> bool:
    """Whether that process has ended and was collected."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def fake(folder: Path, body: str) -> Session:
    return Session(Request(CPU, "float32", 256, 1.0, fake_interpreter(folder, body)))


@needs_torch
async def test_a_run_from_hello_to_its_result() -> None:
    asked = request(size=256)
    events = await Session(asked).heard()
    assert [type(event) for event in events[:3]] == [Hello, Planned, Verified]
    assert any(isinstance(event, Progress) for event in events)
    assert [event for event in events if isinstance(event, Done | Failed)] == [events[-1]]
    hello, last = events[0], events[-1]
    assert isinstance(hello, Hello)
    assert isinstance(last, Done)
    result = last.result
    assert (result.m, result.n, result.k, result.dtype) == (256, 256, 256, "float32")
    assert (result.device, result.device_uuid, result.python) == ("a CPU", None, asked.python)
    assert (result.device_index, result.cuda_version, result.threads) == (None, None, hello.threads)
    assert (result.kind, result.points, result.stopped) == ("soak", (), "time")
    assert (result.tflops_peak or 0) >= (result.tflops_mean or 0) > 0
    assert result.wrong_elements == 0
    assert abs(result.started_at - time.time()) < 60
    assert "256×256×256 float32" in result.method
    assert gone(hello.pid)


@needs_torch
async def test_an_interpreter_may_print_when_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a `sitecustomize` or a `.pth` file does, also without a newline."""
    printed = b"(base) activated\n\nWelcome \x1b]0;x\x07"
    (tmp_path / "sitecustomize.py").write_text(f"import os; os.write(1, {printed!r})\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    *_, last = await Session(request(size=256, seconds=0.5)).heard()
    assert isinstance(last, Done)
    (note,) = (each for each in last.result.notes if "printed" in each)
    assert note == "the interpreter printed before the run: (base) activated"


@needs_torch
async def test_cancelling_the_task_leaves_no_worker() -> None:
    pids: asyncio.Queue[int] = asyncio.Queue()

    async def watch() -> None:
        pid = 0
        async for event in Session(request(seconds=600.0)).events():
            pid = event.pid if isinstance(event, Hello) else pid
            if isinstance(event, Progress):
                pids.put_nowait(pid)

    task = asyncio.create_task(watch())
    pid = await asyncio.wait_for(pids.get(), 120)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task
    await eventually(lambda: gone(pid))


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - another process makes it true
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('print(\'{"event": "what"}\')', "what"),
        (f"{SAYS_HELLO}print({DONE!r})", "done"),
        ("print('\\x1b[2J garbage')", "␛[2J garbage"),
        ("print('x' * 200000)", "a line without an end"),
        ("while True: print(flush=True)", "sent something that is not an event"),
        (
            f"{SAYS_HELLO}while True: print({HELLO!r} % 1)",
            "sends too much: more than 200 events a second",
        ),
        ("import sys; sys.exit('first\\nlast \\x1b[31mwords')", "exit status 1, last ␛[31mwords"),
        ("print('no licence'); print('bye')", "exit status 0, after it printed 'no licence'"),
        ('raise RuntimeError("can\'t start new thread")', "RLIMIT_NPROC"),
        (f"print({REFUSED!r})", "RLIMIT_NPROC"),
        ("import os; os.kill(os.getpid(), 9)", "choose a smaller --size or --memory-share"),
        ("import os; os.kill(os.getpid(), 11)", "SIGSEGV. Check that `import torch` works"),
        (f"{SAYS_HELLO}os.kill(os.getpid(), 11)", "SIGSEGV. Look for the cause in `dmesg`"),
        (f"import os; os.close(1); os.close(2)\n{WAITS}", "closed its output"),
    ],
)
async def test_whatever_a_worker_does_there_is_one_ending(
    tmp_path: Path, body: str, says: str
) -> None:
    events = await fake(tmp_path, body).heard()
    endings = [event for event in events if isinstance(event, Done | Failed)]
    assert endings == [events[-1]]
    last = events[-1]
    assert isinstance(last, Failed)
    assert says in str(last.problem)
    assert "\n" not in str(last.problem)
    assert "\x1b" not in str(last.problem)
    assert last.status == 3


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (f"print('Choose:', flush=True)\n{WAITS}", ", after it printed 'Choose:'"),
        (f"{SAYS_HELLO}{WAITS}", ""),
    ],
)
async def test_a_silent_worker_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, why: str
) -> None:
    monkeypatch.setattr("gputop.bench.run.device_runner.SILENT_SECONDS", 0.5)
    events = await fake(tmp_path, body).heard()
    assert isinstance(events[-1], Failed)
    assert events[-1].problem.what == "The stress test's worker does not answer"
    assert events[-1].problem.why == f"it sent nothing for 0.5 s{why}"
    assert events[-1].status == 3
    assert all(gone(event.pid) for event in events if isinstance(event, Hello))


@pytest.mark.parametrize("forced", [False, True])
async def test_a_worker_that_does_not_listen_is_ended_by_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, forced: bool
) -> None:
    monkeypatch.setattr(module, "STEP_SECONDS", 0.2)
    session = fake(tmp_path, DEAF)
    events: list[Event] = []
    stops = []
    async with asyncio.timeout(30), contextlib.aclosing(session.events()) as stream:
        async for event in stream:
            events.append(event)
            if forced:
                session.kill()
            elif isinstance(event, Hello):
                stops.append(asyncio.create_task(session.stop()))
    await asyncio.gather(*stops)
    assert isinstance(events[0], Hello)
    assert isinstance(events[-1], Failed)
    assert events[-1].status == 130
    assert gone(events[0].pid)


async def test_a_stop_before_the_worker_speaks_ends_it(tmp_path: Path) -> None:
    session = fake(tmp_path, f"open('{tmp_path}/begun', 'w').close()\n{WAITS}")
    listening = asyncio.create_task(session.heard())
    await eventually((tmp_path / "begun").exists)
    await asyncio.wait_for(session.stop(), 10)
    (last,) = await listening
    assert isinstance(last, Failed)
    assert last.status == 130
    assert last.problem.what == "The stress test was stopped"


async def test_a_stop_while_the_worker_starts_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, start = fake(tmp_path, WAITS), worker_launch.Launcher.start

    async def start_and_stop(*arguments: Any) -> Any:
        worker = await start(*arguments)
        await session.stop()
        return worker

    monkeypatch.setattr(worker_launch.Launcher, "start", start_and_stop)
    (last,) = await asyncio.wait_for(session.heard(), 10)
    assert isinstance(last, Failed)
    assert last.status == 130


async def test_a_limit_before_the_first_figures_is_the_reason(tmp_path: Path) -> None:
    body = f"{SAYS_HELLO}print({json.dumps(LIMIT)!r})"
    *_, last = await fake(tmp_path, body).heard()
    assert isinstance(last, Failed)
    assert last.status == 4
    assert last.problem.what == "The stress test was ended by a limit"
    assert last.problem.remedy.startswith("Check the device")


GREETING = {
    "event": "hello",
    "python": "3.11.0",
    "torch_version": "9.9.9",
    "device_name": "a GPU",
    "threads": 2,
    "pid": 1,
}
PLAN = {
    "event": "plan",
    **dict.fromkeys(("m", "n", "k"), 1024),
    **dict.fromkeys(("dtype", "accumulate", "layout", "data", "method"), "as planned"),
    "relative_error": 1e-6,
}
WRONG = {"event": "verify", "checks": 3, "wrong_elements": 2}
LIMIT = {"event": "limit", "by": "limit", "title": "Too hot", "why": "90°C"}
ONE_WRONG = (
    "The device computes wrong results: 1 element was wrong in 3 checks, and then the run "
    "ended early (W: Y). Do not train on it; run the test again to be sure"
)
WRONG_RESULTS = "The device computes wrong results: 2 elements were wrong in 3 checks, and then"


@pytest.mark.parametrize(
    ("said", "status", "says"),
    [
        ((GREETING, PLAN, ERROR), 3, "W: Y. R"),
        ((GREETING, ERROR | {"kind": "died"}), 1, "W: Y. R"),
        ((GREETING, PLAN, ERROR | {"kind": "hang"}), 1, "W: Y. R"),
        ((GREETING, PLAN, LIMIT, ERROR), 4, "W: Y. R"),
        ((GREETING, PLAN, ERROR | {"checks": 3, "wrong_elements": 1}), 1, ONE_WRONG),
        ((GREETING, PLAN, WRONG, ERROR), 1, WRONG_RESULTS),
        ((GREETING, PLAN, WRONG, ERROR | {"kind": "hang"}), 1, "W: Y; 2 elements were wrong"),
        ((GREETING, PLAN, WRONG), 1, "does not answer: it sent nothing for 1 s; 2 elements"),
        ((GREETING, PLAN), 1, "does not answer: it sent nothing for 1 s. Look for Xid errors"),
    ],
)
async def test_a_hang_a_death_and_wrong_results_are_faults_and_no_other_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: tuple[dict[str, object], ...],
    status: int,
    says: str,
) -> None:
    monkeypatch.setattr("gputop.bench.run.device_runner.SILENT_SECONDS", 1.0)
    body = f"import json, threading\nfor each in {said!r}: print(json.dumps(each), flush=True)\n"
    target = Target("cuda", "GPU-0a1b", 0, "a GPU", "9.0", None)
    path = fake_interpreter(tmp_path, body + "threading.Event().wait()")
    *_, last = await Session(Request(target, "bfloat16", 1024, 600.0, path)).heard()
    assert isinstance(last, Failed)
    assert last.status == status
    assert says in str(last.problem)


DIES_LATER = """
def failing(self, times=1):
    def synchronize(self):
        raise RuntimeError("CUDA error: unspecified launch failure")
    backends.Cpu.synchronize = synchronize
    raise RuntimeError("CUDA error: CUBLAS_STATUS_INTERNAL_ERROR when calling `cublasGemmEx`")
Product.multiply = failing
"""


@needs_torch
@pytest.mark.parametrize("dtype", ["float32", "int8"])
async def test_a_gpu_that_died_is_found_by_the_next_call(tmp_path: Path, dtype: str) -> None:
    """Also where the error would otherwise mean that the device does not have the data type."""
    path = fake_interpreter(tmp_path, broken_worker(DIES_LATER))
    *_, last = await Session(Request(CPU, dtype, 128, 600.0, path)).heard()
    assert isinstance(last, Failed)
    assert last.status == 1
    assert last.problem.what == "The device died"
    assert last.problem.why == "RuntimeError: CUDA error: unspecified launch failure"


def test_variables_that_change_the_measurement_are_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ("OMP_NUM_THREADS", "CUDA_CACHE_PATH", "NCCL_DEBUG")
    dropped = (
        "CUBLASLT_LOG_LEVEL",
        "CUBLAS_WORKSPACE_CONFIG",
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        "NVIDIA_TF32_OVERRIDE",
        "PYTORCH_CUDA_ALLOC_CONF",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    )
    for name in (*kept, *dropped):
        monkeypatch.setenv(name, "1" * 99)
    assert environment.unset_changing() == [f"{name}={'1' * 80}" for name in dropped]
    assert set(os.environ).isdisjoint(dropped)
    assert set(kept) <= set(os.environ)
