import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from rich.style import Style
from textual.pilot import Pilot

from gputop.agent.problem import Problem
from gputop.commands.run import tab_of
from gputop.health.stacks import Stacks, StacksError
from gputop.training.demo import SimulatedTraining
from gputop.training.follow import Training
from gputop.training.runs import Piece, Run
from gputop.training.screens.charts import nice_top
from gputop.training.screens.output import OutputView
from gputop.training.screens.summary import TrainingSummary
from gputop.training.screens.tab import TrainingTab
from gputop.ui.drawing.dialogs import ConfirmScreen
from gputop.ui.drawing.palette import FAULT, GOOD
from gputop.ui.processes.signal_dialog import SendSignal
from gputop.ui.shell.app import GputopApp
from gputop.ui.shell.header import Header
from gputop.ui.shell.help_and_settings import HelpPage
from tests.streams import NOW, PreparedStream, inventory, process, readings, sample
from tests.ui.pilots import app_with, dashboard_of, lines, noted, settle, shown, until
from tests.ui.test_ranks import hanging

PID = 4242


class Written:
    def __init__(self, *texts: str) -> None:
        self.pieces = [
            Piece(f"{text}\n".encode(), NOW - len(texts) + n) for n, text in enumerate(texts)
        ]

    def read(self) -> Iterator[Piece]:
        while self.pieces:
            yield self.pieces.pop(0)


class Followed(Training):
    def __init__(self, *texts: str, run: Run | None = None) -> None:
        self.count = len(texts)
        super().__init__(("/opt/bin/python", "train.py"), PID, Written(*texts), run=run)

    later = 0.0

    def clock(self) -> float:
        return self._last_time + self.later

    def _has_ended(self) -> bool:
        return self.run is not None and self.run.ended is not None


def app_of(training: Training) -> GputopApp:
    processes = [process(PID, 0), process(PID, 1), process(7, 2)]
    samples = []
    for n in range(91):
        busy = 10 if n < 31 else 70
        devices = tuple(readings(d, gpu_utilization_percent=busy - d) for d in range(3))
        samples.append(replace(sample(3, processes, time=NOW - 90 + n), devices=devices))
    training.members = lambda pids: frozenset(pids) & {PID}  # type: ignore[method-assign]
    return app_with(inventory(3), *samples, extra=tab_of(training))


async def read(pilot: Pilot[None]) -> None:
    training = pilot.app.query_one(TrainingTab)._training
    assert isinstance(training, Followed)
    await until(pilot, lambda: training.lines.count == training.count)
    await settle(pilot)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60), (40, 12), (22, 10), (60, 100)])
async def test_the_tab_has_progress_charts_and_output(size: tuple[int, int], snapshot: Any) -> None:
    steps = [f"step {n} of 1000 lr 2e-05 acc {n / 400:.2f}" for n in range(400)]
    steps[::30] = [f"{step} loss {3 * 0.8**n:.2f}" for n, step in enumerate(steps[::30])]
    app = app_of(Followed("\x1b[31mbegin\x1b[0m \x1b]0;title\x07", *steps[:350], *steps[352:]))
    async with app.run_test(size=size) as pilot:
        await read(pilot)
        app.query_one(TrainingTab).show_telemetry()
        assert "\n".join(strip.text.rstrip() for strip in lines(app)) == snapshot


