"""Choice of a signal and of its processes: nothing is sent without a second key."""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
import sys
import time
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Any

import pytest
from textual.app import App
from textual.containers import Vertical
from textual.widgets import OptionList, Static

import gputop.ui
from gputop.agent.linux import procfs
from gputop.ui.processes import signals
from gputop.ui.processes.screen import ProcessesView
from gputop.ui.processes.signal_dialog import SIGNALS, Order, SendSignal, signal_targets
from gputop.ui.shell.app import GputopApp
from tests.streams import PreparedStream, device, inventory, process, sample
from tests.ui.pilots import lines, settle, shown, text_of, until

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
    async with SignalApp(*on_two).run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        rows = [row for row in dialog(pilot).splitlines() if row]
        assert rows[0] == "4242  ada, python train.py --rank 0"
        names = [row.split()[0] for row in rows[1:]]
        assert " ".join(names) == "TERM INT KILL STOP CONT HUP QUIT USR1 USR2"


@pytest.mark.daily(3)
@pytest.mark.parametrize("number", range(len(SIGNALS)))
async def test_each_signal_is_answered_after_a_question(number: int) -> None:
    signal = SIGNALS[number][0]
    app = SignalApp(process(4242, 0), process(4242, 1))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press(*["down"] * number, "enter")
        await settle(pilot)
        assert app.answers == []
        name = signal.name.removeprefix("SIG")
        question = f"Send {name} to 4242 (ada, python train.py --rank 0) on GPU 0, 1?"
        assert question in " ".join(dialog(pilot).split())
        await pilot.press("y")
        await settle(pilot)
        assert sent(app) == [(signal, [4242])]
        assert app.screen is not app.screen_shown


async def test_tab_chooses_the_job_with_its_launcher() -> None:
    ranks = [process(4242 + n, n, **LAUNCHER) for n in range(3)]
    app = SignalApp(*ranks, process(7, 3))
    async with app.run_test(size=(100, 24)) as pilot:
        await settle(pilot)
        assert "● 4242" in dialog(pilot)
        members = "torchrun 4200, python 4242, python 4243, python 4244"
        assert f"○ its job (4 processes)  {members}"[:50] in dialog(pilot)
        await pilot.press("tab", "enter")
        await settle(pilot)
        question = f"Send TERM to its job (4 processes) ({members}) on GPU 0, 1, 2?"
        assert question in " ".join(dialog(pilot).split())
        await pilot.press("y")
        await settle(pilot)
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


@pytest.mark.parametrize("key", ["enter", "space", "f9", "up"])
async def test_only_y_answers_the_question(key: str) -> None:
    app = SignalApp(process(4242, 0))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("down", "enter", key)
        await settle(pilot)
        assert app.answers == []
        assert "Send INT to 4242" in dialog(pilot)


async def test_a_click_on_a_signal_asks() -> None:
    app = SignalApp(process(4242, 0))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.click(OptionList, offset=(5, 2))
        await settle(pilot)
        assert "Send KILL to 4242" in dialog(pilot)
        assert app.answers == []
        await pilot.press("n", "end", "enter", "y")
        await settle(pilot)
        assert sent(app) == [(Signals.SIGUSR2, [4242])]


@pytest.mark.parametrize("size", [(60, 12), (80, 24), (30, 7), (1, 1)])
async def test_the_chosen_signal_and_the_question_always_show(size: tuple[int, int]) -> None:
    app = SignalApp(*(process(4242, index) for index in range(12)))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await pilot.press("end")
        await settle(pilot)
        readable = size >= (20, 6)
        assert ("USR2" in dialog(pilot)) == readable
        await pilot.press("enter")
        await settle(pilot)
        assert ("Send USR2 to" in dialog(pilot)) == readable
        if size[0] > 30:
            assert "on 12 devices?" in " ".join(dialog(pilot).split())


async def test_foreign_text_is_inert() -> None:
    evil = process(1, 0, user="[red]x\x1b[2J", command="a\u202eb[/]\x00 " * 90)
    app = SignalApp(evil)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        said = app.screen.query_one("#signal-question", Static).content
        assert "Send TERM to 1 ([red]x␛[2J, a⟨202e⟩b[/]␀" in str(said)


def test_a_later_process_of_the_same_pid_is_not_the_target() -> None:
    first = process(7, 0)
    later = dataclasses.replace(process(7, 1), start_time=1.0)
    (target,) = signal_targets(first, [first, later], DEVICES)
    assert target.labels == ("0",)


async def test_a_yes_that_comes_with_other_keys_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = "gputop.ui.drawing.dialogs.QUIET_SECONDS"
    monkeypatch.setattr(quiet, 3600.0)
    app = SignalApp(process(4242, 0))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("enter", "y", "j", "y")
        await settle(pilot)
        assert app.answers == []
        box = app.screen.query_one(Vertical)
        assert "a moment" in str(box.border_subtitle)
        monkeypatch.setattr(quiet, 0.01)
        await pilot.press("j")
        async with asyncio.timeout(10):
            while "y sends it" not in str(box.border_subtitle):
                await pilot.pause()
        await pilot.press("y")
        await settle(pilot)
        assert len(app.answers) == 1


@pytest.mark.daily(2)
@pytest.mark.parametrize("gpu", [0, 3, 7])
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_it_stands_beside_its_gpu_and_process(size: tuple[int, int], gpu: int) -> None:
    processes = [process(4242, gpu, memory_used_bytes=9), process(5, 0, memory_used_bytes=99)]
    app = GputopApp(PreparedStream(inventory(8), sample(8, processes)))
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "4242" in shown(pilot, ProcessesView))
        await pilot.press("tab", "down", "f9")
        await until(pilot, lambda: isinstance(app.screen, SendSignal))
        await settle(pilot)
        rows = text_of(lines(app)).splitlines()
        assert any(row.startswith(f"▌    {gpu}    4242 ada") for row in rows)
        assert any(f"{gpu} H100" in row for row in rows)
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
