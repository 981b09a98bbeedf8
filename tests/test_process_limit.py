import errno
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import gputop
from gputop import api
from gputop.agent.problem import ProblemError
from gputop.agent.process_limit import process_limit_problem, says_process_limit
from tests.bench.workers import needs_torch
from tests.e2e.shipped import run

USED_UP = RuntimeError("can't start new thread")
NO_FORK = BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
FOLDERS = f"{Path(__file__).with_name('no_threads')}:{Path(gputop.__file__).parent.parent}"


@pytest.mark.parametrize(
    "said",
    [
        USED_UP,
        NO_FORK,
        "libgomp: Thread creation failed: Resource temporarily unavailable",
        "bash: fork: retry: Resource temporarily unavailable",
        str(process_limit_problem("gputop cannot run")),
    ],
)
def test_signs_of_the_limit(said: BaseException | str) -> None:
    assert says_process_limit(said)


@pytest.mark.parametrize(("limit", "shown"), [(40, "40"), (resource.RLIM_INFINITY, "unlimited")])
def test_the_line_has_both_limits(monkeypatch: pytest.MonkeyPatch, limit: int, shown: str) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    line = str(process_limit_problem("gputop cannot run"))
    assert f"`ulimit -u`: {shown})" in line
    assert "RLIMIT_NPROC" in line
    assert "pids.max" in line


def ran(*arguments: str, **left: int) -> subprocess.CompletedProcess[str]:
    environment = {name.upper(): str(count) for name, count in left.items()}
    return run(*arguments, env={"PYTHONPATH": FOLDERS, **environment})


BENCH = ("bench", "--device", "cpu", "--size", "256", "--seconds", "1", "--python", sys.executable)


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        # Threads for the owners, the driver and the readings.
        (("stream", "--demo", "--count", "1"), {"more_threads": 2}),
        (("status", "--demo"), {"more_threads": 0}),
        (("exporter", "--demo", "--listen", "127.0.0.1:0"), {"more_threads": 0}),
        pytest.param(BENCH, {"more_threads": 1}, marks=needs_torch),  # for the worker
        (("status", "--demo"), {"more_processes": 0}),
        (BENCH, {"more_processes": 0}),
    ],
)
def test_at_the_limit_there_is_one_line(arguments: tuple[str, ...], left: dict[str, int]) -> None:
    ended = ran(*arguments, **left)
    assert (ended.returncode, ended.stdout) == (3, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("gputop: error: ")
    assert "RLIMIT_NPROC" in line


def test_the_doctor_reports_it() -> None:
    ended = ran("doctor", "--python", sys.executable, more_processes=0)
    assert ended.returncode == 1
    assert ended.stderr == ""
    assert ended.stdout.count("RLIMIT_NPROC") == 2, "of the driver and of torch"


@pytest.mark.filterwarnings("error")
def test_the_library_raises_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise USED_UP

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(ProblemError, match="RLIMIT_NPROC"):
        api.snapshot(demo=True)
    with api.snapshots(demo=True) as stream, pytest.raises(ProblemError, match="RLIMIT_NPROC"):
        next(stream)
