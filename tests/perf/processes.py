"""How soon the process table answers: `python -m tests.perf.processes [--count 1000]`.

Does each thing that a key does in a running app, and then takes a new sample, as one comes every
second. Milliseconds until the rows are drawn and the changed cells are known, and until Textual
has painted them, which it does at most sixty times a second.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import statistics
import time
from typing import TYPE_CHECKING

from textual.app import App

from gputop.ui.processes.columns import COLUMNS
from gputop.ui.processes.screen import ProcessesView
from gputop.ui.telemetry import Telemetry
from tests.streams import NOW, crowd, inventory, sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult

DEVICES = 8
TYPED = "grace rank 7"


class TableApp(App[None]):
    """Nothing but the table."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__()
        self.view = ProcessesView(telemetry)

    def compose(self) -> ComposeResult:
        yield self.view


class Clock:
    """Milliseconds until drawn, and until painted, of each thing, every time that it was done."""

    def __init__(self, view: ProcessesView) -> None:
        self._view = view
        self.times: dict[str, list[tuple[float, float]]] = {}

    async def time(self, name: str, action: Callable[[], object]) -> None:
        """Does it, and waits until it is on screen."""
        painted = asyncio.Event()
        began = time.perf_counter()
        action()
        drawn = time.perf_counter() - began
        self._view.call_after_refresh(painted.set)
        await painted.wait()
        after = time.perf_counter() - began
        self.times.setdefault(name, []).append((1000 * drawn, 1000 * after))


async def measure(
    count: int, rounds: int, size: tuple[int, int]
) -> dict[str, list[tuple[float, float]]]:
    """The times of all that keys and samples do."""
    telemetry = Telemetry()
    telemetry.receive(inventory(DEVICES))
    processes = crowd(count, DEVICES)
    telemetry.receive(sample(DEVICES, processes))
    app = TableApp(telemetry)
    view, clock = app.view, Clock(app.view)
    seconds = NOW

    async def new_sample(name: str) -> None:
        nonlocal seconds
        seconds += 1
        moved = [
            dataclasses.replace(p, cpu_percent=((p.cpu_percent or 0) * 7 + n) % 400)
            for n, p in enumerate(processes)
        ]
        telemetry.receive(sample(DEVICES, moved, time=seconds))
        await clock.time(name, view.redraw)

    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        for _ in range(rounds):
            for column in COLUMNS:
                await clock.time(f"sort by {column.title}", view.action_reverse)
                view.action_sort(1)  # after the last one, the first again
                await pilot.pause()
            await new_sample("new sample")
            view.action_filter()
            for number, character in enumerate(TYPED):
                name = "filter, first key" if number == 0 else "filter, next key"
                await clock.time(name, lambda c=character: view.filter_key(c, c))  # type: ignore[misc]
            await new_sample("new sample, filtered")
            view.stop_typing(keep=False)
            await clock.time("tree", view.action_tree)
            await new_sample("new sample, tree")
            view.action_tree()
            await clock.time("next row", lambda: view.action_move(1))
            await clock.time("next page", lambda: view.action_page(1))
            await clock.time("last row", lambda: view.action_move(count))
            view.action_move(-count)
            await pilot.pause()
    return clock.times


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--size", type=int, nargs=2, default=(200, 60), metavar=("WIDTH", "HEIGHT"))
    arguments = parser.parse_args()
    width, height = arguments.size
    times = asyncio.run(measure(arguments.count, arguments.rounds, (width, height)))
    print(f"{arguments.count} processes, {width}x{height}, ms      drawn         painted")
    print(f"{'':<30}median  worst  median  worst")
    for name, found in {**times, "all": [pair for f in times.values() for pair in f]}.items():
        columns = list(zip(*found, strict=True))
        figures = "  ".join(f"{statistics.median(c):6.1f} {max(c):6.1f}" for c in columns)
        print(f"{name:<30}{figures}")


if __name__ == "__main__":
    main()
