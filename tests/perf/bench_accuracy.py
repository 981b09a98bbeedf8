"""Is the stress test's throughput that of a bare `torch.mm` loop? Prints the ratio per size.

    python -m tests.perf.bench_accuracy [--sizes 256 512 1024 2048] [--dtype float32 float64]
        [--turns 60] [--threads 1] [--processes --rounds 10]

The worker's own soak and the loop take turns in one process, a fifth of a second each and one
product at least, so that what else the machine does meets both alike; the soak's figures are its
own, of its own clock. The median is of the turns' ratios, each turn of the loop against the turns
of the soak around it; the bar is 2 %. With `--processes` whole runs of the shipped session take
turns with a process that has the loop, which is what a user would compare, and scatters more.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import itertools
import os
import statistics
import subprocess
import sys
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

from gputop.bench.events import Done, Failed
from gputop.bench.plan.kinds import DTYPES
from gputop.bench.plan.request import Request, cpu_target
from gputop.bench.run.session import Session
from gputop.bench.run.worker_order import worker_request
from gputop.bench.worker import loads
from gputop.bench.worker.backends import Cpu
from gputop.bench.worker.main import Run

if TYPE_CHECKING:
    from gputop.bench.worker.product import Product

TURN_SECONDS = 0.2

BARE = """
import sys, time, torch
n, seconds = int(sys.argv[1]), float(sys.argv[3])
dtype = getattr(torch, sys.argv[2])
a, b = torch.randn(n, n).to(dtype), torch.randn(n, n).to(dtype)
c = torch.empty(n, n, dtype=dtype)
warm = time.perf_counter()
while time.perf_counter() - warm < 0.3:
    torch.mm(a, b, out=c)
count, began = 0, time.perf_counter()
while time.perf_counter() - began < seconds:
    torch.mm(a, b, out=c)
    count += 1
print(2 * n**3 / 1e12 * count / (time.perf_counter() - began))
"""


class Turns(Cpu):
    """A CPU on which a bare loop has every other turn."""

    def __init__(self, torch: Any, size: int, dtype: str, turns: int) -> None:
        super().__init__(torch, threading.Event())
        self._turns = turns
        kind = getattr(torch, dtype)
        self._a, self._b = (torch.randn(size, size).to(kind) for _ in range(2))
        self._c = torch.empty(size, size, dtype=kind)
        self._flop = 2 * size**3 / 1e12
        self.run: Run | None = None
        self.loop: list[float] = []
        """TFLOP/s of its turns."""
        self.soak: list[float] = []
        """And of the soak's: the first is before the loop's first."""
        self._mark = (0.0, 0)

    def launch(self, product: Product, products: int, *, check: bool) -> None:
        """Lets the loop have its turn when the soak has had its own."""
        if self.run is not None:
            seconds, iterations, _ = self.run.totals.now
            timed, made = seconds - self._mark[0], iterations - self._mark[1]
            if timed >= TURN_SECONDS:
                self._mark = seconds, iterations
                self.soak.append(self._flop * made / timed)
                self.loop.append(self._turn())
                if len(self.soak) > self._turns:
                    self.run.halt.set()
        super().launch(product, products, check=check)

    def _turn(self) -> float:
        torch, a, b, c = self.torch, self._a, self._b, self._c
        count, began = 0, time.perf_counter()
        while True:
            torch.mm(a, b, out=c)
            count += 1
            now = time.perf_counter()
            if now - began >= TURN_SECONDS:
                return self._flop * count / (now - began)

    def ratios(self) -> list[float]:
        """The soak's throughput over the loop's, around each turn of the loop."""
        around = itertools.pairwise(self.soak)
        return [(a + b) / 2 / loop for (a, b), loop in zip(around, self.loop, strict=False)]


def in_turns(size: int, dtype: str, turns: int) -> Turns:
    """Both in this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch: Any = importlib.import_module("torch")
    request = Request(cpu_target(), dtype, size, 3600.0, sys.executable)
    device = Turns(torch, size, dtype, turns)
    run = Run(os.open(os.devnull, os.O_WRONLY), worker_request(request))
    product, pace = loads.prepare(device, run)
    device.run = run
    loads.measure(device, run, product, pace)
    return device


def bare(size: int, dtype: str, seconds: float) -> float:
    """TFLOP/s of the loop that everybody writes, in a process of its own."""
    arguments = [sys.executable, "-W", "ignore", "-c", BARE, str(size), dtype, str(seconds)]
    return float(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout)


async def session(size: int, dtype: str, seconds: float) -> float:
    """TFLOP/s of the stress test, as users have it."""
    request = Request(cpu_target(), dtype, size, seconds, sys.executable)
    async with contextlib.aclosing(Session(request).events()) as events:
        async for event in events:
            if isinstance(event, Done):
                assert event.result.tflops_mean is not None
                return event.result.tflops_mean
            if isinstance(event, Failed):
                raise SystemExit(str(event.problem))
    raise AssertionError("a session ends with a Done or a Failed")


def processes(
    size: int, dtype: str, rounds: int, seconds: float
) -> tuple[list[float], list[float], list[float]]:
    """Each in a process of its own: TFLOP/s of the loop, of the soak, and their ratios."""
    loop, stress = [], []
    for turn in range(rounds):
        if turn % 2 == 0:
            loop.append(bare(size, dtype, seconds))
        stress.append(asyncio.run(session(size, dtype, seconds)))
        if turn % 2:
            loop.append(bare(size, dtype, seconds))
    return loop, stress, [ours / theirs for theirs, ours in zip(loop, stress, strict=True)]


def main() -> None:
    """Runs all and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, 512, 1024, 2048])
    parser.add_argument(
        "--dtype",
        nargs="+",
        choices=[name for name in DTYPES if name in ("float32", "float64", "float16", "bfloat16")],
        default=["float32", "float64"],
    )
    parser.add_argument("--threads", type=int, default=None, help="of both")
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--processes", action="store_true")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1.0)
    arguments = parser.parse_args()
    if arguments.threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    print("TFLOP/s, medians                  turns' ratios")
    print("size  dtype       loop    soak    median  middle half")
    for dtype, size in itertools.product(arguments.dtype, arguments.sizes):
        if arguments.processes:
            loop, stress, ratios = processes(size, dtype, arguments.rounds, arguments.seconds)
        else:
            device = in_turns(size, dtype, arguments.turns)
            loop, stress, ratios = device.loop, device.soak, device.ratios()
        low, middle, high = statistics.quantiles(ratios, n=4)
        ours, theirs = statistics.median(stress), statistics.median(loop)
        numbers = f"{theirs:>7.4f} {ours:>7.4f}    {middle:.3f}   {low:.3f} to {high:.3f}"
        print(f"{size:<5} {dtype:<9} {numbers}", flush=True)


if __name__ == "__main__":
    main()
