"""Workers of sessions are forked, as those of `RawWorker` are, and have no guard."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from gputop.bench.events import Done, Progress
from gputop.bench.plan.request import Request
from gputop.bench.results import store
from gputop.bench.run.device_run import DeviceRun
from gputop.bench.run.worker_launch import WORKER
from gputop.commands import bench
from gputop.stream import child
from tests.bench.cuda import Runs
from tests.bench.forked import forking
from tests.bench.workers import FAKE_WORKER, RESULT
from tests.runs import ended
from tests.streams import inventory, sample

execute = asyncio.create_subprocess_exec


async def _execute(python: str, *arguments: str, **options: Any) -> asyncio.subprocess.Process:
    if arguments == (str(WORKER),):
        body = Path(python).with_name(FAKE_WORKER)
        if python == sys.executable:
            options |= forking(None, options["env"])
        elif body.exists() and "gputop_worker" in (program := body.read_text()):
            options |= forking(program, options["env"])
    return await execute(python, *arguments, **options)


@pytest.fixture(autouse=True)
def _forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio, "create_subprocess_exec", _execute)


@pytest.fixture(autouse=True)
def _no_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Test the worker alone: devices of most tests are none of a driver's."""
    monkeypatch.setattr("gputop.bench.run.worker_launch.agent_folders", lambda: None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of results, which is not there yet."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert store.folder() == tmp_path / "data" / "gputop" / "results"
    return store.folder()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The `requests` of a command, which are not run: each ends with `last`.

    `stream` is the inventory and the sample of the driver, or its error.
    """
    said: dict[str, Any] = {
        "stream": (inventory(3), sample(3, [])),
        "requests": [],
        "last": Done(RESULT),
    }

    async def one_snapshot(**_: bool) -> Any:
        if isinstance(said["stream"], Exception):
            raise said["stream"]
        return said["stream"]

    async def stress(requests: list[Request], *_: object) -> list[DeviceRun]:
        said["requests"] = requests
        windows = [Progress(0.2 * n, 0.2, n, 0.1 * n) for n in range(1, 4)]
        return [ended(each.target, *windows, said["last"]) for each in requests]

    monkeypatch.setattr(child, "one_snapshot", one_snapshot)
    monkeypatch.setattr(bench, "_stress", stress)
    return said


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Runs on the fake CUDA, which may take long to stop on a busy machine."""
    monkeypatch.setattr("gputop.bench.run.device_runner.STOP_SECONDS", 30.0)
    return Runs(tmp_path)
