import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.training.lines import LINE_CHARACTERS, LINES, PlainLines

CASES = {
    "lines of a terminal": (b"one\r\ntwo\r\n", ["one", "two"], ""),
    "a bar is one line": (b"\rbar 1\rbar 2\rbar 3", [], "bar 3"),
    "a bar that ended": (b"\rbar 1\rbar 2\r\nnext\n", ["bar 2", "next"], ""),
    "colours go": (b"\x1b[1;31mred\x1b[0m\n", ["red"], ""),
    "a title goes": (b"\x1b]0;title\x07text\n", ["text"], ""),
    "a clipboard is not set": (b"\x1b]52;c;aGk=\x1b\\text\n", ["text"], ""),
    "bells and control characters go": (b"a\x07\x08\x9bb\x7f\n", ["a\ufffdb"], ""),
    "characters that are cut go on": ("größe\n".encode(), ["größe"], ""),
    "several bars are written over": (b"a 1\nb 1\n\x1b[2A\ra 2\nb 2\n", ["a 2", "b 2"], ""),
    "one bar is written over": (b"a\nb 1\n\x1b[Ab 2\n", ["a", "b 2"], ""),
    "tabs are spaces": (b"a\tb\n", ["a       b"], ""),
}


@pytest.mark.parametrize(("data", "lines", "last"), CASES.values(), ids=CASES)
def test_output_becomes_lines(data: bytes, lines: list[str], last: str) -> None:
    shown = PlainLines()
    list(shown.feed(data))
    assert (list(shown.lines), shown.last) == (lines, last)


@given(st.data())
def test_lines_do_not_depend_on_where_the_output_is_cut(data: st.DataObject) -> None:
    whole = b"".join(case[0] for case in CASES.values())
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    once, pieces = PlainLines(), PlainLines()
    expected = list(once.feed(whole))
    found: list[str] = []
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        found += pieces.feed(whole[start:end])
    assert (list(pieces.lines), pieces.last) == (list(once.lines), once.last)
    assert found == expected


@given(st.binary(max_size=300))
def test_any_output_is_printable_lines(data: bytes) -> None:
    shown = PlainLines()
    list(shown.feed(data))
    for line in (*shown.lines, shown.last):
        assert "\x1b" not in line
        assert not any(ord(character) < 32 for character in line)


def test_each_state_of_a_bar_is_told_once() -> None:
    shown = PlainLines()
    assert list(shown.feed(b"\rstep 1\rstep 2")) == ["step 1"]
    assert list(shown.feed(b"0\rstep 21")) == ["step 20"]
    assert list(shown.settle()) == ["step 21"]
    assert list(shown.settle()) == []
    assert list(shown.feed(b"\r\n")) == []


def test_memory_is_bounded() -> None:
    shown = PlainLines()
    list(shown.feed(b"x" * (1 << 20) + b"\n" * (2 * LINES)))
    assert len(shown.lines) == LINES
    list(shown.feed(b"y" * (1 << 20)))
    assert len(shown.last) == LINE_CHARACTERS
