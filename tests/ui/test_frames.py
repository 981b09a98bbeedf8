"""What goes to the terminal for a page and for a tick, by counting frames and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from textual.app import App

from gputop.ui.drawing.live import LiveView
from gputop.ui.monitor.device_list import DevicesView
from gputop.ui.shell.app import GputopApp
from gputop.ui.terminal import ScreenCells
from tests.streams import PreparedStream, no_driver, sample
from tests.ui import scenes
from tests.ui.pilots import app_with, dashboard_of, settle, shown, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.pilot import Pilot

    from gputop.agent.snapshot import Record
    from tests.sessions import EndlessSession


SIZE = 160, 50
PAGE_BYTES, MONITOR_BYTES, TICK_BYTES = 14_500, 18_000, 1_750
"""Most bytes of a page, of the monitor again, and of a tick on average: 8 devices, full charts."""


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the frames that go to the terminal from now on."""
    cells = ScreenCells()
    display = App._display
    written: list[str] = []

    def record(app: App[Any], screen: Any, update: Any) -> None:
        if hasattr(update, "render_segments") and not app._batch_count:
            cells.resize(*app.size)
            cells.apply(update.render_segments(app.console))
            if frame := cells.difference():  # where nothing changed, nothing is sent
                written.append(frame)
        display(app, screen, update)

    monkeypatch.setattr(App, "_display", record)
    return written


async def painted(pilot: Pilot[None]) -> None:
    """Wait until nothing is left to be painted."""

    def done() -> bool:
        screen = pilot.app.screen
        waits = screen._layout_required or screen._repaint_required or screen._dirty_widgets
        return not (waits or pilot.app._batch_count or screen._update_timer._active.is_set())

    for _ in range(2):
        await settle(pilot)
        await until(pilot, done)


async def begun(pilot: Pilot[None], frames: list[str]) -> None:
    """Wait until all is there that comes on its own."""
    await dashboard_of(pilot.app).tabs.get_benchmark()
    await painted(pilot)
    frames.clear()


def size_of(frames: list[str]) -> int:
    return sum(len(frame.encode()) for frame in frames)


async def test_a_page_is_two_frames(frames: list[str]) -> None:
    app = app_with(*scenes.job(8))
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: "of 700 W" in shown(pilot, DevicesView))
        await painted(pilot)
        frames.clear()
        for _ in range(2):  # the first time they are made
            for key, back in (("enter", "escape"), ("w", "escape"), ("2", "1"), ("3", "1")):
                for each in (key, back):
                    await pilot.press(each)
                    await painted(pilot)
                    assert len(frames) <= 2, (each, frames[2:])  # the page, and its keys
                    assert size_of(frames) <= (PAGE_BYTES if each == key else MONITOR_BYTES), each
                    frames.clear()
            await pilot.press("question_mark")
            await painted(pilot)
            assert len(frames) <= 2, frames[2:]  # a dialog, and what is in it
            assert size_of(frames) <= MONITOR_BYTES
            await pilot.press("escape")
            await painted(pilot)
            frames.clear()


def ticks(many: int) -> Iterator[Record]:
    """Yield the samples after those of a job, each with other numbers."""
    yield from scenes.job(8, scenes.SAMPLES + many)[scenes.SAMPLES + 1 :]


async def test_a_tick_is_one_frame_of_few_bytes(frames: list[str]) -> None:
    stream = PreparedStream(*scenes.job(8))
    app = GputopApp(stream)
    async with app.run_test(size=SIZE) as pilot:
        await begun(pilot, frames)
        for many, record in enumerate(ticks(20), 1):
            stream.send(record)
            await until(pilot, lambda many=many: len(frames) >= many)  # type: ignore[misc]
            await painted(pilot)
            assert len(frames) == many
        assert size_of(frames) <= TICK_BYTES * 20


async def test_nothing_that_is_hidden_is_drawn(
    frames: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = PreparedStream(*scenes.job(8))
    app = GputopApp(stream)
    async with app.run_test(size=SIZE) as pilot:
        await begun(pilot, frames)
        for key in ("enter", "escape", "w", "escape", "2", "3", "1"):
            await pilot.press(key)
            await painted(pilot)
        drawn: list[LiveView] = []
        draw = LiveView._draw

        def drawing(view: LiveView) -> None:
            drawn.append(view)
            draw(view)

        monkeypatch.setattr(LiveView, "_draw", drawing)
        stream.send(next(ticks(1)))
        await until(pilot, lambda: bool(drawn))
        await painted(pilot)
        assert sorted(view.id or "" for view in drawn) == ["", "devices", "header"]


async def test_a_resize_in_a_batch_is_painted_at_its_end(frames: list[str]) -> None:
    app = app_with(*scenes.job(8))
    async with app.run_test(size=SIZE) as pilot:
        await begun(pilot, frames)
        with app.batch_update():  # as while a tab is mounted
            await pilot.resize_terminal(120, 40)
            await settle(pilot)
            assert not frames
        await painted(pilot)
        assert "Stress test" in "".join(frames)


# Work of the dashboard at a tick and between two, by counting.


def ticking(app: App[None]) -> list[str]:
    """The timers that wake the app, in any of its widgets, without those that came to their end."""
    pumps = (app, *app.screen_stack, *app.screen.query("*"))
    timers: list[Any] = [timer for pump in pumps for timer in pump._timers]
    return [timer.name for timer in timers if timer._active.is_set() and timer._task is not None]


async def test_one_timer_ticks_where_nothing_runs(endless: type[EndlessSession]) -> None:
    app = GputopApp(PreparedStream(no_driver(), sample()))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(ticking(app)) == 1)
        await pilot.press("b")
        await until(pilot, lambda: bool(endless.requests))
        await until(pilot, lambda: len(ticking(app)) == 3)  # what a run shows between samples
        await pilot.press("x")
        await until(pilot, lambda: len(ticking(app)) == 1)
