"""Notifications: the newest is shown, and nothing is left of those before."""

from __future__ import annotations

from contextvars import Context, copy_context
from typing import TYPE_CHECKING

import pytest
from textual.widgets._toast import Toast

from gputop.ui.shell.app import GputopApp
from tests.streams import PreparedStream, inventory, sample
from tests.ui.pilots import until

if TYPE_CHECKING:
    from collections.abc import Callable


def said(app: GputopApp) -> list[str]:
    """Return the texts of the notifications on the screen."""
    return [str(each.render()) for each in app.screen.query("Toast").results(Toast)]


@pytest.mark.parametrize("context", [copy_context, Context], ids=["inside", "outside"])
async def test_what_was_said_leaves_nothing_behind(context: Callable[[], Context]) -> None:
    """Whoever says it: a thread that records has its words said outside of the app."""
    app = GputopApp(PreparedStream(inventory(1), sample(1)))
    async with app.run_test(notifications=True) as pilot:
        for n in range(10):
            context().run(app.notify, f"number {n}")
            await pilot.pause()
        await until(pilot, lambda: said(app) == ["number 9"])
        assert len(app.screen.query("ToastHolder")) <= 2, "its own, and perhaps the one before"


async def test_what_is_said_at_once_after_something_else_is_there() -> None:
    app = GputopApp(PreparedStream(inventory(1), sample(1)))
    async with app.run_test(notifications=True) as pilot:
        app.notify("one")
        await until(pilot, lambda: bool(app.screen.query("Toast")))
        app.notify("two")
        app.notify("three")
        await until(pilot, lambda: "three" in said(app))
