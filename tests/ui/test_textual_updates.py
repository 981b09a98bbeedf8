"""Textual's private updates give their cells to a screen model, which shows the same picture.

Where they are other ones, Textual's own output is left alone.
"""

from __future__ import annotations

import io
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyte
import pytest
from rich.console import COLOR_SYSTEMS, Console
from rich.segment import Segment
from rich.style import Style
from textual import _compositor
from textual._compositor import ChopsUpdate, Compositor, LayoutUpdate
from textual.app import App
from textual.containers import Container, Horizontal
from textual.geometry import Region
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widgets import Label

from gputop.ui.drawing.cells import Row, Span
from gputop.ui.drawing.live import LiveView
from gputop.ui.drawing.look import THEMES, Look
from gputop.ui.drawing.palette import BUSY, DIM, TEXT
from gputop.ui.terminal import textual_driver, textual_patches
from gputop.ui.terminal.screen_model import LINK, ScreenModel, Sequences
from gputop.ui.terminal.textual_patches import CellsUpdate, codes_of, update_from_live_views

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.app import ComposeResult

WIDTH, HEIGHT = 40, 6
CONSOLE = Console(file=io.StringIO(), force_terminal=True, color_system="256", width=WIDTH)
STOCK = {each: each.render_segments for each in (LayoutUpdate, ChopsUpdate)}
STOCK_PARTIAL = Compositor.render_partial_update


@pytest.fixture
def model() -> Iterator[ScreenModel]:
    """A model that has the cells of all updates, and is shown on a terminal by `show`."""
    model = ScreenModel(WIDTH, HEIGHT + 1, Sequences())
    textual_patches.capture(model.put)
    yield model
    textual_patches.release()
    assert {each: each.render_segments for each in STOCK} == STOCK
    assert Compositor.render_partial_update is STOCK_PARTIAL


