"""Tries many hostile inputs on the readers of what comes from outside.

    python -m tests.fuzz --cases 100000 [--seed N] [--jobs 2] [--keep FOLDER] [TARGET ...]

Cases are numbered: the same seed and number give the same case. A finding is any exception but the
reader's own error, an invariant that does not hold, or more than SECONDS of processor time or
BYTES of memory for one case. Each is printed once for the place that raised it, and its case is
written to FOLDER. The exit status is 1 if there is one.
"""

import argparse
import multiprocessing
import os
import resource
import signal
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import NoReturn

from tests.fuzz.targets import TARGETS, clean

SECONDS = 5.0
BYTES = 2 << 30
CHUNK = 500


class TooLongError(BaseException):
    """One case takes too much processor time. No `except Exception` hides it."""


@dataclass(slots=True)
class Tally:
    accepted: int = 0
    refused: int = 0
    findings: dict[str, tuple[int, bytes, str]] = field(default_factory=dict)
    """By what was raised and where: the number, the case and the traceback of the first."""


def tried(target: str, seed: int, numbers: range) -> Tally:
    tally = Tally()
    before = signal.signal(signal.SIGPROF, _over)
    for number in numbers:
        case = TARGETS[target].make(Random(f"{seed} {target} {number}"))  # noqa: S311 - repeatable
        try:
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            accepted = TARGETS[target].check(case)
        except (Exception, TooLongError) as error:  # noqa: BLE001 - each is a finding
            signal.setitimer(signal.ITIMER_PROF, 0)
            frame = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
            tally.findings.setdefault(what, (number, case, traceback.format_exc(limit=-6)))
        else:
            signal.setitimer(signal.ITIMER_PROF, 0)
            tally.accepted += accepted
            tally.refused += not accepted
    signal.signal(signal.SIGPROF, before)
    return tally


def _over(*_: object) -> NoReturn:
    raise TooLongError


def bounded() -> None:
    """Bound the memory of this process, and have it remove its folder in the end."""
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    multiprocessing.util.Finalize(None, clean, exitpriority=1)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    options = parser.parse_args()
    if unknown := {*options.targets} - {*TARGETS}:
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    found = 0
    for target in options.targets or TARGETS:
        chunks = [range(n, min(n + CHUNK, options.cases)) for n in range(0, options.cases, CHUNK)]
        total = Tally()
        with ProcessPoolExecutor(options.jobs, initializer=bounded) as pool:
            for tally in pool.map(partial(tried, target, options.seed), chunks):
                total.accepted += tally.accepted
                total.refused += tally.refused
                total.findings = {**tally.findings, **total.findings}
        print(
            f"{target}, seed {options.seed}: {total.accepted:,} accepted, "
            f"{total.refused:,} refused, {len(total.findings)} findings",
            flush=True,
        )
        for what, (number, case, trace) in sorted(total.findings.items()):
            print(f"  {what}, first in case {number}:\n{trace}")
            if options.keep is not None:
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / f"{target}-{number}").write_bytes(case)
        found += len(total.findings)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
