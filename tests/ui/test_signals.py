"""Choice of a signal and of its processes: nothing is sent without a second key."""

from __future__ import annotations

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
from typing import TYPE_CHECKING, Any

import pytest
from textual.app import App
from textual.widgets import OptionList

import gputop.ui
from gputop.agent.linux import procfs
from gputop.agent.linux.procfs import Stat, read_stat
from gputop.ui.processes import signals
from gputop.ui.processes.signal_dialog import SIGNALS, Order, SendSignal, signal_targets
from gputop.ui.processes.signals import send_signal
from tests.agent.test_procfs import BOUND, NOBODY, child, proc, start_of
from tests.streams import device, inventory, process, sample
from tests.ui.pilots import app_with, lines, settle, settled, text_of, until

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from gputop.agent.snapshot import Process


DEVICES = tuple(device(index) for index in range(12))
LAUNCHER: dict[str, Any] = {
    "parent_pid": 4200,
    "parent_command": "/opt/bin/torchrun train.py",
    "parent_start_time": 5.0,
}


class SignalApp(App[None]):
    """Asks for a signal to the first process or its job, and keeps the answers."""

    CSS_PATH = Path(gputop.ui.__file__).parent / "shell" / "gputop.tcss"

    def __init__(self, *processes: Process) -> None:
        super().__init__()
        self.screen_shown = SendSignal(signal_targets(processes[0], processes, DEVICES))
        self.answers: list[Order | None] = []

    def on_mount(self) -> None:
        self.push_screen(self.screen_shown, self.answers.append)


def dialog(pilot: Pilot[None]) -> str:
    """Return the text of the dialog as drawn, without its frame."""
    rows = text_of(lines(pilot.app)).splitlines()
    return "\n".join(row.partition("│")[2].rpartition("│")[0].strip() for row in rows)


def sent(app: SignalApp) -> list[tuple[Signals, list[int]] | None]:
    """Return the answers: signals and pids."""
    return [answer and (answer.signal, [p.pid for p in answer.processes]) for answer in app.answers]


async def test_it_shows_whose_process_it_is() -> None:
    on_two = [process(4242, 0), process(4242, 1), process(5, 2)]
    async with settled(SignalApp(*on_two), (80, 24)) as (_, pilot):
        rows = [row for row in dialog(pilot).splitlines() if row]
        assert rows[0] == "4242  ada, python train.py --rank 0"
        names = [row.split()[0] for row in rows[1:]]
        assert " ".join(names) == "TERM INT KILL STOP CONT HUP QUIT USR1 USR2"


@pytest.mark.parametrize("number", [0, 2])
async def test_a_signal_is_answered_after_a_question(number: int) -> None:
    signal = SIGNALS[number][0]
    app = SignalApp(process(4242, 0), process(4242, 1))
    async with settled(app, (80, 24)) as (app, pilot):
        await pilot.press(*["down"] * number, "enter")
        assert app.answers == []
        name = signal.name.removeprefix("SIG")
        question = f"Send {name} to 4242 (ada, python train.py --rank 0) on GPU 0, 1?"
        assert question in " ".join(dialog(pilot).split())
        for key in ("space", "f9", "up"):
            await pilot.press(key)
            assert app.answers == []
        await pilot.press("y")
        assert sent(app) == [(signal, [4242])]
        assert app.screen is not app.screen_shown


async def test_tab_chooses_the_job_with_its_launcher() -> None:
    ranks = [process(4242 + n, n, **LAUNCHER) for n in range(3)]
    async with settled(SignalApp(*ranks, process(7, 3)), (100, 24)) as (app, pilot):
        assert "● 4242" in dialog(pilot)
        members = "torchrun 4200, python 4242, python 4243, python 4244"
        assert f"○ its job (4 processes)  {members}"[:50] in dialog(pilot)
        await pilot.press("tab", "enter")
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
        (LAUNCHER | {"parent_command": "-bash"}, ["1"]),
    ],
)
def test_a_job_has_one_launcher_or_one_slurm_job(changes: dict[str, Any], names: list[str]) -> None:
    both = [process(1, 0, **changes), process(2, 1, **changes)]
    assert [target.name for target in signal_targets(both[0], both, DEVICES)] == names


async def test_a_click_on_a_signal_asks() -> None:
    async with settled(SignalApp(process(4242, 0)), (80, 24)) as (app, pilot):
        await pilot.click(OptionList, offset=(5, 2))
        await settle(pilot)
        assert "Send KILL to 4242" in dialog(pilot)
        assert app.answers == []
        await pilot.press("n", "end", "enter", "y")
        assert sent(app) == [(Signals.SIGUSR2, [4242])]


@pytest.mark.parametrize("keys", [("y",), ("down", "enter")])
async def test_a_question_begins_at_cancel(keys: tuple[str, ...]) -> None:
    async with settled(SignalApp(process(4242, 0)), (80, 24)) as (app, pilot):
        await pilot.press("enter", "space", "f9", "enter")
        assert isinstance(app.screen, SendSignal)
        assert app.answers == []
        await pilot.press("enter", *keys)
        assert len(app.answers) == 1


