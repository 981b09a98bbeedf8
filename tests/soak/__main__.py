"""Soaks the dashboard: `python -m tests.soak [--minutes 30]`.

Eight devices of the fake driver, sampled every 0.25 s, whose readings change at each tick; devices
that are lost, hang and come back, Xids, processes that start and end, keys, sizes of the terminal,
and stress tests. Once a minute everything rests, and a row is printed. Exits with 1 where anything
failed or was left, or where a process has over 5 % more memory at the end than after its first
five minutes.
"""

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from tests.driver import FakeDriver, build
from tests.soak.soak import INTERVAL, Soak, verdict

WARM_MINUTES = 5.0
"""In which memory may grow: of a shorter soak it is a sixth."""


def main() -> int:
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
        os.environ.setdefault("PYTHONPATH", str(Path.cwd()))
        driver = FakeDriver(folder, build(folder, compiler))
        os.chdir(folder)  # recordings are written there
        soak = Soak(driver, folder, arguments.seed)
        print("        dashboard           sampler\nminutes     MiB thr  fd       MiB thr  fd")
        rows = arguments.rows or max(1, round(arguments.minutes))
        for row in soak.run(seconds, seconds / rows):
            print(f"{row.minutes:7.1f} {row.dashboard}   {row.sampler}", flush=True)
    memory, grown = verdict(soak.rows, min(WARM_MINUTES, arguments.minutes / 6))
    found = [*soak.faults, *grown]
    print(*memory, *found, sep="\n")
    interval = f"{arguments.minutes:g} minutes at {INTERVAL:g} s"
    print(f"{interval}: {'FAILED' if found else 'nothing grew, was left or failed'}")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
