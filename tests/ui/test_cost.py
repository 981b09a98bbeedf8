"""Work of the dashboard at a tick and between two, by counting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputop.ui.shell.app import GputopApp
from tests.streams import PreparedStream, no_driver, sample
from tests.ui.pilots import dashboard_of, until

if TYPE_CHECKING:
    import pytest
    from textual.app import App

    from tests.sessions import EndlessSession


def ticking(app: App[None]) -> list[str]:
    """The timers that wake the app, in any of its widgets, without those that came to their end."""
    pumps = (app, *app.screen_stack, *app.screen.query("*"))
    timers: list[Any] = [timer for pump in pumps for timer in pump._timers]
    return [timer.name for timer in timers if timer._active.is_set() and timer._task is not None]


async def test_one_timer_ticks_where_nothing_runs(
    endless: type[EndlessSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputop.ui.shell.dashboard.PRELOAD_SECONDS", 0.01)
    app = GputopApp(PreparedStream(no_driver(), sample()))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: dashboard_of(app).tabs.benchmark is not None)
        await until(pilot, lambda: len(ticking(app)) == 1)
        await pilot.press("b")
        await until(pilot, lambda: bool(endless.requests))
        await until(pilot, lambda: len(ticking(app)) == 3)  # what a run shows between samples
        await pilot.press("x")
        await until(pilot, lambda: len(ticking(app)) == 1)
