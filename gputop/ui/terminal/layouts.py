"""Patch Textual to show a change of the layout in one frame.

Textual lays everything out again after a change of any widget's size, as scroll bars may come or
go, and repaints what it laid out: each page was painted twice. And it collects what changed from
each widget on its own, when that is idle: some of it came in a frame of its own. Both are private
methods, which are used only with the tested signatures; otherwise everything works as before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.widget import Widget

from gputop.ui.terminal.textual_updates import has

SIZE_UPDATED = ["self", "size", "virtual_size", "container_size", "layout"]


def install() -> bool:
    """Replace the method if it has the known signature; return True if so."""
    if not has(Widget, {"_size_updated": SIZE_UPDATED}):
        return False
    if not hasattr(Widget._size_updated, "stock"):  # noqa: SLF001
        Widget._size_updated = _once(Widget._size_updated)  # type: ignore[method-assign] # noqa: SLF001
    return True


def _once(stock: Callable[..., bool]) -> Callable[..., bool]:
    def size_updated(
        self: Widget, size: Any, virtual_size: Any, container_size: Any, layout: bool = True
    ) -> bool:
        scrolls = "auto" in (self.styles.overflow_x, self.styles.overflow_y)
        over = any(each.id == "textual-toastrack" for each in self.ancestors_with_self)
        if not layout or scrolls or over:  # notifications are laid out as they are painted
            return stock(self, size, virtual_size, container_size, layout)
        changed = stock(self, size, virtual_size, container_size, False)
        if changed:  # the frame of this layout has it all
            getattr(self, "_repaint_regions", set()).clear()
        return changed

    size_updated.stock = stock  # type: ignore[attr-defined]
    return size_updated


def collect(*widgets: Widget) -> None:
    """Have the screen know now what changed in the widgets and in those that they contain."""
    if has(Widget, {"_check_refresh": ["self"]}):
        for widget in widgets:
            for each in widget.walk_children(Widget, with_self=True):
                each._check_refresh()  # noqa: SLF001
