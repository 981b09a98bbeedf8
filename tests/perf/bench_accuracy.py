"""Is the stress test's throughput that of a bare `torch.mm` loop? Prints the ratio per size.

    python -m tests.perf.bench_accuracy [--sizes 256 512 1024 2048] [--dtype float32 float64]
        [--rounds 10] [--threads 1]

Both run in processes of their own and take turns, many short rounds each, so that what the machine
does beside them meets both alike; the order within a round alternates. Where others use the same
cores, the best window (0.2 s, the same in both) says more than the means.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import statistics
import subprocess
import sys

from gputop.bench.dtypes import DTYPES
from gputop.bench.events import Done, Failed
from gputop.bench.plan import Request, cpu_target
from gputop.bench.session import Session

BARE = """
import sys, time, torch
n, seconds = int(sys.argv[1]), float(sys.argv[3])
dtype = getattr(torch, sys.argv[2])
a, b = torch.randn(n, n).to(dtype), torch.randn(n, n).to(dtype)
c = torch.empty(n, n, dtype=dtype)
warm = time.perf_counter()
while time.perf_counter() - warm < 0.3:
    torch.mm(a, b, out=c)
flop = 2 * n**3 / 1e12
count, best, began = 0, 0.0, time.perf_counter()
in_window, window_began = 0, began
while True:
    torch.mm(a, b, out=c)
    now = time.perf_counter()
    count, in_window = count + 1, in_window + 1
    if now - window_began >= 0.2:
        best = max(best, flop * in_window / (now - window_began))
        in_window, window_began = 0, now
    if now - began >= seconds:
        break
print(flop * count / (now - began), best)
"""


def bare(size: int, dtype: str, seconds: float) -> tuple[float, float]:
    """TFLOP/s of the loop that everybody writes: mean, and best window."""
    arguments = [sys.executable, "-W", "ignore", "-c", BARE, str(size), dtype, str(seconds)]
    output = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
    mean, best = output.split()
    return float(mean), float(best)


async def session(size: int, dtype: str, seconds: float) -> tuple[float, float]:
    """TFLOP/s of the stress test: mean, and best window."""
    request = Request(cpu_target(), dtype, size, seconds, sys.executable)
    async with contextlib.aclosing(Session(request).events()) as events:
        async for event in events:
            if isinstance(event, Done):
                mean, peak = event.result.tflops_mean, event.result.tflops_peak
                assert mean is not None
                assert peak is not None
                return mean, peak
            if isinstance(event, Failed):
                raise SystemExit(str(event.problem))
    raise AssertionError("a session ends with a Done or a Failed")


def main() -> None:
    """Runs all rounds and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, 512, 1024, 2048])
    parser.add_argument(
        "--dtype",
        nargs="+",
        choices=[name for name in DTYPES if name in ("float32", "float64", "float16", "bfloat16")],
        default=["float32", "float64"],
    )
    parser.add_argument("--threads", type=int, default=None, help="of both")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1.0)
    arguments = parser.parse_args()
    seconds = arguments.seconds
    if arguments.threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    print("size  dtype     of           bare    gputop  ratio  (TFLOP/s)")
    for dtype, size in itertools.product(arguments.dtype, arguments.sizes):
        pairs = []
        for turn in range(arguments.rounds):
            before = bare(size, dtype, seconds) if turn % 2 == 0 else None
            ours = asyncio.run(session(size, dtype, seconds))
            pairs.append((before or bare(size, dtype, seconds), ours))
        means = [(theirs[0], ours[0]) for theirs, ours in pairs]
        bests = [(theirs[1], ours[1]) for theirs, ours in pairs]
        for name, rows, pick in (
            ("median mean", means, statistics.median),
            ("best window", bests, max),
        ):
            loop, stress = (pick(column) for column in zip(*rows, strict=True))
            print(f"{size:<5} {dtype:<9} {name} {loop:>6.4f}  {stress:>6.4f}  {stress / loop:.3f}")
        ratios = [ours / loop for loop, ours in means]
        print(f"      median of the rounds' ratios: {statistics.median(ratios):.3f} of", end=" ")
        print(*(f"{ratio:.3f}" for ratio in ratios))


if __name__ == "__main__":
    main()
