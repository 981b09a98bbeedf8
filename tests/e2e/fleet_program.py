"""The fleet screen over a made-up fleet: `python -m tests.e2e.fleet_program GPUS [SECONDS]`."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import sys
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from gputop.settings import DEFAULT
from gputop.ui.shell import dashboard
from gputop.ui.shell.start import run_fleet
from tests.fleets import fleet
from tests.streams import PreparedStream
from tests.ui import scenes
from tests.ui.fleets import named

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from gputop.fleet.model import Fleet

WHERE = "http://prom:9090"
HOSTS = WeakSet[dashboard.Dashboard]()
"""Screens of hosts that were made and not yet freed."""


class MadeUp:
    """Stands for a `FleetWatch`: another fleet each interval, or when it is asked for."""

    def __init__(self, gpus: int, interval: float) -> None:
        self._gpus, self._interval = gpus, interval
        self._wanted = asyncio.Event()

    async def fleets(self) -> AsyncGenerator[Fleet]:
        """For ever; the first few are made before, as what makes them is not what is measured."""
        made = [fleet(self._gpus, tick=tick) for tick in range(4)]
        tick = 0
        while True:
            yield dataclasses.replace(made[tick % len(made)], took_seconds=0.01 * tick)
            tick += 1
            self._wanted.clear()
            try:
                await asyncio.wait_for(self._wanted.wait(), self._interval)
            except TimeoutError:
                continue

    def refresh(self) -> None:
        """The next one now."""
        self._wanted.set()

    async def close(self) -> None:
        """Says that it was closed, and how many screens of hosts are still held."""
        gc.collect()  # the app does it every ten seconds
        print(f"closed, {len(HOSTS)} hosts")


def open_host(host: str) -> PreparedStream:
    """Eight GPUs in the middle of something."""
    return PreparedStream(*named(scenes.job(8), host))


class Counted(dashboard.Dashboard):
    """A dashboard that is noted."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        HOSTS.add(self)


if __name__ == "__main__":
    dashboard.Dashboard = Counted  # type: ignore[misc]
    gpus, interval = int(sys.argv[1]), float(sys.argv[2]) if sys.argv[2:] else 10.0
    sys.exit(
        run_fleet(
            MadeUp(gpus, interval), open_host, where=WHERE, interval=interval, settings=DEFAULT
        )
    )
