"""ASCII, cell for cell: nothing moves, and charts keep their heights."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gputop.ui.drawing.cells import bar
from gputop.ui.drawing.charts import draw_chart
from gputop.ui.drawing.look import GLYPHS, ascii_text
from gputop.ui.drawing.palette import BUSY

ON_SCREEN = "░▒▓█▌━─╸┄│·–…°²³ᵀ×±→←↓↑✓•⏎▏▼▲›╭╮╰╯├┤┬┴┼═║⟨⟩␛µ"


@given(st.text())
def test_any_text_becomes_ascii_of_the_same_length(text: str) -> None:
    plain = ascii_text(text)
    assert plain.isascii()
    assert cell_len(plain) == cell_len(text)


@given(st.text(st.characters(max_codepoint=0x7F)))
def test_ascii_stays_as_it_is(text: str) -> None:
    assert ascii_text(text) == text


@pytest.mark.parametrize("character", sorted({*ON_SCREEN, *GLYPHS} - {"°", "␛"}))
def test_a_glyph_of_ours_has_one_of_its_own(character: str) -> None:
    assert ascii_text(character) not in ("", " ", "?")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("node07 · driver 580", "node07 | driver 580"),
        ("2·N³", "2*N3"),
        ("64°C", "64 C"),
        ("1024×1024", "1024x1024"),
        ("a long na…", "a long na~"),
        ("François Müller", "Francois Muller"),
        ("模型.py", "????.py"),
        ("Ω", "?"),
        ("╭─ Help ─╮", "+- Help -+"),
        ("│", "|"),
        ("┝┷╋╬", "++++"),
        ("▁▂▃▄▅▆▇█", "..::||##"),
    ],
)
def test_what_it_becomes(text: str, plain: str) -> None:
    assert ascii_text(text) == plain


def test_full_half_empty_and_unknown_are_told_apart() -> None:
    assert ascii_text("".join(span.text for span in bar(0.55, 10, BUSY))) == "#####=----"
    assert ascii_text("".join(span.text for span in bar(None, 4, BUSY))) == "...."


@given(st.lists(st.integers(0, 100), min_size=2, max_size=80), st.integers(1, 6))
def test_a_history_keeps_its_heights(values: list[int], height: int) -> None:
    """Each column is filled from the bottom, the fuller the heavier."""
    heavier = " .:|#"
    width = 40
    dots = [*values, *[None] * (2 * width - len(values))]
    rows = draw_chart(dots, height, 100.0, BUSY)
    drawn = ["".join(span.text for span in row) for row in rows]
    plain = [ascii_text(text) for text in drawn]
    for x in range(width):
        levels = [heavier.index(row[x]) for row in plain]
        assert levels == sorted(levels)
        filled = [(ord(row[x]) - 0x2800).bit_count() if row[x] != " " else 0 for row in drawn]
        assert all((n == 0) == (level == 0) for n, level in zip(filled, levels, strict=True))
    column = {
        sum((ord(row[x]) - 0x2800).bit_count() for row in drawn if row[x] != " "): sum(
            heavier.index(row[x]) for row in plain
        )
        for x in range(width)
    }
    assert all(a[1] <= b[1] for a, b in pairwise(sorted(column.items())))


@pytest.mark.parametrize(
    ("dots", "plain"), [("⠉", "'"), ("⠁", "'"), ("⠒", "-"), ("⠤", "-"), ("⣀", "."), ("⡇", ":")]
)
def test_a_point_of_a_curve_stands_high_or_low(dots: str, plain: str) -> None:
    assert ascii_text(dots) == plain


def test_no_dot_is_lost() -> None:
    assert all(ascii_text(chr(code)) in set("'-.:|#") for code in range(0x2801, 0x2900))
    assert ascii_text("\u2800") == " "
