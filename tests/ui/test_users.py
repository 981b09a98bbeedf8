"""Totals by user in the tab of processes."""

from __future__ import annotations

from gputop.ui.processes.screen import ProcessesTab
from gputop.ui.processes.users import UsersView
from tests.streams import GIB, inventory, process, sample
from tests.ui.pilots import app_with, settle, shown

PROCESSES = [
    process(1, 0, user="ada", memory_used_bytes=GIB),
    process(2, 1, user="bo", memory_used_bytes=5 * GIB),
    process(3, 1, user="bo", memory_used_bytes=None),
    process(4, 0, user=None, memory_used_bytes=2 * GIB),
]


async def test_a_line_for_each_user_which_enter_opens_and_esc_leaves() -> None:
    app = app_with(inventory(2), sample(2, PROCESSES))
    async with app.run_test(size=(100, 20)) as pilot:
        await settle(pilot)
        await pilot.press("3", "U")
        await settle(pilot)
        rows = [row.replace("▌", "").split() for row in shown(pilot, UsersView).splitlines() if row]
        assert rows[0] == ["USER", "GPUS", "PROCESSES", "GPU", "MEM▼", "BUSIEST", "ON", "GPU"]
        assert [row[:5] for row in rows[1:]] == [
            ["bo", "1", "2", "≥5.00", "GiB"],
            ["–", "1", "1", "2.00", "GiB"],
            ["ada", "1", "1", "1.00", "GiB"],
        ]
        tab = app.screen.query_one(ProcessesTab)
        assert tab.process is None
        await pilot.press("slash", *"ad", "enter")
        assert [row.name for row in tab.users.state.lines] == ["ada"]
        await pilot.press("enter")
        await settle(pilot)
        assert {row.process.user for row in tab.processes.state.lines} == {"ada"}
        await pilot.press("escape", "U", "escape", "escape")
        await settle(pilot)
        assert not tab.users.display
        assert len(tab.processes.state.lines) == 4
