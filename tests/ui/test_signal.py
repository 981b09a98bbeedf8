"""Choice of a signal and of its process: nothing is sent without a second key."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING

import pytest
from textual import events
from textual.app import App
from textual.containers import Vertical

import gputop.ui
from gputop.agent.device import Absence
from gputop.agent.snapshot import Process
from gputop.ui.processes.process_page import SIGNALS, SendSignal, SignalList, signal_target
from gputop.ui.processes.screen import ProcessesView, why_untouched
from gputop.ui.shell.app import GputopApp
from gputop.ui.telemetry import Telemetry
from tests.streams import GIB, PreparedStream, device, inventory, process, sample, unseen
from tests.ui.pilots import lines, settle, shown, text_of, until

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from gputop.agent.snapshot import Process

DEVICES = tuple(device(index) for index in range(12))


class SignalApp(App[None]):
    """Asks for a signal to one process, and keeps the answers."""

    CSS_PATH = Path(gputop.ui.__file__).parent / "shell" / "gputop.tcss"

    def __init__(self, *processes: Process) -> None:
        super().__init__()
        target = signal_target(processes[0], processes, DEVICES)
        self.screen_shown = SendSignal(target)
        self.answers: list[Signals | None] = []

    def on_mount(self) -> None:
        self.push_screen(self.screen_shown, self.answers.append)


def dialog(pilot: Pilot[None]) -> str:
    return pilot.app.screen.query_one(SignalList).text()


async def test_it_shows_whose_process_it_is_and_what_it_holds() -> None:
    on_two = [process(4242, 0), process(4242, 1, memory_used_bytes=None), process(5, 2)]
    async with SignalApp(*on_two).run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        shown = dialog(pilot)
        assert "4242  ada" in shown
        assert "python train.py --rank 0" in shown
        assert "GPU 0    holds 2.00 GiB" in shown
        assert "GPU 1    holds memory unknown" in shown
        assert "GPU 2" not in shown
        names = [line.split()[0] for line in shown.splitlines()[5:] if line]
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
        assert app.answers == [signal]
        assert app.screen is not app.screen_shown


@pytest.mark.parametrize("key", ["y", "n", "k", "1", "9", "space", "tab", "x"])
async def test_no_single_key_answers(key: str) -> None:
    app = SignalApp(process(4242, 0))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press(key)
        await settle(pilot)
        assert app.answers == []


@pytest.mark.parametrize("keys", [["escape"], ["q"], ["f9"], ["enter", "n", "escape"]])
async def test_every_other_way_out_sends_nothing(keys: list[str]) -> None:
    app = SignalApp(process(4242, 0))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press(*keys)
        await settle(pilot)
        assert app.answers == [None]


@pytest.mark.parametrize("key", ["enter", "space", "f9", "up"])
async def test_only_y_answers_the_question(key: str) -> None:
    app = SignalApp(process(4242, 0))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("down", "enter", key)
        await settle(pilot)
        assert app.answers == []
        assert "Send INT to 4242" in dialog(pilot)


async def test_a_click_on_a_signal_asks_and_the_mouse_then_changes_nothing() -> None:
    app = SignalApp(process(4242, 0))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        at = next(n for n, row in enumerate(dialog(pilot).splitlines()) if "KILL" in row)
        await pilot.click(SignalList, offset=(5, at))
        await settle(pilot)
        assert "Send KILL to 4242" in dialog(pilot)
        await pilot.click(SignalList, offset=(5, 1))
        app.screen.query_one(SignalList).wheel(3)
        await settle(pilot)
        assert "Send KILL to 4242" in dialog(pilot)
        assert app.answers == []
        await pilot.press("n", "pagedown")
        await settle(pilot)
        await pilot.press("enter", "y")
        await settle(pilot)
        assert app.answers == [Signals.SIGUSR2]


async def test_keys_that_come_at_once_are_taken_in_their_order() -> None:
    app = SignalApp(process(4242, 0))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        for key in ("down", "j", "enter", "n", "up", "enter", "y", "y", "escape"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await settle(pilot)
        assert app.answers == [Signals.SIGINT]


@pytest.mark.parametrize("size", [(60, 12), (80, 24), (20, 6), (1, 1)])
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
        if size[0] > 20:
            assert "on 12 devices?" in " ".join(dialog(pilot).split())


async def test_foreign_text_is_inert() -> None:
    evil = process(1, 0, user="[red]x\x1b[2J", command="a\u202eb[/]\x00 " * 90)
    app = SignalApp(evil)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert "[red]x␛[2J" in dialog(pilot)
        assert "a⟨202e⟩b[/]␀ a" in dialog(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert "Send TERM to 1 ([red]x␛[2J, a⟨202e⟩b[/]␀" in dialog(pilot)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (Absence.LOST, "gone, or in another namespace: try --pid=host"),
        (Absence.NO_PERMISSION, "not permitted to look: run as its user or root"),
    ],
)
def test_what_cannot_be_told_from_its_successor_gets_no_signal(reason: Absence, said: str) -> None:
    assert why_untouched(unseen(7, 0, reason), Telemetry()) == said


def test_a_later_process_of_the_same_pid_is_not_the_target() -> None:
    first = process(7, 0)
    later = dataclasses.replace(process(7, 1), start_time=1.0)
    target = signal_target(first, [first, later], DEVICES)
    assert target.held == (("0", 2 * GIB),)


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


@pytest.mark.daily(4)
@pytest.mark.parametrize("gpu", range(8))
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
