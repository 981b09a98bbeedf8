"""Runs the scenarios and writes what each took to RESULTS.md: `python -m tests.faults [WORD ...]`.

Words choose scenarios by name or table; the page is written only where all of them ran. Times are
of this machine, which should have nothing else to do: the tests of the same table wait longer.
"""

from __future__ import annotations

import argparse
import datetime as dt
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

INTERVAL, HOLD_SECONDS = 1.0, 2.0
PAGE = Path(__file__).with_name("RESULTS.md")
FRAME = """\
# The table of faults

Each scenario runs the shipped dashboard in a pseudo-terminal against the fake driver. It checks on
each frame that no wrong number is shown, and then that keys are answered, that the terminal is as
it was, and that nothing is left.

Last run of `python -m tests.faults`, which writes this page: {date}, an interval of {interval:g} s,
{cores} cores, load {load}. Of {count} scenarios {failed} failed.

The columns are the seconds until the fault is on the screen, the slowest key in milliseconds, the
share of a core that all processes used while nobody typed, and the seconds from the end of the
fault until all is well. A dash: no key is pressed, or the fault stays.

| fault | named s | slowest key ms | core % | back s |
|---|--:|--:|--:|--:|
{rows}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*", metavar="WORD")
    options = parser.parse_args()
    before = os.getloadavg()[0]
    rows, failed = [], 0
    for table, scenarios in TABLES.items():
        for scenario in scenarios:
            name = f"{table}: {scenario.name}"
            if options.words and not any(word in name for word in options.words):
                continue
            try:
                line = row(name, run(scenario))
            except AssertionError as error:
                failed += 1
                line = f"| {name} | **failed** | | | |"
                print(error, file=sys.stderr)
            print(line, flush=True)
            rows.append(line)
    if not options.words:
        PAGE.write_text(
            FRAME.format(
                date=dt.datetime.now(tz=dt.UTC).date(),
                interval=INTERVAL,
                cores=os.cpu_count(),
                load=f"{before:.0f} to {os.getloadavg()[0]:.0f}",
                count=len(rows),
                failed=failed or "none",
                rows="\n".join(rows),
            )
        )
    return 1 if failed else 0


def run(scenario: Scenario) -> Outcome:
    """Run a scenario with a home and a driver of its own."""
    compiler = shutil.which("cc")
    assert compiler is not None, "the fake driver needs a C compiler"
    kept = Path(tempfile.gettempdir()) / f"gputop-fake-driver-{os.getuid()}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for variable in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
            os.environ[variable] = name
        driver = driver_of(scenario, folder, lambda *without: build(kept, compiler, without))
        stage = Stage(scenario, driver, folder, INTERVAL, HOLD_SECONDS)
        return stage.perform(idle_seconds=3.0)


def row(name: str, outcome: Outcome) -> str:
    """Return a row of the page."""
    key, back = "–", "–"
    if outcome.keys:
        key = f"{1000 * max(outcome.keys)[0]:.0f}"
    if outcome.recovered is not None:
        back = f"{outcome.recovered:.2f}"
    return f"| {name} | {outcome.named:.2f} | {key} | {100 * outcome.core:.1f} | {back} |"


if __name__ == "__main__":
    sys.exit(main())
