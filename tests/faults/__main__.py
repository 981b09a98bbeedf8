"""Runs the scenarios and prints what each took, beside what it may take.

    python -m tests.faults [--interval 1] [--turns 1] [--hold 2] [WORD ...]

`--hold` is how many seconds those last that may last for long: nobody reads, keys are mashed.
Words choose scenarios by name or table. Times are of this machine, which should have nothing else
to do: the tests of the same table wait longer, since they run wherever they have to.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.driver import build
from tests.faults.stage import Outcome, Stage, driver_of
from tests.faults.tables import TABLES

if TYPE_CHECKING:
    from tests.faults.scenario import Scenario

KEY_SECONDS, CORE = 0.1, 0.5
INTERVALS, DRAWN_SECONDS = 3, 0.2
"""In which a fault is named, and is forgotten when it has ended; and then drawn."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--hold", type=float, default=2.0)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    chosen = [
        (table, each)
        for table, scenarios in TABLES.items()
        for each in scenarios
        if not options.words or any(w in table or w in each.name for w in options.words)
    ]
    print(f"interval {options.interval:g} s: named and recovered within {INTERVALS} of it,")
    print(f"keys within {1000 * KEY_SECONDS:.0f} ms, idle under {100 * CORE:.0f} % of a core")
    print(f"{'':58} {'named':>7} {'slowest key':>11} {'':18} {'idle':>7} {'recovered':>9}")
    short = 0
    for table, scenario in chosen:
        for _ in range(options.turns):
            try:
                outcome = run(scenario, options.interval, options.hold)
            except AssertionError as error:
                short += 1
                print(f"{table}: {scenario.name}\n  FAILED: {error}", flush=True)
                continue
            misses = over(outcome, options.interval)
            short += bool(misses)
            print(row(f"{table}: {scenario.name}", outcome), *misses, flush=True)
    print(f"{len(chosen)} scenarios, {short} that fell short")
    return 1 if short else 0


def run(scenario: Scenario, interval: float, hold: float) -> Outcome:
    """One scenario, with a home and a driver of its own."""
    compiler = shutil.which("cc")
    assert compiler is not None, "the fake driver needs a C compiler"
    kept = Path(tempfile.gettempdir()) / f"gputop-fake-driver-{os.getuid()}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for variable in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
            os.environ[variable] = str(folder)
        driver = driver_of(scenario, folder, lambda *without: build(kept, compiler, without))
        return Stage(scenario, driver, folder, interval, hold).perform(idle_seconds=3.0)


def over(outcome: Outcome, interval: float) -> list[str]:
    """What took longer than it may."""
    allowed = INTERVALS * interval + DRAWN_SECONDS
    found = ["named late"] if outcome.named > allowed else []
    found += ["key late"] if max(outcome.keys, default=(0.0, ""))[0] > KEY_SECONDS else []
    found += ["busy"] if outcome.core > CORE else []
    return found + (["recovered late"] if (outcome.recovered or 0.0) > allowed else [])


def row(name: str, outcome: Outcome) -> str:
    slowest, what = max(outcome.keys, default=(0.0, ""))
    back = "stays" if outcome.recovered is None else f"{outcome.recovered:.2f} s"
    return (
        f"{name:58} {outcome.named:5.2f} s {1000 * slowest:8.0f} ms {what:18.18} "
        f"{100 * outcome.core:5.1f} % {back:>9}"
    )


if __name__ == "__main__":
    sys.exit(main())
