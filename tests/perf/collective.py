"""Does `collective` agree with a bare loop of torch.distributed? Prints the ratio per row.

    python -m tests.perf.collective [--rounds 100] [--ranks 4] [--sizes 16384 1048576]

In each of four gloo ranks the worker's own way to time a row and a bare loop (barrier, some
operations, the mean, and the mean of all ranks as nccl-tests has it) take turns on the same
buffers, in an order that goes round: what the machine does beside them meets both. A ratio is of
the seconds of an operation, ours over the bare loop's, the medians of the rounds; the bar is 5 %.
`bare` is a second bare loop over the first: what it is off 1 is the scatter of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import warnings
from typing import Any

from gputop.bench.plan.request import Request, cpu_ranks
from gputop.bench.run.worker_order import worker_request
from gputop.bench.worker import collective
from gputop.bench.worker.backends import Cpu
from gputop.bench.worker.main import Run
from gputop.bench.worker.request import WorkerRequest
from gputop.bench.worker.rows import Rows

SECONDS = 0.1
"""Of each turn."""
Figures = dict[str, tuple[list[float], list[float], list[float]]]
"""Seconds of an operation, by `series/bytes`: the bare loop's, ours, and the bare loop's again."""


class Kept(Run):
    """A run whose rows are kept."""

    def write(self, event: str, **fields: Any) -> None:
        if event == "point":
            self.known[fields["series"]] = fields["values"]["seconds"]


COMMAND = (sys.executable, "-m", "tests.perf.collective")


def rank(order: WorkerRequest, rounds: int, sizes: list[int]) -> Figures:
    """All turns of this process, which is one of the ranks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch

        dist: Any = torch.distributed
    torch.set_num_threads(1)
    run, device = Kept(os.open(os.devnull, os.O_WRONLY), order), Cpu(torch, threading.Event())
    ranks, rows = collective.Ranks(device, run), Rows(device, run, 1)
    found: Figures = {}
    for size in sizes:
        message = collective.Message(device, ranks, size)
        for series, operation in message.operations.items():
            figures = found.setdefault(f"{series}/{size}", ([], [], []))
            collective._row(rows, ranks, message, series)
            times = max(5, round(SECONDS / run.known[series]))  # as many as ours
            for turn in range(3 * rounds):
                which = (turn + turn // 3) % 3  # each is first, second and third as often
                if which == 1:
                    collective._row(rows, ranks, message, series)
                    figures[which].append(run.known[series])
                else:
                    figures[which].append(_bare(dist, operation, times, ranks.count))
    return found


def _bare(dist: Any, operation: Any, times: int, count: int) -> float:
    import torch

    dist.barrier()
    began = time.perf_counter()
    for _ in range(times):
        operation()
    mean = torch.tensor((time.perf_counter() - began) / times, dtype=torch.float64)
    dist.all_reduce(mean)
    return float(mean) / count


def main() -> None:
    """Starts the ranks, and prints the table of the first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1 << 14, 1 << 20, 1 << 24])
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    vars(collective)["ROW_SECONDS"] = SECONDS
    if arguments.rank:
        order = WorkerRequest.from_line(arguments.rank.encode())
        print(json.dumps(rank(order, arguments.rounds, arguments.sizes)))
        sys.stdout.flush()
        os._exit(0)
    descriptor = os.memfd_create("ranks")
    path = f"/proc/{os.getpid()}/fd/{descriptor}"
    ranks = tuple(cpu_ranks(arguments.ranks))
    common = ("float32", None, 1e5, sys.executable, "collective")
    asked = [Request(each, *common, ranks=ranks, rendezvous=path) for each in ranks]
    named = ["--rounds", str(arguments.rounds), "--sizes", *map(str, arguments.sizes)]
    started = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.perf.collective",
                *named,
                "--rank",
                order.to_line().decode(),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for order in map(worker_request, asked)
    ]
    first, *_ = [json.loads(each.communicate()[0]) for each in started]
    print("row                        ms: bare   gputop  ratio   bare")
    for name, figures in first.items():
        bare, ours, again = (1e3 * statistics.median(each) for each in figures)
        print(f"{name:<24} {bare:>10.4g} {ours:>8.4g}  {ours / bare:.3f}  {again / bare:.3f}")


if __name__ == "__main__":
    main()
