"""What `gputop bench` writes besides the result, and how a slower device is told."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gputop.agent.problem import Problem
from gputop.bench.events import Done, Failed, Progress
from gputop.bench.results import store
from gputop.commands import bench as command
from gputop.commands.parser import parse
from tests.bench.commands import environment
from tests.bench.kept import soak
from tests.bench.workers import RESULT
from tests.runs import ended

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gputop.bench.events import Result
    from gputop.bench.plan.request import Request
    from gputop.bench.run.device_run import DeviceRun


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A run that has been prepared; `last` is how it ends."""
    said: dict[str, Any] = {"last": Done(RESULT), "asked": 0}

    def stress(requests: Sequence[Request], *_: object) -> list[DeviceRun]:
        said["asked"] += 1
        progress = [Progress(0.2 * n, 0.2, n, 0.1 * n) for n in range(1, 4)]
        return [ended(each.target, *progress, said["last"]) for each in requests]

    monkeypatch.setattr(command, "_stress", stress)
    return said


def run(*arguments: str) -> int:
    return command.run(parse(["bench", "--device", "cpu", *arguments]))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--report", "{}/no/run.html"), "there is no such folder"),
        (("--report", "{}"), "it is a directory"),
        (("--report", "{}/file/below"), "there is no such folder"),
        (("--report", "{}/file"), "it exists and is not a gputop report. Name another file, or"),
        (("--report", "{}/pipe"), "it is not a regular file"),
        (("--report", "{}/pipe", "--force"), "it is not a regular file"),
    ],
)
def test_what_could_not_be_written_is_said_before_the_run(
    ends: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    says: str,
) -> None:
    (tmp_path / "file").write_text("here")
    os.mkfifo(tmp_path / "pipe")  # no device: as root, a mistake here would cost the machine one
    assert run(*(each.format(tmp_path) for each in arguments)) == 3
    assert ends["asked"] == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert "cannot be written" in line


def test_a_report_is_of_this_run_and_may_replace_another(
    ends: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "run.html"
    file.write_text("somebody's own")
    assert run("--report", str(file), "--force") == 0
    assert run("--report", str(file)) == 0
    assert "a CPU" in file.read_text()
    assert file.read_text().count("polyline") > 1  # one is in the style
    assert [each.name for each in tmp_path.iterdir()] == ["run.html"]


def test_a_run_without_a_result_writes_nothing(ends: dict[str, Any], tmp_path: Path) -> None:
    ends["last"] = Failed(Problem("W", "y", "R"), 3)
    assert run("--report", str(tmp_path / "a.html")) == 3
    assert list(tmp_path.iterdir()) == []


def slower(ends: dict[str, Any], earlier: Result, now: Result) -> int:
    for n in range(4):
        store.append(replace(earlier, started_at=earlier.started_at - n))
    ends["last"] = Done(now)
    return run()


def test_a_device_that_got_slower_is_status_4(
    ends: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert slower(ends, soak(800.0, ago=60.0), soak(700.0)) == 4
    said = capsys.readouterr()
    line = said.out.splitlines()[-1]
    assert line.startswith("Verdict: degraded, earlier runs: 700 TFLOP/s is 12.5 % under the 800 ")
    assert said.err == ""
    assert len(store.recent()) == 5


@pytest.mark.parametrize(
    ("changes", "status"),
    [({"wrong_elements": 1}, 1), ({"stopped": "user"}, 130), ({"stopped": "limit"}, 4)],
)
def test_what_is_worse_has_its_own_status(
    ends: dict[str, Any], capsys: pytest.CaptureFixture[str], changes: dict[str, Any], status: int
) -> None:
    assert slower(ends, soak(800.0, ago=60.0), soak(700.0, **changes)) == status
    assert ("12.5 % under" in capsys.readouterr().out) is ("wrong_elements" not in changes)


def test_a_history_that_nobody_reads_is_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    with open(write, "wb") as pipe:  # noqa: PTH123 - a descriptor
        ended = subprocess.run(
            [sys.executable, "-m", "gputop", "bench", "--history", "--device", "cpu"],
            stdout=pipe,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=60,
            check=False,
        )
    assert (ended.stderr, ended.returncode) == (b"", 0)
