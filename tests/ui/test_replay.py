import contextlib
import dataclasses
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from textual.pilot import Pilot
from textual.widgets import Footer

from gputop.agent.problem import Problem
from gputop.agent.snapshot import Event, Record
from gputop.recording import writer
from gputop.recording.reader import Recording
from gputop.recording.replay import Replay
from gputop.recording.writer import OutputError
from gputop.stream.child import Interruption
from gputop.ui.device.screen import DevicePage
from gputop.ui.drawing.cells import text_of
from gputop.ui.processes.process_page import ProcessDetailsView, ProcessPage
from gputop.ui.processes.screen import ProcessesTab
from gputop.ui.processes.signal_dialog import SendSignal
from gputop.ui.shell import recording as recorder
from gputop.ui.shell.actions import ACTIONS
from gputop.ui.shell.app import GputopApp
from gputop.ui.shell.header import Header, ReplayBar
from tests import recordings, streams
from tests.streams import PreparedStream
from tests.ui.conftest import Same
from tests.ui.pilots import dashboard_of, noted, resize, send, settle, settled, shown, until


class Watched(Replay):
    def __init__(self, path: Path) -> None:
        self.time = 0.0
        self.waits = False  # True while nothing more happens before the clock is turned
        super().__init__(recordings.scanned(path), lambda: self.time)

    def turn(self, seconds: float) -> None:
        self.time += seconds
        self._changed.set()

    async def _wait(self, seconds: float | None) -> None:
        self.waits = not self._changed.is_set()
        await self._changed.wait()
        self.waits = False
        self._changed.clear()


@contextlib.asynccontextmanager
async def dashboard(
    path: Path, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[tuple[Pilot[None], Watched]]:
    replay = Watched(path)
    app = GputopApp(replay, replay=replay)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: dashboard_of(app).telemetry.sample is not None)
        await settle(pilot)
        yield pilot, replay


async def to(pilot: Pilot[None], replay: Watched, position: float) -> None:
    await until(pilot, lambda: replay.waits)
    replay.turn((position - replay.position) / replay.speed + 1e-6)
    app = pilot.app
    assert isinstance(app, GputopApp)
    at = replay.recording.positions[replay.recording.sample_at(position)]
    await until(pilot, lambda: dashboard_of(app).telemetry.received_at >= at)
    await settle(pilot)


async def test_keys_pause_seek_and_change_the_speed(tmp_path: Path) -> None:
    async with dashboard(recordings.make(tmp_path / "a.jsonl", 300)) as (pilot, replay):
        await pilot.press("space")
        assert "paused" in shown(pilot, ReplayBar)
        assert "Play" in shown(pilot, Footer)
        keys = {"right": 10, "shift+right": 70, "left": 60, "shift+left": 0}
        for key, position in keys.items():
            await pilot.press(key)
            assert replay.position == position
        await pilot.press("left", "space", "plus")
        assert replay.position == 0
        assert "×2" in shown(pilot, ReplayBar)
        await pilot.press("minus", "minus")
        assert "×0.5" in shown(pilot, ReplayBar)
        await to(pilot, replay, 5)
        assert "0:05" in shown(pilot, ReplayBar)


async def test_on_a_devices_page_arrows_read_the_charts(tmp_path: Path) -> None:
    async with dashboard(recordings.make(tmp_path / "a.jsonl", 300)) as (pilot, replay):
        await pilot.press("enter", "right", "left")
        assert pilot.app.query_one(DevicePage).display
        assert replay.position == 0
        await pilot.press("shift+right")
        await until(pilot, lambda: shown(pilot, Header).find("12:01:00") > 0)
        await pilot.press(*["left"] * 9)
        await pilot.press("shift+left")  # the cursor is on what is not there any more
        assert replay.position == 0


@pytest.mark.usefixtures("counts_silence")
async def test_a_gap_shows_as_one_and_a_pause_does_not(tmp_path: Path) -> None:
    path = recordings.make(tmp_path / "a.jsonl", 4, gaps={2: 60.0})
    async with dashboard(path) as (pilot, replay):
        await to(pilot, replay, 1)
        await pilot.press("space")
        replay.turn(1000)
        pilot.app._tick()  # type: ignore[attr-defined]
        assert "No data" not in shown(pilot, Header)
        await pilot.press("space")
        await to(pilot, replay, 21)
        pilot.app._tick()  # type: ignore[attr-defined]
        assert "No data for 20 s: a gap in the recording" in shown(pilot, Header)
        assert "12:00:21" in shown(pilot, ReplayBar)
        await to(pilot, replay, 62)
        assert "No data" not in shown(pilot, Header)


