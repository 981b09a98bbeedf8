"""Sends what changed in live views straight from their rows, without a strip of each whole line.

Textual has every widget on a changed line render all of it, cuts that where widgets meet, and then
takes the changed cells out of the pieces. Where no other widget is over those cells, the view's own
row has them. `Compositor` is private: the method is replaced only where it has the shape that was
tested, and Textual's own does whatever this one does not.
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from textual import _compositor
from textual._compositor import CompositorUpdate

from gputop.ui.terminal.partial_updates import Line, Pen, has
from gputop.ui.widgets.live import LiveView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rich.segment import Segment
    from textual.geometry import Region
    from textual.widget import Widget

SHAPE = {"render_partial_update": ["self"], "_regions_to_spans": ["regions"]}


class Box(NamedTuple):
    """Where a widget is, and from where to where it can be seen."""

    widget: Widget
    x: int
    y: int
    left: int
    top: int
    right: int
    bottom: int


class Part(NamedTuple):
    """What to write from a cell on, at least one segment."""

    x: int
    y: int
    segments: Sequence[Segment]


class CellsUpdate(CompositorUpdate):
    """Parts of lines, as the app writes them to the terminal."""

    def __init__(self, parts: Iterable[Part]) -> None:
        """From the top line down."""
        self._parts = parts

    def render_segments(self, console: Any) -> str:
        """What to write: of a line first what goes on in the style of what was written last.

        A style takes more than the way from one part to another, forth or back.
        """
        pen = Pen.of(console)
        for y, line in groupby(self._parts, key=attrgetter("y")):
            left = [*line]
            while left:
                part = next((p for p in left if pen.is_in(p.segments[0].style)), left[0])
                left.remove(part)
                pen.move(part.x, y)
                for text, style, _ in part.segments:
                    pen.write(text, style)
        return pen.end()


def install() -> bool:
    """Replaces the method if this Textual has it in the known shape; whether it did."""
    compositor = getattr(_compositor, "Compositor", None)
    if compositor is None or not has(compositor, SHAPE):
        return False
    if not hasattr(compositor.render_partial_update, "stock"):
        compositor.render_partial_update = _or(compositor.render_partial_update)
    return True


def _or(stock: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def render_partial_update(self: Any) -> Any:
        return of_live_views(self) or stock(self)

    render_partial_update.stock = stock  # type: ignore[attr-defined]
    return render_partial_update


def of_live_views(compositor: Any) -> CellsUpdate | None:
    """The changed cells; None where others than live views have some, and nothing is done yet."""
    boxes = [_box(widget, *where) for widget, where in compositor.visible_widgets.items()]
    lines: dict[tuple[Widget, int], Line | None] = {}
    parts: list[Part] = []
    for y, left, right in compositor._regions_to_spans(compositor._dirty_regions):  # noqa: SLF001
        # Who is in front comes first.
        over = (box for box in boxes if box.top <= y < box.bottom)
        box = next((each for each in over if each.left < right and left < each.right), None)
        if box is None or not (box.left <= left and right <= box.right):
            return None
        view = box.widget
        if (view, y) not in lines:
            lines[view, y] = _line(view, y - box.y, box.x)
        line = lines[view, y]
        if line is None or not isinstance(view, LiveView):
            return None
        parts.append(Part(left, y, view.filtered([*line.between(left, right)])))
    compositor._dirty_regions.clear()  # noqa: SLF001
    return CellsUpdate(parts) if parts else None


def _line(widget: Widget, y: int, x: int) -> Line | None:
    row = widget.shown_row(y) if isinstance(widget, LiveView) else None
    line = Line(row, x) if row is not None else None
    return line if line is not None and line.is_narrow else None


def _box(widget: Widget, region: Region, clip: Region) -> Box:
    seen = region.intersection(clip)
    return Box(widget, region.x, region.y, seen.x, seen.y, seen.right, seen.bottom)