async def test_it_stands_beside_its_gpu_and_process() -> None:
    processes = [process(4242, 7, memory_used_bytes=9), process(5, 0, memory_used_bytes=99)]
    async with settled(app_with(inventory(8), sample(8, processes)), (80, 24)) as (app, pilot):
        await pilot.press("tab", "down", "f9")
        await until(pilot, lambda: isinstance(app.screen, SendSignal))
        await settle(pilot)
        rows = text_of(lines(app)).splitlines()
        assert any(row.startswith("▌    7    4242 ada") for row in rows)
        assert any("7 H100" in row for row in rows)
        assert any("╭─ Send a signal" in row for row in rows)


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


# Signals to processes, real ones where they can be had.


__all__ = ["child", "proc"]


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1, signal.SIGUSR2], ids=str
)
def test_a_signal_arrives(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    assert send_signal(child.pid, start_of(child), number) is None
    assert child.wait(BOUND) == -number


def test_a_pid_that_is_used_again_gets_no_signal(child: subprocess.Popen[bytes]) -> None:
    problem = send_signal(child.pid, start_of(child) - 1.0, signal.SIGKILL)
    assert problem is not None
    assert str(problem) == (
        f"Process {child.pid} got no signal: it ended, and another process has its pid. "
        "Choose it again"
    )
    child.communicate(timeout=BOUND)
    assert child.returncode == 0


def test_a_pid_that_is_used_again_at_the_last_moment(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the check the process ends; what has its pid then gets nothing."""
    stat = read_stat(child.pid)

    def look(*_: object) -> Stat:
        child.communicate(timeout=BOUND)
        return stat

    killed: list[object] = []
    monkeypatch.setattr(procfs, "read_stat", look)
    monkeypatch.setattr(os, "kill", lambda *what: killed.append(what))
    problem = send_signal(child.pid, stat.started, signal.SIGTERM)
    assert problem is not None
    assert problem.why == "it has ended"
    assert killed == []


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM, errno.EINVAL])
def test_a_kernel_or_a_sandbox_without_handles(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(pid: int) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "pidfd_open", fail)
    assert send_signal(child.pid, start_of(child) + 1.0, signal.SIGTERM) is not None
    assert send_signal(child.pid, start_of(child), signal.SIGTERM) is None
    assert child.wait(BOUND) == -signal.SIGTERM


def test_a_python_without_handles(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    assert send_signal(child.pid, start_of(child), signal.SIGTERM) is None
    assert child.wait(BOUND) == -signal.SIGTERM


@pytest.mark.parametrize("handles", [True, False])
@pytest.mark.parametrize("pid", [NOBODY, 1 << 40])
def test_a_process_that_has_gone(
    monkeypatch: pytest.MonkeyPatch, pid: int, *, handles: bool
) -> None:
    if not handles:
        monkeypatch.delattr(os, "pidfd_open")
    problem = send_signal(pid, 1e9, signal.SIGTERM)
    assert problem is not None
    assert (problem.what, problem.why) == (f"Process {pid} got no signal", "it has ended")


@pytest.mark.parametrize("pid", [1, 0, -1, -7])
def test_what_is_no_process_to_signal(monkeypatch: pytest.MonkeyPatch, pid: int) -> None:
    """0 and less are groups of processes, or all of them."""
    reached: list[object] = []
    monkeypatch.setattr(os, "kill", lambda *what: reached.append(what))
    monkeypatch.setattr(os, "pidfd_open", lambda *what: reached.append(what))
    start = read_stat(1).started
    problem = send_signal(pid, start, signal.SIGTERM)
    assert problem is not None
    assert str(problem).endswith("Choose another process")
    assert reached == []


def test_a_signal_that_is_refused(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(handle: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(signal, "pidfd_send_signal", fail)
    problem = send_signal(child.pid, start_of(child), signal.SIGTERM)
    assert problem is not None
    assert problem.why == "it is not yours, or protected"
    assert "root" in problem.remedy


async def test_foreign_text_is_inert() -> None:
    evil = process(1, 0, user="[red]x\x1b[2J", command="a\u202eb[/]\x00 " * 90)
    app = SignalApp(evil)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("enter")
        assert "Send TERM to 1 ([red]x␛[2J, a⟨202e⟩b[/]␀" in dialog(pilot)


def test_a_long_user_and_command_are_cut() -> None:
    long = process(1, 0, user="u" * 99, command="c" * 300)
    (target,) = signal_targets(long, [long], DEVICES)
    assert target.about == f"{'u' * 64}, {'c' * 200}"


def test_a_later_process_of_the_same_pid_is_not_the_target() -> None:
    first = process(7, 0)
    later = dataclasses.replace(process(7, 1), start_time=1.0)
    (target,) = signal_targets(first, [first, later], DEVICES)
    assert target.labels == ("0",)


def test_this_program_does_not_signal_itself() -> None:
    problem = send_signal(os.getpid(), read_stat(os.getpid()).started, signal.SIGKILL)
    assert problem is not None
    assert problem.why == "it is this gputop"
