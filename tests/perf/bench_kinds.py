"""Do `sweep` and `latency` agree with `torch.utils.benchmark.Timer`? Prints the ratio per row.

    python -m tests.perf.bench_kinds [--rounds 30] [--threads 1] [--sizes 512] [--processes]

The worker's own way to time a row and the Timer take turns on the same products in one process,
50 ms each, in an order that alternates: what the machine does beside them meets both.
With `--processes` whole runs take turns with a process that has the Timer, which is what a user
would compare, and scatters more. A ratio is of the seconds of one product, ours over the Timer's;
the bar is 5 %.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import json
import os
import statistics
import subprocess
import sys
import threading
import warnings
from typing import Any

from gputop.bench.events import Done, Failed, Point
from gputop.bench.plan.request import Request, cpu_target
from gputop.bench.run.session import Session
from gputop.bench.run.worker_order import worker_request
from gputop.bench.worker import latency, shapes
from gputop.bench.worker.backends import Cpu
from gputop.bench.worker.main import Run
from gputop.bench.worker.product import Product
from gputop.bench.worker.rows import Rows

TIMER = """
import json, sys, torch
from torch.utils.benchmark import Timer
dtype, seconds = getattr(torch, sys.argv[1]), float(sys.argv[2])
found = {}
for name, n in json.loads(sys.argv[3]):
    made = [torch.randn(n, n, dtype=dtype) for _ in range(3)]
    setup = "a, b, c = made; mm, norm = torch.mm, torch.linalg.vector_norm"
    statement = "mm(a, b, out=c)"
    if "norm" in name:
        statement += "; norm(c)" + (".item()" if "each" in name else "")
    timer = Timer(statement, setup, globals=globals(), num_threads=torch.get_num_threads())
    found[f"{name}/{n}"] = timer.blocked_autorange(min_run_time=seconds).median
print(json.dumps(found))
"""
SECONDS = 0.05
"""Of each turn."""
Found = dict[str, tuple[list[float], list[float]]]
"""Seconds of one product, by `series/N`: ours and the Timer's, round by round."""


def paired(kind: str, dtype: str, largest: int, rounds: int) -> Found:
    """Both on the same products, in this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch: Any = importlib.import_module("torch")
        benchmark: Any = importlib.import_module("torch.utils.benchmark")
    request = worker_request(Request(cpu_target(), dtype, largest, 1e6, sys.executable, kind))
    device = Cpu(torch, threading.Event())
    rows = Rows(device, Run(os.open(os.devnull, os.O_WRONLY), request), 1)
    found: Found = {}
    for n in shapes.sizes(largest) if kind == "sweep" else latency.SIZES:
        product = Product(torch, dtype, (n, n, n), "cpu")
        product.fill()
        ways = latency._ways(device, product, 0.0)[: None if kind == "latency" else 1]
        for way in ways:
            key = f"{dtype if kind == 'sweep' else way.series}/{n}"
            mine, other = found.setdefault(key, ([], []))
            statement = "mm(a, b, out=c)"
            if "norm" in way.series:
                statement += "; norm(c)" + (".item()" if "each" in way.series else "")
            timer = benchmark.Timer(
                statement,
                "mm, norm, a, b, c = torch.mm, torch.linalg.vector_norm, it.a, it.b, it.c",
                globals={"torch": torch, "it": product},
                num_threads=torch.get_num_threads(),
            )
            for turn in range(rounds):
                if turn % 2:
                    mine.append(_ours(rows, way))
                other.append(timer.blocked_autorange(min_run_time=SECONDS).median)
                if turn % 2 == 0:
                    mine.append(_ours(rows, way))
    return found


def _ours(rows: Rows, way: latency.Variant) -> float:
    timed = rows.time(way.prepare(), way.clock, 1e-3, at_most=SECONDS)
    assert timed is not None
    return timed.seconds


def processes(kind: str, dtype: str, largest: int, rounds: int) -> Found:
    """Whole runs and the Timer, in processes of their own."""
    found: Found = {}
    size = largest if kind == "sweep" else None
    for _ in range(rounds):
        points = asyncio.run(_run(kind, dtype, size))
        rows = [(point.series, round(point.x)) for point in points]
        command = [sys.executable, "-W", "ignore", "-c", TIMER, dtype, "0.3", json.dumps(rows)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        theirs = json.loads(done.stdout)
        for point in points:
            key = f"{point.series}/{point.x:.0f}"
            mine, other = found.setdefault(key, ([], []))
            mine.append(point.values["seconds"])
            other.append(theirs[key])
    return found


async def _run(kind: str, dtype: str, size: int | None) -> list[Point]:
    request = Request(cpu_target(), dtype, size, 30.0, sys.executable, kind)
    async with contextlib.aclosing(Session(request).events()) as events:
        async for event in events:
            if isinstance(event, Done):
                return list(event.result.points)
            if isinstance(event, Failed):
                raise SystemExit(str(event.problem))
    raise AssertionError("a session ends with a Done or a Failed")


def main() -> None:
    """Runs all rounds and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--sizes", type=int, default=512, help="the largest of the sweep")
    parser.add_argument("--threads", type=int, default=None, help="of both")
    parser.add_argument("--dtype", nargs="+", default=["float32", "float64"])
    parser.add_argument("--processes", action="store_true")
    arguments = parser.parse_args()
    if arguments.threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    compare = processes if arguments.processes else paired
    print(
        "kind     dtype    row                          µs: Timer     gputop  median ratio   best"
    )
    for dtype in arguments.dtype:
        for kind in ("sweep", "latency"):
            for key, (mine, other) in compare(
                kind, dtype, arguments.sizes, arguments.rounds
            ).items():
                ratio = statistics.median(a / b for a, b in zip(mine, other, strict=True))
                print(
                    f"{kind:<8} {dtype:<8} {key:<28} {statistics.median(other) * 1e6:>9.4g}  "
                    f"{statistics.median(mine) * 1e6:>9.4g}         {ratio:.3f}  "
                    f"{min(mine) / min(other):.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
