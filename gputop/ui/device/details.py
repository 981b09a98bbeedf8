"""Readings of a device in groups, with statistics since the start."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rich.cells import cell_len

from gputop.schema.device import Absence, Device
from gputop.schema.labels import GROUPS, since_start, value_of
from gputop.text import ABSENT, visible
from gputop.ui.drawing.cells import Row, Span, beside, cell, clip, clip_words, fit, rule_of
from gputop.ui.drawing.palette import ACCENT, DIM, STRONG
from gputop.ui.widgets.live import ScrolledView

if TYPE_CHECKING:
    from rich.style import Style

LABEL, FIGURE = 14, 9
"""Cells of a label, and of each statistic."""
NARROWEST_COLUMN, WIDEST_COLUMN, GAP = 58, 90, 2
MOST_COLUMNS = 3


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
        rows = in_columns(self._groups(self.device, each, lacking), columns, each)
        return [*rows, *_lacking_lines(lacking, width)]

    def _groups(self, device: Device, width: int, lacking: Counter[str]) -> list[list[Row]]:
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
                missing = row.is_missing(shown, sample)
                reason = row.reason(shown, sample, host)
                value = value_of(row.names[0], shown, sample)
                if self.folded and value is Absence.NOT_SUPPORTED and row.label != "used":
                    lacking[reason] += 1
                    continue
                figures = since_start(row.names[0], of)
                any_figures = any_figures or len(figures) > 1
                text = row.text(shown, sample)
                style = DIM if missing else STRONG
                block += _lines(row.label, text, style, reason, figures, width)
            block += self._beside_the_schema(title, device, width)
            if block:
                blocks.append([_heading(title, width, figures=any_figures), *block])
        return blocks

    def _beside_the_schema(self, title: str, device: Device, width: int) -> list[Row]:
        """Return rows for data that is not a field of the device."""
        machine = self._telemetry.machine_of(device) or self._telemetry.inventory
        if title == "Health":
            events = self._telemetry.events(device.uuid)
            codes = [e.code for e in events if e.kind == "xid" and e.device_uuid is not None]
            last = "" if not codes else f", the last one {ABSENT if codes[0] is None else codes[0]}"
            return [_line("Xids seen", [Span(f"{len(codes) or 'none'}{last}", STRONG)], width)]
        if title == "Identity" and machine is not None:
            driver = visible(machine.driver_version or ABSENT, 40)
            cuda = visible(machine.cuda_version or ABSENT, 40)
            return [_line("driver", [Span(f"{driver}, for CUDA up to {cuda}", STRONG)], width)]
        return []


def _lacking_lines(lacking: Counter[str], width: int) -> list[Row]:
    """Return one line about the readings that are left out, the most frequent reason first."""
    if not lacking:
        return []
    (reason, count), *others = lacking.most_common()
    if reason.startswith("needs "):
        reason = reason if count == 1 else f"need{reason[len('needs') :]}"
    else:
        reason = f"({reason})"
    parts = [f"{count} more {reason}"]
    parts += [f"{sum(count for _, count in others)} for other reasons"] * bool(others)
    keys = " · a shows them"
    return [[], [Span(clip(", ".join(parts), width - len(keys)) + keys, DIM)]]


def _heading(title: str, width: int, *, figures: bool) -> Row:
    words = "".join(word.rjust(FIGURE) for word in ("min", "mean", "max")) if figures else ""
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
        note = clip_words(reason, room - cell_len(text))
        return [_line(label, [Span(text, style), Span(note, DIM)], width)]
    right = _figures(figures)
    if right and cell_len(text) < room - cell_len(right):
        value = cell(text, room - cell_len(right), style)
        return [_line(label, [value, Span(right, DIM)], width)]
    first, *rest = textwrap.wrap(text, room, break_on_hyphens=False) or [text]
    lines = [_line(label, [Span(first, style)], width)]
    lines += [_line("", [Span(part, style)], width) for part in rest]
    if len(figures) == 1:
        lines.append(_line("", [Span(clip(f"since start: {figures[0]}", room), DIM)], width))
    return lines


def _figures(figures: Sequence[str]) -> str:
    """Return minimum, mean and maximum in their columns; an increase alone is right-aligned."""
    if len(figures) == 1:
        return figures[0].rjust(3 * FIGURE)
    return "".join(f" {figure}".rjust(FIGURE) for figure in figures)


def in_columns(blocks: Sequence[list[Row]], columns: int, width: int) -> list[Row]:
    """Arrange unbroken blocks in columns, in order, at the smallest height."""
    blocks = [[fit(row, width) for row in block] for block in blocks]
    height = max((len(block) for block in blocks), default=0)
    while len(packed := _packed(blocks, height, fit([], width))) > columns:
        height += 1
    return beside(packed, width, GAP)


def _packed(blocks: Sequence[list[Row]], height: int, blank: Row) -> list[list[Row]]:
    packed: list[list[Row]] = [[]]
    for block in blocks:
        gap = bool(packed[-1])
        if gap and len(packed[-1]) + 1 + len(block) > height:
            packed.append([])
            gap = False
        packed[-1] += [blank, *block] if gap else block
    return packed
