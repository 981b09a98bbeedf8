import re
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
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
from gputop.ui.processes.signal_dialog import SendSignal
from gputop.ui.shell.app import GputopApp
from gputop.ui.shell.header import Header
from gputop.ui.shell.help_and_settings import HelpPage
from tests.streams import PreparedStream, inventory, process, sample
from tests.ui.pilots import app_with, dashboard_of, lines, noted, settle, shown, text_of, until
from tests.ui.test_ranks import hanging

PID = 4242


class Written:
    def __init__(self, *texts: str) -> None:
        now = time.time()
        self.pieces = [
            Piece(f"{text}\n".encode(), now - len(texts) + n) for n, text in enumerate(texts)
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
    stream = PreparedStream(inventory(2), sample(2, processes=[process(PID, 0)]))
    training.members = lambda pids: frozenset(pids) & {PID}  # type: ignore[method-assign]
    return GputopApp(stream, extra=tab_of(training))


async def read(pilot: Pilot[None]) -> None:
    training = pilot.app.query_one(TrainingTab)._training
    assert isinstance(training, Followed)
    await until(pilot, lambda: training.lines.count == training.count)
    await settle(pilot)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60), (40, 12)])
async def test_the_tab_has_progress_charts_and_output(size: tuple[int, int]) -> None:
    steps = [f"step {n} of 200 loss {2 - n / 100} lr 2e-05" for n in range(90)]
    app = app_of(Followed("\x1b[31mbegin\x1b[0m \x1b]0;title\x07", *steps))
    async with app.run_test(size=size) as pilot:
        await read(pilot)
        app.query_one(TrainingTab).show_telemetry()
        text = text_of(lines(app))
        summary = shown(pilot, TrainingSummary)
    assert "\x1b" not in text
    assert "step 89 of 200" in text
    if size[0] >= 80:
        assert "python train.py" in text
        assert re.search(r"step 89 of 200 .* 44 % +1.00 steps/s +loss 1.11", text)
        assert "steps/s         1.00" in text
        assert ("lr 2e-05" in summary) is (size[0] >= 120)
        assert re.search(r"busy +97 %", text), "only of the GPU of the training"


async def test_the_output_follows_its_end_until_it_is_scrolled() -> None:
    training = Followed(*[f"line {n}" for n in range(100)])
    app = app_of(training)
    async with app.run_test(size=(80, 24)) as pilot:
        await read(pilot)
        assert "line 99" in shown(pilot, OutputView)
        await pilot.press("pageup")
        held = shown(pilot, OutputView)
        assert "line 99" not in held
        assert "newer lines below" in held
        training.add([Piece(b"line 100\n", time.time())])
        app.query_one(OutputView).redraw()
        assert shown(pilot, OutputView).splitlines()[1:] == held.splitlines()[1:]
        await pilot.press("home")
        assert "line 0" in shown(pilot, OutputView)
        await pilot.press("end")
        assert "line 100" in shown(pilot, OutputView)
        await pilot.press("right")
        assert "line" not in shown(pilot, OutputView)


@pytest.mark.parametrize(
    ("status", "text"), [(0, "ended with status 0 after 2:05"), (-9, "ended by SIGKILL after 2:05")]
)
async def test_the_end_of_the_command_is_said(status: int, text: str) -> None:
    run = Run(Path("/home/ada/runs/7"), ("train",), PID, 1, 1000.0, 1125.0, status)
    app = app_of(Followed("step 1", "step 2", run=run))
    async with app.run_test(size=(80, 24)) as pilot:
        await read(pilot)
        kept = "Its output is kept in /home/ada/runs/7"
        await until(pilot, lambda: kept in shown(pilot, TrainingSummary))
        assert text in shown(pilot, TrainingSummary)


STEPS = tuple(f"step {n}" for n in range(400))


@pytest.mark.parametrize(
    ("texts", "later", "lost", "text"),
    [
        (("step 1 loss nan",) * 2, 0, 0, "▲ The loss is not a number"),
        (("hello",), 0, 0, "--pattern REGEX"),
        (("step 1", "step 2"), 0, 5, "▲ Output is lost: the disk was full"),
        (STEPS, 0, 0, "Steps are as fast as before"),
        (STEPS, 61, 0, "▲ No step for 1:01 · s shows where it is"),
        ((*STEPS[::2], *STEPS[-100:]), 0, 0, "▲ Steps are 50 % slower since"),
    ],
)
async def test_what_is_wrong_with_a_training_is_said(
    texts: tuple[str, ...], later: float, lost: int, text: str, tmp_path: Path
) -> None:
    run = Run(tmp_path, ("train",), PID, 1, 1000.0, lost_bytes=lost)
    training = Followed(*texts, run=run)
    training.later = later
    app = app_of(training)
    async with app.run_test(size=(80, 24)) as pilot:
        await read(pilot)
        await settle(pilot)
        assert text in shown(pilot, TrainingSummary)


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


def test_the_simulated_training_has_a_past() -> None:
    training = SimulatedTraining()
    progress = training.progress
    training.update()
    while training.update():
        pass
    assert training.members(range(48_000, 49_000)) == frozenset(range(48_211, 48_217))
    main = progress.main(time.time())
    assert main is not None
    assert main.rate(time.time(), 500.0) == pytest.approx(2.44, rel=0.03)
    assert not training.ended
