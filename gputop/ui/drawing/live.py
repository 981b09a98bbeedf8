"""Bases of views and tabs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.containers import Vertical
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from gputop.text import count, visible
from gputop.ui.drawing.cells import Row, Span, cells_of, fit, text_of
from gputop.ui.drawing.palette import ACCENT, DIM, STRONG

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.events import MouseScrollDown, MouseScrollUp

    from gputop.agent.device import Device
    from gputop.ui.telemetry import Telemetry


class LiveView(Widget):
    """Widget that draws rows of spans, and refreshes only the rows that changed.

    A subclass implements `draw`. Call `redraw` after a change of what it draws.
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._rows: list[Row] = []
        """Rows as shown: fitted to the width, with control characters made visible."""
        self._strips: list[Strip] = []
        """A strip for each row. Textual caches the output of a strip, so they are kept."""
        self._drawn_size = (0, 0)

    def draw(self, width: int, height: int) -> list[Row]:
        """Return the rows for a space of that many cells; missing rows are blank."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draw again, and refresh the changed rows."""
        if not self.is_attached or not self.size or not self.is_on_screen:
            self._drawn_size = (0, 0)  # draw once it is shown
            return
        before, drawn_size = self._strips, self._drawn_size
        self._draw()
        if self._drawn_size != drawn_size:
            self.refresh()
            return
        width = self.size.width
        changed = [
            Region(0, y, width, 1)
            for y, (old, new) in enumerate(zip(before, self._strips, strict=True))
            if old is not new
        ]
        if changed:  # without regions Textual refreshes everything
            self.refresh(*changed)

    def _draw(self) -> None:
        width, height = self.size
        drawn = self.draw(width, height)[:height]
        drawn += [[] for _ in range(height - len(drawn))]
        rows = [fit(_inert(row), width) for row in drawn]
        strips = [Strip([Segment(*span) for span in row], width) for row in rows]
        if self._drawn_size == (width, height):
            for y, row in enumerate(rows):
                if row == self._rows[y]:
                    strips[y] = self._strips[y]
        self._rows, self._strips = rows, strips
        self._drawn_size = (width, height)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the rows of a region, without Textual's work for borders and padding."""
        return [self.render_line(y).crop(crop.x, crop.right) for y in crop.line_range]

    def render_line(self, y: int) -> Strip:
        if self._drawn_size != self.size:
            self._draw()
        if y >= len(self._strips):
            return Strip.blank(self.size.width)
        strip = self._strips[y]
        for line_filter in self.get_line_filters():
            strip = strip.apply_filter(line_filter, self.background_colors[1])
        return strip

    def text(self) -> str:
        """Return the text on screen, without styles."""
        return "\n".join(text_of(row).rstrip() for row in self._rows)


LONGEST_FILTER = 200


class FilterView(LiveView):
    """View with a filter field. A subclass lists what matches, and may keep the text elsewhere."""

    typing = False
    _typed = ""

    @property
    def typed(self) -> str:
        return self._typed

    def type(self, text: str) -> None:
        """Set the text of the filter, and list only what matches it."""
        self._typed = text
        self.redraw()

    def action_filter(self) -> None:
        self.typing = True
        self.redraw()

    def stop_typing(self, *, keep: bool) -> None:
        """Keep the filter, or clear it; keys are commands again."""
        self.typing = False
        self.type(self.typed.strip() if keep else "")

    def clear_filter(self) -> bool:
        """List everything again; return True if there was a filter."""
        filtered = bool(self.typed)
        self.stop_typing(keep=False)
        return filtered

    def filter_key(self, key: str, character: str | None) -> bool:
        """Handle a key while typing; return False if it has no meaning there."""
        typed = self.typed
        match key:
            case "enter" | "escape":
                self.stop_typing(keep=key == "enter")
            case "backspace":
                self.type(typed[:-1])
            case "ctrl+w":
                self.type("".join(typed.rstrip().rpartition(" ")[:2]))
            case "ctrl+u":
                self.type("")
            case _ if character is not None and character.isprintable():
                self.type(typed + character)
            case _:
                return False
        return True

    def paste(self, text: str) -> None:
        """Insert the printable characters of the first line."""
        line = next(iter(text.splitlines()), "")
        self.type(self.typed + "".join(filter(str.isprintable, line)))

    @property
    def filter_keys(self) -> str:
        """Words that say how keys change the filter."""
        return (
            "  Enter keeps · Esc clears "
            if self.typing
            else "  / changes it · Esc clears "
        )

    def prompt(self, room: int) -> Row:
        """Return the filter and its cursor. Of a text longer than `room` cells, show the end."""
        typed = visible(self.typed)
        while cells_of(typed) > room:
            typed = typed[1:]
        cursor = Span("▏" if self.typing else " ", ACCENT)
        return [Span(" / ", ACCENT), Span(typed, STRONG), cursor]