def strips(letter: str, cuts: list[int]) -> tuple[dict[int, Strip | None], list[int]]:
    """A line of strips between the cuts, in turning styles."""
    edges = [0, *cuts, WIDTH]
    line: dict[int, Strip | None] = {}
    for n, (start, end) in enumerate(pairwise(edges)):
        text = "".join(chr(ord(letter) + (x % 5)) for x in range(start, end))
        styles = [TEXT, BUSY, DIM]
        line[start] = Strip([Segment(c, styles[(n + i // 3) % 3]) for i, c in enumerate(text)])
    return line, edges[1:]


def test_strips_with_a_change_are_taken_over_and_no_others(model: ScreenModel) -> None:
    stream = pyte.Stream(screen := pyte.Screen(WIDTH, HEIGHT))
    old = [strips("a", [5, 20]) for _ in range(HEIGHT)]
    new = [strips("p", [5, 20]) for _ in range(HEIGHT)]
    new[2][0][5] = None  # another widget's, which was not drawn
    everything = [[strip for strip in line.values() if strip] for line, _ in old]
    whole = LayoutUpdate(everything, Region(0, 0, WIDTH, HEIGHT))  # type: ignore[arg-type]
    assert whole.render_segments(CONSOLE) == ""
    stream.feed(model.next_frame())
    assert screen.display == ["abcde" * 8] * HEIGHT
    spans = [(0, 3, 9), (2, 1, 2), (2, 22, 23)]
    update = ChopsUpdate([line for line, _ in new], spans, [ends for _, ends in new])
    assert update.render_segments(CONSOLE) == ""
    stream.feed(model.next_frame())
    mixed = "pqrst" + "abcde" * 3 + "pqrst" * 4
    first = "pqrst" * 4 + "abcde" * 4  # the whole strips that a span touches
    assert screen.display == [first, "abcde" * 8, mixed, *["abcde" * 8] * (HEIGHT - 3)]


@pytest.mark.parametrize(
    ("system", "codes"),
    [
        ("truecolor", "1;38;2;18;52;86;48;2;1;2;3"),
        ("256", "1;38;5;23;48;5;16"),
        ("standard", "1;90;40"),
    ],
)
def test_styles_are_in_the_terminal_s_colours(system: str, codes: str) -> None:
    style = Style.parse("bold #123456 on #010203")
    color_system = COLOR_SYSTEMS[system]
    assert codes_of(style, color_system) == codes
    assert codes_of(Style.parse("default on default"), color_system) == ""
    link = Style(link="https://example.com")
    assert codes_of(link, color_system) == f"{LINK}https://example.com"


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


async def test_the_picture_is_the_one_that_textual_makes(model: ScreenModel) -> None:
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
        assert update.render_segments(CONSOLE) == ""
        stream.feed(model.next_frame().replace("\x1b[2J", ""))
        assert screen.display == [line.rstrip().ljust(WIDTH) for line in picture(app)]


async def test_a_theme_is_over_it_too(model: ScreenModel, monkeypatch: pytest.MonkeyPatch) -> None:
    app = NumbersApp()
    async with app.run_test(size=(WIDTH, HEIGHT + 1)) as pilot:
        await pilot.pause()
        monkeypatch.setattr(app, "get_line_filters", lambda: [Look(THEMES["light"])])
        app.query_one("#one", Numbers).numbers = (4, 2, 3)
        app.query_one("#one", Numbers).redraw()
        update = update_from_live_views(changed(app))
        assert update is not None
        update.render_segments(CONSOLE)
        assert "38;5;28m" in model.next_frame()  # BUSY, in that theme


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


def _other_shape(one: Any) -> None:
    """A method with other parameters."""


@pytest.mark.parametrize("name", ["LayoutUpdate", "ChopsUpdate"])
@pytest.mark.parametrize(
    "changed",
    [{"render_segments": _other_shape}, {"render_segments": None}, {"__init__": _other_shape}],
)
def test_updates_of_another_shape_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, name: str, changed: dict[str, Any]
) -> None:
    known = getattr(_compositor, name)
    other = type(
        "Other", (), {"render_segments": STOCK[known], "__init__": known.__init__} | changed
    )
    before = other.__dict__["render_segments"]
    monkeypatch.setattr(_compositor, name, other)
    assert not textual_driver.is_known()
    assert other.__dict__["render_segments"] is before


@pytest.mark.parametrize("name", ["LayoutUpdate", "ChopsUpdate"])
def test_a_textual_without_them_is_left_alone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delattr(_compositor, name)
    assert not textual_driver.is_known()
    textual_patches.release()


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
    assert textual_patches.install_live_updates()
    assert textual_patches.install_live_updates()
    assert Known.render_partial_update.stock is stock
    monkeypatch.setattr(Known, "_regions_to_spans", None)
    assert not textual_patches.install_live_updates()


class Beside(App[None]):
    """Two containers of a label, in one line."""

    CSS = "Horizontal { height: 1; } Container { width: 8; }"

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Container(Label("left ", id="left"))
            yield Container(Label("right"))


async def test_what_is_beside_a_change_stays(model: ScreenModel) -> None:
    """Textual draws the other container as well, but not what is in it."""
    app = Beside()
    async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
        await pilot.pause()
        compositor = app.screen._compositor
        stream = pyte.Stream(screen := pyte.Screen(WIDTH, HEIGHT + 1))
        whole = compositor.render_update(full=True)
        assert isinstance(whole, LayoutUpdate)
        whole.render_segments(CONSOLE)
        stream.feed(model.next_frame())
        assert screen.display[0].rstrip() == "left    right"
        label = app.query_one("#left", Label)
        label.update("new  ")
        await pilot.pause()
        compositor._dirty_regions = {label.region}
        update = compositor.render_partial_update()
        assert isinstance(update, ChopsUpdate)
        update.render_segments(CONSOLE)
        stream.feed(model.next_frame())
        assert screen.display[0].rstrip() == "new     right"
