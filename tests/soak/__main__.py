"""Soaks the dashboard: `python -m tests.soak [--minutes 30]`.

Eight devices of the fake driver, sampled every 0.25 s, whose readings change at each tick; devices
that are lost, hang and come back, Xids, processes that start and end, keys, sizes of the terminal,
and stress tests. Once a minute everything rests, and a row
is printed. Exits with 1 where anything failed or was left, or where a process has over 5 % more
memory at the end than after its first five minutes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from gputop.bench.results.store import recent
from tests.driver import FakeDriver, build
from tests.soak.soak import INTERVAL, Row, Soak, say, verdict

WARM_MINUTES = 5.0
"""In which memory may grow: of a shorter soak it is a sixth."""


def head() -> str:
    """The title of the columns."""
    each = "    MiB thr  fd"
    return f"{'':7}{'dashboard':>16}{'sampler':>18}\nminutes {each}   {each}"


def line(row: Row) -> str:
    """A row of the table."""
    return f"{row.minutes:7.1f} {row.dashboard}   {row.sampler}"


def main() -> int:
    """Runs it; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rows", type=int, help="as many as minutes unless given")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    seconds = 60 * arguments.minutes
    compiler = shutil.which("cc")
    if compiler is None:
        parser.error("the fake driver needs a C compiler, and there is no cc on the PATH")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in ("CACHE", "CONFIG", "DATA", "STATE"):
            os.environ[f"XDG_{kind}_HOME"] = str(folder / kind.lower())
        os.environ["HOME"] = os.environ["XDG_RUNTIME_DIR"] = name
        driver = FakeDriver(folder, build(folder, compiler))
        here = os.environ.get("PYTHONPATH") or str(Path.cwd())
        os.environ["PYTHONPATH"] = here
        os.chdir(folder)  # recordings are written there
        soak = Soak(driver, folder, arguments.seed)
        say(head())
        rows = arguments.rows or max(1, round(arguments.minutes))
        for row in soak.run(seconds, seconds / rows):
            say(line(row))
        say(f"{len(recent())} stress tests have a result")
    say(", ".join(f"{many} x {what}" for what, many in sorted(soak.done.items())))
    warm = min(WARM_MINUTES, arguments.minutes / 6)
    memory, grown = verdict(soak.rows, warm)
    found = [*soak.faults, *grown]
    for what in (*memory, *found):
        say(what)
    interval = f"{arguments.minutes:g} minutes at {INTERVAL:g} s"
    say(f"{interval}: {'FAILED' if found else 'nothing grew, was left or failed'}")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