async def test_alerts_are_those_of_the_recordings_time(tmp_path: Path) -> None:
    made = recordings.samples(3, gaps={2: 4000.0})
    event = Event(made[0].time, streams.device(0).uuid, "xid", 79)
    made[0] = dataclasses.replace(made[0], events=(event,))
    path = recordings.write(tmp_path / "a.jsonl", [streams.inventory(1), *made])
    async with dashboard(path) as (pilot, replay):
        await to(pilot, replay, 1)
        assert "GPU 0: Xid 79" in shown(pilot, Header)
        replay.seek(5000)
        await until(pilot, lambda: "Xid" not in shown(pilot, Header))
        replay.seek(-4000)
        await until(pilot, lambda: "Xid 79" in shown(pilot, Header))


async def test_the_bar_says_where_it_is_damaged(tmp_path: Path) -> None:
    path = recordings.make(tmp_path / "a.jsonl", 5)
    path.write_bytes(path.read_bytes()[:-100])
    text = "─  damaged at line 6; played up to 2025-11-20 12:00:03"
    async with dashboard(path) as (pilot, _):
        assert shown(pilot, ReplayBar).endswith(text)
        await resize(pilot, 80, 24)
        assert shown(pilot, ReplayBar).endswith("─  damaged at line 6")
        bar = pilot.app.query_one(ReplayBar)
        rows = [text_of(bar.draw(width, 1)[0]) for width in (75, 76, 100, 101, 110)]
        assert [row.count("─") for row in rows] == [0, 8, 32, 0, 8]


async def test_the_end_is_said(tmp_path: Path) -> None:
    async with dashboard(recordings.make(tmp_path / "a.jsonl", 3)) as (pilot, replay):
        await to(pilot, replay, 2)
        await until(pilot, lambda: replay.ended)
        replay.turn(1000)
        pilot.app._tick()  # type: ignore[attr-defined]
        await settle(pilot)
        assert " end " in shown(pilot, ReplayBar)
        assert "Space Play" in shown(pilot, Footer)
        assert "No data" not in shown(pilot, Header)
        await pilot.press("space")
        assert replay.position == 0


@pytest.mark.parametrize("key", ["f9", "e"])
async def test_no_process_of_a_recording_is_read_or_signalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """Its pids may be anybody's: here it is this very process, with its right start time."""
    process = streams.process(os.getpid(), 0, start_time=psutil.Process().create_time())
    records: list[Record] = [streams.inventory(1), streams.sample(1, [process])]
    touched: list[object] = []
    for name in ("signals.send_signal", "process_page.read_details"):
        path = f"gputop.ui.processes.{name}"
        monkeypatch.setattr(path, lambda *each: touched.append(each))
    async with dashboard(recordings.write(tmp_path / "a.jsonl", records)) as (pilot, _):
        await pilot.press("3", key)
        assert noted(pilot.app).endswith(" works on live data, not in a replay")
        pilot.app.query_one(ProcessesTab).action_signal()
        await pilot.press("enter")
        page = pilot.app.screen.query_one(ProcessPage)
        assert "Enter GPU" in shown(pilot, Footer)
        assert "this is a recording" in shown(pilot, ProcessDetailsView)
        page.action_signal()
        await settle(pilot)
        assert not isinstance(pilot.app.screen, SendSignal)
        assert touched == []


@pytest.mark.parametrize("key", ["b", "r"])
async def test_a_key_that_needs_live_data_says_so(tmp_path: Path, key: str) -> None:
    async with dashboard(recordings.make(tmp_path / "a.jsonl", 3)) as (pilot, _):
        await pilot.press(key)
        assert noted(pilot.app) == f"{key} works on live data, not in a replay"
        assert "Stress" not in shown(pilot, Footer)
        await pilot.press("2")
        devices = pilot.app.query_one("#form #device")._options  # type: ignore[attr-defined]
        assert not any("H100" in str(name) for name, _ in devices)


