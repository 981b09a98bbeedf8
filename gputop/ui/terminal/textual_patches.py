"""Patches of Textual: updates give their cells to a screen model, and what is gone is let go of.

Private methods are replaced only where they have the tested signatures. Without those of updates,
Textual's own driver sends its own output, with more bytes.
Textual also renders whole lines of every widget on a changed line, and cuts them. Where no other
widget covers the cells of a live view, its own row has them.
Textual lays everything out again after a change of any widget's size: each page was painted twice.
It collects what changed from each widget when that is idle: some came in a frame of its own.
Textual keeps the last 1,024 pairs of colours that it mixed by the widget's cache of drawn lines, at
which the method does not look, and so every line of a closed screen: tens of megabytes in an hour.
The last 1,024 keys are kept by the parser that read them, and with it its app.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from rich import cells as rich_cells
from rich.color import ColorSystem
from rich.console import COLOR_SYSTEMS
from rich.segment import Segment
from rich.style import Style
from textual import _compositor, _styles_cache
from textual._compositor import CompositorUpdate
from textual.css.scalar import Scalar
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gputop.ui.drawing.cells import Row, is_narrow, text_of
from gputop.ui.drawing.live import LiveView
from gputop.ui.terminal.screen_model import LINK

if TYPE_CHECKING:
    Put = Callable[[int, int, str, str], int]
    """Function that takes a cell's column and row, text and SGR codes, and returns the width."""

UPDATES = {"LayoutUpdate", "InlineUpdate", "ChopsUpdate", "CellsUpdate"}
RENDER = {"render_segments": ["self", "console"]}
LAYOUT_SHAPE = {"__init__": ["self", "strips", "region"], **RENDER}
CHOPS_SHAPE = {"__init__": ["self", "chops", "spans", "chop_ends"], **RENDER}
STRIP_SHAPE = {"render_ansi": ["style", "color_system"]}
SIZE_UPDATED = ["self", "size", "virtual_size", "container_size", "layout"]
MIX_SHAPE = ["cls", "base_background", "background"]
"""The first is the cache itself, whatever it is called."""
PAIRS = 1024
COMPOSITOR_SHAPE = {"render_partial_update": ["self"], "_regions_to_spans": ["regions"]}


def knows_updates() -> bool:
    """Return True if Textual's updates are those that `capture` knows, and no others."""
    updates = (("LayoutUpdate", LAYOUT_SHAPE), ("ChopsUpdate", CHOPS_SHAPE))
    known = all(has(getattr(_compositor, name, None), shape) for name, shape in updates)
    others = {each.__name__ for each in CompositorUpdate.__subclasses__()} - UPDATES
    return known and not others and has(Strip, STRIP_SHAPE)


def capture(put: Put) -> None:
    """Have updates, which are known, call `put` for their cells."""
    for update, cells in (
        (_compositor.LayoutUpdate, _layout_cells),
        (_compositor.ChopsUpdate, _chops_cells),
        (CellsUpdate, attrgetter("parts")),
    ):
        _replace(update, "render_segments", _capturing(cells, put))
    install_live_updates()


def release() -> None:
    """Have Textual send its updates again."""
    for name in ("LayoutUpdate", "ChopsUpdate", "Compositor"):
        owner = getattr(_compositor, name, None)
        for method in ("render_segments", "render_partial_update"):
            stock = getattr(getattr(owner, method, None), "stock", None)
            if stock is not None:
                setattr(owner, method, stock)


def has(cls: type | None, shape: Mapping[str, list[str]]) -> bool:
    """Return True if the methods of the class have these parameters."""
    try:
        return all(
            list(inspect.signature(getattr(cls, name)).parameters) == parameters
            for name, parameters in shape.items()
        )
    except (AttributeError, TypeError, ValueError):
        return False


def _replace(owner: Any, name: str, method: Any) -> None:
    method.stock = _stock(getattr(owner, name))
    setattr(owner, name, method)


def _stock(method: Any) -> Any:
    return getattr(method, "stock", method)


def _capturing(
    cells: Callable[[Any], Iterable[tuple[int, int, Iterable[Segment]]]], put: Put
) -> Callable[[Any, Any], str]:
    def render_segments(self: Any, console: Any) -> str:
        system = COLOR_SYSTEMS.get(console.color_system or "", ColorSystem.TRUECOLOR)
        for x, y, segments in cells(self):
            at = x
            for text, style, control in segments:
                if text and not control:
                    at += put(
                        at, y, text, "" if style is None else codes_of(style, system)
                    )
        return ""

    return render_segments


def _layout_cells(update: Any) -> Iterator[tuple[int, int, Iterable[Segment]]]:
    x, top = update.region.offset
    for y, line in enumerate(update.strips, top):
        yield x, y, (segment for strip in line for segment in strip)


def _chops_cells(update: Any) -> Iterator[tuple[int, int, Iterable[Segment]]]:
    # Elsewhere on their lines there may be the blank of a container: what is in it is not rendered.
    for y, left, right in update.spans:
        for end, (x, strip) in zip(
            update.chop_ends[y], update.chops[y].items(), strict=False
        ):
            if strip is not None and x < right and left < end:
                yield x, y, strip


@lru_cache(maxsize=1024)
def codes_of(style: Style, color_system: ColorSystem) -> str:
    """Return the codes that set the style after a reset, without the default colours."""
    codes = iter(Strip.render_ansi(style, color_system).split(";"))
    kept = []
    for code in codes:
        if code in ("38", "48"):
            kind = next(codes)
            kept += [code, kind, *islice(codes, 1 if kind == "5" else 3)]
        elif code not in ("39", "49"):
            kept.append(code)
    return ";".join(kept) + (f"{LINK}{style.link}" if style.link else "")


