"""The faults of the tables, on other monitors: `python -m tests.faults.peers [WORD ...]`.

Runs the scenarios that need nothing of gputop (faults of the driver, of devices, readings and
texts) with gputop, nvitop, gpustat and nvtop in a pty, sees by machine what becomes of each, and
prints a table. Words choose scenarios by name; `--screens FOLDER` keeps what was on each screen
while the fault lasted, for a person to judge what no machine can: whether a word is beside the
device that it is about.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.driver import FakeDriver, build
from tests.faults import basics
from tests.faults.onlooker import NotForOthersError, Onlooker, Outcome
from tests.faults.tables import TABLES
from tests.peers import NAMES, peers

if TYPE_CHECKING:
    from tests.faults.scenario import Scenario
    from tests.peers import Peer

BASICS = "basics"
OF_ALL = (BASICS, "driver", "device", "readings", "texts")
"""Tables of faults that are no monitor's own."""
LEGEND = """
Says: words for a fault that are on its screen then and not while all is well. Bold: it ended by
itself; a number or a sequence that must never be; no number of a healthy device moves any more; no
key is answered; ten seconds after a fault's end the numbers do not move; it does not leave when it
is told to."""


def main() -> int:
    options = arguments()
    compiler = shutil.which("cc")
    if compiler is None:
        print("the fake driver needs a C compiler, and there is no cc", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        monitors = peers(folder, options.tools, {"nvtop": options.nvtop, "btop": options.btop})
        usual: dict[str, Counter[str]] = {}
        print("| fault | " + " | ".join(map(str, monitors)) + " |")
        print("|---" * (len(monitors) + 1) + "|", flush=True)
        left_out = []
        for scenario in chosen(options):
            cells = []
            library = build(folder, compiler, scenario.driver_without)
            for peer in monitors:
                print(f"{scenario}: {peer}", file=sys.stderr, flush=True)
                onlooker = Onlooker(peer, scenario, *place(folder, library))
                if peer.name not in usual:
                    usual[peer.name] = Onlooker(
                        peer, basics.SCENARIOS[1], *place(folder, library)
                    ).usual()
                try:
                    outcome = onlooker.look(usual[peer.name])
                except NotForOthersError:
                    break
                cells.append(cell(outcome))
                if options.screens is not None:
                    keep(options.screens, scenario, peer, outcome)
            else:
                print(f"| {scenario} | " + " | ".join(cells) + " |", flush=True)
                continue
            left_out.append(scenario.name)
    print(LEGEND)
    if left_out:
        print(f"\nOnly gputop's: {', '.join(left_out)}.")
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    default = [name for name in NAMES if name != "btop"]
    add("--tools", nargs="+", choices=NAMES, default=default, metavar="NAME", help=", ".join(NAMES))
    add("--nvtop", metavar="PATH", help="where it is, if not on the PATH")
    add("--btop", metavar="PATH")
    add("--tables", nargs="+", default=OF_ALL, metavar="TABLE", help=", ".join(OF_ALL))
    add("--screens", type=Path, metavar="FOLDER")
    add("words", nargs="*", metavar="WORD")
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> list[Scenario]:
    """The scenarios that were asked for."""
    tables = {BASICS: basics.SCENARIOS, **TABLES}
    return [
        scenario
        for name in options.tables
        for scenario in tables.get(name, ())
        if not options.words or any(word in scenario.name for word in options.words)
    ]


def place(folder: Path, library: Path) -> tuple[FakeDriver, Path]:
    """A driver and a home that nobody has had before."""
    home = Path(tempfile.mkdtemp(dir=folder))
    return FakeDriver(home, library), home


def cell(outcome: Outcome) -> str:
    """What became of it, in a few words; what is bad is bold."""
    parts = [f"says {', '.join(outcome.says) or 'nothing'}"]
    if outcome.wrong is not None:
        parts.append(f"**wrong: {outcome.wrong}**")
    if outcome.ended is not None:
        parts.insert(0, f"**ended**, {outcome.ended}")
    else:
        faults = (
            (outcome.follows, "other devices' numbers stand still"),
            (outcome.keys, "no key is answered"),
            (outcome.recovers, "does not recover"),
            (outcome.quits, "has to be killed"),
        )
        parts += [f"**{text}**" for well, text in faults if well is False]
    if outcome.recovers:
        parts.append("recovers")
    return "; ".join(parts).replace("|", "\\|")


def keep(folder: Path, scenario: Scenario, peer: Peer, outcome: Outcome) -> None:
    """Writes the screen into a file of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W+", "-", f"{scenario} {peer.name}")
    (folder / f"{name}.txt").write_text(f"{outcome.screen}\n")


if __name__ == "__main__":
    sys.exit(main())
