import asyncio
import dataclasses
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from signal import Signals
from typing import Any

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import OptionList

import gputop.ui
from gputop.agent.linux import procfs
from gputop.agent.problem import ProblemError
from gputop.agent.snapshot import Process
from gputop.ui.processes import signals
from gputop.ui.processes.signal_dialog import Order, SendSignal, signal_targets
from gputop.ui.processes.signals import send_signal
from tests.agent.test_procfs import proc
from tests.streams import device, process
from tests.ui.pilots import lines, settled, text_of
from tests.ui.real_process import BOUND, NOBODY, child, start_of

__all__ = ["child", "proc"]
DEVICES = tuple(device(index) for index in range(12))
LAUNCHER: dict[str, Any] = {
    "parent_pid": 4200,
    "parent_command": "/opt/bin/torchrun train.py",
    "parent_start_time": 5.0,
}


class SignalApp(App[None]):
    CSS_PATH = Path(gputop.ui.__file__).parent / "shell" / "gputop.tcss"

    def __init__(self, *processes: Process) -> None:
        super().__init__()
        self.targets = signal_targets(processes[0], processes, DEVICES)
        self.answers: list[Order | None] = []

    def on_mount(self) -> None:
        self.screen_shown = SendSignal(self.targets)
        self.push_screen(self.screen_shown, self.answers.append)


def dialog(pilot: Pilot[None]) -> str:
    rows = text_of(lines(pilot.app)).splitlines()
    return "\n".join(row.partition("│")[2].rpartition("│")[0].strip() for row in rows)


def sent(app: SignalApp) -> list[tuple[Signals, list[int]] | None]:
    return [answer and (answer.signal, [p.pid for p in answer.processes]) for answer in app.answers]


@pytest.mark.parametrize("yes", ["y", "down enter"])
async def test_a_signal_is_sent_after_a_question_that_begins_at_cancel(yes: str) -> None:
    evil = {"user": "[red]x\x1b[2J", "command": "a\u202eb[/]\x00 " + "c" * 300}
    app = SignalApp(process(4242, 0, **evil), process(4242, 1, **evil))
    async with settled(app, (80, 24)) as (_, pilot):
        await pilot.press("down", "down", "down", "up", "enter")
        question = " ".join(dialog(pilot).split())
        assert app.screen.query_one(".box").size.width == 56
        assert "Send KILL to 4242 ([red]x␛[2J, a⟨202e⟩b[/]␀ ccc" in question
        assert "on GPU 0, 1?" in question
        await pilot.press("space", "f9", "enter")  # the last one cancels
        assert app.screen is app.screen_shown
        assert app.answers == []
        await pilot.press("enter", *yes.split())
        assert sent(app) == [(Signals.SIGKILL, [4242])]
        assert app.screen is not app.screen_shown


async def test_tab_chooses_the_job_with_its_launcher() -> None:
    ranks = [process(4242 + n, n, **LAUNCHER) for n in range(3)]
    async with settled(SignalApp(*ranks, process(7, 3)), (100, 24)) as (app, pilot):
        assert "● 4242" in dialog(pilot)
        members = "torchrun 4200, python 4242, python 4243, python 4244"
        assert f"○ its job (4 processes)  {members}"[:50] in dialog(pilot)
        await pilot.press("tab")
        assert "● its job (4 processes)" in dialog(pilot)
        await pilot.press("enter")
        question = f"Send TERM to its job (4 processes) ({members}) on GPU 0, 1, 2?"
        assert question in " ".join(dialog(pilot).split())
        await pilot.press("y")
        assert sent(app) == [(Signals.SIGTERM, [4200, 4242, 4243, 4244])]


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, ["1"]),
        ({"slurm_job": "71"}, ["1", "its Slurm job 71 (2 processes)"]),
        (LAUNCHER, ["1", "its job (3 processes)"]),
        (LAUNCHER | {"parent_start_time": None}, ["1", "its job (2 processes)"]),
        ({"start_time": None} | LAUNCHER, ["1"]),
        (LAUNCHER | {"parent_command": "-bash"}, ["1"]),
    ],
)
def test_a_job_has_one_launcher_or_one_slurm_job(changes: dict[str, Any], names: list[str]) -> None:
    both = [process(1, 0, **changes), process(2, 1, **changes)]
    assert [target.name for target in signal_targets(both[0], both, DEVICES)] == names


