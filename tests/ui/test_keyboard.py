"""Input of the terminal becomes keys and pastes: by tables, and for any bytes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.events import Key, MouseDown, Paste, Resize
from textual.messages import TerminalSupportsSynchronizedOutput

from gputop.ui.shell import app
from gputop.ui.terminal.textual_driver import (
    FLOOD,
    FLOOD_SECONDS,
    LONGEST_HELD,
    LONGEST_PASTE,
    PASTE_SECONDS,
    KeyParser,
    TerminalDriver,
)

if TYPE_CHECKING:
    from textual.message import Message

PASTE, END = "\x1b[200~", "\x1b[201~"


class _Other:
    """A parser of another kind."""

    def feed(self, text: str) -> list[str]:
        return [text]


def test_a_textual_with_another_parser_keeps_its_own_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert app._driver() is TerminalDriver
    with monkeypatch.context() as patch:
        patch.setattr("gputop.ui.terminal.textual_driver.XTermParser", _Other)
        assert app._driver() is None
    monkeypatch.setitem(sys.modules, "gputop.ui.terminal.textual_driver", None)
    assert app._driver() is None


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def told(messages: list[Message]) -> list[str]:
    """Keys by name, pastes in quotes, and the rest by type."""
    return [
        each.key
        if isinstance(each, Key)
        else repr(each.text)
        if isinstance(each, Paste)
        else type(each).__name__
        for each in messages
    ]


def after(*pieces: str, idle: bool = False) -> list[str]:
    typed = KeyParser()
    found = []
    for piece in pieces:
        found += typed.feed(
            piece.encode(errors="surrogateescape") if isinstance(piece, str) else piece
        )
    return told(found + (typed.flush() if idle else []))


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("q", ["q"]),
        ("é", ["é"]),
        ("\x03\r\t", ["ctrl+c", "enter", "tab"]),
        ("\x1b[A\x1b[20~\x1bOP", ["up", "f9", "f1"]),
        ("\x1b[1;2D", ["shift+left"]),
        ("\x1b[97;5u", ["ctrl+a"]),
        ("\x1bq\x1b,\x1b/", []),
        ("\x1b\x1b[A", ["escape", "up"]),
        ("\x1b[[A", ["f1"]),
        # What is no key, and what is none because a number is none.
        ("\x1b[99~y", ["y"]),
        ("\x1b[121~\x1b[27;5;121~", []),
        (b"\xffy\xc3\x28".decode(errors="surrogateescape"), ["y", "left_parenthesis"]),
        ("\x1b[1;2;3Xy", ["y"]),
        ("\x1b[99999999999uy", ["y"]),
        ("\x1b[1:2:3;4:5;6uy", ["y"]),
        ("\x1b]0;yes\x07y", ["y"]),
        ("\x1bP1$ryes\x1b\\y", ["y"]),
        ("\x1b[12\x1b[A", ["up"]),
        ("\x1b[48;0;0;0;0ty", ["y"]),
        ("\x1b[48;9999;9999;9;9ty", ["y"]),
        ("\x1b[?2048;1$yy", ["y"]),
        ("\x1b[<0;0;0My", ["y"]),
    ],
)
def test_sequences(text: str, keys: list[str]) -> None:
    assert after(text) == keys
    if not text.startswith("\x1b\x1b"):
        assert after(*text) == keys  # a byte at a time


def test_reports() -> None:
    (mouse,) = KeyParser().feed(b"\x1b[<0;12;5M")
    assert isinstance(mouse, MouseDown)
    assert (mouse.x, mouse.y) == (11, 4)
    (synchronized,) = KeyParser().feed(b"\x1b[?2026;2$y")
    assert isinstance(synchronized, TerminalSupportsSynchronizedOutput)


def test_an_escape_alone_is_a_key_once_nothing_follows() -> None:
    typed = KeyParser()
    assert typed.feed(b"\x1b") == []
    assert typed.timeout_seconds is not None
    assert told(typed.flush()) == ["escape"]
    assert typed.timeout_seconds is None


@pytest.mark.parametrize("half", ["\x1b[", "\x1b[20", "\x1b[<0;1", "\x1b]0;x", "\x1bP1"])
def test_half_a_sequence_is_nothing(half: str) -> None:
    assert after(half, idle=True) == []


@pytest.mark.parametrize("inside", ["b\rq", "\x1b[20~\ry", f"\x1b{'y' * 40}", "\x1b\x1b[20", ""])
def test_a_paste_has_no_keys_however_it_is_cut(inside: str) -> None:
    text = f"{PASTE}{inside}{END}"
    assert after(text + "j") == [repr(inside), "j"]
    assert after(*text, "j") == [repr(inside), "j"]


def test_a_key_right_after_a_paste_is_one() -> None:
    assert after(f"{PASTE}{'x' * 2 * FLOOD}{END}", "j") == [repr("x" * 2 * FLOOD), "j"]


def test_a_paste_whose_end_is_lost_is_over_after_a_while() -> None:
    typed = KeyParser()
    assert typed.feed(f"{PASTE}yes\x1b[20".encode()) == []
    assert typed.timeout_seconds == PASTE_SECONDS
    assert told(typed.flush()) == [repr("yes\x1b[20")]
    assert told(typed.feed(b"q")) == ["q"]


def test_of_a_long_paste_its_begin_is_kept() -> None:
    typed = KeyParser()
    typed.feed(PASTE.encode())
    for _ in range(100):
        assert typed.feed(b"x" * 4096) == []
    (paste,) = typed.feed(END.encode())
    assert isinstance(paste, Paste)
    assert paste.text == "x" * LONGEST_PASTE


def test_what_nobody_types_is_a_paste_until_it_pauses() -> None:
    clock = Clock()
    typed = KeyParser(clock)
    assert told(typed.feed(b"j" * (FLOOD - 1))) == ["j"] * (FLOOD - 1)
    text = "b\x1b[20~\ry" * FLOOD
    assert told(typed.feed(text.encode())) == [repr("b\ry" * FLOOD)]
    clock.now += FLOOD_SECONDS / 2
    assert told(typed.feed(b"y")) == [repr("y")]
    clock.now += FLOOD_SECONDS
    assert told(typed.feed(b"y")) == ["y"]


def test_arrows_that_come_together_are_no_paste() -> None:
    assert after("\x1b[B" * 200) == ["down"] * 200


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_any_bytes(pieces: list[bytes]) -> None:
    typed = KeyParser()
    for piece in pieces:
        found = typed.feed(piece)
        assert not any(isinstance(each, Resize) for each in found)
    typed.flush()
    typed.flush()
    assert told(typed.feed(b"\x1b[A")) == ["up"] or typed.timeout_seconds is not None


@given(st.text(alphabet="\x1b[]OP<>?0123456789;:mMu~AR$y\\\x07\r", max_size=60))
def test_any_sequence(text: str) -> None:
    typed = KeyParser()
    typed.feed(text.encode())
    for _ in range(2):
        typed.flush()
    assert typed.timeout_seconds is None


def test_what_has_no_end_is_not_held_for_ever() -> None:
    typed = KeyParser()
    for _ in range(LONGEST_HELD):
        typed.feed(b"\x1b]0;xxxxxx" if typed.timeout_seconds is None else b"xxxxxxxx")
        if typed.timeout_seconds is None:
            return
    raise AssertionError
