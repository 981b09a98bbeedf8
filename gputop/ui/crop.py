"""Makes Textual's partial updates send only the cells that were asked for.

Textual repaints from the left edge of a widget when a region inside it is refreshed; its source
says that cropping there is still to be done. `ChopsUpdate` is private: the method is replaced only
where it has the shape that was tested, and otherwise everything works as before, with more bytes.
"""

from __future__ import annotations

import inspect
from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any

from rich.color import ColorSystem
from rich.console import COLOR_SYSTEMS
from textual import _compositor
from textual.strip import Strip

from gputop.ui.draw import is_narrow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
    lines: dict[tuple[int, int], _Line] = {}
    for y, left, right in self.spans:
        for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
            if strip is None or x >= right or end <= left:
                continue
            line = lines.get((y, x))
            if line is None:
                line = lines[y, x] = _Line(strip)
            start, stop = max(x, left), min(end, right)
            pen.move(start, y)
            for text, style in line.between(start - x, stop - x):
                pen.write(text, style)
    return pen.end()


class _Line:
    """A strip of which several parts are wanted. Its own way makes a strip of each."""

    def __init__(self, strip: Strip) -> None:
        self._strip = strip
        self._segments = [*strip]
        texts = [text for text, _, _ in self._segments]
        self._ends: list[int] = []
        """The cells at which segments end; none where cells cannot be counted as characters."""
        if all([text.isascii() or is_narrow(text) for text in texts]):
            self._ends = [*accumulate(map(len, texts))]

    def between(self, start: int, stop: int) -> Iterator[tuple[str, Style | None]]:
        """The texts from one cell to another."""
        if not self._ends:
            yield from ((text, style) for text, style, _ in self._strip.crop(start, stop))
            return
        for n in range(bisect_right(self._ends, start), len(self._segments)):
            text, style, _ = self._segments[n]
            first = self._ends[n] - len(text)
            if first >= stop:
                break
            yield text[max(0, start - first) : stop - first], style


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
        self._to_style("" if style is None else _codes(style, self._color_system))
        self._written.append(text)

    def end(self) -> str:
        """All that was written; its last style is no other's first."""
        self._to_style("")
        return "".join(self._written)

    def _to_style(self, style: str) -> None:
        if style == self._style:
            return
        # Nothing before the first ; is 0: away with the one before. A colour alone replaces one.
        away = ";" if self._style and style and not (_is_ink(self._style) and _is_ink(style)) else ""
        self._written.append(f"\x1b[{away}{style}m")
        self._style = style


@lru_cache(maxsize=1024)
def _codes(style: Style, color_system: ColorSystem) -> str:
    """What sets the style where none is set: without the terminal's own colours, which are."""
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
    """Whether they set the colour of the text, and nothing else."""
    first, _, others = codes.partition(";")
    if first == "38":
        return others.count(";") == (1 if others.startswith("5;") else 3)
    return not others and len(first) == 2 and first[0] in "39"
