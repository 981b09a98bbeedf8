"""Events that a user may wait for: what they are, and how they are told."""

from __future__ import annotations

import dataclasses
from contextvars import Context, copy_context
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from textual.widgets._toast import Toast

from gputop.agent.device import DeviceState
from gputop.health.findings import Finding, Severity
from gputop.settings import Settings
from gputop.ui.shell.app import GputopApp
from gputop.ui.shell.events import EventWatch, Notice
from tests.streams import PreparedStream, inventory, process, readings, sample
from tests.ui.pilots import settle, settled, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputop.agent.snapshot import Sample


DEVICES = inventory(2).devices
EARLY = sample().time - 3600
JOB = (
    process(5, 0, start_time=EARLY, command="python train.py"),
    process(5, 1, start_time=EARLY, command="python train.py"),
    process(6, 1, start_time=EARLY, command="python train.py"),
)
SHORT = (process(7, 0, start_time=sample().time - 5, command="nvidia-smi"),)
RUNNING = sample(2, JOB)


def after(before: Sample, now: Sample, *alerts: Finding) -> list[Notice]:
    """Return the notices of a sample that comes after another one."""
    watch = EventWatch()
    assert not [each for each in watch.notices(before, DEVICES, ()) if each.kind != "fault"]
    return list(watch.notices(now, DEVICES, alerts))


def test_the_end_of_a_job_frees_its_gpus() -> None:
    ended = Notice("job-ended", "Ended: python train.py and 1 more")
    assert after(RUNNING, sample(2, ())) == [ended, Notice("gpu-free", "Free: GPU 0, 1")]
    one = after(RUNNING, sample(2, JOB[:2]))
    assert one == [Notice("job-ended", "Ended: python train.py")]
    command = "python train.py " + "--layers=96 " * 9
    long = process(8, 0, start_time=EARLY, command=command)
    assert after(sample(2, (long,)), sample(2, ()))[0].text == f"Ended: {command[:60]}"
    assert after(RUNNING, RUNNING) == []


def test_a_short_process_is_no_job() -> None:
    assert after(sample(2, SHORT), sample(2, ())) == [Notice("gpu-free", "Free: GPU 0")]


def test_a_device_that_does_not_say_its_processes_is_not_free() -> None:
    for changes in (
        {"state": DeviceState.NOT_RESPONDING},
        {"absent": {"processes": "no_permission"}},
    ):
        away = tuple(readings(n, **changes) for n in range(2))
        assert after(RUNNING, dataclasses.replace(sample(2, ()), devices=away)) == []


def test_a_fault_is_told_once() -> None:
    lost = Finding(Severity.FAULT, "lost", rule="lost", device_uuid="GPU-1", label="1")
    warm = dataclasses.replace(lost, severity=Severity.WARNING, title="warm")
    watch = EventWatch()
    told = [list(watch.notices(RUNNING, DEVICES, (lost, warm))) for _ in range(2)]
    assert told == [[Notice("fault", "GPU 1: lost")], []]


async def test_a_command_is_run_and_the_terminal_shows_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "said"
    command = f"sh -c 'echo \"$GPUTOP_EVENT: $0\" >> {said}'"
    stream = PreparedStream(inventory(2), RUNNING)
    app = GputopApp(stream, settings=Settings(notes=True, on_event=command))
    async with app.run_test() as pilot:
        await settle(pilot)
        written: list[str] = []
        monkeypatch.setattr(app, "terminal", SimpleNamespace(write=written.append))
        stream.send(sample(2, JOB[:2]))
        await until(pilot, lambda: said.exists() and bool(said.read_text()))
        assert said.read_text() == "job-ended: Ended: python train.py\n"
        assert "\x1b]9;gputop: Ended: python train.py\x07" in written


async def test_a_command_that_cannot_be_run_is_said() -> None:
    stream = PreparedStream(inventory(2), RUNNING)
    app = GputopApp(stream, settings=Settings(on_event="/no/such/command"))
    async with app.run_test() as pilot:
        await settle(pilot)
        stream.send(sample(2, JOB[:2]))
        await until(pilot, lambda: bool(app._notifications))
        (note,) = app._notifications
        assert note.message == "/no/such/command: No such file or directory"


async def test_a_page_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with settled(GputopApp(PreparedStream(inventory(2), RUNNING)), (80, 24)) as (app, pilot):
        for key, ending, first in (("E", "txt", " gputop  1 Monitor"), ("V", "svg", "<svg")):
            await pilot.press(key)
            await until(pilot, lambda ending=ending: noted(app).endswith(ending))  # type: ignore[misc]
            file = Path(noted(app))
            assert file.parent == tmp_path
            check_page(file, first)


def check_page(file: Path, first: str) -> None:
    text = file.read_text()
    assert text.startswith(first)
    assert "train.py" in text
    assert file.stat().st_mode & 0o777 == 0o600
    if file.suffix == ".txt":
        assert len(text.splitlines()) == 24
        assert text.splitlines()[-1].startswith(" ? Help  q Quit")


def noted(app: GputopApp) -> str:
    """Return the notification that is shown."""
    return "".join(note.message for note in app._notifications)


async def test_an_export_that_fails_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    app = GputopApp(PreparedStream(inventory(1), sample(1)))
    async with app.run_test() as pilot:
        await settle(pilot)
        await pilot.press("E")
        await until(pilot, lambda: bool(app._notifications))
        (note,) = app._notifications
        assert note.title == "Not exported"
        assert "No such file or directory" in note.message


# Notifications: the newest is shown, and nothing is left of those before.


def said(app: GputopApp) -> list[str]:
    """Return the texts of the notifications on the screen."""
    return [str(each.render()) for each in app.screen.query("Toast").results(Toast)]


@pytest.mark.parametrize("context", [copy_context, Context], ids=["inside", "outside"])
async def test_what_was_said_leaves_nothing_behind(context: Callable[[], Context]) -> None:
    """Whoever says it: a thread that records has its words said outside of the app."""
    app = GputopApp(PreparedStream(inventory(1), sample(1)))
    async with app.run_test(notifications=True) as pilot:
        for n in range(10):
            context().run(app.notify, f"number {n}")
            await pilot.pause()
        await until(pilot, lambda: said(app) == ["number 9"])
        assert len(app.screen.query("ToastHolder")) <= 2, "its own, and perhaps the one before"


async def test_what_is_said_at_once_after_something_else_is_there() -> None:
    app = GputopApp(PreparedStream(inventory(1), sample(1)))
    async with app.run_test(notifications=True) as pilot:
        app.notify("one")
        await until(pilot, lambda: bool(app.screen.query("Toast")))
        app.notify("two")
        app.notify("three")
        await until(pilot, lambda: "three" in said(app))
