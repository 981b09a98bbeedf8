"""A recording in the dashboard: its line, its keys, its time; and what there is none of in it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from typing import TYPE_CHECKING

import psutil
import pytest
from textual.widgets import Footer

from gputop.agent.lines import to_line
from gputop.agent.snapshot import Event
from gputop.recording.replay import Replay
from gputop.ui.device.screen import DevicePage
from gputop.ui.monitor.device_list import DevicesView
from gputop.ui.processes.process_page import ProcessDetailsView, ProcessPage
from gputop.ui.processes.screen import ProcessesTab
from gputop.ui.processes.signal_dialog import SendSignal
from gputop.ui.shell.actions import ACTIONS
from gputop.ui.shell.app import GputopApp
from gputop.ui.shell.header import Header, ReplayBar
from gputop.ui.telemetry import Telemetry
from tests import recordings, streams
from tests.ui.pilots import dashboard_of, resize, settle, shown, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from textual.pilot import Pilot

    from gputop.agent.snapshot import Record
    from tests.ui.conftest import Same


class Watched(Replay):
    """One whose clock the test turns."""

    def __init__(self, path: Path) -> None:
        self.time = 0.0
        self.waits = False
        """True while nothing more happens before the clock is turned."""
        super().__init__(recordings.scanned(path), lambda: self.time)

    def turn(self, seconds: float) -> None:
        """Lets so much time pass."""
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
        yield pilot, replay


async def to(pilot: Pilot[None], replay: Watched, position: float) -> None:
    """Lets time pass until then.

    Not while a sample is being shown: a frame after it is counted from when that was.
    """
    await until(pilot, lambda: replay.waits)
    replay.turn((position - replay.position) / replay.speed + 1e-6)
    app = pilot.app
    assert isinstance(app, GputopApp)
    at = replay.recording.positions[replay.recording.sample_at(position)]
    await until(pilot, lambda: dashboard_of(app).telemetry.received_at >= at)
    await settle(pilot)


async def test_a_replay_is_marked_and_shows_its_own_time(tmp_path: Path) -> None:
    async with dashboard(recordings.make(tmp_path / "a.jsonl.gz", 100, 2)) as (pilot, replay):
        await to(pilot, replay, 42)
        bar, header = shown(pilot, ReplayBar), shown(pilot, Header)
        assert bar.startswith(" REPLAY  2025-11-20 12:00:42  ×1     42 s of 1:39 ━━━")
        assert "12:00:42" in header
        assert "No data" not in header
        assert "2 GPUs" in header


async def test_keys_pause_seek_and_change_the_speed(tmp_path: Path) -> None:
    async with dashboard(recordings.make(tmp_path / "a.jsonl", 300)) as (pilot, replay):
        await pilot.press("space")
        assert "paused" in shown(pilot, ReplayBar)
        assert "Play" in shown(pilot, Footer)
        for key, position in (
            ("right", 10),
            ("shift+right", 70),
            ("left", 60),
            ("shift+left", 0),
            ("left", 0),
        ):
            await pilot.press(key)
            assert replay.position == position
        await pilot.press("space")
        await pilot.press("plus")
        assert "×2" in shown(pilot, ReplayBar)
        await pilot.press("minus")
        await pilot.press("minus")
        assert "×0.5" in shown(pilot, ReplayBar)
        await to(pilot, replay, 5)
        assert "0:05" in shown(pilot, ReplayBar)


async def test_on_a_devices_page_arrows_read_the_charts(tmp_path: Path) -> None:
    async with dashboard(recordings.make(tmp_path / "a.jsonl", 300)) as (pilot, replay):
        await pilot.press("enter")
        assert pilot.app.query_one(DevicePage).display
        await pilot.press("right")
        await pilot.press("left")
        assert replay.position == 0
        await pilot.press("shift+right")
        await until(pilot, lambda: shown(pilot, Header).find("12:01:00") > 0)
        for _ in range(9):
            await pilot.press("left")
        await pilot.press("shift+left")  # the cursor is on what is not there any more
        await settle(pilot)
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


@pytest.mark.usefixtures("counts_silence")
async def test_what_is_sought_is_no_gap_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The screen may be drawn while another thread reads a file that has become shorter."""
    headers: list[str] = []
    restart = Telemetry.restart
    path = recordings.make(tmp_path / "a.jsonl", 300)
    async with dashboard(path) as (pilot, replay):

        def draw() -> None:
            pilot.app._tick()  # type: ignore[attr-defined]
            headers.append(shown(pilot, Header))

        def watched(telemetry: Telemetry, records: Iterable[Record | Event]) -> None:
            pilot.app.call_from_thread(draw)
            try:
                restart(telemetry, records)
            finally:
                pilot.app.call_from_thread(draw)

        monkeypatch.setattr(Telemetry, "restart", watched)
        os.truncate(path, 9000)
        await pilot.press("shift+right")
        await until(pilot, lambda: len(headers) == 2)
        assert not any("No data" in header for header in headers)
        await until(pilot, lambda: " cannot be read again" in shown(pilot, ReplayBar))
        await until(pilot, lambda: replay.ended)


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


