"""Output of a frame in few bytes: runs of cells by style, and the shortest moves between them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from gputop.frozen import dataclass

ERASED_CELLS = 12
"""Blanks that are erased: the sequence and a move over them take up to 10 bytes."""
_BLANKS = re.compile(f"( {{{ERASED_CELLS},}})")
LINK = "\0"
"""Stands between the codes of a style and the target of its link."""
INERT = frozenset((*"12356", "39", "49", *map(str, (*range(30, 38), *range(90, 98)))))
"""Codes that do not show on a blank: weight, slant, blinking and text colours."""
CERTAIN = frozenset(map(chr, (*range(0x20, 0x7F), *range(0x2800, 0x2900))))
"""Characters that take one cell in every terminal: ASCII and braille. Others may take two in
terminals set up for East Asian text."""


@dataclass(frozen=True, slots=True)
class Sequences:
    """Sequences that the terminal has beyond those of a VT100."""

    erase_characters: bool = True
    """ECH, which blanks some cells."""
    to_column: bool = True
    """CHA, which moves within a line."""

    @classmethod
    def of_terminal(cls) -> Sequences:
        """Return those in terminfo; none if it does not know the terminal."""
        try:
            import curses
        except ImportError:  # some Pythons are built without it
            return cls(False, False)
        try:
            curses.setupterm()
            return cls(*(curses.tigetstr(name) is not None for name in ("ech", "hpa")))
        except curses.error:
            return cls(False, False)


class Run(NamedTuple):
    """Cells of one line in one style."""

    x: int
    y: int
    text: str
    codes: str
    """SGR codes after a reset, with any link after `LINK`."""
    cells: int
    is_odd: bool = False
    """True for a single character that is wide or combined: terminals differ in its width."""


class FrameBuilder:
    """Builder of output for some runs. It begins and ends in the default style."""

    def __init__(self, sequences: Sequences, width: int) -> None:
        self._sequences, self._width = sequences, width
        self._odd: dict[str, list[Run]] = {}
        self._plain: dict[str, list[Run]] = {}
        self._written: list[str] = []
        self._x = self._y = -1
        """Position of the cursor; negative if unknown."""

    def add(self, run: Run) -> None:
        """Write a run, after those of its style that came before."""
        by_style = self._odd if run.is_odd else self._plain
        by_style.setdefault(run.codes, []).append(run)

    def output(self) -> str:
        """Return the output. Odd characters come first, in case they are drawn over others."""
        style = ""
        for by_style in (self._odd, self._plain):
            for codes in sorted(by_style, key=_order):
                self._to_style(style, codes)
                style = codes
                for run in _by_columns(by_style[codes]):
                    self._write(run)
        self._to_style(style, "")
        return "".join(self._written)

    def _to_style(self, old: str, new: str) -> None:
        if old == new:
            return
        old, _, old_link = old.partition(LINK)
        new, _, link = new.partition(LINK)
        if link != old_link:
            self._written.append(f"\x1b]8;;{link}\x1b\\")
        if old != new:
            # An empty parameter is 0, a reset. A colour alone replaces another one without it.
            reset = old and new and not (is_ink(old) and is_ink(new))
            self._written.append(f"\x1b[;{new}m" if reset else f"\x1b[{new}m")

    def _write(self, run: Run) -> None:
        if run.is_odd:
            if run.cells > 1:  # nothing may stay beside it where it is drawn narrower
                self._move(run.x, run.y)
                self._text(" " * run.cells)
            self._move(run.x, run.y)
            self._text(run.text)
            return
        x, texts = run.x, [run.text]
        if "  " in run.text and not marks_blanks(run.codes):
            texts = _BLANKS.split(run.text)
        for text in filter(None, texts):
            self._move(x, run.y)
            if len(text) >= ERASED_CELLS and text.isspace() and not marks_blanks(run.codes):
                self._erase(len(text))
            else:
                self._text(text)
            x += len(text)

    def _text(self, text: str) -> None:
        self._written.append(text)
        self._x += len(text)
        # In the last column some terminals stay, and some wait beyond it.
        if self._x >= self._width or not (text.isascii() or CERTAIN.issuperset(text)):
            self._x = -1

    def _erase(self, cells: int) -> None:
        """Blank some cells: to the default background, so it does not matter which one is used."""
        if self._x + cells >= self._width:
            self._written.append("\x1b[K")
        elif self._sequences.erase_characters:
            self._written.append(f"\x1b[{cells}X")
        else:
            self._text(" " * cells)

    def _move(self, x: int, y: int) -> None:
        """Move by the shortest sequence. A vertical tab goes down within the column, and the tty
        does not add a carriage return to it as it does to a newline.
        """
        move, down = None, y - self._y
        if self._y >= 0 and 0 <= down <= 2:
            move = self._move_in_line(x)
        if move is None:
            self._written.append(f"\x1b[{y + 1};{x + 1}H" if x else f"\x1b[{y + 1}H")
        elif down or move:
            self._written.append("\v" * down + move)
        self._x, self._y = x, y

    def _move_in_line(self, x: int) -> str | None:
        """Return the move to a column, or None if the terminal cannot without the line."""
        by = x - self._x
        if not x:
            return "\r" if by else ""
        if self._x >= 0 and by > -4:
            return (f"\x1b[{by}C" if by > 1 else "\x1b[C") if by > 0 else "\b" * -by
        return f"\x1b[{x + 1}G" if self._sequences.to_column else None


def _order(codes: str) -> tuple[bool, bool, str]:
    """Order styles: colours of text last, as these replace each other without a reset."""
    return bool(codes), is_ink(codes), codes


def _by_columns(runs: list[Run]) -> Iterator[Run]:
    """Order runs of one style so that one below another follows it: to go down takes two bytes."""
    left = {(run.y, run.x): run for run in runs}
    while left:
        run: Run | None = left.pop(next(iter(left)))
        while run is not None:
            yield run
            end = run.x + run.cells
            places = ((run.y + 1, end - back) for back in range(run.cells + 2))
            run = next((left.pop(place) for place in places if place in left), None)


@lru_cache(maxsize=1024)
def is_ink(codes: str) -> bool:
    """Return True if the codes set only the text colour."""
    first, _, others = codes.partition(";")
    if first == "38":
        return others.count(";") == (1 if others.startswith("5;") else 3)
    return not others and len(first) == 2 and first[0] in "39"


@lru_cache(maxsize=1024)
def marks_blanks(codes: str) -> bool:
    """Return True if a blank in that style does not look like a default one."""
    rest = re.sub(r"\b38;(5;\d+|2;\d+;\d+;\d+)", "39", codes)
    return bool(codes) and not INERT.issuperset(rest.split(";"))
