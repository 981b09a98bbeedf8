"""Lets go of widgets and apps that are gone.

Textual keeps the last 1,024 pairs of colours that it mixed by the widget's cache of drawn lines,
and so every line of a screen or a notification long after it was closed: tens of megabytes in an
hour. The method does not look at the cache; it is replaced only where it has the shape that was
tested. The last 1,024 keys are kept by the parser that read them, and with it its app. A strip that
nothing cuts keeps itself as its only part: garbage of each line that was ever drawn.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from rich import cells
from rich.style import Style
from textual import _styles_cache, _xterm_parser
from textual.css.scalar import Scalar
from textual.geometry import Region
from textual.strip import Strip

from gputop.ui.terminal.textual_updates import has

if TYPE_CHECKING:
    from textual.widget import Widget

SHAPE = ["cls", "base_background", "background"]
"""The first is the cache itself, whatever it is called."""
PAIRS = 1024


def install() -> bool:
    """Replace the methods that this Textual has in the known shape; return whether it has both."""
    return all([_mix_by_colours(), _divide_without_circles()])


def _divide_without_circles() -> bool:
    if not has(Strip, {"divide": ["self", "cuts"]}):
        return False
    kept = Strip.divide

    def divide(strip: Strip, cuts: Any) -> Any:
        within = [cut for cut in cuts if cut <= strip.cell_length]
        return [strip] if within == [strip.cell_length] else kept(strip, within)

    Strip.divide = divide  # type: ignore[method-assign,assignment]
    return True


def _mix_by_colours() -> bool:
    styles_cache = getattr(_styles_cache, "StylesCache", None)
    kept = getattr(styles_cache, "get_inner_outer", None)
    mixed = getattr(kept, "__wrapped__", None)
    if mixed is None or list(inspect.signature(mixed).parameters) != SHAPE:
        return False
    by_colours = lru_cache(PAIRS)(partial(mixed, None))

    def get_inner_outer(_: object, base_background: Any, background: Any) -> Any:
        return by_colours(base_background, background)

    _styles_cache.StylesCache.get_inner_outer = get_inner_outer  # type: ignore[method-assign,assignment]
    return True


def forget_keys() -> None:
    """Have Textual forget the keys that it knows, and so whoever read them: parsers and apps."""
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
    _clear(getattr(cells, "cached_cell_len", None))
    for owner in (Region, Scalar, Strip, Style):
        for each in vars(owner).values():
            _clear(getattr(each, "__func__", each))


def _clear(cached: object) -> None:
    clear = getattr(cached, "cache_clear", None)
    if clear is not None:
        clear()
