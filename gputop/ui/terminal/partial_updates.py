"""Patch Textual's partial updates to send only the changed cells.

Textual repaints from the left edge of a widget when a region inside it is refreshed; its source
says that cropping is still to be done. It also renders whole lines of every widget on a changed
line, and cuts them. Where no other widget covers the cells of a live view, its own row has them.
`ChopsUpdate` and `Compositor` are private. Their methods are replaced only where they have the
tested signatures; otherwise everything works as before, with more bytes.
"""

from __future__ import annotations

import inspect
from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate, groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.color import ColorSystem
from rich.console import COLOR_SYSTEMS
from rich.segment import Segment
from textual import _compositor
from textual._compositor import CompositorUpdate
from textual.strip import Strip

from gputop.ui.drawing.cells import is_narrow
from gputop.ui.widgets.live import LiveView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rich.style import Style
    from textual.geometry import Region
    from textual.widget import Widget


SHAPE = {
    "__init__": ["self", "chops", "spans", "chop_ends"],
    "render_segments": ["self", "console"],
}
STRIP_SHAPE = {
    "render_ansi": ["style", "color_system"],
    "render_style": ["style", "text", "color_system"],
}


def install() -> bool:
    """Replace the methods that have the known signatures; return True if both have."""
    return all([install_cropping(), install_live_updates()])


def install_cropping() -> bool:
    """Replace the method if it has the known signature; return True if so."""
    update = getattr(_compositor, "ChopsUpdate", None)
    if update is None or not (has(update, SHAPE) and has(Strip, STRIP_SHAPE)):
        return False
    update.render_segments = render_segments
    return True


def has(cls: type, shape: Mapping[str, list[str]]) -> bool:
    """Return True if the methods of the class have these parameters."""
    try:
        return all(
            list(inspect.signature(getattr(cls, name)).parameters) == parameters
            for name, parameters in shape.items()
        )
    except (AttributeError, TypeError, ValueError):
        return False


def render_segments(self: Any, console: Any) -> str:
    """Return the output for the changed spans, cropped on both sides."""
    pen = Pen(console)
    lines: dict[tuple[int, int], StyledLine] = {}
    for y, left, right in self.spans:
        for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
            if strip is None or x >= right or end <= left:
                continue
            line = lines.get((y, x))
            if line is None:
                line = lines[y, x] = StyledLine([(text, style) for text, style, _ in strip], x)
            start, stop = max(x, left), min(end, right)
            pen.move(start, y)
            for text, style, _ in (
                line.between(start, stop) if line.is_narrow else strip.crop(start - x, stop - x)
            ):
                pen.write(text, style)
    return pen.end()


class StyledLine:
    """Line of styled texts that parts are cut from, faster than with strips."""

    def __init__(self, texts: Sequence[tuple[str, Style | None]], x: int) -> None:
        """`x` is the column of the first cell."""
        self._texts = texts
        self.is_narrow = all(text.isascii() or is_narrow(text) for text, _ in texts)
        """True if cells can be counted as characters; else no parts can be cut."""
        self._ends = [*accumulate((len(text) for text, _ in texts), initial=x)][1:]

    def between(self, start: int, stop: int) -> Iterator[Segment]:
        """Yield the segments from one cell to another."""
        for n in range(bisect_right(self._ends, start), len(self._texts)):
            text, style = self._texts[n]
            first = self._ends[n] - len(text)
            if first >= stop:
                break
            yield Segment(text[max(0, start - first) : stop - first], style)


class Pen:
    """Builder of terminal output that sends only changes of position and style.

    Columns are absolute: a terminal that draws a character wider must not shift what follows.
    """

    def __init__(self, console: Any) -> None:
        self._color_system = COLOR_SYSTEMS.get(console.color_system or "", ColorSystem.TRUECOLOR)
        self._written: list[str] = []
        self._row = -2
        self._style = ""

    def move(self, x: int, y: int) -> None:
        """Move to a cell, counted from 0."""
        if 0 <= y - self._row <= 1:  # the same line or the next one
            down = "\n" * (y - self._row)
            self._written.append(f"{down}\x1b[{x + 1}G")
        else:
            self._written.append(f"\x1b[{y + 1};{x + 1}H")
        self._row = y

    def is_in(self, style: Style | None) -> bool:
        """Return True if that is the current style."""
        return self._style == ("" if style is None else _codes(style, self._color_system))

    def write(self, text: str, style: Style | None) -> None:
        """Write text in that style at the current position."""
        if style is not None and style.link:
            self._to_style("")
            self._written.append(Strip.render_style(style, text, self._color_system))
            return
        self._to_style("" if style is None else _codes(style, self._color_system))
        self._written.append(text)

    def end(self) -> str:
        """Return the output; its style is reset at the end."""
        self._to_style("")
        return "".join(self._written)

    def _to_style(self, style: str) -> None:
        if style == self._style:
            return
        # An empty parameter is 0, a reset. A colour alone replaces another one without it.
        both = self._style and style
        away = both and not (_is_ink(self._style) and _is_ink(style))
        self._written.append(f"\x1b[;{style}m" if away else f"\x1b[{style}m")
        self._style = style


