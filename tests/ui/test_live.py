"""Only changed rows are drawn again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import App
from textual.containers import Vertical

from gputop.ui.drawing.cells import Row, Span
from gputop.ui.drawing.live import LiveView
from gputop.ui.drawing.palette import BUSY
from tests.ui.pilots import lines, text_of

if TYPE_CHECKING:
    import pytest
    from textual.app import ComposeResult
    from textual.geometry import Region


class Counter(LiveView):
    """Shows a number."""

    number = 0

    def draw(self, width: int, height: int) -> list[Row]:
        return [[Span("number "), Span(f"{self.number:5d}", BUSY)], [Span("always the same")]]


class CounterApp(App[None]):
    def compose(self) -> ComposeResult:
        with Vertical():
            yield Counter()


async def test_a_redraw_refreshes_only_the_rows_that_differ(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = CounterApp()
    async with app.run_test(size=(40, 5)) as pilot:
        view = app.query_one(Counter)
        await pilot.pause()
        assert view.text().splitlines()[0] == "number     0"
        refreshed: list[Region] = []
        monkeypatch.setattr(view, "refresh", lambda *regions, **_: refreshed.extend(regions))
        view.redraw()
        assert refreshed == []
        view.number = 17
        view.redraw()
        assert [(r.x, r.y, r.width, r.height) for r in refreshed] == [(0, 0, 40, 1)]


async def test_what_changed_while_hidden_is_drawn_when_shown() -> None:
    app = CounterApp()
    async with app.run_test(size=(40, 5)) as pilot:
        view, around = app.query_one(Counter), app.query_one(Vertical)
        await pilot.pause()
        around.display = False
        await pilot.pause()
        view.number = 5
        view.redraw()
        around.display = True
        await pilot.pause()
        assert text_of(lines(app)).startswith("number     5")
