"""The base of everything that changes on screen: it sends only the cells that changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.containers import Vertical
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gputop.text import visible
from gputop.ui.drawing.cells import Span, changed_spans, fit
from gputop.ui.drawing.palette import DIM

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.events import MouseScrollDown, MouseScrollUp
    from textual.filter import LineFilter

    from gputop.schema.snapshot import Device
    from gputop.ui.drawing.cells import Row
    from gputop.ui.model import Telemetry
    from gputop.ui.widgets.filter import FilterView


class LiveView(Widget):
    """Draws itself as rows of spans, and refreshes the cells that differ from what is shown.

    A subclass implements `draw`; whoever changes what it draws calls `redraw`.
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._made: list[Row] = []
        """The rows as they were drawn."""
        self._rows: list[Row] = []
        """The same as they are shown."""
        self._filtered: dict[int, list[Segment]] = {}
        """By row, what Textual was given of it; a strip would keep each part that was cut of it."""
        self._filters: Sequence[LineFilter] = ()
        """What those went through."""
        self._drawn_size = (0, 0)

    def draw(self, width: int, height: int) -> list[Row]:
        """The rows for a space of that many cells; missing rows are blank."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draws again, and has the changed cells sent."""
        if not self.is_attached or not self.size or not self.is_on_screen:
            self._drawn_size = (0, 0)  # drawn when it is shown
            return
        before, drawn_size = self._rows, self._drawn_size
        self._draw()
        if self._drawn_size != drawn_size:
            self.refresh()
            return
        regions = [
            Region(start, y, end - start, 1)
            for y, (old, new) in enumerate(zip(before, self._rows, strict=True))
            if old is not new and old != new
            for start, end in changed_spans(old, new)
        ]
        if regions:  # without regions everything is refreshed
            self.refresh(*regions)

    def _draw(self) -> None:
        width, height = self.size
        if self._drawn_size != (width, height):
            self._made, self._rows, self._filtered = [], [], {}
        before, shown = self._made, self._rows
        drawn = self.draw(width, height)[:height]
        drawn += [[] for _ in range(height - len(drawn))]
        self._rows = []
        for y, row in enumerate(drawn):
            if before and row == before[y]:
                self._rows.append(shown[y])
            else:
                self._rows.append(fit(_inert(row), width))
                self._filtered.pop(y, None)
        self._made, self._drawn_size = drawn, (width, height)

    def render_lines(self, crop: Region) -> list[Strip]:
        """The rows of a region. Textual's way is for borders and paddings, which there are none."""
        if self._drawn_size != self.size:
            self._draw()
        filters = self.get_line_filters()
        if filters != self._filters:
            self._filters, self._filtered = filters, {}
        return [self._strip(y).crop(crop.x, crop.right) for y in crop.line_range]

    def _strip(self, y: int) -> Strip:
        segments = self._filtered.get(y)
        if segments is None:
            segments = self._filtered[y] = self.apply_filters([*self.render_line(y)])
        return Strip(segments, self.size.width)

    def apply_filters(self, segments: list[Segment]) -> list[Segment]:
        """These as the app's look has them."""
        for each in self.get_line_filters():
            segments = each.apply(segments, self.background_colors[1])
        return segments

    def row_at(self, y: int) -> Row | None:
        """A row as it is shown, before any filter; None where it has yet to be drawn."""
        return self._rows[y] if self._drawn_size == self.size else None

    def render_line(self, y: int) -> Strip:
        """One row, as Textual asks for it."""
        if self._drawn_size != self.size:
            self._draw()
        if y >= len(self._rows):
            return Strip.blank(self.size.width)
        return Strip([Segment(*span) for span in self._rows[y]], self._drawn_size[0])

    def text(self) -> str:
        """What is shown, without styles."""
        return "\n".join("".join(span.text for span in row).rstrip() for row in self._rows)


class DeviceView(LiveView):
    """A view of what the stream says of one device."""

    device: Device | None = None

    def __init__(self, telemetry: Telemetry, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._telemetry = telemetry


def _inert(row: Row) -> Row:
    """The row without what a terminal would act on: foreign text that came here as it was."""
    if "".join([text for text, _ in row]).isprintable():
        return row
    return [Span(visible(span.text), span.style) for span in row]


WHEEL_LINES = 3


class Wheel:
    """Mixin of a view that the mouse wheel scrolls."""

    _first = 0
    """The first line that shows; who draws keeps it within bounds."""
    redraw: Callable[[], None]

    def wheel(self, step: int) -> None:
        """Show what is that many lines further down, or further up for a negative number."""
        self._first += step
        self.redraw()

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """Scroll down."""
        self.wheel(WHEEL_LINES)
        event.stop()

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """Scroll up."""
        self.wheel(-WHEEL_LINES)
        event.stop()


class ScrolledView(DeviceView):
    """Draws as many of `all_rows` as there is room for; the last line says what is left out."""

    _top = _rows_in_all = 0

    def all_rows(self, width: int) -> list[Row]:
        """What there is to show, however much."""
        raise NotImplementedError

    def action_move(self, step: int) -> None:
        """Moves on by that many rows, as far as there are any."""
        room = max(1, self.size.height - 1)
        self._top = max(0, min(self._top + step, self._rows_in_all - room))
        self.redraw()

    def action_page(self, step: int) -> None:
        """Moves on by that many pages."""
        self.action_move(step * max(1, self.size.height - 2))

    def draw(self, width: int, height: int) -> list[Row]:
        """The rows from the one that was scrolled to."""
        rows = self.all_rows(width)
        self._rows_in_all = len(rows)
        if len(rows) <= height:
            self._top = 0
            return rows
        if height < 2:  # what is left out is not counted over nothing
            return rows[self._top : self._top + height]
        room = height - 1
        self._top = min(self._top, len(rows) - room)
        below = len(rows) - room - self._top
        more = f" {self._top} rows above" if self._top else ""
        more += f"{',' if more and below else ''} {below} below" if below else ""
        hint = [Span(f"{more}: PgUp PgDn".rjust(width), DIM)]
        return [*rows[self._top : self._top + room], hint]


class LiveTab(Vertical):
    """A tab that shows what comes with the stream."""

    @property
    def selected(self) -> Device | None:
        """The device that keys act on."""
        raise NotImplementedError

    @property
    def wants_gpm(self) -> bool:
        """Whether it shows readings of GPM, which is sampled only then."""
        return False

    def show_telemetry(self) -> None:
        """Draws what changed."""
        raise NotImplementedError

    @property
    def key_handlers(self) -> tuple[Widget, ...]:
        """Return the widgets that do what keys do: each action is the first one's that has it."""
        return (self,)

    @property
    def field(self) -> FilterView | None:
        """Return the view that takes what is typed, where there is one."""
        return None


class DeviceTab(LiveTab):
    """A page of one device, opened from another tab."""

    telemetry: Telemetry

    @property
    def wants_gpm(self) -> bool:
        """Always: half of what it shows rests on it."""
        return True

    def show(self, uuid: str) -> None:
        """Shows that device."""
        raise NotImplementedError

    def action_device(self, step: int) -> None:
        """Shows the device that is listed `step` further on, round and round."""
        devices, shown = self.telemetry.devices, self.selected
        if devices:
            uuid = shown.uuid if shown else None
            now = next((n for n, each in enumerate(devices) if each.uuid == uuid), -1)
            self.show(devices[(now + step) % len(devices)].uuid)
