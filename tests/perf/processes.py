"""How soon the process table answers: `python -m tests.perf.processes [--count 1000]`.

Times each thing that a key does, from the call until the rows are drawn and the changed cells are
known, in a running app; then a new sample, as one comes every second. Milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import statistics
import time
from typing import TYPE_CHECKING

from textual.app import App

from gputop.ui.model import Telemetry
from gputop.ui.process_columns import COLUMNS
from gputop.ui.widgets.processes import ProcessesView
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


def timed(action: Callable[[], object]) -> float:
    """Milliseconds that it takes."""
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1000


async def measure(count: int, rounds: int, size: tuple[int, int]) -> dict[str, list[float]]:
    """Milliseconds of each thing, of every time that it was done."""
    telemetry = Telemetry()
    telemetry.take(inventory(DEVICES))
    processes = crowd(count, DEVICES)
    telemetry.take(sample(DEVICES, processes))
    app = TableApp(telemetry)
    times: dict[str, list[float]] = {}

    def note(name: str, action: Callable[[], object]) -> None:
        times.setdefault(name, []).append(timed(action))

    async with app.run_test(size=size) as pilot:
        view = app.view
        for turn in range(rounds):
            for column in COLUMNS:
                view.sort_by_next(1)
                note(f"sort by {column.title}", view.reverse)
                await pilot.pause()
            view.start_filter()
            for number, character in enumerate(TYPED):
                name = "filter, first key" if number == 0 else "filter, next key"
                note(name, lambda c=character: view.filter_key(c, c))  # type: ignore[misc]
                await pilot.pause()
            moved = [
                dataclasses.replace(p, cpu_percent=(p.cpu_percent or 0) + turn) for p in processes
            ]
            following = sample(DEVICES, moved, time=NOW + turn + 1)
            telemetry.take(following)
            note("new sample, filtered", view.redraw)
            view.stop_filter(keep=False)
            telemetry.take(dataclasses.replace(following, time=NOW + turn + 1.5))
            note("new sample", view.redraw)
            note("tree", view.toggle_tree)
            telemetry.take(dataclasses.replace(following, time=NOW + turn + 1.7))
            note("new sample, tree", view.redraw)
            view.toggle_tree()
            note("next row", lambda: view.move(1))
            note("next page", lambda: view.page(1))
            note("last row", lambda: view.move(count))
            view.move(-count)
            await pilot.pause()
    return times


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--size", type=int, nargs=2, default=(200, 60), metavar=("WIDTH", "HEIGHT"))
    arguments = parser.parse_args()
    width, height = arguments.size
    times = asyncio.run(measure(arguments.count, arguments.rounds, (width, height)))
    print(f"{arguments.count} processes, {width}x{height}, ms   median  worst")
    for name, found in times.items():
        print(f"{name:<32}{statistics.median(found):6.1f} {max(found):6.1f}")
    print(f"{'all':<32}{'':>6} {max(max(found) for found in times.values()):6.1f}")


if __name__ == "__main__":
    main()
