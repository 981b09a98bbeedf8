"""gputop beside nvitop and gpustat: `python -m tests.perf.peers`.

Each runs in a pty against the fake driver, one after the other. The tables have
the times, the costs, and each monitor's ratio to gputop. nvitop and gpustat are installed from PyPI
into an environment that is deleted in the end; nvtop is used if it is installed. The
machine should have nothing else to do.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.driver import FakeDriver, build
from tests.peers import NAMES, Peer, peers
from tests.perf.machine import Machine, Scene
from tests.perf.measure import Bench, Figures, compile_package

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
                figures = measured(bench, machine, monitors)
            print("\n".join(table(scene, figures)), end="\n\n", flush=True)
    print(f"in {(time.monotonic() - began) / 60:.0f} minutes")
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--tools", nargs="+", choices=NAMES, default=NAMES, metavar="NAME", help=", ".join(NAMES))
    add("--devices", nargs="+", type=int, default=[8, 64], metavar="N")
    add("--seconds", type=float, default=10.0, help="over which costs are taken (default: 10)")
    add("--keys", type=int, default=40)
    add("--starts", type=int, default=3, help="to see when there is what")
    return parser.parse_args()


def scenes(counts: list[int]) -> list[Scene]:
    """Busy machines of so many devices, the largest also with many processes."""
    found = [Scene(count, *COLUMNS_AND_ROWS) for count in counts]
    return [*found, Scene(max(counts), *COLUMNS_AND_ROWS, processes=8)]


def measured(bench: Bench, machine: Machine, monitors: list[Peer]) -> dict[str, Figures]:
    found = {}
    for peer in monitors:
        print(f"{machine.scene}: {peer}", file=sys.stderr, flush=True)
        figures, keys = bench.measure(peer, machine)
        if keys := sorted(keys):
            figures |= {
                "key ms": keys[len(keys) // 2],
                "p99 ms": keys[-(-99 * len(keys) // 100) - 1],
            }
        found[str(peer)] = figures
    return found


FORMS = {
    "screen s": "{:.3f}",
    "values s": "{:.3f}",
    "driver s": "{:.3f}",
    "core %": "{:.2f}",
    "PSS MiB": "{:.1f}",
    "kB/s": "{:.2f}",
    "writes/s": "{:.1f}",
    "key ms": "{:.1f}",
    "p99 ms": "{:.1f}",
}
LEGEND = """\
From the start to the first screen, and to the first number of a device; to that number from the
driver's first answer, where it had to be waited for; share of a core, memory, bytes and writes of
all its processes while it runs; from an arrow key to the mark that it moves. Below: times gputop's.
"""


def table(scene: Scene, found: dict[str, Figures]) -> list[str]:
    """Return a row for each monitor, and under it its ratios to the first."""
    lines = [str(scene), f"{'':16}" + "".join(f"{title:>{FIELD}}" for title in FORMS)]
    first: Figures = {}
    for name, values in found.items():
        row, ratios = f"{name:16}", f"{'  times':16}"
        for title, form in FORMS.items():
            value, base = values.get(title), first.get(title)
            row += f"{'-' if value is None else form.format(value):>{FIELD}}"
            ratios += f"{'' if value is None or not base else f'{value / base:.2f}x':>{FIELD}}"
        lines += [row, ratios.rstrip()] if first else [row]
        first = first or values
    return lines


if __name__ == "__main__":
    sys.exit(main())
