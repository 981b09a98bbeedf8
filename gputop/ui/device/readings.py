"""All readings of a device, by group."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from rich.cells import cell_len
from rich.style import Style

from gputop.agent.device import Absence, Device
from gputop.schema.labels import GROUPS, DetailRow, value_of
from gputop.text import ABSENT, visible
from gputop.ui.drawing import cells
from gputop.ui.drawing.cells import Row, Span, cell, fit
from gputop.ui.drawing.live import ScrolledView
from gputop.ui.drawing.palette import DIM, STRONG

LABEL = 14
"""Cells of a label."""
NARROWEST_COLUMN, WIDEST_COLUMN = 58, 90
MOST_COLUMNS, GAP = 3, 2
FIRST = "Power and temperature"
"""Group that comes first, because a small terminal shows no other group."""


class DetailsView(ScrolledView):
    """Rows of the catalogue in as many columns as fit. They scroll if there are too many."""

    folded = True
    """True if unsupported readings are left out and counted in a line."""

    def action_absent(self) -> None:
        self.folded = not self.folded
        self.redraw()

    def all_rows(self, width: int) -> list[Row]:
        if self.device is None:
            return []
        columns = max(
            1,
            min(MOST_COLUMNS, (width + GAP) // (NARROWEST_COLUMN + GAP)),
        )
        each = min(WIDEST_COLUMN, (width - (columns - 1) * GAP) // columns)
        lacking: Counter[str] = Counter()
        groups = self._groups(self.device, each, lacking)
        rows = cells.in_columns(groups, columns, each, GAP)
        return [*rows, *_lacking_lines(lacking, width)]

    def _groups(
        self,
        device: Device,
        width: int,
        lacking: Counter[str],
    ) -> list[list[Row]]:
        """Return the rows of each group, and count the omitted readings by reason."""
        blocks = []
        for title in sorted(GROUPS, key=lambda title: title != FIRST):
            block: list[Row] = []
            for row in GROUPS[title]:
                block += self._rows_of(row, device, width, lacking)
            block += self._beside_the_schema(title, device, width)
            if block:
                blocks.append([cells.heading(title, width), *block])
        return blocks

    def _rows_of(
        self,
        row: DetailRow,
        device: Device,
        width: int,
        lacking: Counter[str],
    ) -> list[Row]:
        sample = self._telemetry.readings(device.uuid)
        shown = replace(device.own, machine=device.machine)
        if not row.applies(shown, sample):
            return []
        reason = row.reason(shown, sample, self._telemetry.host_of(device))
        value = value_of(row.names[0], shown, sample)
        is_lacking = value is Absence.NOT_SUPPORTED and row.label != "used"
        if self.folded and is_lacking:
            lacking[reason] += 1
            return []
        style = DIM if isinstance(value, Absence) else STRONG
        return _lines(
            row.label,
            row.text(shown, sample),
            style,
            reason,
            width,
        )

    def _beside_the_schema(
        self,
        title: str,
        device: Device,
        width: int,
    ) -> list[Row]:
        """Return the rows that are not readings: Xids, and the driver."""
        machine = (
            self._telemetry.machine_of(device) or self._telemetry.inventory
        )
        if title == "Health":
            return [
                _line("Xids seen", [Span(self._xids(device), STRONG)], width),
            ]
        if title == "Identity" and machine is not None:
            driver = visible(machine.driver_version or ABSENT, 40)
            cuda = visible(machine.cuda_version or ABSENT, 40)
            text = f"{driver}, for CUDA up to {cuda}"
            return [_line("driver", [Span(text, STRONG)], width)]
        return []

    def _xids(self, device: Device) -> str:
        events = self._telemetry.events(device.uuid)
        xids = [
            e for e in events if e.kind == "xid" and e.device_uuid is not None
        ]
        if not xids:
            return "none"
        newest = ABSENT if xids[0].code is None else xids[0].code
        return f"{len(xids)}, the last one {newest}"


def _lacking_lines(lacking: Counter[str], width: int) -> list[Row]:
    if not lacking:
        return []
    (reason, most), *others = lacking.most_common()
    text = f"{most} more ({reason})"
    if others:
        text += f", {lacking.total() - most} for other reasons"
    keys = " · a shows them"
    return [[], [Span(cells.clip(text, width - len(keys)) + keys, DIM)]]


def _line(
    label: str,
    value: Row,
    width: int,
) -> Row:
    return fit([cell(label, LABEL - 1, DIM), Span(" "), *value], width)


def _lines(
    label: str,
    text: str,
    style: Style,
    reason: str,
    width: int,
) -> list[Row]:
    """Draw a row of the catalogue in one line, or in several if the value is long."""
    room = max(1, width - LABEL)
    if reason:
        text += " " if text == ABSENT else "  "
        note = cells.clip_words(reason, room - cell_len(text))
        return [_line(label, [Span(text, style), Span(note, DIM)], width)]
    first, *rest = cells.wrap(text, room) or [text]
    lines = [_line(label, [Span(first, style)], width)]
    for part in rest:
        lines.append(_line("", [Span(part, style)], width))
    return lines
