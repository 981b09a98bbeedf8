"""A run on many devices of a cluster, on the whole terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from gputop.bench.foreground import follow, signals
from gputop.settings import load, path
from gputop.ui import crop, let_go
from gputop.ui.look import Terminal
from gputop.ui.themed import ThemedApp
from gputop.ui.widgets.burn import BurnView

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from textual.app import ComposeResult

    from gputop.bench.group import Group
    from gputop.bench.group_state import GroupState
    from gputop.bench.plan import Target
    from gputop.bench.run_state import RunState
    from gputop.bench.watch import Limit, Watching
    from gputop.settings import Settings

REDRAW_SECONDS = 0.5


class BurnApp(ThemedApp):
    """Shows the devices as they run; leaves when told, once the runs have ended."""

    CSS_PATH = "gputop.tcss"
    CSS = "#burn { height: 1fr; }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,f10,ctrl+c", "leave", "Stop and leave", priority=True),
        Binding("x", "stop", "Stop", priority=True),
    ]

    def __init__(
        self,
        group: GroupState,
        stop: Callable[[], Awaitable[None]],
        settings: Settings,
        terminal: Terminal,
    ) -> None:
        super().__init__(settings, terminal=terminal)
        self._group, self._stop = group, stop
        self._view = BurnView(group)
        self._stops: list[asyncio.Future[None]] = []
        self._leaving = False

    def compose(self) -> ComposeResult:
        yield self._view

    def on_mount(self) -> None:
        """Draws what has changed, twice a second."""
        self.set_interval(REDRAW_SECONDS, self._view.redraw)

    def ended(self) -> None:
        """All runs have ended: who wanted to leave can."""
        if self._leaving:
            self.exit()
        elif self.is_running:
            self._view.redraw()

    def action_leave(self) -> None:
        """Leaves at once where all have ended, or else once they have been stopped."""
        self._leaving = True
        if self._group.ended or len(self._stops) > 0:
            self.exit()  # the second time it is not waited for
        else:
            self.action_stop()

    def action_stop(self) -> None:
        """Stops the runs of all devices; what they measured so far is their result."""
        if not self._stops and not self._group.ended:
            self._group.stopping = True
            self._stops.append(asyncio.ensure_future(self._stop()))
            self._view.redraw()


async def on_screen(runs: Group, group: GroupState, watch: Watching) -> list[RunState]:
    """Show the runs until one leaves; return their ends, in the order of the requests."""
    crop.install()
    let_go.install()
    settings, _ = load(path(None), given={})
    app = BurnApp(group, runs.stop, settings, Terminal.of(os.environ))

    def ending(target: Target, limit: Limit) -> None:
        app.notify(f"{target.label}: {limit.why}", title=limit.title, severity="warning")

    following = asyncio.create_task(follow(runs, group, watch, ending))
    following.add_done_callback(lambda _: app.ended())
    with signals(app.action_leave):
        await app.run_async(mouse=False)
        if not following.done():
            await runs.stop()
        with contextlib.suppress(asyncio.CancelledError):
            return await following
    raise KeyboardInterrupt
