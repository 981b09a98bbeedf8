"""Recording in the dashboard: what it writes, how it shows, and how it fails without harm."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gputop.agent.problem import Problem
from gputop.recording import writer
from gputop.recording.reader import Recording, RecordingError
from gputop.recording.writer import OutputError
from gputop.stream.child import Interruption
from gputop.ui.shell import recording as recorder
from gputop.ui.shell.app import GputopApp
from gputop.ui.shell.header import Header
from tests import recordings, streams
from tests.streams import PreparedStream
from tests.ui.pilots import dashboard_of, settle, settled, shown, until

if TYPE_CHECKING:
    from textual.pilot import Pilot


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def said(pilot: Pilot[None]) -> str:
    return " ".join(notice.message for notice in pilot.app._notifications)


def the_file() -> Path:
    (path,) = Path.cwd().glob("gputop-node07-*.jsonl.gz")
    return path


def recorded() -> int:
    """Records in the file, once there is a sample in it."""
    try:
        return len(list(Recording(the_file()).records()))
    except RecordingError:
        return 0


async def begun(pilot: Pilot[None]) -> None:
    await pilot.press("r")
    await until(pilot, lambda: "r stops it" in said(pilot))


async def test_r_records_what_comes_and_ends_it() -> None:
    made = recordings.samples(4)
    stream = PreparedStream(streams.inventory(1), made[0])
    async with settled(GputopApp(stream)) as (_, pilot):
        await begun(pilot)
        assert str(the_file()) in said(pilot).replace("\n", "")
        assert " REC " in shown(pilot, Header)
        stream.send(made[1])
        stream.send(Interruption(Problem("a", "b", "c")))
        await settle(pilot)
        await pilot.press("space")  # also what is not shown
        stream.send(made[2])
        await settle(pilot)
        await pilot.press("r")
        assert " REC " not in shown(pilot, Header)
        await until(pilot, lambda: "gputop --replay" in said(pilot))
        stream.send(made[3])
        await settle(pilot)
    found = Recording(the_file())
    assert list(found.records()) == [streams.inventory(1), *made[:3]]
    assert the_file().stat().st_mode & 0o777 == 0o600


async def test_a_recording_that_is_ended_at_once_can_be_played() -> None:
    """The recording contains what was on the screen at its start, even if nothing follows."""
    made = streams.sample(1)
    stream = PreparedStream(streams.inventory(1), made)
    async with settled(GputopApp(stream)) as (_, pilot):
        await pilot.press("r", "r")
        await until(pilot, lambda: "gputop --replay" in said(pilot))
        assert " 0 B" not in said(pilot)
        assert list(Recording(the_file()).records()) == [streams.inventory(1), made]


async def test_a_recording_begins_with_a_sample() -> None:
    """Without one it could not be played."""
    stream = PreparedStream(streams.inventory(1))
    async with GputopApp(stream).run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: dashboard_of(pilot.app).telemetry.inventory is not None)
        await pilot.press("r")
        assert "Nothing to record yet" in said(pilot)
        assert not list(Path.cwd().iterdir())


async def test_gpm_is_sampled_while_it_is_shown_or_recorded() -> None:
    stream = PreparedStream(streams.inventory(8), streams.sample(8))
    async with settled(GputopApp(stream), (60, 20)) as (_, pilot):
        asked = [stream.asked["gpm"]]
        for press in (pilot.press("3"), begun(pilot), pilot.press("r")):
            await press
            asked.append(stream.asked["gpm"])
        assert asked == [True, False, True, False]


async def test_it_can_record_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    stream = PreparedStream(streams.inventory(1), *recordings.samples(2))
    async with GputopApp(stream, record=path).run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "r stops it" in said(pilot))
        assert " REC " in shown(pilot, Header)
    assert list(Recording(path).records()) == [streams.inventory(1), *recordings.samples(2)]


async def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    stream = PreparedStream(streams.inventory(1), streams.sample(1))
    app = GputopApp(stream, record=tmp_path / "no" / "a.jsonl")
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "No such file or directory" in said(pilot))
        assert " REC " not in shown(pilot, Header)
        assert "GPU" in shown(pilot, Header)


async def test_a_disk_that_fills_up_ends_it_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = recordings.samples(4)
    stream = PreparedStream(streams.inventory(1), made[0])
    async with settled(GputopApp(stream)) as (_, pilot):
        await begun(pilot)
        stream.send(made[1])
        await until(pilot, lambda: recorded() == 3)

        def full(descriptor: int, data: bytes) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            stream.send(made[2])
            await until(pilot, lambda: "No space left on device" in said(pilot))
        assert " REC " not in shown(pilot, Header)
        stream.send(made[3])
        await settle(pilot)
        assert "12:00:03" in shown(pilot, Header)
    assert list(Recording(the_file()).records()) == [streams.inventory(1), *made[:2]]


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
            await until(pilot, lambda: "the disk does not answer" in said(pilot))
            assert " REC " not in shown(pilot, Header)
            assert "12:00:04" in shown(pilot, Header)
    finally:
        answers.set()