def test_events_before_a_jump_are_those_of_their_device() -> None:
    event = Event(1.0, streams.device(0).uuid, "xid", 79)
    played = Telemetry(replayed=True)
    played.restart([streams.inventory(2), event, streams.sample(2)])
    assert played.events(streams.device(0).uuid) == [event]
    assert played.events(streams.device(1).uuid) == []


async def test_the_bar_says_where_it_is_damaged(tmp_path: Path) -> None:
    path = recordings.make(tmp_path / "a.jsonl", 5)
    path.write_bytes(path.read_bytes()[:-100])
    text = "─  damaged at line 6; played up to 2025-11-20 12:00:03"
    async with dashboard(path) as (pilot, _):
        assert shown(pilot, ReplayBar).endswith(text)
        await resize(pilot, 80, 24)
        assert shown(pilot, ReplayBar).endswith("─  damaged at line 6")


async def test_the_end_is_said(tmp_path: Path) -> None:
    async with dashboard(recordings.make(tmp_path / "a.jsonl", 3)) as (pilot, replay):
        await to(pilot, replay, 2)
        await until(pilot, lambda: replay.ended)
        replay.turn(1000)
        pilot.app._tick()  # type: ignore[attr-defined]
        assert " end " in shown(pilot, ReplayBar)
        assert "No data" not in shown(pilot, Header)
        await pilot.press("space")
        assert replay.position == 0


async def test_what_plays_is_what_was_recorded(tmp_path: Path) -> None:
    records: list[Record] = [streams.inventory(2), *recordings.samples(20, 2)]
    async with dashboard(recordings.write(tmp_path / "a.jsonl.gz", records)) as (pilot, replay):
        app = pilot.app
        assert isinstance(app, GputopApp)
        await to(pilot, replay, 19)
        played = dashboard_of(app).telemetry
        assert (played.inventory, played.sample) == (records[0], records[-1])
        uuid = streams.device(0).uuid
        busy = list(played.history.series(uuid, "gpu_utilization_percent"))
        assert busy == [*range(20)]
        replay.seek(-9)
        await until(pilot, lambda: dashboard_of(app).telemetry.sample == records[11])
        assert (
            list(dashboard_of(app).telemetry.history.series(uuid, "gpu_utilization_percent"))
            == busy[:11]
        )
        assert to_line(dashboard_of(app).telemetry.sample) == to_line(records[11])  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["f9", "e"])
async def test_no_process_of_a_recording_is_signalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """Its pids may be anybody's: here it is this very process, with its right start time."""
    own = psutil.Process()
    process = streams.process(os.getpid(), 0, start_time=own.create_time())
    sample = streams.sample(1, [process])
    path = recordings.write(tmp_path / "a.jsonl", [streams.inventory(1), sample])
    sent: list[object] = []
    monkeypatch.setattr("gputop.ui.processes.signals.send_signal", lambda *each: sent.append(each))
    read = "gputop.ui.processes.process_page.read_details"
    monkeypatch.setattr(read, lambda *each: sent.append(each))
    async with dashboard(path) as (pilot, _):
        await pilot.press("3")
        await pilot.press(key)
        assert not isinstance(pilot.app.screen, SendSignal)
        (said,) = pilot.app._notifications
        assert said.message.endswith(" works on live data, not in a replay")
        tab = pilot.app.query_one(ProcessesTab)
        tab.action_signal()
        await pilot.press("enter")
        await settle(pilot)
        page = pilot.app.screen.query_one(ProcessPage)
        assert "this is a recording" in shown(pilot, ProcessDetailsView)
        page.action_signal()
        await settle(pilot)
        assert not isinstance(pilot.app.screen, SendSignal)
        assert sent == []


@pytest.mark.parametrize("key", ["b", "r"])
async def test_what_makes_no_sense_says_why(tmp_path: Path, key: str) -> None:
    async with dashboard(recordings.make(tmp_path / "a.jsonl", 3)) as (pilot, _):
        await pilot.press(key)
        (said,) = pilot.app._notifications
        assert said.message == f"{key} works on live data, not in a replay"
        assert "Stress" not in shown(pilot, Footer)
        await pilot.press("2")
        assert pilot.app.query_one(DevicesView)
        devices = pilot.app.query_one("#form #device")._options  # type: ignore[attr-defined]
        assert not any("H100" in str(name) for name, _ in devices)


def test_every_key_of_a_replay_does_one_thing_on_a_tab() -> None:
    for tab in ("monitor", "processes", "page", "benchmark"):
        for replay in (False, True):
            keys = [
                key
                for action in ACTIONS
                if action.works_on(tab, replay=replay)
                for key in action.keys.split(",")
            ]
            assert len(keys) == len(set(keys))
    on_page = [a.id for a in ACTIONS if a.has_key("left") and a.works_on("page", replay=True)]
    assert on_page == ["seek.back"]


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