@lru_cache(maxsize=1024)
def _codes(style: Style, color_system: ColorSystem) -> str:
    """Return the codes that set the style after a reset, without the default colours."""
    codes = iter(Strip.render_ansi(style, color_system).split(";"))
    kept = []
    for code in codes:
        if code in ("38", "48"):
            kind = next(codes)
            kept += [code, kind, *islice(codes, 1 if kind == "5" else 3)]
        elif code not in ("39", "49"):
            kept.append(code)
    return ";".join(kept)


@lru_cache(maxsize=1024)
def _is_ink(codes: str) -> bool:
    """Return True if the codes set only the text colour."""
    first, _, others = codes.partition(";")
    if first == "38":
        return others.count(";") == (1 if others.startswith("5;") else 3)
    return not others and len(first) == 2 and first[0] in "39"


COMPOSITOR_SHAPE = {"render_partial_update": ["self"], "_regions_to_spans": ["regions"]}


class Box(NamedTuple):
    """Position of a widget, and its visible part."""

    widget: Widget
    x: int
    y: int
    left: int
    top: int
    right: int
    bottom: int


class LinePart(NamedTuple):
    """Segments to write from a cell on, at least one."""

    x: int
    y: int
    segments: Sequence[Segment]


class CellsUpdate(CompositorUpdate):
    """Update of parts of lines."""

    def __init__(self, parts: Iterable[LinePart]) -> None:
        """`parts` are ordered from the top line down."""
        self._parts = parts

    def render_segments(self, console: Any) -> str:
        """Return the output. On each line, parts in the current style come first:
        a change of style takes more bytes than moving between parts.
        """
        pen = Pen(console)
        for y, line in groupby(self._parts, key=attrgetter("y")):
            left = [*line]
            while left:
                part = next((p for p in left if pen.is_in(p.segments[0].style)), left[0])
                left.remove(part)
                pen.move(part.x, y)
                for text, style, _ in part.segments:
                    pen.write(text, style)
        return pen.end()


def install_live_updates() -> bool:
    """Replace the method if it has the known signature; return True if so."""
    compositor = getattr(_compositor, "Compositor", None)
    if compositor is None or not has(compositor, COMPOSITOR_SHAPE):
        return False
    if not hasattr(compositor.render_partial_update, "stock"):
        compositor.render_partial_update = _or(compositor.render_partial_update)
    return True


def _or(stock: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def render_partial_update(self: Any) -> Any:
        return update_from_live_views(self) or stock(self)

    render_partial_update.stock = stock  # type: ignore[attr-defined]
    return render_partial_update


def update_from_live_views(compositor: Any) -> CellsUpdate | None:
    """Return the update for the changed cells, or None if other widgets have some of them."""
    boxes = [_box(widget, *where) for widget, where in compositor.visible_widgets.items()]
    lines: dict[tuple[Widget, int], StyledLine | None] = {}
    parts: list[LinePart] = []
    for y, left, right in compositor._regions_to_spans(compositor._dirty_regions):  # noqa: SLF001
        # Widgets in front come first.
        over = (box for box in boxes if box.top <= y < box.bottom)
        box = next((each for each in over if each.left < right and left < each.right), None)
        if box is None or not (box.left <= left and right <= box.right):
            return None
        view = box.widget
        if (view, y) not in lines:
            lines[view, y] = _styled_line(view, y - box.y, box.x)
        line = lines[view, y]
        if line is None or not isinstance(view, LiveView):
            return None
        parts.append(LinePart(left, y, view.apply_filters([*line.between(left, right)])))
    compositor._dirty_regions.clear()  # noqa: SLF001
    return CellsUpdate(parts) if parts else None


def _styled_line(widget: Widget, y: int, x: int) -> StyledLine | None:
    row = widget.row_at(y) if isinstance(widget, LiveView) else None
    line = StyledLine(row, x) if row is not None else None
    return line if line is not None and line.is_narrow else None


def _box(widget: Widget, region: Region, clip: Region) -> Box:
    seen = region.intersection(clip)
    return Box(widget, region.x, region.y, seen.x, seen.y, seen.right, seen.bottom)
