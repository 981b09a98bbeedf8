"""Model of the terminal's screen, so that only cells that differ are sent.

Textual's updates go to the wanted cells. A frame is the difference between these and the shown
cells, which are what the terminal was sent. However many updates come between two frames, a frame
has only the newest, and nothing that is on the screen already.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from gputop.ui.drawing.cells import is_narrow
from gputop.ui.terminal.frame import FrameBuilder, Run, Sequences, marks_blanks

BRIDGE_CELLS = 4
"""Most unchanged cells that are sent again between two others: moving over them takes as much."""
MOST_RANGES = 50
"""Changes of a line that are compared one by one."""
PART_BYTES = 2000
"""Bytes of the lines whose runs are sorted by style: on a slow line the upper ones come first."""
RUN_BYTES = 5
"""Bytes of moving to a run, roughly."""


class Line:
    """Cells of one row: the characters, and the SGR codes of each.

    A wide character is followed by an empty string; a combining one is in the cell of its base. A
    blank that looks like a default one has no codes.
    """

    __slots__ = ("characters", "codes")

    def __init__(self, width: int) -> None:
        self.characters = [" "] * width
        self.codes = [""] * width

    def resize(self, width: int) -> None:
        """Cut the line, or fill it with blanks."""
        more = width - len(self.codes)
        self._blank_split(width)
        self.characters = self.characters[:width] + [" "] * more
        self.codes = self.codes[:width] + [""] * more

    def put(self, x: int, cells: Sequence[str], codes: str) -> None:
        """Replace cells; characters of which a half is left become blanks."""
        end = x + len(cells)
        self._blank_split(x)
        self._blank_split(end)
        self.characters[x:end] = cells
        if codes and " " in cells and not marks_blanks(codes):
            self.codes[x:end] = ["" if cell == " " else codes for cell in cells]
        else:
            self.codes[x:end] = [codes] * len(cells)

    def _blank_split(self, x: int) -> None:
        """Make blanks of the character that is in cells on both sides of that edge."""
        characters = self.characters
        if not 0 < x < len(characters) or characters[x]:
            return
        first = end = x
        while first and not characters[first]:
            first -= 1
        while end < len(characters) and not characters[end]:
            end += 1
        characters[first:end] = [" "] * (end - first)


class ScreenModel:
    """Wanted and shown cells of a screen."""

    def __init__(self, width: int, height: int, sequences: Sequences) -> None:
        self._width, self._height = width, height
        self._sequences = sequences
        self._wanted = [Line(width) for _ in range(height)]
        self._shown = [Line(width) for _ in range(height)]
        self._changed: dict[int, list[range]] = {}
        """Cells of each line that may differ from what is shown."""
        self._is_known = False
        """False if the terminal may show anything."""
        self._clears = True
        """True if it is cleared then; without, each cell is written over."""
        self._is_begun = False
        """True once there is anything to show."""

    def put(self, x: int, y: int, text: str, codes: str) -> int:
        """Want text in a style from a cell on; return its width in cells."""
        self._is_begun = True
        cells: Sequence[str] = text if text.isascii() or is_narrow(text) else divide(text)
        count = len(cells)
        start, end = max(0, -x), min(count, self._width - x)
        if start < end and 0 <= y < self._height:
            if end - start < count:
                cells = _cut(cells, start, end)
            self._wanted[y].put(x + start, cells, codes)
            # A character beside it may have been cut: it has two cells.
            changed = self._changed.setdefault(y, [])
            changed.append(range(max(0, x + start - 1), min(self._width, x + end + 1)))
            if len(changed) > MOST_RANGES:  # nobody reads
                self._changed[y] = [range(self._width)]
        return count

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
            self._changed = {y: [range(self._width)] for y in range(self._height)}
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
            for run in self._runs(y, self._changed.pop(y)):
                part.add(run)
                size += len(run.text) + RUN_BYTES
        return part.output()

    def _runs(self, y: int, changed: list[range]) -> Iterator[Run]:
        """Yield the cells of a line that differ, in runs of one style each; they are shown then."""
        texts, codes = self._wanted[y].characters, self._wanted[y].codes
        old_texts, old_codes = self._shown[y].characters, self._shown[y].codes
        differ = {
            x
            for cells in changed
            for x in cells
            if texts[x] != old_texts[x] or codes[x] != old_codes[x]
        }
        if not differ:
            return
        differ.update(x for first in [*differ] for x in _overdrawn(texts, first))
        for x in differ:
            old_texts[x], old_codes[x] = texts[x], codes[x]
        start = end = -1
        style = ANY
        for x in sorted(x for x in differ if texts[x]):  # an empty one goes with the one before
            after = _end_of(texts, x)
            if after - x > 1 or len(texts[x]) > 1:
                yield Run(x, y, texts[x], codes[x], after - x, is_odd=True)
                continue
            is_near = end > start and x - end <= BRIDGE_CELLS
            joined = _joined(texts, codes, end, x, style) if is_near else None
            if joined is None:
                if end > start:
                    yield Run(start, y, "".join(texts[start:end]), style.strip(), end - start)
                start, joined = x, _style_of(texts[x], codes[x])
            style, end = joined, after
        if end > start:
            yield Run(start, y, "".join(texts[start:end]), style.strip(), end - start)


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


def _style_of(text: str, codes: str) -> str:
    return ANY if not codes and text == " " else codes


def _joined(texts: list[str], codes: list[str], end: int, x: int, style: str) -> str | None:
    """Return the style in which a run goes on to a cell, or None if it has to be another run."""
    for at in range(end, x + 1):
        new = _style_of(texts[at], codes[at])
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
