"""How long a stop takes, from the message to the result, for each kind of run on the CPU.

`python -m tests.perf.stops [--runs 5]`. A worker is told to stop after its first sample or row. Two
ranks of a collective, of which one waits for the other, are stopped together.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time

from gputop.bench.events import Point
from gputop.bench.plan.kinds import KINDS
from gputop.bench.plan.request import cpu_ranks
from gputop.bench.worker import main as worker
from tests.bench.test_collective import asked, ends_of
from tests.bench.workers import RawWorker, request

PROMISED = 0.5


def stop_seconds(kind: str) -> float:
    """Return the seconds from the message to the last event of a run."""
    if kind == "collective":
        ranks = asked(*cpu_ranks(2), seconds=600.0)
        _, _, seconds = asyncio.run(ends_of(ranks, lambda event: isinstance(event, Point)))
        return seconds
    size = 1024 if KINDS[kind].has_size else None
    with RawWorker(request("float32", size, 600.0, kind)) as raw:
        raw.until("sample" if KINDS[kind].over_time else "point")
        began = time.monotonic()
        raw.tell("stop")
        raw.until("done")
        return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    print(f"seconds from stop to result, {runs} runs   median     max   (promised: {PROMISED:g})")
    for kind in worker.KINDS:
        found = [stop_seconds(kind) for _ in range(runs)]
        print(f"{kind:36}{statistics.median(found):10.3f}{max(found):8.3f}", flush=True)


if __name__ == "__main__":
    main()
