"""Do `sweep` and `latency` agree with `torch.utils.benchmark.Timer`? Prints the ratio per size.

    python -m tests.perf.bench_kinds [--rounds 6] [--threads 1] [--sizes 512]

Both run in processes of their own and take turns, so that what the machine does beside them meets
both alike; the order within a round alternates. A ratio is of the seconds of one product: ours over
the Timer's. The bar is 5 %: read the medians, and the best of each beside them, which is what is
left where others use the same cores.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys

from gputop.bench.events import Done, Failed, Point
from gputop.bench.plan import Request, cpu_target
from gputop.bench.session import Session

TIMER = """
import json, sys, torch
from torch.utils.benchmark import Timer
dtype, seconds = getattr(torch, sys.argv[1]), float(sys.argv[2])
norm, found = torch.linalg.vector_norm, {}
for name, n in json.loads(sys.argv[3]):
    a, b = torch.randn(n, n, dtype=dtype), torch.randn(n, n, dtype=dtype)
    c = torch.empty(n, n, dtype=dtype)
    statement = "torch.mm(a, b, out=c)"
    if "norm" in name:
        statement += "; norm(c)" + (".item()" if "each" in name else "")
    timer = Timer(statement, globals=globals(), num_threads=torch.get_num_threads())
    found[f"{name}/{n}"] = timer.blocked_autorange(min_run_time=seconds).median
print(json.dumps(found))
"""
Seconds = dict[str, float]
"""Of one product, by `series/N`."""


def timer(dtype: str, seconds: float, rows: list[tuple[str, int]]) -> Seconds:
    """What torch's own Timer finds, each row for so many seconds."""
    command = [sys.executable, "-W", "ignore", "-c", TIMER, dtype, str(seconds), json.dumps(rows)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: Seconds = json.loads(done.stdout)
    return found


async def ours(kind: str, dtype: str, size: int | None, seconds: float) -> list[Point]:
    """The rows of a run."""
    request = Request(cpu_target(), dtype, size, seconds, sys.executable, kind)
    async with contextlib.aclosing(Session(request).events()) as events:
        async for event in events:
            if isinstance(event, Done):
                return list(event.result.points)
            if isinstance(event, Failed):
                raise SystemExit(str(event.problem))
    raise AssertionError("a session ends with a Done or a Failed")


def compare(kind: str, dtype: str, size: int | None, rounds: int) -> None:
    """Takes turns, and prints a line for each row."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for turn in range(rounds):
        if turn % 2 == 0:
            points = asyncio.run(ours(kind, dtype, size, 30.0))
            rows = [(point.series, round(point.x)) for point in points]
            theirs = timer(dtype, 0.3, rows)
        else:
            theirs = timer(dtype, 0.3, rows)
            points = asyncio.run(ours(kind, dtype, size, 30.0))
        for point in points:
            key = f"{point.series}/{point.x:.0f}"
            if key in theirs:
                mine, other = found.setdefault(key, ([], []))
                mine.append(point.values["seconds"])
                other.append(theirs[key])
    for key, (mine, other) in found.items():
        pair = statistics.median(other), statistics.median(mine)
        each = statistics.median(a / b for a, b in zip(mine, other, strict=True))
        print(
            f"{kind:<8} {dtype:<8} {key:<29} {pair[0] * 1e6:>9.4g}  {pair[1] * 1e6:>9.4g}"
            f"  {pair[1] / pair[0]:.3f}   {each:.3f}   {min(mine) / min(other):.3f}"
        )


def main() -> None:
    """Runs all rounds and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--sizes", type=int, default=512, help="the largest of the sweep")
    parser.add_argument("--threads", type=int, default=None, help="of both")
    parser.add_argument("--dtype", nargs="+", default=["float32", "float64"])
    arguments = parser.parse_args()
    if arguments.threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    print("                                        µs a product:          ratio of   median")
    print(
        "kind     dtype    row                             Timer     gputop  medians ratio   best"
    )
    for dtype in arguments.dtype:
        compare("sweep", dtype, arguments.sizes, arguments.rounds)
        compare("latency", dtype, None, arguments.rounds)


if __name__ == "__main__":
    main()
