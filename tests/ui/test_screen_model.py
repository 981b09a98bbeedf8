"""The difference of two screens, beside a plain repaint of the second: pyte shows the same."""

from __future__ import annotations

import random
import re
from typing import Any

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gputop.ui.terminal.screen_model import (
    ANY,
    LINK,
    Line,
    ScreenModel,
    Sequences,
    divide,
    is_ink,
    marks_blanks,
)

CHANGES = 10_000
ALL, VT100 = Sequences(), Sequences(erase_characters=False, to_column=False)
STYLES = (
    "",
    "31",
    "38;5;75",
    "38;2;1;2;3",
    "1;38;5;75",
    "48;5;236",
    "4",
    "7",
    "1;9;32",
    "2",
    "3;91",
)
FAMILY = "👩\u200d👩\u200d👧"
CHARACTERS = (
    *"abc XYZ 019 │─━╸█▌ ⣿⣶⡇ °±·…→▲▼ é漢字한🔥",
    *("e\u0301", "x\u0302\u0323", "❤\ufe0f", FAMILY),
)
"""Narrow, ambiguous, wide, combining and joined ones."""
INERT = pyte.screens.Char(" ")


class Plain:
    """What a screen should show, cell by cell, and its repaint from there."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.rows = [[(" ", "")] * width for _ in range(height)]

    def put(self, x: int, y: int, text: str, codes: str) -> None:
        row = self.rows[y]
        cells = divide(text)[: self.width - x]
        for end in (x, x + len(cells)):
            if 0 < end < self.width and not row[end][0]:
                for at in (end - 1, end):  # no character has more than two cells
                    row[at] = (" ", row[at][1])
        row[x : x + len(cells)] = [(cell, codes) for cell in cells]

    def resize(self, width: int, height: int) -> None:
        for row in self.rows:
            if width < self.width and not row[width][0]:
                row[width - 1] = (" ", row[width - 1][1])
        self.rows = [(row + [(" ", "")] * width)[:width] for row in self.rows[:height]]
        self.rows += [[(" ", "")] * width for _ in range(height - len(self.rows))]
        self.width, self.height = width, height

    def screen(self) -> pyte.Screen:
        """A new screen, painted cell by cell."""
        screen, stream = terminal(self.width, self.height)
        for y, row in enumerate(self.rows):
            for x, (text, codes) in enumerate(row):
                if text and (text, codes) != (" ", ""):
                    place = f"\x1b[{y + 1};{x + 1}H"
                    blank = "  " if x + 1 < self.width and not row[x + 1][0] else ""
                    stream.feed(f"\x1b[0;{codes}m{place}{blank}{place}{text}")
        for y, row in enumerate(self.rows):  # pyte draws joined characters beside their cells
            for x, (text, codes) in enumerate(row):
                if text and x and len(row[x - 1][0]) != 1:
                    stream.feed(f"\x1b[0;{codes}m\x1b[{y + 1};{x + 1}H{text}")
        return screen


def terminal(width: int, height: int) -> tuple[pyte.Screen, pyte.Stream]:
    stream = pyte.Stream(screen := pyte.Screen(width, height))
    stream.feed("\x1b[?7l")
    return screen, stream


def cells(screen: pyte.Screen) -> list[list[Any]]:
    """What is seen: a blank has no ink."""
    return [
        [
            INERT._replace(
                bg=c.bg, underscore=c.underscore, strikethrough=c.strikethrough, reverse=c.reverse
            )
            if (c := screen.buffer[y][x]).data == " "
            else c
            for x in range(screen.columns)
        ]
        for y in range(screen.lines)
    ]


def fitting(text: str, width: int) -> str:
    """The text without the character that the last column cuts."""
    whole = divide(text)
    while len(whole) > width:
        whole.pop()
        while whole and len(whole) + 1 == width + 1 and cell_len("".join(whole)) > width:
            whole.pop()
    return "".join(whole)


@pytest.mark.slow
@pytest.mark.parametrize("sequences", [ALL, VT100], ids=["all", "vt100"])
@pytest.mark.parametrize("most_bytes", [None, 40])
def test_after_ten_thousand_changes_it_is_a_plain_repaint(
    sequences: Sequences, most_bytes: int | None
) -> None:
    dice = random.Random(1)  # noqa: S311 - no secret
    plain, model = Plain(30, 6), ScreenModel(30, 6, sequences)
    screen, stream = terminal(30, 6)
    for change in range(CHANGES):
        kind = dice.random()
        if kind < 0.005:
            size = dice.randint(1, 40), dice.randint(1, 8)
            plain.resize(*size)
            model.resize(*size)
            screen.resize(size[1], size[0])
            stream.feed(f"\x1b[{dice.randint(1, 8)};3H\x1b[31mwhat a terminal makes of it")
        elif kind < 0.01:
            stream.feed("\x1b[2;3H\x1b[41mBroadcast message from root\x1b[m")
            model.forget()
        else:
            x, y = dice.randrange(plain.width), dice.randrange(plain.height)
            characters = CHARACTERS if dice.random() < 0.3 else CHARACTERS[:20]
            text = "".join(dice.choices(characters, k=dice.randint(1, 12)))
            text = " " * dice.randint(1, 30) if dice.random() < 0.2 else text
            text = fitting(text, plain.width - x)
            codes = dice.choice(STYLES)
            plain.put(x, y, text, codes)
            assert model.put(x, y, text, codes) == cell_len(text)
        if change % 8 == 0:
            while frame := model.next_frame(most_bytes):
                stream.feed(frame)
                assert sequences == ALL or not re.search(r"\x1b\[[\d;]*[^\d;HCKJm]", frame)
            assert cells(screen) == cells(plain.screen()), change
            assert model.next_frame() == ""


texts = st.lists(st.sampled_from(CHARACTERS), min_size=1, max_size=12).map("".join)
puts = st.tuples(st.integers(-4, 22), st.integers(-1, 3), texts, st.sampled_from(STYLES))


@given(st.lists(puts, max_size=12), st.lists(puts, max_size=12))
def test_whatever_was_put_the_difference_is_the_picture(
    before: list[tuple[int, int, str, str]], after: list[tuple[int, int, str, str]]
) -> None:
    """Also where it is cut by the edges: there the model alone has the same picture."""
    model, whole = ScreenModel(20, 3, ALL), ScreenModel(20, 3, ALL)
    screen, stream = terminal(20, 3)
    for changes in (before, after):
        for change in changes:
            model.put(*change)
            whole.put(*change)
        stream.feed(model.next_frame())
    at_once, other = terminal(20, 3)
    other.feed(whole.next_frame())
    assert cells(screen) == cells(at_once)


def test_nothing_is_sent_twice() -> None:
    model = ScreenModel(40, 4, ALL)
    model.put(0, 1, "GPU 0    72 %", "32")
    assert model.next_frame() == "\x1b[m\x1b[2J\x1b[32m\x1b[2HGPU 0    72 %\x1b[m"
    model.put(0, 1, "GPU 0    72 %", "32")
    assert model.next_frame() == ""
    model.put(0, 1, "GPU 0    75 %", "32")
    assert model.next_frame() == "\x1b[32m\x1b[2;11H5\x1b[m"


def test_what_comes_between_two_frames_is_not_sent() -> None:
    model = ScreenModel(40, 4, ALL)
    model.put(0, 0, "", "")
    model.next_frame()
    for n in range(100):
        model.put(3, 0, f"{n:3d}", "")
    assert model._changed == {0}
    assert model.next_frame() == "\x1b[1;5H99"


@pytest.mark.parametrize(("codes", "left"), [("", ANY), ("31", ANY), ("41", "41")])
def test_the_half_of_a_wide_character_that_is_left_is_a_blank_of_its_style(
    codes: str, left: str
) -> None:
    line = Line(4)
    line.put(0, divide("世"), codes)
    line.put(1, "x", "32")
    assert line.characters == [" ", "x", " ", " "]
    assert line.codes == [left, "32", ANY, ANY]


def test_runs_of_one_style_come_together() -> None:
    model = ScreenModel(40, 2, ALL)
    model.put(0, 0, "", "")
    model.next_frame()
    for n, codes in enumerate(("31", "32", "31", "32")):
        model.put(10 * n, 0, "x", codes)
    assert model.next_frame().count("m") == 3  # to each of them, and from them


@pytest.mark.parametrize(
    ("sequences", "frame"),
    [(ALL, "\x1b[1;3H\x1b[20X\x0b\r\x1b[K"), (VT100, f"\x1b[1;3H{' ' * 20}\x0b\r\x1b[K")],
)
def test_blanks_are_erased(sequences: Sequences, frame: str) -> None:
    model = ScreenModel(30, 2, sequences)
    model.put(0, 0, "x" * 30, "")
    model.put(0, 1, "x" * 30, "")
    model.put(0, 0, "", "")
    model.next_frame()
    model.put(2, 0, " " * 20, "31")
    model.put(0, 1, " " * 30, "31")
    assert model.next_frame() == frame


def test_a_background_is_not_left_to_the_terminal_s_erasing() -> None:
    model = ScreenModel(30, 1, ALL)
    model.put(0, 0, " " * 30, "48;5;236")
    assert model.next_frame().endswith(f"\x1b[48;5;236m\x1b[1H{' ' * 30}\x1b[m")


def test_a_terminal_that_draws_characters_wider_or_narrower_has_the_others_in_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    width = pyte.screens.wcwidth
    wrong = {"·": 2, "─": 2, "🔥": 1}
    monkeypatch.setattr(pyte.screens, "wcwidth", lambda c: wrong.get(c, width(c)))
    model = ScreenModel(30, 3, ALL)
    screen, stream = terminal(30, 3)
    for y in range(3):
        model.put(0, y, "x" * 30, "")
    stream.feed(model.next_frame())
    for y, character in enumerate(("·", "─", "🔥")):
        model.put(4, y, character, "31")
        model.put(8, y, "12", "31")
    stream.feed(model.next_frame())
    shown = [[screen.buffer[y][x].data for x in range(30)] for y in range(3)]
    assert ["".join(line[8:]) for line in shown] == ["12" + "x" * 20] * 3
    assert shown[2][4:6] == ["🔥", " "]


def test_a_terminal_that_does_not_join_characters_has_the_others_in_place() -> None:
    model = ScreenModel(30, 1, ALL)
    screen, stream = terminal(30, 1)
    model.put(0, 0, "x" * 30, "31")
    stream.feed(model.next_frame())
    model.put(4, 0, FAMILY, "32")
    stream.feed(model.next_frame().replace(FAMILY, "👩👩👧"))
    assert "".join(screen.buffer[0][x].data for x in range(30)) == "xxxx👩" + "x" * 24


def test_a_link_is_opened_and_closed() -> None:
    model = ScreenModel(30, 1, ALL)
    model.put(0, 0, "here", f"4{LINK}https://example.com")
    frame = model.next_frame().removeprefix("\x1b[m\x1b[2J")
    assert frame == "\x1b]8;;https://example.com\x1b\\\x1b[4m\x1b[1Hhere\x1b]8;;\x1b\\\x1b[m"


def test_lower_lines_wait_and_are_newer_then() -> None:
    model = ScreenModel(30, 9, ALL)
    model.put(0, 0, "", "")
    model.next_frame()
    for y in range(9):
        model.put(0, y, "x" * 20, "")
    first = model.next_frame(100)
    assert first.count("x") == 100
    model.put(0, 8, "y" * 20, "")
    rest = model.next_frame()
    assert (rest.count("x"), rest.count("y")) == (60, 20)


@pytest.mark.parametrize(
    "text", ["plain", "漢字", "e\u0301a", "❤\ufe0f!", FAMILY, "a" + FAMILY, "\u0301"]
)
def test_a_text_is_divided_as_rich_counts_it(text: str) -> None:
    divided = divide(text)
    assert len(divided) == cell_len(text)
    assert "".join(divided) == text or not cell_len(text)


@pytest.mark.parametrize(
    ("codes", "ink", "marked"),
    [
        ("31", True, False),
        ("38;5;75", True, False),
        ("38;2;4;7;9", True, False),
        ("1;38;5;75", False, False),
        ("38;5;75;48;5;4", False, True),
        ("7", False, True),
        ("4", False, True),
        (f"31{LINK}https://a", False, True),
    ],
)
def test_what_a_style_does_to_blanks(codes: str, ink: bool, marked: bool) -> None:
    assert (is_ink(codes), marks_blanks(codes)) == (ink, marked)


def test_terminfo_says_what_a_terminal_has(monkeypatch: pytest.MonkeyPatch) -> None:
    curses = pytest.importorskip("curses")
    monkeypatch.setattr(curses, "setupterm", lambda: None)
    monkeypatch.setattr(curses, "tigetstr", {"ech": b"x", "hpa": None}.get)
    assert Sequences.of_terminal() == Sequences(erase_characters=True, to_column=False)

    def unknown() -> None:
        raise curses.error

    monkeypatch.setattr(curses, "setupterm", unknown)
    assert Sequences.of_terminal() == VT100
    monkeypatch.setitem(__import__("sys").modules, "curses", None)
    assert Sequences.of_terminal() == VT100
