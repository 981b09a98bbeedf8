"""Makes Textual's partial updates send only the cells that were asked for.

Textual repaints from the left edge of a widget when a region inside it is refreshed; its source
says that cropping there is still to be done. `ChopsUpdate` is private: the method is replaced only
where it has the shape that was tested, and otherwise everything works as before, with more bytes.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from rich.color import ColorSystem
from rich.console import COLOR_SYSTEMS
from textual import _compositor
from textual.strip import Strip

from gputop.ui.draw import is_narrow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.style import Style

SHAPE = {
    "__init__": ["self", "chops", "spans", "chop_ends"],
    "render_segments": ["self", "console"],
}
STRIP_SHAPE = {
    "render_ansi": ["style", "color_system"],
    "render_style": ["style", "text", "color_system"],
}


def install() -> bool:
    """Replaces the method if this Textual has it in the known shape; whether it did."""
    update = getattr(_compositor, "ChopsUpdate", None)
    if update is None or not (_has(update, SHAPE) and _has(Strip, STRIP_SHAPE)):
        return False
    update.render_segments = render_segments
    return True


def _has(cls: type, shape: Mapping[str, list[str]]) -> bool:
    try:
        return all(
            list(inspect.signature(getattr(cls, name)).parameters) == parameters
            for name, parameters in shape.items()
        )
    except (AttributeError, TypeError, ValueError):
        return False


def render_segments(self: Any, console: Any) -> str:
    """What to write to the terminal for the changed spans, cropped on both sides."""
    pen = _Pen(COLOR_SYSTEMS.get(console.color_system or "", ColorSystem.TRUECOLOR))
    for y, left, right in self.spans:
        for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
            if strip is None or x >= right or end <= left:
                continue
            start, stop = max(x, left), min(end, right)
            pen.move(start, y)
            for text, style in _between(strip, start - x, stop - x):
                pen.write(text, style)
    return pen.end()


def _between(strip: Strip, start: int, stop: int) -> list[tuple[str, Style | None]]:
    """The texts of a strip from one cell to another. Strip's own way makes a strip of each."""
    found: list[tuple[str, Style | None]] = []
    x = 0
    for text, style, _ in strip:
        if x >= stop:
            break
        if not is_narrow(text):
            return [(text, style) for text, style, _ in strip.crop(start, stop)]
        if x + len(text) > start:
            found.append((text[max(0, start - x) : stop - x], style))
        x += len(text)
    return found


class _Pen:
    """Writes to a terminal, and sends of place and style only what is another than before.

    Columns are absolute, lest a terminal that takes a character for wider carries that on.
    """

    def __init__(self, color_system: ColorSystem) -> None:
        self._color_system = color_system
        self._written: list[str] = []
        self._row = -1
        self._style = ""

    def move(self, x: int, y: int) -> None:
        """To a cell, counted from 0."""
        self._written.append(f"\x1b[{x + 1}G" if y == self._row else f"\x1b[{y + 1};{x + 1}H")
        self._row = y

    def write(self, text: str, style: Style | None) -> None:
        """Text in that style, from where it is."""
        if style is not None and style.link:
            self._to_style("")
            self._written.append(Strip.render_style(style, text, self._color_system))
            return
        self._to_style("" if style is None else Strip.render_ansi(style, self._color_system))
        self._written.append(text)

    def end(self) -> str:
        """All that was written; its last style is no other's first."""
        self._to_style("")
        return "".join(self._written)

    def _to_style(self, style: str) -> None:
        if style != self._style:  # nothing before the first ; is 0: away with the one before
            self._written.append(f"\x1b[;{style}m" if self._style and style else f"\x1b[{style}m")
            self._style = style