def test_more_than_eight_devices_or_processes_are_counted_and_long_texts_are_cut() -> None:
    many = [process(4242 + n, n, **LAUNCHER) for n in range(9)]
    eight, nine = (signal_targets(each[0], each, DEVICES)[1] for each in (many[:8], many))
    assert eight.devices == " on GPU 0, 1, 2, 3, 4, 5, 6, 7"
    assert nine.devices == f"{eight.devices} and 1 more"
    assert eight.about.endswith(", python 4248 and 1 more")
    assert nine.about.endswith(", python 4248 and 2 more")
    pair = [process(n, n, slurm_job="7") for n in (1, 2)]
    assert signal_targets(pair[0], pair, DEVICES)[1].about == "python 1, python 2"
    (long,) = signal_targets(process(1, 0, user="u" * 99, command="c" * 300), (), DEVICES)
    assert long.about == f"{'u' * 64}, {'c' * 200}"


async def test_a_click_on_a_signal_asks() -> None:
    async with settled(SignalApp(process(4242, 0)), (80, 24)) as (app, pilot):
        await pilot.click(OptionList, offset=(5, 2))
        assert "Send KILL to 4242" in dialog(pilot)
        assert app.answers == []
        await pilot.press("n", "end", "enter", "y")
        assert sent(app) == [(Signals.SIGUSR2, [4242])]


def test_the_end_of_processes_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as child:
        monkeypatch.setattr(signals, "PATIENCE_SECONDS", 0.0)
        started = {child.pid: procfs.read_stat(child.pid).started}
        assert asyncio.run(signals.seconds_until_end(started, began))[1] == 1
        monkeypatch.setattr(signals, "PATIENCE_SECONDS", 60.0)
        child.kill()
        seconds, left = asyncio.run(signals.seconds_until_end(started, began))
        assert left == 0
        assert seconds > 0


def test_a_signal_arrives(child: subprocess.Popen[bytes]) -> None:
    opened = [*Path("/proc/self/fd").iterdir()]
    send_signal(child.pid, start_of(child), signal.SIGUSR2)
    assert [*Path("/proc/self/fd").iterdir()] == opened
    assert child.wait(BOUND) == -signal.SIGUSR2


def test_a_pid_that_is_used_again_gets_no_signal(child: subprocess.Popen[bytes]) -> None:
    with pytest.raises(ProblemError, match=r"another process has its pid\. Choose it"):
        send_signal(child.pid, start_of(child) - 1.0, signal.SIGKILL)
    child.communicate(timeout=BOUND)
    assert child.returncode == 0


def test_a_pid_that_is_used_again_at_the_last_moment(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = procfs.read_stat(child.pid)

    def look(*_: object) -> procfs.Stat:
        child.communicate(timeout=BOUND)
        return stat

    monkeypatch.setattr(procfs, "read_stat", look)
    monkeypatch.setattr(os, "kill", None)
    with pytest.raises(ProblemError, match="it has ended"):
        send_signal(child.pid, stat.started, signal.SIGTERM)


@pytest.fixture(params=["no handles in Python", errno.ENOSYS, errno.EPERM, errno.EINVAL])
def no_handles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(pid: int) -> int:
        raise OSError(request.param, os.strerror(request.param))

    if isinstance(request.param, int):
        monkeypatch.setattr(os, "pidfd_open", fail)
    else:
        monkeypatch.delattr(os, "pidfd_open")


@pytest.mark.usefixtures("no_handles")
def test_without_handles_the_start_time_is_compared(child: subprocess.Popen[bytes]) -> None:
    with pytest.raises(ProblemError):
        send_signal(child.pid, start_of(child) + 1.0, signal.SIGTERM)
    send_signal(child.pid, start_of(child), signal.SIGTERM)
    assert child.wait(BOUND) == -signal.SIGTERM


@pytest.mark.parametrize(
    ("pid", "why"),
    [
        (NOBODY, "it has ended"),
        (1 << 40, "it has ended"),
        (None, "it is this gputop"),
        *((pid, "pid 1 and below are the system and groups") for pid in (1, 0, -7)),
    ],
)
def test_what_is_no_process_to_signal(
    monkeypatch: pytest.MonkeyPatch, pid: int | None, why: str
) -> None:
    if pid is None:
        pid = os.getpid()
    reached: list[object] = []
    monkeypatch.setattr(os, "kill", lambda *what: reached.append(what))
    with pytest.raises(ProblemError, match=f"Process {pid} got no signal: {why}"):
        send_signal(pid, 1e9, signal.SIGTERM)
    assert reached == []


def test_a_signal_that_is_not_permitted(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(handle: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(signal, "pidfd_send_signal", fail)
    with pytest.raises(ProblemError, match="it is not yours, or protected"):
        send_signal(child.pid, start_of(child), signal.SIGTERM)


def test_a_later_process_of_the_same_pid_is_not_the_target() -> None:
    first = process(7, 0)
    later = dataclasses.replace(process(7, 1), start_time=1.0)
    (target,) = signal_targets(first, [first, later], DEVICES)
    assert target.devices == " on GPU 0"
