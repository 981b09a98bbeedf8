"""gputop beside nvitop, gpustat, nvtop and btop: `python -m tests.perf.peers`.

Each runs in a pty against the fake driver, one after the other and then all again. The tables have
the times, the costs, and each monitor's ratio to gputop. nvitop and gpustat are installed from PyPI
into an environment that is deleted in the end; nvtop and btop are used if they are installed. The
machine should have nothing else to do.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.driver import FakeDriver, build
from tests.peers import NAMES, peers
from tests.perf.machine import Machine, Scene
from tests.perf.measure import Bench, Figures, compile_package, middle

if TYPE_CHECKING:
    from tests.peers import Peer

COLUMNS_AND_ROWS = (160, 50)
FIELD = 10


def main() -> int:
    options = arguments()
    bench = Bench(options.seconds, options.keys, options.starts)
    began = time.monotonic()
    compile_package()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        driver = FakeDriver(folder, build(folder, "cc"))
        monitors = peers(folder, options.tools)
        print(LEGEND)
        for scene in scenes(options.devices):
            with Machine(scene, driver, folder) as machine:
                figures = rounds(bench, machine, monitors, options.rounds)
            print("\n".join(table(scene, figures)), end="\n\n", flush=True)
    print(f"in {(time.monotonic() - began) / 60:.0f} minutes")
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--tools", nargs="+", choices=NAMES, default=NAMES, metavar="NAME", help=", ".join(NAMES))
    add("--devices", nargs="+", type=int, default=[8, 64], metavar="N")
    add("--rounds", type=int, default=1)
    add("--seconds", type=float, default=10.0, help="over which costs are taken (default: 10)")
    add("--keys", type=int, default=40)
    add("--starts", type=int, default=3, help="in each round, to see when there is what")
    return parser.parse_args()


def scenes(counts: list[int]) -> list[Scene]:
    """Busy machines of so many devices, the largest also with many processes."""
    found = [Scene(True, count, *COLUMNS_AND_ROWS) for count in counts]
    return [*found, Scene(True, max(counts), *COLUMNS_AND_ROWS, processes=8)]


def rounds(
    bench: Bench, machine: Machine, monitors: list[Peer], count: int
) -> dict[str, list[Figures]]:
    found: dict[str, list[Figures]] = {str(peer): [] for peer in monitors}
    for turn in range(count):
        for peer in monitors:
            print(f"{machine.scene}: {peer}, {turn + 1} of {count}", file=sys.stderr, flush=True)
            found[str(peer)].append(bench.measure(peer, machine))
    return found


def percentile(figures: list[Figures], share: float) -> float | None:
    """Of the times of all keys."""
    keys = sorted(key for each in figures for key in each.keys)
    return keys[min(len(keys) - 1, int(share * len(keys)))] if keys else None


COLUMNS: tuple[tuple[str, str, Callable[[list[Figures]], float | None]], ...] = (
    ("screen s", "{:.3f}", lambda f: middle(each.first_screen for each in f)),
    ("values s", "{:.3f}", lambda f: middle(each.first_values for each in f)),
    ("driver s", "{:.3f}", lambda f: middle(each.after_driver for each in f)),
    ("core %", "{:.2f}", lambda f: middle(each.core_percent for each in f)),
    ("PSS MiB", "{:.1f}", lambda f: middle(each.pss_mib for each in f)),
    ("kB/s", "{:.2f}", lambda f: middle(each.kilobytes_per_second for each in f)),
    ("writes/s", "{:.1f}", lambda f: middle(each.writes_per_second for each in f)),
    ("key ms", "{:.1f}", lambda f: percentile(f, 0.5)),
    ("p99 ms", "{:.1f}", lambda f: percentile(f, 0.99)),
)
"""Title, form and value of each column: medians of the rounds, and of all keys together."""
LEGEND = """\
From the start to the first screen, and to the first number of a device; to that number from the
driver's first answer, where it had to be waited for; share of a core, memory, bytes and writes of
all its processes while it runs; from an arrow key to the mark that it moves. Below: times gputop's.
"""


def table(scene: Scene, found: dict[str, list[Figures]]) -> list[str]:
    """A row for each monitor, and under it its ratios to the first."""
    lines = [str(scene), f"{'':16}" + "".join(f"{title:>{FIELD}}" for title, *_ in COLUMNS)]
    first = next(iter(found.values()))
    for name, figures in found.items():
        values = [value(figures) for *_, value in COLUMNS]
        shown = (
            "-" if value is None else form.format(value)
            for value, (_, form, _) in zip(values, COLUMNS, strict=True)
        )
        lines.append(f"{name:16}" + "".join(f"{text:>{FIELD}}" for text in shown))
        if figures is not first:
            line = f"{'  times':16}"
            for value, (*_, of) in zip(values, COLUMNS, strict=True):
                base = of(first)
                ratio = "" if value is None or not base else f"{value / base:.2f}x"
                line += f"{ratio:>{FIELD}}"
            lines.append(line.rstrip())
    return lines


if __name__ == "__main__":
    sys.exit(main())
