"""Is the stress test's throughput that of a bare `torch.mm` loop? Prints the ratio per size.

    python -m tests.perf.bench_accuracy [--threads 1] [--turns 60]

The worker's own soak and the loop take turns in one process, a fifth of a second each. The median
is of the turns' ratios, each turn of the loop against the turns of the soak around it; the bar is
2 %.
"""

import argparse
import importlib
import itertools
import os
import statistics
import sys
import threading
import time
import warnings
from typing import Any

from gputop.bench.plan.request import Request, cpu_target
from gputop.bench.run.worker_order import worker_request
from gputop.bench.worker import loads
from gputop.bench.worker.backends import Cpu
from gputop.bench.worker.main import WorkerRun
from gputop.bench.worker.product import Product

TURN_SECONDS = 0.2


class Turns(Cpu):
    """A CPU on which a bare loop has every other turn."""

    def __init__(self, torch: Any, size: int, dtype: str, turns: int) -> None:
        super().__init__(torch, threading.Event())
        self._turns = turns
        kind = getattr(torch, dtype)
        self._a, self._b = (torch.randn(size, size).to(kind) for _ in range(2))
        self._c = torch.empty(size, size, dtype=kind)
        self._flop = 2 * size**3 / 1e12
        self.run: WorkerRun | None = None
        self.loop: list[float] = []
        """TFLOP/s of its turns."""
        self.soak: list[float] = []
        """And of the soak's: the first is before the loop's first."""
        self._mark = (0.0, 0)

    def launch(self, product: Product, products: int, *, check: bool) -> None:
        """Launch for the soak, after the loop's turn if the soak has had its own."""
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch: Any = importlib.import_module("torch")
    request = Request(cpu_target(), dtype, size, 3600.0, sys.executable)
    device = Turns(torch, size, dtype, turns)
    run = WorkerRun(os.open(os.devnull, os.O_WRONLY), worker_request(request))
    product, pace = loads.prepare(device, run)
    device.run = run
    loads.measure(device, run, product, pace)
    return device


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=None, help="of both")
    parser.add_argument("--turns", type=int, default=60)
    arguments = parser.parse_args()
    if arguments.threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    print("TFLOP/s, medians                  turns' ratios")
    print("size  dtype       loop    soak    median  middle half")
    for dtype, size in itertools.product(("float32", "float64"), (256, 512, 1024, 2048)):
        device = in_turns(size, dtype, arguments.turns)
        low, middle, high = statistics.quantiles(device.ratios(), n=4)
        ours, theirs = statistics.median(device.soak), statistics.median(device.loop)
        numbers = f"{theirs:>7.4f} {ours:>7.4f}    {middle:.3f}   {low:.3f} to {high:.3f}"
        print(f"{size:<5} {dtype:<9} {numbers}", flush=True)


if __name__ == "__main__":
    main()
