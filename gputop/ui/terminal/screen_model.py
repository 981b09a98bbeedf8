"""Model of the terminal's screen, so that only cells that differ are sent, in few bytes.

Textual's updates go to the wanted cells. A frame is the difference between these and the shown
cells, which are what the terminal was sent. However many updates come between two frames, a frame
has only the newest, and nothing that is on the screen already. It is written in runs of cells by
style, with the shortest moves between them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import compress, count, groupby, repeat
from operator import itemgetter, ne, sub
from typing import NamedTuple

from rich.cells import cell_len

from gputop.console import terminfo
from gputop.ui.drawing.cells import is_narrow

BRIDGE_CELLS = 4
"""Most unchanged cells that are sent again between two others: moving over them takes as much."""
PART_BYTES = 2000
"""Bytes of the lines whose runs are sorted by style: on a slow line the upper ones come first."""
ROW = 1 << 20
"""From a cell to the one below, where cells are counted: no line has as many."""
COMPARED_CELLS = 32
"""Cells that are compared as a whole first."""
RUN_BYTES = 5
"""Bytes of moving to a run, roughly."""
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


class Line:
    """Cells of one row: the characters, and the SGR codes of each.

    A wide character is followed by an empty string; a combining one is in the cell of its base. The
    codes of a blank that looks like a default one are `ANY`.
    """

    __slots__ = ("characters", "codes")

    def __init__(self, width: int) -> None:
        self.characters = [" "] * width
        self.codes = [ANY] * width

    def resize(self, width: int) -> None:
        """Cut the line, or fill it with blanks."""
        more = width - len(self.codes)
        if more < 0 and not self.characters[width]:
            self._blank_split(width)
        self.characters = self.characters[:width] + [" "] * more
        self.codes = self.codes[:width] + [ANY] * more

    def put(self, x: int, cells: Sequence[str], codes: str) -> None:
        """Replace cells; characters of which a half is left become blanks."""
        characters, end = self.characters, x + len(cells)
        if cells and not characters[x]:
            self._blank_split(x)
        if end < len(characters) and not characters[end]:
            self._blank_split(end)
        characters[x:end] = cells
        if " " in cells and not marks_blanks(codes):
            self.codes[x:end] = map({" ": ANY}.get, cells, repeat(codes))
        else:
            self.codes[x:end] = [codes] * len(cells)

    def _blank_split(self, x: int) -> None:
        """Make blanks of the character that is in cells on both sides of that edge."""
        characters = self.characters
        first, end = x, _end_of(characters, x)
        while first and not characters[first]:
            first -= 1
        self.put(first, " " * (end - first), self.codes[first])


class ScreenModel:
    """Wanted and shown cells of a screen."""

    def __init__(self, width: int, height: int, sequences: Sequences) -> None:
        self._width, self._height = width, height
        self._sequences = sequences
        self._wanted = [Line(width) for _ in range(height)]
        self._shown = [Line(width) for _ in range(height)]
        self._changed: set[int] = set()
        """Lines that may differ from what is shown."""
        self._is_known = False
        """False if the terminal may show anything."""
        self._clears = True
        """True if it is cleared then; without, each cell is written over."""
        self._is_begun = False
        """True once there is anything to show."""

    def put(self, x: int, y: int, text: str, codes: str) -> int:
        """Want text in a style from a cell on; return its width in cells."""
        self._is_begun = True
        cells: Sequence[str] = (
            text if text.isascii() or is_narrow(text) else divide(text)
        )
        many = len(cells)
        if -many < x < self._width and 0 <= y < self._height:
            if x < 0 or x + many > self._width:
                cells, x = (
                    _cut(cells, max(0, -x), min(many, self._width - x)),
                    max(0, x),
                )
            self._wanted[y].put(x, cells, codes)
            self._changed.add(y)
        return many

    def resize(self, width: int, height: int) -> None:
        """Change the size. What the terminal makes of that is unknown."""
        if (width, height) == (self._width, self._height):
            return
        self._width, self._height = width, height
        for line in self._wanted:
            line.resize(width)
        self._wanted = self._wanted[:height]
        self._wanted += [Line(width) for _ in range(height - len(self._wanted))]
        self.forget()

    def forget(self, *, clears: bool = True) -> None:
        """Assume nothing about what the terminal shows; the next frame repaints it.

        Without `clears` it writes over what is shown, which does not flicker.
        """
        self._is_known, self._clears = False, clears

    def next_frame(self, most_bytes: int | None = None) -> str:
        """Return output that shows the wanted cells, or an empty string if they are shown.

        If it would be longer than about `most_bytes`, the lower lines are left to later frames.
        """
        if not self._is_begun:
            return ""
        written = []
        if not self._is_known:
            self._shown = [Line(self._width) for _ in range(self._height)]
            if self._clears:
                written.append("\x1b[m\x1b[2J")
            for line in () if self._clears else self._shown:
                line.characters = [UNKNOWN] * self._width
            self._changed = {*range(self._height)}
            self._is_known = True
        left = most_bytes or sys.maxsize
        while self._changed and left > 0:
            written.append(self._part(min(left, PART_BYTES)))
            left -= len(written[-1])
        return "".join(written)

    def _part(self, most_bytes: int) -> str:
        """Return output for the uppermost changed lines, of about so many bytes."""
        part, size = FrameBuilder(self._sequences, self._width), 0
        for y in sorted(self._changed):
            if size >= most_bytes:
                break
            self._changed.remove(y)
            for run in self._runs(y):
                part.add(run)
                size += len(run.text) + RUN_BYTES
        return part.output()

    def _runs(self, y: int) -> Iterator[CellRun]:
        """Yield the cells of a line that differ, in runs of one style each; they are shown then."""
        wanted, shown = self._wanted[y], self._shown[y]
        texts, codes = wanted.characters, wanted.codes
        differ = _differing(texts, shown.characters) | _differing(codes, shown.codes)
        if not differ:
            return
        shown.characters[:], shown.codes[:] = texts, codes
        chunks = _chunks(codes, differ)
        if {*map(len, texts)} != {1}:
            differ.update(x for first in [*differ] for x in _overdrawn(texts, first))
            chunks = ((x, _end_of(texts, x)) for x in sorted(differ) if texts[x])
        start = end = -1
        style = ANY
        for first, after in chunks:
            if not texts[after - 1] or len(texts[first]) > 1:
                yield CellRun(
                    first, y, texts[first], codes[first], after - first, is_odd=True
                )
                continue
            is_near = end > start and first - end <= BRIDGE_CELLS
            joined = _joined(texts, codes, end, first, style) if is_near else None
            if joined is None:
                if end > start:
                    yield CellRun(
                        start, y, "".join(texts[start:end]), style.strip(), end - start
                    )
                start, joined = first, codes[first]
            style, end = joined, after
        if end > start:
            yield CellRun(
                start, y, "".join(texts[start:end]), style.strip(), end - start
            )


def _chunks(codes: list[str], cells: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the ends of cells of one style that are side by side. No cell is a part of another."""
    columns = sorted(cells)
    # Of columns side by side, the difference to their position in the list is the same.
    places = zip(
        columns,
        map(codes.__getitem__, columns),
        map(sub, columns, count()),
        strict=False,
    )
    for _, group in groupby(places, itemgetter(1, 2)):
        chunk = [*group]
        yield chunk[0][0], chunk[-1][0] + 1