@pytest.mark.parametrize("tab", ["monitor", "processes", "page", "benchmark"])
@pytest.mark.parametrize("replay", [False, True])
def test_every_key_does_one_thing_on_a_tab(tab: str, *, replay: bool) -> None:
    actions = [action for action in ACTIONS if action.works_on(tab, replay=replay)]
    keys = [key for action in actions for key in action.keys.split(",")]
    assert len(keys) == len(set(keys))


def test_the_screen(tmp_path: Path, same_text: Same) -> None:
    path = recordings.make(tmp_path / "a.jsonl.gz", 100, 2)
    path.write_bytes(path.read_bytes()[:-680])
    replay = Watched(path)
    app = GputopApp(replay, replay=replay)

    async def before(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: dashboard_of(app).telemetry.sample is not None)
        await to(pilot, replay, 42)
        await pilot.press("plus")

    assert same_text(app, terminal_size=(80, 24), run_before=before)


# Recording.


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def the_file() -> Path:
    (path,) = Path.cwd().glob("gputop-node07-*.jsonl.gz")
    return path


async def begun(pilot: Pilot[None]) -> None:
    await pilot.press("r")
    await until(pilot, lambda: "r stops it" in noted(pilot.app))


async def test_r_records_what_comes_and_ends_it() -> None:
    made = recordings.samples(4)
    stream = PreparedStream(streams.inventory(1), made[0])
    async with settled(GputopApp(stream)) as (_, pilot):
        await begun(pilot)
        assert str(the_file()) in noted(pilot.app).replace("\n", "")
        assert " REC " in shown(pilot, Header)
        await send(pilot, stream, made[1], Interruption(Problem("a", "b", "c")))
        await pilot.press("space")  # also what is not shown
        await send(pilot, stream, made[2])
        await pilot.press("r")
        assert " REC " not in shown(pilot, Header)
        await until(pilot, lambda: "gputop --replay" in noted(pilot.app))
        await send(pilot, stream, made[3])
    assert list(Recording(the_file()).records()) == [streams.inventory(1), *made[:3]]
    assert the_file().stat().st_mode & 0o777 == 0o600


async def test_a_recording_begins_with_a_sample() -> None:
    """Without one it could not be played; with one it can even if it ends at once."""
    stream = PreparedStream(streams.inventory(1))
    async with settled(GputopApp(stream)) as (app, pilot):
        await pilot.press("r")
        assert "Nothing to record yet" in noted(app)
        assert not list(Path.cwd().iterdir())
        made = streams.sample(1)
        await send(pilot, stream, made)
        await pilot.press("r", "r")
        await until(pilot, lambda: "gputop --replay" in noted(app))
        assert " 0 B" not in noted(app)
        assert list(Recording(the_file()).records()) == [streams.inventory(1), made]


async def test_gpm_is_sampled_while_it_is_recorded() -> None:
    stream = PreparedStream(streams.inventory(8), streams.sample(8))
    async with settled(GputopApp(stream), (60, 20)) as (_, pilot):
        await pilot.press("3")
        assert not stream.asked["gpm"]
        await begun(pilot)
        assert stream.asked["gpm"]
        await pilot.press("r")
        assert not stream.asked["gpm"]


async def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    stream = PreparedStream(streams.inventory(1), streams.sample(1))
    app = GputopApp(stream, record=tmp_path / "no" / "a.jsonl")
    async with settled(app) as (_, pilot):
        await until(pilot, lambda: "No such file or directory" in noted(app))
        assert " REC " not in shown(pilot, Header)
        assert "GPU" in shown(pilot, Header)


async def test_a_disk_that_hangs_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MOST_WAITING", 3)
    answers = threading.Event()

    class Hanging:
        def __init__(self, path: Path) -> None:
            answers.wait(30)
            raise OutputError(Problem("x", "y", "z"))

    monkeypatch.setattr(writer, "GrowingFile", Hanging)
    stream = PreparedStream(streams.inventory(1), streams.sample(1))
    try:
        async with settled(GputopApp(stream)) as (_, pilot):
            await pilot.press("r")
            for sample in recordings.samples(5):
                stream.send(sample)
            await until(pilot, lambda: "the disk does not answer" in noted(pilot.app))
            assert " REC " not in shown(pilot, Header)
            assert "12:00:04" in shown(pilot, Header)
    finally:
        answers.set()
