"""Base classes of views and tabs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from gputop.agent.device import Device
from gputop.text import visible
from gputop.ui.drawing.cells import Row, Span, fit, text_of
from gputop.ui.drawing.charts import WIDTHS, Axis, axis_of

if TYPE_CHECKING:
    from gputop.ui.drawing.filter_bar import FilterView
    from gputop.ui.drawing.page import ScrolledPage
    from gputop.ui.telemetry import Telemetry


class LiveView(ScrollView, can_focus=False, inherit_bindings=False):
    """View of rows of spans. Only changed rows are painted again.

    A subclass implements `draw`. Call `redraw` after its data has changed.
    """

    DEFAULT_CSS = "LiveView { overflow: hidden; }"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._rows: list[Row] = []
        """Rows as shown: fitted to the width, with control characters made visible."""
        self._drawn_for: object = None
        """Size and place for which the rows were drawn; None if they are out of date."""

    def draw(self, width: int, height: int) -> list[Row]:
        """Return the rows for this many cells. Missing rows are blank."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draw again, and paint the changed rows."""
        before, drawn_for = self._rows, self._drawn_for
        if not self.is_attached or not self.size or not self.is_on_screen:
            # Draw when the view is shown.
            self._drawn_for = None
            self.refresh()
            return
        self._draw()
        if self._drawn_for != drawn_for:
            self.refresh()
            return
        for y, row in enumerate(self._rows):
            if row != before[y]:
                self.refresh(Region(0, y, self.size.width, 1))

    def _draw(self) -> None:
        width, height = self.size
        drawn = self.draw(width, height)[:height]
        drawn += [[]] * (height - len(drawn))
        self._rows = [fit(_inert(row), width) for row in drawn]
        self._drawn_for = self.size, self.scroll_offset

    def render_line(self, y: int) -> Strip:
        """Return a row. Textual keeps it until the row is refreshed."""
        if self._drawn_for != (self.size, self.scroll_offset):
            self._draw()
        segments = [Segment(*span) for span in self._rows[y]]
        return Strip(segments, self.size.width)

    def text(self) -> str:
        """Return the text on screen, without styles."""
        return "\n".join(text_of(row).rstrip() for row in self._rows)


class TelemetryView(LiveView):
    """View of the stream."""

    def __init__(self, telemetry: Telemetry, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._telemetry = telemetry


class ZoomedView(TelemetryView):
    """View of charts over a time axis that the user can zoom."""

    _zoom: int | None = None
    """Place in `WIDTHS`; None for an automatic choice of some minutes."""
    _width = WIDTHS[0]
    """Seconds per dot at the last drawing."""

    def axis(self, now: float, columns: int) -> Axis:
        """Return the axis of charts of this many cells that end now."""
        interval = self._telemetry.interval
        axis = axis_of(now, columns, interval, self._zoom)
        self._width = axis.width
        return axis

    def action_zoom(self, step: int) -> None:
        """Show more time for a positive `step`, and less for a negative one."""
        at = WIDTHS.index(self._width) + step
        self._zoom = max(0, min(len(WIDTHS) - 1, at))
        self.redraw()


class DeviceView(TelemetryView):
    """View of one device."""

    device: Device | None = None


def _inert(row: Row) -> Row:
    """Return the row with control characters made visible, because it may have foreign text."""
    if text_of(row).isprintable():
        return row
    return [Span(visible(span.text), span.style) for span in row]


class Wheel:
    """Mixin for views whose cursor follows the mouse wheel."""

    wheel_lines = 3

    def action_move(self, step: int) -> None:
        """Move the cursor by that many lines."""
        raise NotImplementedError

    def on_mouse_scroll_down(self) -> None:
        self.action_move(self.wheel_lines)

    def on_mouse_scroll_up(self) -> None:
        self.action_move(-self.wheel_lines)


def space_of(tab: Widget) -> Size:
    """Return the space for a tab, also before it is shown and while a filter is below it."""
    return tab.screen.query_one("#body").size


class LiveTab(Vertical):
    """Tab that shows the stream."""

    @property
    def selected(self) -> Device | None:
        """Device that keys act on, if the tab has one."""
        return None

    wants_gpm = False
    """True if the tab shows GPM readings, which are sampled only on demand."""

    def show_telemetry(self) -> None:
        """Redraw after a new sample."""
        raise NotImplementedError

    @property
    def key_handlers(self) -> tuple[Widget, ...]:
        """Widgets that handle the actions of keys. The first one with the action is used."""
        return (self,)

    @property
    def filter_view(self) -> FilterView | None:
        """View with the filter field, if the tab has one."""
        return None


class DeviceTab(LiveTab):
    """Page of one device, opened from another tab."""

    wants_gpm = True
    """True, because half of the page needs GPM."""

    def __init__(
        self,
        telemetry: Telemetry,
        views: Sequence[DeviceView | ScrolledPage],
        *,
        id: str,  # noqa: A002
    ) -> None:
        """Show a device in `views`, which also handle keys."""
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

    def show(self, uuid: str) -> None:
        self._show(self.telemetry.find_device(uuid))

    def show_telemetry(self) -> None:
        # Its inventory may have changed. A missing device stays as it was.
        shown = self.selected
        self._show(shown and (self.telemetry.find_device(shown.uuid) or shown))

    def _show(self, device: Device | None) -> None:
        for view in self._views:
            view.device = device
        for view in self._views:
            view.redraw()

    def action_device(self, step: int) -> None:
        """Show the device `step` places further in the list, wrapping around."""
        uuids = [each.uuid for each in self.telemetry.devices]
        now = -1
        if self.selected is not None and self.selected.uuid in uuids:
            now = uuids.index(self.selected.uuid)
        if uuids:
            self.show(uuids[(now + step) % len(uuids)])