async def test_the_output_follows_its_end_until_it_is_scrolled() -> None:
    training = Followed("\n".join(f"line {n}" for n in range(2100)))
    training.count = 2100
    app = app_of(training)

    def on_screen() -> list[int]:
        return [int(n) for n in re.findall(r"line (\d+)", shown(pilot, OutputView))]

    async with app.run_test(size=(80, 24)) as pilot:
        await read(pilot)
        keys = ("end", "pageup", "up", "down", "pagedown", "pageup")
        for key, first in zip(keys, (2092, 2085, 2084, 2085, 2092, 2085), strict=True):
            await pilot.press(key)
            assert on_screen() == [*range(first, first + 8)]
        training.add([Piece(b"line 2100\n", NOW)])
        app.query_one(OutputView).redraw()
        assert on_screen() == [*range(2085, 2093)]
        assert "─ 8 newer lines below · End" in shown(pilot, OutputView)
        await pilot.press("home")
        assert on_screen() == [*range(101, 109)], "the first one that is kept"
        await pilot.press("end")
        assert on_screen() == [*range(2093, 2101)]
        await pilot.press("right")
        assert shown(pilot, OutputView).startswith("Output ← 20 ─")
        assert on_screen() == []
        await pilot.press("left")
        assert on_screen() == [*range(2093, 2101)]


@pytest.mark.parametrize(
    ("status", "text", "style"),
    [
        (0, "ended with status 0 after 2:05", GOOD),
        (1, "ended with status 1 after 2:05", FAULT),
        (-9, "ended by SIGKILL after 2:05", FAULT),
    ],
)
async def test_the_end_of_the_command_is_said(status: int, text: str, style: Style) -> None:
    run = Run(Path("/home/ada/runs/7"), ("train",), PID, 1, 1000.0, 1125.0, status)
    app = app_of(Followed("step 1", "step 2", run=run))
    async with app.run_test(size=(80, 24)) as pilot:
        await read(pilot)
        kept = "Its output is kept in /home/ada/runs/7"
        await until(pilot, lambda: kept in shown(pilot, TrainingSummary))
        assert text in shown(pilot, TrainingSummary)
        assert app.query_one(TrainingSummary)._state() == (text, style)
        assert shown(pilot, OutputView).splitlines()[1:3] == ["step 1", "step 2"]


STEPS = tuple(f"step {n}" for n in range(400))
SLOW = tuple(f"step {n // 10}" if n % 10 == 0 else "" for n in range(400))
FAST = "Steps are as fast as before"


def works(seconds: str, step: str) -> str:
    return (
        f"A step takes {step} s, of which the GPU works {seconds} s · s shows where the rest goes"
    )


@pytest.mark.parametrize(
    ("texts", "later", "lost", "found"),
    [
        (("step 1 loss nan",) * 2, 0, 0, ["▲ The loss is not a number"]),
        (("hello",), 0, 0, ["If its steps have another format: --pattern REGEX"]),
        (
            ("step 1", "step 2"),
            0,
            5,
            ["▲ Output is lost: the disk was full", works("0.69", "1.00")],
        ),
        (("step 1",), 61, 0, [""]),
        (STEPS[:61], 0, 0, [works("0.69", "1.00")]),
        (STEPS[:62], 0, 0, [FAST, works("0.69", "1.00")]),
        (STEPS, 60, 0, [FAST, works("14.6", "21.0")]),
        (STEPS, 61, 0, ["▲ No step for 1:01 · s shows where it is", FAST]),
        (SLOW, 61, 0, [FAST, works("23.2", "33.3")]),
        (SLOW, 92, 0, ["▲ No step for 1:41 · s shows where it is", FAST]),
        (
            (*STEPS[::2], *STEPS[-100:]),
            0,
            0,
            ["▲ Steps are 50 % slower since 11:58", works("0.69", "1.00")],
        ),
    ],
)
async def test_what_is_wrong_with_a_training_is_said(
    texts: tuple[str, ...], later: float, lost: int, found: list[str], tmp_path: Path
) -> None:
    run = Run(tmp_path, ("train",), PID, 1, 1000.0, lost_bytes=lost)
    training = Followed(*texts, run=run)
    training.later = later
    app = app_of(training)
    async with app.run_test(size=(100, 24)) as pilot:
        await read(pilot)
        told = shown(pilot, TrainingSummary).splitlines()[2:]
        assert told == [text and f" {text}" for text in found]


