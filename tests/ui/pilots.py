"""Helpers for tests that drive the dashboard."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.app import App
    from textual.pilot import Pilot
    from textual.strip import Strip

    from gputop.ui.widgets.live import LiveView


def shown(pilot: Pilot[None], view: type[LiveView]) -> str:
    """Return the text that a widget shows, without styles."""
    return pilot.app.query_one(view).text()


async def settle(pilot: Pilot[None]) -> None:
    """Until what was sent has been drawn."""
    for _ in range(3):
        await pilot.pause()


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Until that is so, by what another thread does."""
    async with asyncio.timeout(120):
        while not condition():
            await pilot.pause(0.01)


def lines(app: App[None]) -> list[Strip]:
    """The lines of the screen as they go to the terminal."""
    return app.screen._compositor.render_strips()


def text_of(strips: Sequence[Strip]) -> str:
    """Their text, without styles."""
    return "\n".join(strip.text for strip in strips)