def _differing(new: list[str], old: list[str]) -> set[int]:
    """Return the cells that differ. Parts of the line are compared first: in most none does."""
    differ: set[int] = set()
    for first in range(0, len(new), COMPARED_CELLS):
        part = slice(first, first + COMPARED_CELLS)
        if new[part] != old[part]:
            differ.update(compress(count(first), map(ne, new[part], old[part])))
    return differ


def _end_of(texts: list[str], x: int) -> int:
    x += 1
    while x < len(texts) and not texts[x]:
        x += 1
    return x


def _overdrawn(texts: list[str], x: int) -> range:
    """Return the cells that a terminal may overdraw which does not join the characters of one."""
    if len(texts[x]) < 2:
        return range(0)
    return range(_end_of(texts, x), min(len(texts), x + sum(map(cell_len, texts[x]))))


UNKNOWN = "\0"
"""Character that no cell is wanted to have."""
ANY = " "
"""Style of a blank that looks the same in all styles but those that mark blanks."""


def _joined(
    texts: list[str], codes: list[str], end: int, x: int, style: str
) -> str | None:
    """Return the style in which a run goes on to a cell, or None if it has to be another run."""
    for at in range(end, x + 1):
        new = codes[at]
        if at < x and not (texts[at] and texts[at].isascii()):
            return None  # to be sent again, it takes more bytes than a move
        if new == style or (new == ANY and not marks_blanks(style)):
            continue
        if style != ANY or marks_blanks(new):
            return None
        style = new
    return style


