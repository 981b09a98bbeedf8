import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gputop.text import visible
from gputop.ui.drawing.cells import (
    Span,
    bar,
    beside,
    clip,
    clip_advice,
    clip_words,
    fit,
    spread,
    text_of,
    width_of,
)
from gputop.ui.drawing.palette import BUSY

texts = st.text(max_size=30).map(visible)


@given(st.lists(texts, max_size=5), st.integers(1, 60))
def test_a_fitted_row_has_exactly_the_width(parts: list[str], width: int) -> None:
    assert width_of(fit([Span(part) for part in parts], width)) == width


@given(texts, st.integers(0, 40))
def test_clipped_text_fits_and_says_that_something_is_missing(text: str, width: int) -> None:
    clipped = clip(text, width)
    assert cell_len(clipped) <= width
    assert clipped == text or width == 0 or clipped.endswith("…")


@given(st.lists(texts, max_size=4), st.lists(texts, max_size=4), st.integers(1, 80))
def test_the_left_end_gives_way(left: list[str], right: list[str], width: int) -> None:
    row = spread([Span(t) for t in left], [Span(t) for t in right], width)
    assert width_of(row) == width
    if sum(cell_len(t) for t in right) < width:
        assert text_of(row).endswith("".join(right))


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (40, "counted for the GPU only: see SM active"),
        (38, "counted for the GPU only: see SM…"),
        (0, ""),
    ],
)
def test_a_sentence_is_cut_between_words(width: int, shown: str) -> None:
    assert clip_words("counted for the GPU only: see SM active", width) == shown


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (60, "Quit it, then `sudo nvidia-smi --gpu-reset -i 5`"),
        (64, "Quit it, then `sudo nvidia-smi --gpu-reset -i 5`; it may fail"),
        (44, "Quit it, then…"),
        (0, ""),
    ],
)
def test_advice_is_cut_without_a_part_of_a_command(width: int, shown: str) -> None:
    advice = "Quit it, then `sudo nvidia-smi --gpu-reset -i 5`; it may fail"
    assert clip_advice(advice, width) == shown


@pytest.mark.parametrize(
    ("share", "drawn"),
    [
        (0.0, "──────────"),
        (0.001, "╸─────────"),
        (0.25, "━━╸───────"),
        (0.999, "━━━━━━━━━╸"),
        (1.0, "━━━━━━━━━━"),
        (None, "┄┄┄┄┄┄┄┄┄┄"),
    ],
)
def test_a_bar_shows_its_share_in_half_cells(share: float | None, drawn: str) -> None:
    assert text_of(bar(share, 10, BUSY)) == drawn


@given(st.floats(0, 1) | st.floats(0, 1e-6) | st.floats(0.999, 1), st.integers(1, 120))
def test_only_nothing_is_drawn_empty_and_only_all_is_drawn_full(share: float, width: int) -> None:
    drawn = text_of(bar(share, width, BUSY))
    assert len(drawn) == width
    assert (drawn == "─" * width) == (share == 0)
    assert (drawn == "━" * width) == (share == 1)


def test_blocks_of_unequal_height_stand_side_by_side() -> None:
    rows = beside([[[Span("aa")], [Span("aa")]], [[Span("bb")]]], 2, 1)
    assert [text_of(row) for row in rows] == ["aa bb", "aa   "]