class TelemetryView(LiveView):
    """View of the stream."""

    def __init__(self, telemetry: Telemetry, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._telemetry = telemetry


class DeviceView(TelemetryView):
    """View of one device."""

    device: Device | None = None


def _inert(row: Row) -> Row:
    """Return the row with control characters made visible: foreign text may contain them."""
    if text_of(row).isprintable():
        return row
    return [Span(visible(span.text), span.style) for span in row]


WHEEL_LINES = 3


class Wheel:
    """Mixin for views that the mouse wheel scrolls."""

    _first = 0
    """First line shown; `draw` keeps it within bounds."""
    _seen: object = None
    """Place of the cursor when it was last scrolled to."""
    redraw: Callable[[], None]

    def follow(
        self,
        place: object,
        row: int | None,
        rows: int,
        room: int,
    ) -> None:
        """Scroll to the cursor's row after its place has changed, and never past the end."""
        if place != self._seen:
            self._seen = place
            if row is not None:
                self._first = max(row - room + 1, min(self._first, row))
        self._first = max(0, min(self._first, rows - room))

    def wheel(self, step: int) -> None:
        """Scroll down by that many lines, or up for a negative number."""
        self._first += step
        self.redraw()

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        self.wheel(WHEEL_LINES)
        event.stop()

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        self.wheel(-WHEEL_LINES)
        event.stop()


class ScrolledView(Wheel, DeviceView):
    """Scrolling view of `all_rows`; where they do not fit, the last line counts the others."""

    def all_rows(self, width: int) -> list[Row]:
        """Return all rows, however many."""
        raise NotImplementedError

    def action_move(self, step: int) -> None:
        self.wheel(step)

    def action_page(self, step: int) -> None:
        self.wheel(step * max(1, self.size.height - 2))

    def draw(self, width: int, height: int) -> list[Row]:
        rows = self.all_rows(width)
        room = height - (1 < height < len(rows))  # the last row counts the others
        first = self._first = max(0, min(self._first, len(rows) - room))
        if room == height:
            return rows[first : first + room]
        below = len(rows) - room - first
        others = f"{count(first, 'row')} above" if first else count(below, "more row")
        others += f", {below} below" if first and below else ""
        return [
            *rows[first : first + room],
            [Span(f"{others} · PgUp PgDn".rjust(width), DIM)],
        ]


def space_of(tab: Widget) -> Size:
    """Return the size of a tab, which is that of what is around it, also before it is shown."""
    return tab.parent.size if isinstance(tab.parent, Widget) else tab.size


class LiveTab(Vertical):
    """Tab that shows the stream."""

    @property
    def selected(self) -> Device | None:
        """Device that keys act on, if the tab has one."""
        return None

    def select(self, device: Device) -> None:
        """Select a device; a tab without devices selects none."""

    @property
    def wants_gpm(self) -> bool:
        """True if the tab shows GPM readings, which are sampled only on demand."""
        return False

    def show_telemetry(self) -> None:
        """Redraw after a new sample."""
        raise NotImplementedError

    @property
    def key_handlers(self) -> tuple[Widget, ...]:
        """Widgets that handle actions of keys; the first one with the action wins."""
        return (self,)

    @property
    def filter_view(self) -> FilterView | None:
        """View with the filter field, if the tab has one."""
        return None


class DeviceTab(LiveTab):
    """Page of one device, opened from another tab."""

    wants_gpm = True
    """True: half of what the page shows needs GPM."""

    def __init__(
        self,
        telemetry: Telemetry,
        views: Sequence[DeviceView],
        *,
        id: str,  # noqa: A002
    ) -> None:
        """Show a device in `views`, which also do what keys do."""
        super().__init__(id=id)
        self.telemetry, self._views = telemetry, views

    def compose(self) -> ComposeResult:
        yield from self._views

    @property
    def selected(self) -> Device | None:
        """Device shown, as last listed."""
        return self._views[0].device

    @property
    def key_handlers(self) -> tuple[Widget, ...]:
        return (self, *self._views)

    def select(self, device: Device) -> None:
        self.show(device.uuid)

    def show(self, uuid: str) -> None:
        self._show(self.telemetry.find_device(uuid))

    def show_telemetry(self) -> None:
        # Its inventory may have changed; a device that is gone stays as it was.
        shown = self.selected
        self._show(shown and (self.telemetry.find_device(shown.uuid) or shown))

    def _show(self, device: Device | None) -> None:
        for view in self._views:
            view.device = device
        for view in self._views:
            view.redraw()

    def action_device(self, step: int) -> None:
        """Show the device `step` places further in the list, wrapping around."""
        devices, shown = self.telemetry.devices, self.selected
        if devices:
            uuid = shown.uuid if shown else None
            now = next((n for n, each in enumerate(devices) if each.uuid == uuid), -1)
            self.show(devices[(now + step) % len(devices)].uuid)