def divide(text: str) -> list[str]:
    """Return the text by cells, as Rich counts them: joined characters are in one place."""
    cells: list[str] = []
    first = 0
    """Cell of the last character."""
    for character in text:
        width = cell_len(character)
        if cells:
            joined = cells[first] + character
            together = cell_len(joined)
            if not width or together < cell_len(cells[first]) + width:
                cells[first] = joined
                cells += [""] * (first + together - len(cells))
                continue
        if width:
            first = len(cells)
            cells += [character] + [""] * (width - 1)
    return cells


def _cut(cells: Sequence[str], start: int, end: int) -> list[str]:
    """Return some of the cells, with blanks for characters that are cut."""
    cut = Line(len(cells))
    cut.characters = [*cells]
    cut.put(0, " " * start, "")
    cut.put(end, " " * (len(cells) - end), "")
    return cut.characters[start:end]


class Sequences(NamedTuple):
    """Sequences that the terminal has beyond those of a VT100."""

    erase_characters: bool = True
    """ECH, which blanks some cells."""
    to_column: bool = True
    """CHA, which moves within a line."""

    @classmethod
    def of_terminal(cls) -> Sequences:
        """Return those in terminfo; none if it does not know the terminal."""
        curses = terminfo()
        if curses is None:
            return cls(False, False)
        return cls(*(curses.tigetstr(name) is not None for name in ("ech", "hpa")))


class CellRun(NamedTuple):
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
        self._runs: dict[tuple[bool, str], list[CellRun]] = {}
        """Runs that are not odd, or are, by the codes of their style."""
        self._written: list[str] = []
        self._x = self._y = -1
        """Position of the cursor; negative if unknown."""

    def add(self, run: CellRun) -> None:
        """Write a run, after those of its style that came before."""
        self._runs.setdefault((not run.is_odd, run.codes), []).append(run)

    def output(self) -> str:
        """Return the output. Odd characters come first, in case they are drawn over others."""
        style = ""
        for plain, codes in sorted(self._runs, key=_order):
            self._to_style(style, codes)
            style = codes
            for run in _by_columns(self._runs[plain, codes]):
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

    def _write(self, run: CellRun) -> None:
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
            if (
                len(text) >= ERASED_CELLS
                and text.isspace()
                and not marks_blanks(run.codes)
            ):
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


def _order(kind: tuple[bool, str]) -> tuple[bool, bool, bool, str]:
    """Order styles: colours of text last, as these replace each other without a reset."""
    plain, codes = kind
    return plain, bool(codes), is_ink(codes), codes


def _by_columns(runs: list[CellRun]) -> Iterator[CellRun]:
    """Order runs of one style so that one below another follows it: to go down takes two bytes."""
    left = {ROW * run.y + run.x: run for run in runs}
    while left:
        place: int | None = next(iter(left))
        while place is not None:
            run = left.pop(place)
            yield run
            below = range(place + ROW + run.cells, place + ROW - 2, -1)
            place = next(filter(left.__contains__, below), None)


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
