"""List of users with their numbers of GPUs and processes, and their memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import NamedTuple

from gputop.output.process_tables import UserTotals, totals_by_user
from gputop.schema.derived import label_of
from gputop.text import ABSENT, percentage, size, visible
from gputop.ui.drawing.list_state import Column, ListState
from gputop.ui.drawing.list_view import ListView
from gputop.ui.telemetry import Telemetry


class UserRow(NamedTuple):
    """Totals of a user, and the labels of the devices."""

    totals: UserTotals
    labels: tuple[str, ...]
    busiest: str
    """Label of the busiest device."""

    @property
    def name(self) -> str:
        return self.totals.user or ABSENT


def _memory(row: UserRow) -> str:
    least = "≥" if row.totals.memory_is_partial else ""
    return f"{least}{size(row.totals.memory_used_bytes)}"


def _busiest(row: UserRow) -> str:
    if row.totals.busiest_percent is None:
        return ABSENT
    return f"GPU {row.busiest} {percentage(row.totals.busiest_percent)}"


MEMORY = Column[UserRow](
    "GPU MEM",
    11,
    _memory,
    lambda row: row.totals.memory_used_bytes,
    largest_first=True,
)
COLUMNS = (
    Column[UserRow](
        "USER",
        20,
        lambda row: visible(row.name),
        lambda row: row.totals.user,
        right=False,
    ),
    Column[UserRow](
        "GPUS",
        6,
        lambda row: str(len(row.labels)),
        lambda row: len(row.labels),
        largest_first=True,
    ),
    Column[UserRow](
        "PROCESSES",
        11,
        lambda row: str(row.totals.processes),
        lambda row: row.totals.processes,
        largest_first=True,
    ),
    MEMORY,
    Column[UserRow](
        "BUSIEST",
        18,
        _busiest,
        lambda row: row.totals.busiest_percent,
        largest_first=True,
    ),
    Column[UserRow](
        "ON GPU",
        0,
        lambda row: ", ".join(row.labels),
        right=False,
    ),
)


class Users(ListState[UserRow]):
    """Users with processes on the devices."""

    def identity(self, item: UserRow) -> Hashable:
        return item.totals.user

    def search_text(self, item: UserRow) -> str:
        return item.name.casefold()


class UsersView(ListView[UserRow]):
    """List of users. Users with the most device memory come first."""

    noun = "users"

    def __init__(
        self,
        telemetry: Telemetry,
        close: Callable[[], object],
    ) -> None:
        """Call `close` when Esc closes the list."""
        super().__init__(Users(MEMORY), COLUMNS)
        self._telemetry = telemetry
        self._close = close
        self.display = False

    def redraw(self) -> None:
        """List the users of the current sample."""
        telemetry = self._telemetry
        rows = []
        if telemetry.sample is not None and telemetry.inventory is not None:
            labels = {
                device.uuid: label_of(device) for device in telemetry.devices
            }
            shown = replace(telemetry.inventory, devices=telemetry.devices)
            for totals in totals_by_user(shown, telemetry.sample):
                own = tuple(labels[uuid] for uuid in totals.devices)
                busiest = labels.get(totals.busiest_device or "", "")
                rows.append(UserRow(totals, own, busiest))
        self.state.fill(rows)
        super().redraw()

    def clear_filter(self) -> bool:
        """List all users again. Without a filter, close the list."""
        if not super().clear_filter():
            self._close()
        return True
