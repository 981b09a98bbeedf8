from typing import Any

import pytest
from textual.app import App
from textual.pilot import Pilot

from gputop.agent.snapshot import Sample
from gputop.ui.device.title import DeviceTitle
from gputop.ui.drawing.live import LiveView
from gputop.ui.monitor.device_list import DevicesView
from gputop.ui.shell.app import GputopApp
from gputop.ui.terminal import ScreenCells
from tests.sessions import EndlessSession
from tests.streams import PreparedStream, no_driver, sample
from tests.ui import scenes
from tests.ui.pilots import app_with, dashboard_of, settle, settled, shown, until

SIZE = 160, 50
PAGE_BYTES, TICK_BYTES = 18_000, 3_000
"""Most bytes of a page or of the monitor again, and of a tick: 8 devices, full charts."""


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> list[str]:
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
    def done() -> bool:
        screen = pilot.app.screen
        waits = screen._layout_required or screen._repaint_required or screen._dirty_widgets
        return not (waits or pilot.app._batch_count or screen._update_timer._active.is_set())

    for _ in range(2):
        await settle(pilot)
        await until(pilot, done)


async def test_a_page_is_two_frames(frames: list[str]) -> None:
    app = app_with(*scenes.job(8))
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: "of 700 W" in shown(pilot, DevicesView))
        await painted(pilot)
        for page in ("enter", "w", "question_mark", "enter"):
            for key in (page, "escape"):
                frames.clear()
                await pilot.press(key)
                await painted(pilot)
                assert len(frames) <= 2, (key, frames[2:])  # the page, and its keys
                assert len("".join(frames).encode()) <= PAGE_BYTES, key


async def test_a_tick_is_one_frame_of_few_bytes_and_draws_nothing_that_is_hidden(
    frames: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []
    draw = LiveView._draw

    def drawing(view: LiveView) -> None:
        drawn.append(view.id or "")
        draw(view)

    *before, _, _, _ = records = scenes.job(8)
    async with settled(app_with(*before), SIZE) as (app, pilot):
        stream = dashboard_of(app)._stream
        assert isinstance(stream, PreparedStream)
        for key in ("enter", "escape", "w", "escape", "2", "3", "1"):
            await pilot.press(key)
            await painted(pilot)
        monkeypatch.setattr(LiveView, "_draw", drawing)
        for record in records[-3:]:
            frames.clear()
            drawn.clear()
            stream.send(record)
            await until(pilot, lambda: bool(frames))
            await painted(pilot)
            assert len(frames) == 1
            assert len(frames[0].encode()) <= TICK_BYTES
            assert sorted(drawn) == ["", "devices", "header"]
        await pilot.press("enter")  # what was hidden has the newest numbers
        last = records[-1]
        assert isinstance(last, Sample)
        assert f"power {last.devices[0].power_watts:.0f}/700 W" in shown(pilot, DeviceTitle)


# Work of the dashboard at a tick and between two, by counting.


def ticking(app: App[None]) -> list[str]:
    pumps = (app, *app.screen_stack, *app.screen.query("*"))
    timers: list[Any] = [timer for pump in pumps for timer in pump._timers]
    return [timer.name for timer in timers if timer._active.is_set() and timer._task is not None]


async def test_one_timer_ticks_where_nothing_runs(endless: type[EndlessSession]) -> None:
    app = GputopApp(PreparedStream(no_driver(), sample()))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(ticking(app)) == 1)
        await pilot.press("b")
        await until(pilot, lambda: bool(endless.requests))
        await until(pilot, lambda: len(ticking(app)) == 2)  # what a run shows between samples
        await pilot.press("x")
        await until(pilot, lambda: len(ticking(app)) == 1)
