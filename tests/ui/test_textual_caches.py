"""The other private method that is replaced: what is closed is forgotten; or left alone."""

from __future__ import annotations

import gc
import weakref
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

import pytest
from rich import cells
from textual import _styles_cache
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.color import Color
from textual.events import Key
from textual.geometry import Region
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Static
from textual.widgets._toast import Toast

from gputop.ui.shell.app import GputopApp
from gputop.ui.terminal import textual_patches
from tests.streams import PreparedStream, inventory, sample
from tests.ui.pilots import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult

STOCK = _styles_cache.StylesCache.get_inner_outer
RED, BLUE = Color(255, 0, 0), Color(0, 0, 255, 0.5)


@pytest.fixture(autouse=True)
def _stock(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed in one test is gone after it."""
    monkeypatch.setattr(_styles_cache.StylesCache, "get_inner_outer", STOCK)


class Box(ModalScreen[None]):
    """A screen as others."""

    def compose(self) -> ComposeResult:
        yield Static("text")


async def caches_after_closing() -> list[object]:
    """The caches of drawn lines that are still there of a screen that was closed."""
    app = App[None]()
    async with app.run_test() as pilot:
        box = Box()
        await app.push_screen(box)
        await pilot.pause()
        widgets = [box, *box.query(Static)]
        caches = [weakref.ref(widget._styles_cache) for widget in widgets]
        box.dismiss()
        await pilot.pause()
        del box, widgets
    del app, pilot
    gc.collect()
    return [cache() for cache in caches if cache() is not None]


async def test_a_closed_screen_is_forgotten() -> None:
    assert textual_patches.install_caches()
    assert await caches_after_closing() == []


async def test_textual_alone_keeps_it() -> None:
    """Where this fails, Textual has mended it, and nothing has to be replaced."""
    STOCK.cache_clear()
    assert await caches_after_closing() != []
    STOCK.cache_clear()


def said(app: GputopApp) -> list[str]:
    """What the notifications say that are on the screen."""
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


def test_the_colours_are_the_same() -> None:
    cache: Any = _styles_cache.StylesCache()
    stock = cache.get_inner_outer(RED, BLUE)
    assert textual_patches.install_caches()
    assert cache.get_inner_outer(RED, BLUE) == stock
    assert not textual_patches.install_caches(), "what is replaced is of another shape"


@pytest.mark.parametrize("other", [None, len, property(len)])
def test_another_textual_is_left_alone(monkeypatch: pytest.MonkeyPatch, other: object) -> None:
    monkeypatch.setattr(_styles_cache.StylesCache, "get_inner_outer", other)
    assert not textual_patches.install_caches()
    assert _styles_cache.StylesCache.__dict__["get_inner_outer"] is other


def test_without_the_cache_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(_styles_cache, "StylesCache")
    assert not textual_patches.install_caches()


def parser_after_its_key() -> object:
    """A parser that has read a key and is then no longer used; None where it was forgotten."""
    parser = XTermParser()
    assert [event.key for event in parser.feed("\x1b[A") if isinstance(event, Key)] == ["up"]
    last = weakref.ref(parser)
    del parser
    textual_patches.forget_keys()
    gc.collect()
    return last()


def test_who_has_read_keys_is_forgotten() -> None:
    assert parser_after_its_key() is None


def test_where_textual_remembers_keys_otherwise_nothing_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cached = XTermParser._parse_extended_key

    def otherwise(self: XTermParser, sequence: str) -> list[Key] | None:
        return cached(self, sequence)

    monkeypatch.setattr(XTermParser, "_parse_extended_key", otherwise)
    assert parser_after_its_key() is not None, "else Textual has mended it"
    monkeypatch.delattr(XTermParser, "_parse_extended_key")
    textual_patches.forget_keys()
    cached.cache_clear()


def remembered() -> list[int]:
    """How many places and widths of text are known from before."""
    return [each.cache_info().currsize for each in (Region.union, cells.cached_cell_len)]


def test_places_and_widths_are_forgotten() -> None:
    Region(0, 0, 1, 1).union(Region(2, 2, 3, 3))
    cells.cell_len("…")
    assert all(remembered())
    textual_patches.forget_drawn([])
    assert not any(remembered())


def test_where_places_and_widths_are_not_remembered_nothing_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(cells, "cached_cell_len")
    monkeypatch.setattr(Region, "union", lambda one, _: one)
    textual_patches.forget_drawn([])
    textual_patches.forget_drawn([Widget.__new__(Widget)])
