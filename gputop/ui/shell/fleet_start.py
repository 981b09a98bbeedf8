"""Runs the fleet screen, and the monitor of each host that is opened from it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from typing import TYPE_CHECKING, Protocol

from gputop.ui.shell.start import load, report_fault

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from pathlib import Path

    from gputop.fleet.model import Fleet
    from gputop.problem import Problem
    from gputop.settings import Settings
    from gputop.ui.fleet.state import FleetState
    from gputop.ui.shell.app import ResidentApp
    from gputop.ui.shell.dashboard import Stream


class Watch(Protocol):
    """What there is to see: a `FleetWatch`, or what stands for it."""

    def fleets(self) -> AsyncGenerator[Fleet]:
        """One at once, then one each interval, for ever."""
        ...

    def refresh(self) -> None:
        """Has the next one come now."""
        ...

    async def close(self) -> None:
        """Leaves nothing open."""
        ...


def run(
    watch: Watch,
    open_host: Callable[[str], Stream],
    *,
    where: str,
    match: str = "",
    interval: float = 10.0,
    settings: Settings,
    problems: Sequence[Problem] = (),
    config: Path | None = None,
    python: str | None = None,
) -> int:
    """Runs the screen until it is left; returns the exit status.

    `where` and `match` are the server and what is asked of it, as they may be shown; `open_host`
    makes the stream of a host by its name.
    """
    load()
    from gputop.ui.drawing.look import Terminal
    from gputop.ui.fleet.state import FleetState
    from gputop.ui.shell.dashboard import GputopApp
    from gputop.ui.shell.fleet_screen import FleetApp
    from gputop.ui.terminal import textual_caches

    terminal = Terminal.of(os.environ)
    state = FleetState(interval)

    async def shown(app: ResidentApp) -> bool:
        """Runs an app to its end; whether that is no reason to end everything."""
        await app.run_async(mouse=settings.mouse)
        app.watchdog.release()
        textual_caches.forget_keys()
        gc.unfreeze()  # each app freezes what is there: those that have ended would stay for ever
        gc.collect()
        return app.fault is None and not app.return_code

    async def screens() -> ResidentApp:
        said, kept = problems, settings
        listening = asyncio.create_task(listen(watch, state))
        try:
            while True:
                app = FleetApp(
                    state,
                    where,
                    match,
                    watch.refresh,
                    kept,
                    problems=said,
                    config=config,
                    terminal=terminal,
                )
                said = ()
                if not await shown(app) or app.opened is None:
                    return app
                host = GputopApp(
                    open_host(app.opened),
                    python,
                    app.settings,
                    config=config,
                    terminal=terminal,
                    opened_from="Fleet",
                )
                if not await shown(host) or not host.went_back:
                    return host
                kept = host.settings
        finally:
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening
            await watch.close()

    last = asyncio.run(screens())
    return report_fault(last.fault, last.return_code)


async def listen(watch: Watch, state: FleetState) -> None:
    """Takes in what comes, for as long as it is let, whatever screen is shown."""
    async with contextlib.aclosing(watch.fleets()) as fleets:
        async for fleet in fleets:
            try:
                state.take(fleet)
            except Exception as error:  # noqa: BLE001 - the next one may well be fine
                state.failed(error)
