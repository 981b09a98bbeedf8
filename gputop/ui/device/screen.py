"""Device page: charts, readings, processes and events of one device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.containers import Container, Vertical

from gputop.agent.device import Absence, Device, DeviceState
from gputop.agent.snapshot import Event, MachineState
from gputop.health.conditions import HANGING, event_text, fault_of
from gputop.schema.derived import label_of, model_of
from gputop.schema.labels import GROUPS, since_start, value_of
from gputop.text import ABSENT, age, moment, visible
from gputop.ui.device.timeline import TimelineView
from gputop.ui.drawing import cells
from gputop.ui.drawing.cells import Row, Span, cell, fit, rule_of, width_of
from gputop.ui.drawing.live import DeviceTab, DeviceView, ScrolledView, space_of
from gputop.ui.drawing.palette import ACCENT, DIM, FAULT, GOOD, STRONG, TEXT, WARN
from gputop.ui.processes.screen import ProcessesView

if TYPE_CHECKING:
    from rich.style import Style
    from textual.app import ComposeResult
    from textual.widget import Widget

    from gputop.ui.telemetry import Telemetry

BEHIND_REMEDY = (
    "These are the last readings received: the connection is slow, or the host stalls"
)
WIDE, TALL = 150, 40
"""Width from which charts and readings are side by side, and height with room for events."""
DETAILS, NARROWEST_CHARTS, GAP = 60, 60, 2
"""Cells of a column of readings, fewest of the charts beside it, and those between."""
LABEL, FIGURE = 14, 9
"""Cells of a label, and of each statistic."""
NARROWEST_COLUMN, WIDEST_COLUMN = 58, 90
MOST_COLUMNS = 3


class DeviceTitle(DeviceView):
    """Name of the device, and its fault with the remedy, if any."""

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - as many as it has
        device, telemetry = self.device, self._telemetry
        if device is None:
            return [[Span("No device", WARN)]]
        left = [
            Span(f"{label_of(device)} ", ACCENT),
            Span(f"{model_of(device)} ", STRONG),
        ]
        since = telemetry.history.since(device.uuid)
        right = (
            [] if since is None else [Span(f" statistics since {moment(since)} ", DIM)]
        )
        right = right if width_of([*left, *right]) <= width else []
        word = [Span(f" bound by {telemetry.bound_by(device.uuid)} ", STRONG)]
        if (
            telemetry.bound_by(device.uuid)
            and width_of([*left, *word, *right]) <= width
        ):
            right = [*word, *right]
        rows = [rule_of(left, right, width)]
        if self.fault is not None:
            what, remedy = self.fault
            rows += [[Span(f"{what}.", FAULT)], [Span(remedy, TEXT)]]
        return rows

    @property
    def rows_needed(self) -> int:
        return 1 if self.fault is None else 3

    @property
    def fault(self) -> tuple[str, str] | None:
        """Fault of the device and its remedy."""
        device, telemetry = self.device, self._telemetry
        if device is None:
            return None
        if telemetry.find_device(device.uuid) is None:
            return "GONE: the driver no longer lists it", "These are its last readings"
        machine = telemetry.machine_of(device)
        if (
            machine is not None
            and machine.state is MachineState.AWAY
            and machine.problem
        ):
            problem = machine.problem
            return f"{visible(problem.what)}: {visible(problem.why)}", visible(
                problem.remedy
            )
        behind = None if machine is None else telemetry.old_seconds(machine)
        if machine is not None and behind is not None:
            return f"{visible(machine.name)} is {age(behind)} behind", BEHIND_REMEDY
        readings = telemetry.readings(device.uuid)
        old = telemetry.old_seconds(readings)
        return (
            fault_of(device, readings)
            if old is None
            else (f"Readings are {age(old)} old", HANGING)
        )


class EventsView(DeviceView):
    """Events of the device, the newest first: time, event and remedy."""

    @property
    def rows_needed(self) -> int:
        """Rows needed for all events and the heading; 0 without events."""
        many = len(self._telemetry.events(self.device.uuid)) if self.device else 0
        return many + 1 if many else 0

    def draw(self, width: int, height: int) -> list[Row]:
        events = self._telemetry.events(self.device.uuid) if self.device else []
        if not events:
            none = (
                "none so far"
                if self._telemetry.replayed
                else "none since gputop started"
            )
            return [[Span("Events", ACCENT)], [Span(none, DIM)]]
        shown = events[: height - 1]
        some = (
            f", the newest {len(shown)} of {len(events)}"
            if 0 < len(shown) < len(events)
            else ""
        )
        heading = [Span("Events", ACCENT), Span(some, DIM)]
        return [heading, *(self._row(event, width) for event in shown)]

    def _row(self, event: Event, width: int) -> Row:
        device, where = self.device, ""
        if event.device_uuid is None:
            device, where = None, " (the driver does not say on which device)"
        readings = self._telemetry.readings(device.uuid) if device else None
        what, remedy = event_text(event, device, readings)
        style = GOOD if event.kind == DeviceState.OK.value else FAULT
        row = [Span(f"{moment(event.time)} ", DIM), Span(f"{what}{where}", style)]
        left = width - sum(len(span.text) for span in row) - 2
        return (
            [*row, Span(f"  {cells.clip_advice(remedy, left)}", DIM)]
            if left > 0
            else row
        )


class DetailsView(ScrolledView):
    """Rows of the catalogue in as many columns as fit; they scroll if there are too many."""

    folded = True
    """True if readings that the device does not have are left out, and counted in a line."""

    def action_absent(self) -> None:
        self.folded = not self.folded
        self.redraw()

    def all_rows(self, width: int) -> list[Row]:
        if self.device is None:
            return []
        columns = max(1, min(MOST_COLUMNS, (width + GAP) // (NARROWEST_COLUMN + GAP)))
        each = min(WIDEST_COLUMN, (width - (columns - 1) * GAP) // columns)
        lacking: Counter[str] = Counter()
        rows = cells.in_columns(
            self._groups(self.device, each, lacking), columns, each, GAP
        )
        return [*rows, *_lacking_lines(lacking, width)]

    def _groups(
        self, device: Device, width: int, lacking: Counter[str]
    ) -> list[list[Row]]:
        """Return the rows of each group, and count the readings that are left out by reason."""
        telemetry = self._telemetry
        sample = telemetry.readings(device.uuid)
        of = partial(telemetry.history.statistics, device.uuid)
        host = telemetry.host_of(device)
        shown = replace(device.own, machine=device.machine)
        blocks = []
        for title, rows in GROUPS.items():
            block: list[Row] = []
            any_figures = False
            for row in rows:
                if not row.applies(shown, sample):
                    continue
                reason = row.reason(shown, sample, host)
                value = value_of(row.names[0], shown, sample)
                if (
                    self.folded
                    and value is Absence.NOT_SUPPORTED
                    and row.label != "used"
                ):
                    lacking[reason] += 1
                    continue
                figures = since_start(row.names[0], of)
                any_figures = any_figures or len(figures) > 1
                text = row.text(shown, sample)
                style = DIM if isinstance(value, Absence) else STRONG
                block += _lines(row.label, text, style, reason, figures, width)
            block += self._beside_the_schema(title, device, width)
            if block:
                blocks.append([_heading(title, width, figures=any_figures), *block])
        return blocks

    def _beside_the_schema(self, title: str, device: Device, width: int) -> list[Row]:
        machine = self._telemetry.machine_of(device) or self._telemetry.inventory
        if title == "Health":
            events = self._telemetry.events(device.uuid)
            codes = [
                e.code for e in events if e.kind == "xid" and e.device_uuid is not None
            ]
            last = (
                ""
                if not codes
                else f", the last one {ABSENT if codes[0] is None else codes[0]}"
            )
            return [
                _line(
                    "Xids seen", [Span(f"{len(codes) or 'none'}{last}", STRONG)], width
                )
            ]
        if title == "Identity" and machine is not None:
            driver = visible(machine.driver_version or ABSENT, 40)
            cuda = visible(machine.cuda_version or ABSENT, 40)
            return [
                _line(
                    "driver", [Span(f"{driver}, for CUDA up to {cuda}", STRONG)], width
                )
            ]
        return []


def _lacking_lines(lacking: Counter[str], width: int) -> list[Row]:
    if not lacking:
        return []
    (reason, count), *others = lacking.most_common()
    parts = [f"{count} more ({reason})"]
    parts += [f"{sum(count for _, count in others)} for other reasons"] * bool(others)
    keys = " · a shows them"
    return [[], [Span(cells.clip(", ".join(parts), width - len(keys)) + keys, DIM)]]


def _heading(title: str, width: int, *, figures: bool) -> Row:
    words = (
        "".join(word.rjust(FIGURE) for word in ("min", "mean", "max"))
        if figures
        else ""
    )
    return rule_of([Span(f"{title} ", ACCENT)], [Span(words, DIM)] * figures, width)


def _line(label: str, value: Row, width: int) -> Row:
    return fit([cell(label, LABEL - 1, DIM), Span(" "), *value], width)


def _lines(
    label: str, text: str, style: Style, reason: str, figures: Sequence[str], width: int
) -> list[Row]:
    """Draw a row of the catalogue in one line, or several if the value is long."""
    room = max(1, width - LABEL)
    if reason:
        text += " " if text == ABSENT else "  "
        note = cells.clip_words(reason, room - cell_len(text))
        return [_line(label, [Span(text, style), Span(note, DIM)], width)]
    right = _figures(figures)
    if right and cell_len(text) < room - cell_len(right):
        value = cell(text, room - cell_len(right), style)
        return [_line(label, [value, Span(right, DIM)], width)]
    first, *rest = cells.wrap(text, room) or [text]
    lines = [_line(label, [Span(first, style)], width)]
    lines += [_line("", [Span(part, style)], width) for part in rest]
    if len(figures) == 1:
        lines.append(
            _line(
                "", [Span(cells.clip(f"since start: {figures[0]}", room), DIM)], width
            )
        )
    return lines


def _figures(figures: Sequence[str]) -> str:
    """Return minimum, mean and maximum in their columns; an increase alone is right-aligned."""
    if len(figures) == 1:
        return figures[0].rjust(3 * FIGURE)
    return "".join(f" {figure}".rjust(FIGURE) for figure in figures)


class DevicePage(DeviceTab):
    """Charts, readings, processes and events of one device, laid out for the available space."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._title = DeviceTitle(telemetry, id="device-title")
        self._timeline = TimelineView(telemetry, id="timeline")
        self._events = EventsView(telemetry, id="events")
        self._details = DetailsView(telemetry, id="details")
        views = (self._title, self._timeline, self._details, self._events)
        super().__init__(telemetry, views, id="page")
        self._processes = ProcessesView(telemetry)
        self._left = Vertical(self._timeline, self._processes, self._events)
        self._body = Container(self._left, self._details, id="device-body")

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._body

    def show_telemetry(self) -> None:
        super().show_telemetry()
        self._processes.redraw()

    def action_reset(self) -> None:
        if self.selected is not None:
            self.telemetry.history.reset(self.selected.uuid)
            self.show_telemetry()

    def on_resize(self) -> None:
        self.share_space()

    def share_space(self) -> None:
        self._processes.device_uuid = self.selected.uuid if self.selected else None
        width, height = space_of(self)
        if not (width and height):
            return
        title = self._title.rows_needed
        height -= title
        events, wide = self._events.rows_needed, width >= WIDE
        if wide:
            events = min(max(events, 2), height // 4)
            processes = self._process_rows(max(4, height // 4))
            one = width < 2 * DETAILS + GAP + NARROWEST_CHARTS
            details = DETAILS if one else 2 * DETAILS
            left, right = (width - details - GAP, height), (details, height)
        else:
            events = min(events, 4 if height >= TALL else 2)
            processes = self._process_rows(max(3, height // 6))
            charts = min(20, height * 2 // 5, self._timeline.rows_needed)
            rows = max(6, charts) + events + processes
            left, right = (width, rows), (width, max(1, height - rows))
        _set(self._title, width, title)
        _set(self._left, *left)
        _set(self._details, *right)
        _set(self._events, left[0], events)
        _set(self._processes, left[0], processes)
        self._events.display = events > 0
        self.set_class(wide, "wide")

    def _process_rows(self, most: int) -> int:
        wanted = self._processes.rows_needed
        return min(most, max(3, wanted)) if wanted > 1 else 2


def _set(view: Widget, width: int, height: int) -> None:
    """Set the size of a view in cells; Textual lays out again only if it changed."""
    view.styles.width, view.styles.height = width, height
