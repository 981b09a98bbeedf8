"""Only changed cells are sent."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from textual.app import App
from textual.geometry import Region
from textual.strip import Strip

from gputop.text import visible
from gputop.ui.drawing.cells import Row, Span, changed_span, fit
from gputop.ui.drawing.live import LiveView
from gputop.ui.drawing.palette import BUSY, DIM, TEXT

if TYPE_CHECKING:
    import pytest
    from textual.app import ComposeResult

WIDTH = 24
rows = st.lists(
    st.tuples(st.text("ab漢─ ", max_size=6).map(visible), st.sampled_from([TEXT, BUSY, DIM])),
    max_size=6,
).map(lambda parts: fit([Span(text, style) for text, style in parts], WIDTH))


def cells(row: Row) -> list[tuple[str, object]]:
    return [
        (character, span.style)
        for span in row
        for character in span.text
        for _ in range(2 if character == "漢" else 1)
    ]


@given(rows, rows)
def test_the_changed_span_turns_one_row_into_the_other(old: Row, new: Row) -> None:
    shown, wanted = cells(old), cells(new)
    start, end = changed_span(old, new)
    assert 0 <= start <= WIDTH
    assert 0 <= end <= WIDTH
    shown[start : max(start, end)] = wanted[start : max(start, end)]
    assert shown == wanted


class Counter(LiveView):
    """Shows a number."""

    number = 0

    def draw(self, width: int, height: int) -> list[Row]:
        return [[Span("number "), Span(f"{self.number:5d}", BUSY)], [Span("always the same")]]


class CounterApp(App[None]):
    """Nothing but that."""

    def compose(self) -> ComposeResult:
        yield Counter()


async def test_parts_that_were_cut_of_a_row_are_not_kept() -> None:
    app = CounterApp()
    async with app.run_test(size=(40, 5)) as pilot:
        view = app.query_one(Counter)
        await pilot.pause()
        gc.collect()
        before = sum(issubclass(type(each), Strip) for each in gc.get_objects())
        for x in range(30):
            for line in view.render_lines(Region(x, 0, 10, 5)):
                line.divide([3, 7])
        del line
        assert sum(issubclass(type(each), Strip) for each in gc.get_objects()) <= before


async def test_a_redraw_refreshes_only_the_spans_that_differ(
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
        assert [(r.x, r.y, r.width, r.height) for r in refreshed] == [(7, 0, 5, 1)]


async def test_what_changed_while_hidden_is_drawn_when_shown() -> None:
    app = CounterApp()
    async with app.run_test(size=(40, 5)) as pilot:
        view = app.query_one(Counter)
        view.display = False
        await pilot.pause()
        view.number = 5
        view.redraw()
        view.display = True
        await pilot.pause()
        assert view.text().splitlines()[0] == "number     5"
