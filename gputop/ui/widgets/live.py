"""The base of everything that changes on screen: it sends only the cells that changed."""

from __future__ import annotations

from itertools import compress, count, pairwise
from operator import is_not, ne
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gputop.text import visible
from gputop.ui.drawing.draw import Span, fit, is_narrow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.style import Style
    from textual.filter import LineFilter

    from gputop.schema.device import Device
    from gputop.ui.drawing.draw import Row
    from gputop.ui.model import Telemetry

MOVE_BYTES = 5
"""What it takes to move the cursor on in its row."""
STYLE_BYTES = 6
"""What it takes to change the style, at least."""


class LiveView(Widget):
    """Draws itself as rows of spans, and refreshes the cells that differ from what is shown.

    A subclass implements `draw`; whoever changes what it draws calls `redraw`.
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._made: list[Row] = []
        """The rows as they were drawn."""
        self._rows: list[Row] = []
        """The same as they are shown."""
        self._filtered: dict[int, list[Segment]] = {}
        """By row, what Textual was given of it; a strip would keep each part that was cut of it."""
        self._filters: Sequence[LineFilter] = ()
        """What those went through."""
        self._drawn_size = (0, 0)

    def draw(self, width: int, height: int) -> list[Row]:
        """The rows for a space of that many cells; missing rows are blank."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draws again, and has the changed cells sent."""
        if not self.is_attached or not self.size or not self.is_on_screen:
            self._drawn_size = (0, 0)  # drawn when it is shown
            return
        before, drawn_size = self._rows, self._drawn_size
        self._draw()
        if self._drawn_size != drawn_size:
            self.refresh()
            return
        regions = [
            Region(start, y, end - start, 1)
            for y, (old, new) in enumerate(zip(before, self._rows, strict=True))
            if old is not new and old != new
            for start, end in changed_spans(old, new)
        ]
        if regions:  # without regions everything is refreshed
            self.refresh(*regions)

    def _draw(self) -> None:
        width, height = self.size
        if self._drawn_size != (width, height):
            self._made, self._rows, self._filtered = [], [], {}
        before, shown = self._made, self._rows
        drawn = self.draw(width, height)[:height]
        drawn += [[] for _ in range(height - len(drawn))]
        self._rows = []
        for y, row in enumerate(drawn):
            if before and row == before[y]:
                self._rows.append(shown[y])
            else:
                self._rows.append(fit(_inert(row), width))
                self._filtered.pop(y, None)
        self._made, self._drawn_size = drawn, (width, height)

    def render_lines(self, crop: Region) -> list[Strip]:
        """The rows of a region. Textual's way is for borders and paddings, which there are none."""
        if self._drawn_size != self.size:
            self._draw()
        filters = self.get_line_filters()
        if filters != self._filters:
            self._filters, self._filtered = filters, {}
        return [self._strip(y).crop(crop.x, crop.right) for y in crop.line_range]

    def _strip(self, y: int) -> Strip:
        segments = self._filtered.get(y)
        if segments is None:
            segments = self._filtered[y] = self.filtered([*self.render_line(y)])
        return Strip(segments, self.size.width)

    def filtered(self, segments: list[Segment]) -> list[Segment]:
        """These as the app's look has them."""
        for each in self.get_line_filters():
            segments = each.apply(segments, self.background_colors[1])
        return segments

    def shown_row(self, y: int) -> Row | None:
        """A row as it is shown, before any filter; None where it has yet to be drawn."""
        return self._rows[y] if self._drawn_size == self.size else None

    def render_line(self, y: int) -> Strip:
        """One row, as Textual asks for it."""
        if self._drawn_size != self.size:
            self._draw()
        if y >= len(self._rows):
            return Strip.blank(self.size.width)
        return Strip([Segment(*span) for span in self._rows[y]], self._drawn_size[0])

    def text(self) -> str:
        """What is shown, without styles."""
        return "\n".join("".join(span.text for span in row).rstrip() for row in self._rows)


class DeviceView(LiveView):
    """A view of what the stream says of one device."""

    device: Device | None = None

    def __init__(self, telemetry: Telemetry, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._telemetry = telemetry


def _inert(row: Row) -> Row:
    """The row without what a terminal would act on: foreign text that came here as it was."""
    if "".join([text for text, _ in row]).isprintable():
        return row
    return [Span(visible(span.text), span.style) for span in row]


def changed_spans(old: Row, new: Row) -> Iterator[tuple[int, int]]:
    """The (start, end) cells in which two rows of one width differ.

    What lies between two of them is sent too where that takes no more than to move over it.
    """
    cells: tuple[str, list[Style]] | None = None
    start = end = -1
    for x in _differing(old, new):
        if start < 0:
            start = x
        elif x > end:
            near = x - end <= MOVE_BYTES
            if near and cells is None:
                cells = _cells(new)
            if not (near and cells and _bridge_bytes(*cells, end, x) <= MOVE_BYTES):
                yield start, end
                start = x
        end = x + 1
    if start >= 0:
        yield start, end


def _differing(old: Row, new: Row) -> list[int]:
    """The cells in which two rows of one width differ: span by span, where those are alike."""
    if len(old) == len(new):
        found: list[int] = []
        first = 0
        for (was, style), (now, new_style) in zip(old, new, strict=True):
            many = len(now)
            if len(was) != many or not (now.isascii() or is_narrow(now)):
                break
            if style is not new_style and style != new_style:
                found += range(first, first + many)
            elif was != now:
                if not is_narrow(was):
                    break
                found += compress(count(first), map(ne, was, now))
            first += many
        else:
            return found
    (old_texts, old_styles), (texts, styles) = _cells(old), _cells(new)
    differ = [*compress(count(), map(ne, old_texts, texts))]
    others = compress(count(), map(is_not, old_styles, styles))
    restyled = [x for x in others if old_styles[x] != styles[x]]
    return sorted({*differ, *restyled}) if restyled else differ


def _bridge_bytes(texts: str, styles: list[Style], start: int, end: int) -> int:
    """What it takes to send the cells from `start` to `end` between two that are sent anyway."""
    around = styles[start - 1 : end + 1]
    changes = sum(one != next_ for one, next_ in pairwise(around)) - (around[0] != around[-1])
    return len(texts[start:end].encode()) + STYLE_BYTES * changes


def _cells(row: Row) -> tuple[str, list[Style]]:
    """A character and a style for each cell; a wide one is twice there, so that both are sent."""
    texts: list[str] = []
    styles: list[Style] = []
    for text, style in row:
        narrow = text.isascii() or is_narrow(text)
        one_each = text if narrow else "".join([c * cell_len(c) for c in text])
        texts.append(one_each)
        styles += [style] * len(one_each)
    return "".join(texts), styles
