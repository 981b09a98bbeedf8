"""The base of everything that changes on screen: it sends only the cells that changed."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gputop.text import visible
from gputop.ui.draw import Span, fit, is_narrow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.style import Style

    from gputop.ui.draw import Row

MERGE_CELLS = 5
"""Unchanged cells between two changes that cost less than moving the cursor over them."""


class LiveView(Widget):
    """Draws itself as rows of spans, and refreshes the cells that differ from what is shown.

    A subclass implements `draw`; whoever changes what it draws calls `redraw`.
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self._rows: list[Row] = []
        self._drawn_size = (0, 0)

    def draw(self, width: int, height: int) -> list[Row]:
        """The rows for a space of that many cells; missing rows are blank."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draws again, and has the changed cells sent."""
        if not self.is_attached or not self.size or not self.is_on_screen:
            # Drawn when it is shown; what Textual has cached of it until then is out of date.
            self._drawn_size = (0, 0)
            self.refresh()
            return
        before, drawn_size = self._rows, self._drawn_size
        self._draw()
        if self._drawn_size != drawn_size:
            self.refresh()
            return
        regions = [
            Region(start, y, end - start, 1)
            for y, (old, new) in enumerate(zip(before, self._rows, strict=True))
            if old != new
            for start, end in changed_spans(old, new)
        ]
        if regions:  # without regions everything is refreshed
            self.refresh(*regions)

    def _draw(self) -> None:
        width, height = self.size
        rows = self.draw(width, height)[:height]
        rows += [[] for _ in range(height - len(rows))]
        self._rows = [fit(_inert(row), width) for row in rows]
        self._drawn_size = (width, height)

    def render_lines(self, crop: Region) -> list[Strip]:
        """The rows of a region. Textual's way is for borders and paddings, which there are none."""
        if self.get_line_filters():
            return super().render_lines(crop)
        return [self.render_line(y).crop(crop.x, crop.right) for y in crop.line_range]

    def render_line(self, y: int) -> Strip:
        """One row, as Textual asks for it."""
        if self._drawn_size != tuple(self.size):
            self._draw()
        if y >= len(self._rows):
            return Strip.blank(self.size.width)
        return Strip([Segment(*span) for span in self._rows[y]], self.size.width)

    def text(self) -> str:
        """What is shown, without styles."""
        return "\n".join("".join(span.text for span in row).rstrip() for row in self._rows)


def _inert(row: Row) -> Row:
    """The row without what a terminal would act on: foreign text that came here as it was."""
    if all(span.text.isprintable() for span in row):
        return row
    return [Span(visible(span.text), span.style) for span in row]


def changed_spans(old: Row, new: Row) -> Iterator[tuple[int, int]]:
    """The (start, end) cells in which two rows of one width differ, close ones merged."""
    start = end = -1
    (texts, styles), (new_texts, new_styles) = _cells(old), _cells(new)
    differ = {x for x, (was, now) in enumerate(zip(texts, new_texts, strict=True)) if was != now}
    if styles != new_styles:
        both = enumerate(zip(styles, new_styles, strict=True))
        differ |= {x for x, (was, now) in both if was is not now and was != now}
    for x in sorted(differ):
        if start >= 0 and x - end > MERGE_CELLS:
            yield start, end
            start = x
        elif start < 0:
            start = x
        end = x + 1
    if start >= 0:
        yield start, end


def _cells(row: Row) -> tuple[str, list[Style]]:
    """A character and a style for each cell; a wide one is twice there, so that both are sent."""
    texts: list[str] = []
    styles: list[Style] = []
    for text, style in row:
        one_each = text if is_narrow(text) else "".join(c * cell_len(c) for c in text)
        texts.append(one_each)
        styles += repeat(style, len(one_each))
    return "".join(texts), styles


__all__ = ["LiveView", "Span", "changed_spans"]
