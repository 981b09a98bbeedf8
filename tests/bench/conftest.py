"""Workers of sessions are forked, as those of `RawWorker` are, and have no guard."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from gputop.bench.results import store
from gputop.bench.run.worker_launch import WORKER
from tests.bench.cuda import Runs
from tests.bench.forked import forking
from tests.bench.workers import FAKE_WORKER

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
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of results, which is not there yet."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert store.results_path() == tmp_path / "data" / "gputop" / "results.sqlite"
    return store.results_path()


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """Runs on the fake CUDA."""
    return Runs(tmp_path)
