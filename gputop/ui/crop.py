"""Makes Textual's partial updates send only the cells that were asked for.

Textual repaints from the left edge of a widget when a region inside it is refreshed; its source
says that cropping there is still to be done. `ChopsUpdate` is private: the method is replaced only
where it has the shape that was tested, and otherwise everything works as before, with more bytes.
"""

from __future__ import annotations

import inspect
from typing import Any

from rich.control import Control
from textual import _compositor

SHAPE = {
    "__init__": ["self", "chops", "spans", "chop_ends"],
    "render_segments": ["self", "console"],
}


def install() -> bool:
    """Replaces the method if this Textual has it in the known shape; whether it did."""
    update = getattr(_compositor, "ChopsUpdate", None)
    if update is None or not _has_known_shape(update):
        return False
    update.render_segments = render_segments
    return True


def _has_known_shape(update: type) -> bool:
    try:
        return all(
            list(inspect.signature(getattr(update, name)).parameters) == parameters
            for name, parameters in SHAPE.items()
        )
    except (AttributeError, TypeError, ValueError):
        return False


def render_segments(self: Any, console: Any) -> str:
    """What to write to the terminal for the changed spans, cropped on both sides."""
    written: list[str] = []
    for y, left, right in self.spans:
        for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
            if strip is None or x >= right or end <= left:
                continue
            start, stop = max(x, left), min(end, right)
            if (start, stop) != (x, end):
                strip = strip.crop(start - x, stop - x)  # noqa: PLW2901
            written.append(Control.move_to(start, y).segment.text)
            written.append(strip.render(console))
    return "".join(written)
