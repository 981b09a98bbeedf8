"""Escapes are taken out of pasted text, however it comes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gputop.ui.pasted_text import PASTE_END, PASTE_START, PasteFilter

pieces = st.lists(st.integers(1, 12), max_size=40)


def filtered(text: str, lengths: list[int]) -> str:
    """Return the filtered text, which comes in pieces of these lengths."""
    pastes, found = PasteFilter(), []
    for length in [*lengths, len(text)]:
        found.append(pastes.feed(text[:length]))
        text = text[length:]
    return "".join(found)


@given(pieces)
def test_a_paste_has_no_escapes_however_it_is_cut(lengths: list[int]) -> None:
    inside = "3\x1b[20~\ry \x1b\x1b[B\x1b[20 y"
    pasted = PASTE_START + inside + PASTE_END
    plain = PASTE_START + inside.replace("\x1b", "") + PASTE_END
    assert filtered(pasted, [8, *lengths]) == plain
    assert filtered(f"\x1b[A{pasted}\x1b[B", [12, *lengths]) == f"\x1b[A{plain}\x1b[B"


@given(pieces)
def test_other_input_passes_unchanged(lengths: list[int]) -> None:
    keys = "q\x1b[A\x1b[20~\x1b[<0;5;5M\x1bOP é"
    assert filtered(keys, lengths) == keys


def test_an_escape_alone_is_not_held_back() -> None:
    assert PasteFilter().feed("\x1b") == "\x1b"
