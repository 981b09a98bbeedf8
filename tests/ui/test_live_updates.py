"""Updates of live views bypass Textual's strips, and give the same picture."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pyte
import pytest
from rich.console import Console
from rich.segment import Segment
from textual import _compositor
from textual._compositor import ChopsUpdate, Compositor
from textual.app import App
from textual.screen import ModalScreen
from textual.widgets import Label

from gputop.ui.drawing.cells import Row, Span
from gputop.ui.drawing.look import THEMES, Look
from gputop.ui.drawing.palette import BUSY, DIM, TEXT
from gputop.ui.terminal import partial_updates
from gputop.ui.terminal.partial_updates import CellsUpdate, LinePart, update_from_live_views
from gputop.ui.widgets.live import LiveView

if TYPE_CHECKING:
    from textual.app import ComposeResult

WIDTH, HEIGHT = 40, 6
CONSOLE = Console(file=io.StringIO(), force_terminal=True, color_system="256", width=WIDTH)


class Numbers(LiveView):
    """A few rows with a number each."""

    DEFAULT_CSS = "Numbers { height: 3; }"
    numbers = (1, 2, 3)
    name_ = "number"

    def draw(self, width: int, height: int) -> list[Row]:
        return [[Span(f"{self.name_} ", DIM), Span(f"{n:5d}", BUSY)] for n in self.numbers]


class NumbersApp(App[None]):
    """Two views, and something of Textual's own under them."""

    def compose(self) -> ComposeResult:
        yield Numbers(id="one")
        yield Numbers(id="two")
        yield Label("label")


def picture(app: App[Any]) -> list[str]:
    return ["".join(s.text for s in strip) for strip in app.screen._compositor.render_strips()]


def changed(app: NumbersApp) -> Compositor:
    """The compositor, with what the views have asked for."""
    compositor = app.screen._compositor
    compositor.update_widgets({*app.query(Numbers)})
    return compositor


async def test_the_picture_is_the_one_that_textual_makes() -> None:
    app = NumbersApp()
    async with app.run_test(size=(WIDTH, HEIGHT + 1)) as pilot:
        await pilot.pause()
        stream = pyte.Stream(screen := pyte.Screen(WIDTH, HEIGHT + 1))
        stream.feed("\r\n".join(picture(app)))
        for number, view in enumerate(app.query(Numbers)):
            view.numbers = (1, 20 + number, 303)
            view.redraw()
        update = update_from_live_views(compositor := changed(app))
        assert isinstance(update, CellsUpdate)
        assert not compositor._dirty_regions
        stream.feed(update.render_segments(CONSOLE))
        assert screen.display == [line.rstrip().ljust(WIDTH) for line in picture(app)]


async def test_a_theme_is_over_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    app = NumbersApp()
    async with app.run_test(size=(WIDTH, HEIGHT + 1)) as pilot:
        await pilot.pause()
        monkeypatch.setattr(app, "get_line_filters", lambda: [Look(THEMES["light"])])
        app.query_one("#one", Numbers).numbers = (4, 2, 3)
        app.query_one("#one", Numbers).redraw()
        update = update_from_live_views(changed(app))
        assert update is not None
        assert "38;5;28m" in update.render_segments(CONSOLE)  # BUSY, in that theme


@pytest.mark.parametrize("over", ["screen", "wide characters", "others"])
async def test_what_it_cannot_do_is_left_to_textual(over: str) -> None:
    app = NumbersApp()
    async with app.run_test(size=(WIDTH, HEIGHT + 1)) as pilot:
        await pilot.pause()
        view = app.query_one("#one", Numbers)
        if over == "screen":
            await app.push_screen(ModalScreen[None]())
            app.screen.refresh(view.region)
            compositor = app.screen._compositor
            compositor.update_widgets({app.screen})
        else:
            view.numbers = (5, 6, 7)
            view.name_ = "漢字 " if over == "wide characters" else view.name_
            view.redraw()
            compositor = changed(app)
            if over == "others":
                compositor._dirty_regions.add(app.query_one(Label).region)
        asked = compositor._dirty_regions.copy()
        assert asked
        assert update_from_live_views(compositor) is None
        assert compositor._dirty_regions == asked
        assert isinstance(compositor.render_partial_update(), ChopsUpdate)


def test_of_a_line_first_comes_what_goes_on_in_the_last_style() -> None:
    styles = (DIM, TEXT, DIM, TEXT)
    parts = [LinePart(10 * n, 0, [Segment("x", style)]) for n, style in enumerate(styles)]
    written = CellsUpdate(parts).render_segments(CONSOLE)
    assert written.count("m") == 2  # to dim, and from it
    pyte.Stream(screen := pyte.Screen(WIDTH, 1)).feed(written)
    assert screen.display == ["x         " * 4]


def test_it_is_installed_once_and_where_textual_has_the_known_shape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Known(Compositor):
        """As this Textual has it."""

        render_partial_update: Any = getattr(
            Compositor.render_partial_update, "stock", Compositor.render_partial_update
        )

    stock = Known.render_partial_update
    monkeypatch.setattr(_compositor, "Compositor", Known)
    assert partial_updates.install_live_updates()
    assert partial_updates.install_live_updates()
    assert Known.render_partial_update.stock is stock
    monkeypatch.setattr(Known, "_regions_to_spans", None)
    assert not partial_updates.install_live_updates()
