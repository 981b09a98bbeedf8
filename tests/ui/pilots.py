"""Helpers for tests that drive the dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from gputop.ui.widgets.live import LiveView


def shown(pilot: Pilot[None], view: type[LiveView]) -> str:
    """What a widget shows, without its styles."""
    return pilot.app.query_one(view).text()


async def settle(pilot: Pilot[None]) -> None:
    """Until what was sent has been drawn."""
    for _ in range(3):
        await pilot.pause()
