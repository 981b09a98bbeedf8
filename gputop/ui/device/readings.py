"""All readings of a device, by group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gputop.agent.device import Absence, Device
from gputop.schema.labels import GROUPS, DetailRow, value_of
from gputop.text import ABSENT, visible
from gputop.ui.drawing.page import (
    OfWidth,
    ScrolledPage,
    group_table,
    side_by_side,
)
from gputop.ui.drawing.palette import DIM, STRONG

FIRST = "Power and temperature"
"""Group that comes first, because a small terminal shows no other group."""


class DetailsView(ScrolledPage):
    """Rows of the catalogue, in as many columns as fit."""

    folded = True
    """True if unsupported readings are left out and counted in a line."""

    def action_absent(self) -> None:
        self.folded = not self.folded
        self.redraw()

    def page(self) -> RenderableType:
        if self.device is None:
            return Group()
        self._lacking = 0
        tables = [*self._tables(self.device)]
        groups = OfWidth(partial(side_by_side, tables))
        if not self._lacking:
            return groups
        more = f"{self._lacking} more are not supported · a shows them"
        return Group(groups, Text(more, DIM))

    def _tables(self, device: Device) -> Iterator[Table]:
        """Yield the rows of each group, and count the omitted readings."""
        for title in sorted(GROUPS, key=lambda title: title != FIRST):
            table = group_table(title)
            for row in GROUPS[title]:
                self._add_row(table, row, device)
            if title == "Health":
                table.add_row("Xids seen", Text(self._xids(device), STRONG))
            if title == "Identity":
                table.add_row("driver", Text(self._driver(device), STRONG))
            if table.row_count:
                yield table

    def _add_row(self, table: Table, row: DetailRow, device: Device) -> None:
        sample = self._telemetry.readings(device.uuid)
        shown = replace(device.own, machine=device.machine)
        if not row.applies(shown, sample):
            return
        reason = row.reason(shown, sample, self._telemetry.host_of(device))
        value = value_of(row.names[0], shown, sample)
        is_lacking = value is Absence.NOT_SUPPORTED and row.label != "used"
        if self.folded and is_lacking:
            self._lacking += 1
            return
        style = DIM if isinstance(value, Absence) else STRONG
        text = Text(row.text(shown, sample), style)
        table.add_row(row.label, text.append(f" {reason}".rstrip(), DIM))

    def _driver(self, device: Device) -> str:
        machine = (
            self._telemetry.machine_of(device) or self._telemetry.inventory
        )
        if machine is None:
            return ABSENT
        driver = visible(machine.driver_version or ABSENT)
        cuda = visible(machine.cuda_version or ABSENT)
        return f"{driver}, for CUDA up to {cuda}"

    def _xids(self, device: Device) -> str:
        events = self._telemetry.events(device.uuid)
        xids = [
            e for e in events if e.kind == "xid" and e.device_uuid is not None
        ]
        if not xids:
            return "none"
        return f"{len(xids)}, the last one {xids[0].code or ABSENT}"
