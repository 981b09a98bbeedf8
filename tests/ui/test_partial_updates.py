"""The one private method that is replaced: the same picture, in fewer bytes; or left alone."""

from __future__ import annotations

import io
from itertools import pairwise
from typing import Any

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.segment import Segment
from textual import _compositor
from textual._compositor import ChopsUpdate
from textual.strip import Strip

from gputop.ui.drawing.palette import BUSY, DIM, TEXT
from gputop.ui.terminal import partial_updates

WIDTH, HEIGHT = 40, 3
STOCK = ChopsUpdate.render_segments
CONSOLE = Console(file=io.StringIO(), force_terminal=True, color_system="256", width=WIDTH)


def strips(letter: str, cuts: list[int]) -> tuple[dict[int, Strip | None], list[int]]:
    """A line of strips between the cuts, in turning styles."""
    edges = [0, *cuts, WIDTH]
    line: dict[int, Strip | None] = {}
    for n, (start, end) in enumerate(pairwise(edges)):
        styles = [TEXT, BUSY, DIM]
        text = "".join(chr(ord(letter) + (x % 5)) for x in range(start, end))
        line[start] = Strip([Segment(c, styles[(n + i // 3) % 3]) for i, c in enumerate(text)])
    return line, edges[1:]


cut_lists = st.sets(st.integers(1, WIDTH - 1), max_size=4).map(sorted)
span = st.tuples(st.integers(0, HEIGHT - 1), st.integers(0, WIDTH - 1), st.integers(1, WIDTH)).map(
    lambda s: (s[0], min(s[1], s[2] - 1), max(s[2], s[1] + 1) if s[1] < s[2] else s[2])
)
spans = st.lists(span, min_size=1, max_size=5).map(sorted)


@given(st.lists(cut_lists, min_size=HEIGHT, max_size=HEIGHT), spans)
def test_the_cells_asked_for_are_the_new_ones_and_no_others_change(
    cuts: list[list[int]], asked: list[tuple[int, int, int]]
) -> None:
    old = [strips("a", line) for line in cuts]
    new = [strips("p", line) for line in cuts]
    screen = pyte.Screen(WIDTH, HEIGHT)
    stream = pyte.Stream(screen)
    whole = [(y, 0, WIDTH) for y in range(HEIGHT)]
    update = ChopsUpdate([line for line, _ in old], whole, [ends for _, ends in old])
    stream.feed(partial_updates.render_segments(update, CONSOLE))
    wanted = [list(row) for row in screen.display]
    update = ChopsUpdate([line for line, _ in new], asked, [ends for _, ends in new])
    written = partial_updates.render_segments(update, CONSOLE)
    stream.feed(written)
    for y, left, right in asked:
        text = "".join(s.text for s in new[y][0].values() if s)
        wanted[y][left:right] = text[left:right]
    assert screen.display == ["".join(row) for row in wanted]
    assert len(written) <= len(STOCK(update, CONSOLE))


def test_two_cells_in_the_middle_cost_two_cells() -> None:
    line, ends = strips("a", [])
    update = ChopsUpdate([line], [(0, 30, 32)], [ends])
    written = partial_updates.render_segments(update, CONSOLE)
    pyte.Stream(screen := pyte.Screen(WIDTH, 1)).feed(written)
    assert screen.display == [" " * 30 + "ab" + " " * 8]
    assert len(written) * 5 < len(STOCK(update, CONSOLE))


def test_it_is_installed_where_textual_has_the_known_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    class Known(ChopsUpdate):
        """As this Textual has it."""

        render_segments = STOCK

    monkeypatch.setattr(_compositor, "ChopsUpdate", Known)
    assert partial_updates.install_cropping()
    assert Known.render_segments is partial_updates.render_segments


def _other_shape(one: Any) -> None:
    """A method with other parameters."""


@pytest.mark.parametrize(
    "changed",
    [{"render_segments": _other_shape}, {"render_segments": None}, {"__init__": _other_shape}],
)
def test_another_shape_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    other = type(
        "Other", (), {"render_segments": STOCK, "__init__": ChopsUpdate.__init__} | changed
    )
    before = other.__dict__["render_segments"]
    monkeypatch.setattr(_compositor, "ChopsUpdate", other)
    assert not partial_updates.install_cropping()
    assert other.__dict__["render_segments"] is before


def test_a_textual_without_it_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(_compositor, "ChopsUpdate")
    assert not partial_updates.install_cropping()