def segments_between(row: Row, x: int, start: int, stop: int) -> list[Segment] | None:
    """Return the segments of a row from one cell to another; `x` is the column of its first cell.

    None if its cells cannot be counted as characters.
    """
    if not is_narrow(text_of(row)):
        return None
    found = []
    for text, style in row:
        end = x + len(text)
        if end > start:
            if x >= stop:
                break
            found.append(Segment(text[max(0, start - x) : stop - x], style))
        x = end
    return found


class CellsUpdate(CompositorUpdate):
    """Update of parts of lines: column, row and segments of each."""

    def __init__(self, parts: Sequence[tuple[int, int, Sequence[Segment]]]) -> None:
        self.parts = parts

    def render_segments(self, console: Any) -> str:
        """Return nothing: there are such updates only where they are captured."""
        raise NotImplementedError


def install_live_updates() -> bool:
    """Replace the method if it has the known signature; return True if so."""
    compositor: Any = getattr(_compositor, "Compositor", None)
    if not has(compositor, COMPOSITOR_SHAPE):
        return False
    stock = _stock(compositor.render_partial_update)

    def render_partial_update(self: Any) -> Any:
        return update_from_live_views(self) or stock(self)

    _replace(compositor, "render_partial_update", render_partial_update)
    return True


def update_from_live_views(compositor: Any) -> CellsUpdate | None:
    """Return the update for the changed cells, or None if other widgets have some of them."""
    boxes = [
        (widget, region.offset, region.intersection(clip).corners)
        for widget, (region, clip) in compositor.visible_widgets.items()
    ]
    nothing: tuple[Any, Any, bool] = None, None, False
    parts: list[tuple[int, int, Sequence[Segment]]] = []
    for y, left, right in compositor._regions_to_spans(compositor._dirty_regions):  # noqa: SLF001
        over = (  # widgets in front come first
            (widget, at, first <= left and right <= end)
            for widget, at, (first, top, end, bottom) in boxes
            if top <= y < bottom and first < right and left < end
        )
        view, at, has_all = next(over, nothing)
        row = view.row_at(y - at.y) if isinstance(view, LiveView) and has_all else None
        segments = None if row is None else segments_between(row, at.x, left, right)
        if segments is None:
            return None
        parts.append((left, y, view.apply_filters(segments)))
    compositor._dirty_regions.clear()  # noqa: SLF001
    return CellsUpdate(parts) if parts else None


def install_layouts() -> bool:
    """Replace the method if it has the known signature; return True if so."""
    if not has(Widget, {"_size_updated": SIZE_UPDATED}):
        return False
    stock: Callable[..., bool] = _stock(Widget._size_updated)  # noqa: SLF001

    def size_updated(
        self: Widget,
        size: Any,
        virtual_size: Any,
        container_size: Any,
        layout: bool = True,
    ) -> bool:
        scrolls = "auto" in (self.styles.overflow_x, self.styles.overflow_y)
        over = any(each.id == "textual-toastrack" for each in self.ancestors_with_self)
        if (
            not layout or scrolls or over
        ):  # notifications are laid out as they are painted
            return stock(self, size, virtual_size, container_size, layout)
        changed = stock(self, size, virtual_size, container_size, False)
        if changed:  # the frame of this layout has it all
            getattr(self, "_repaint_regions", set()).clear()
        return changed

    _replace(Widget, "_size_updated", size_updated)
    return True


def hand_on_size(app: Any) -> None:
    """Hand on a new size whose timer Textual dropped, as it was late at once: else none ever is."""
    if getattr(app, "_resize_event", None) is not None and hasattr(
        app, "_check_resize"
    ):
        app._check_resize()  # noqa: SLF001


def collect_changes(*widgets: Widget) -> None:
    """Have the screen know now what changed in the widgets and in those that they contain."""
    if has(Widget, {"_check_refresh": ["self"]}):
        for widget in widgets:
            for each in widget.walk_children(Widget, with_self=True):
                each._check_refresh()  # noqa: SLF001


def install_caches() -> bool:
    """Replace the method if it has the known shape; return True if so."""
    styles_cache = getattr(_styles_cache, "StylesCache", None)
    kept = getattr(styles_cache, "get_inner_outer", None)
    mixed = getattr(kept, "__wrapped__", None)
    if mixed is None or list(inspect.signature(mixed).parameters) != MIX_SHAPE:
        return False
    by_colours = lru_cache(PAIRS)(partial(mixed, None))

    def get_inner_outer(_: object, base_background: Any, background: Any) -> Any:
        return by_colours(base_background, background)

    _styles_cache.StylesCache.get_inner_outer = get_inner_outer  # type: ignore[method-assign,assignment]
    return True


def forget_keys() -> None:
    """Have Textual forget the keys that it knows, and so whoever read them: parsers and apps."""
    from textual import _xterm_parser  # loaded with the driver

    _clear(getattr(_xterm_parser.XTermParser, "_parse_extended_key", None))


def forget_drawn(views: Iterable[Widget]) -> None:
    """Clear the caches of regions, sizes, styles and text widths, and the views' dirty regions.

    Each cache has room for thousands of entries that are seldom asked for again: a change is in
    other cells each time, in other text, and each terminal size and theme has its own. A widget
    keeps the regions that it was asked to refresh until Textual draws it; `views` draw themselves.
    """
    for view in views:
        regions = getattr(view, "_dirty_regions", None)
        if isinstance(regions, set):
            regions.clear()
    _clear(getattr(rich_cells, "cached_cell_len", None))
    for owner in (Region, Scalar, Strip, Style):
        for each in vars(owner).values():
            _clear(getattr(each, "__func__", each))


def _clear(cached: object) -> None:
    clear = getattr(cached, "cache_clear", None)
    if clear is not None:
        clear()