async def test_s_says_where_the_time_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    stacks = Stacks((("DataLoader `_next_data`", 71.0),))
    sampled = AsyncMock(return_value=stacks)
    monkeypatch.setattr("gputop.ui.processes.stacks_note.sample_stacks", sampled)
    app = app_of(Followed("step 1"))
    async with app.run_test(size=(80, 24)) as pilot:
        await read(pilot)
        for key in ("4", "3", "1"):
            await pilot.press(key, "s")
            await until(pilot, lambda: "71 % in DataLoader" in noted(app))
            assert f"Sampling the Python stacks of {PID} for 2" in noted(app)
            app.clear_notifications()
            sampled.assert_awaited_with(PID)
        sampled.side_effect = StacksError(Problem("No stacks of 7", "it has ended", "Try again"))
        await pilot.press("s")
        await until(pilot, lambda: "No stacks of 7: it has ended. Try again." in noted(app))
        await pilot.press("4", "f9")
        await until(pilot, lambda: "gputop did not start it" in noted(app))


async def test_s_samples_the_rank_that_the_others_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    sampled: list[int] = []

    async def sample_stacks(pid: int) -> Stacks:
        sampled.append(pid)
        return Stacks((("sleep", 100.0),))

    monkeypatch.setattr("gputop.ui.processes.stacks_note.sample_stacks", sample_stacks)
    training = Followed("step 1")
    training.members = lambda pids: frozenset(pids) - {PID}  # type: ignore[method-assign]
    *before, last = hanging()
    app = GputopApp(PreparedStream(last), extra=tab_of(training))
    for record in before:
        dashboard_of(app).telemetry.receive(record)
    async with app.run_test(size=(80, 24)) as pilot:
        await read(pilot)
        await pilot.press("s")
        await until(pilot, lambda: sampled == [4703])


async def test_f9_asks_and_sends_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []

    def refuse(_: Run, number: int) -> None:
        sent.append(number)
        raise PermissionError  # as for a command of another user, such as sudo

    monkeypatch.setattr(Run, "signal", refuse)
    app = app_of(Followed("step 1", run=Run(tmp_path, ("train",), PID, 1, 1000.0)))
    async with app.run_test(size=(80, 24)) as pilot:
        await read(pilot)
        await pilot.press("f9")
        await until(pilot, lambda: isinstance(app.screen, SendSignal))
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        assert sent == []
        await pilot.press("y")
        await until(pilot, lambda: len(app._notifications) == 1)
        (note,) = app._notifications
        assert "got no signal" in note.message
    assert sent == [2]


async def test_without_a_training_there_is_no_tab_and_no_key_of_it() -> None:
    app = app_with(inventory(1), sample(1))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert "Training" not in shown(pilot, Header)
        await pilot.press("4")
        (note,) = app._notifications
        assert "are the tabs" in note.message
        await pilot.press("question_mark")
        page = app.screen
        assert isinstance(page, HelpPage)
        assert not page.groups.get("Training")
        assert "4" not in page.groups["Everywhere"]


def test_the_full_height_is_a_round_number() -> None:
    numbers = [0.011, 1000, 1.3, 1.6, 2.1, 2.6, 31, 41, 51, 61, 81]
    tops = [0.012, 1000, 1.5, 2, 2.5, 3, 40, 50, 60, 80, 100]
    assert [nice_top([number, None]) for number in numbers] == pytest.approx(tops)
    assert nice_top([None]) == 1


def test_the_simulated_training_has_a_past_and_becomes_slower(
    monkeypatch: pytest.MonkeyPatch, snapshot: Any
) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)
    training = SimulatedTraining()
    assert training.members(range(48_000, 49_000)) == frozenset(range(48_211, 48_217))
    assert training.pid == 48_210
    monkeypatch.setattr(time, "time", lambda: NOW + 20)
    written = [f"{piece.time - NOW:.2f} {piece.data.decode()}" for piece in training._source.read()]
    assert "".join(written) == snapshot
    assert not training.update()
    assert not training.ended
