"""What gputop costs the work that it watches: `python -m tests.perf.overhead`.

A soak of matrix products and a small training loop run all the time, each in turn; beside them
gputop is open and closed in pairs, in random order. The figure is the throughput with it open as a
share of that with it closed. With a GPU the work runs there and gputop reads the real driver;
without, it runs in one thread of the CPU beside eight devices of the fake driver, and what is
measured is what a monitor takes of the host.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import torch

from gputop.stream.launch import module_command
from tests.driver import FakeDevice, FakeDriver, FakeProcess, build
from tests.perf.loads import LOADS
from tests.terminal import Terminal

GPUTOP = module_command("gputop")
SETTLED = 3.0
"""Seconds from an opening or a closing until what is measured counts."""


class Work:
    """A load that runs, and how much of it was done when."""

    def __init__(self, kind: str, device: str) -> None:
        command = [sys.executable, "-m", "tests.perf.loads", kind, device]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._done: list[tuple[float, int]] = []
        self._begun = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        if not self._begun.wait(120):
            raise TimeoutError("the load does not begin")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            at, done = line.split()
            self._done.append((float(at), int(done)))
            if len(self._done) == 10:  # it has found its pace
                self._begun.set()

    def rate(self, begin: float, end: float) -> float:
        """Steps a second between the pieces of work that were done first and last in that time."""
        within = [(at, done) for at, done in self._done if begin <= at <= end]
        (first, before), (last, after) = within[0], within[-1]
        return (after - before) / (last - first)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def machine() -> Iterator[tuple[str, dict[str, str]]]:
    """Where the work runs, and the environment in which gputop finds its devices."""
    if torch.cuda.is_available():
        yield "cuda:0", {}
        return
    with tempfile.TemporaryDirectory() as name:
        compiler = which("cc")
        assert compiler is not None, "the fake driver needs a C compiler"
        driver = FakeDriver(Path(name), build(Path(name), compiler))
        processes = tuple(FakeProcess(os.getpid() + n) for n in range(3))
        driver.write(*(FakeDevice(processes=processes) for _ in range(8)))
        environment = driver.environment()
        environment.pop("FAKE_NVML_CALLS", None)  # each call would be written into a file
        yield "cpu", environment


def measured(work: Work, seconds: float) -> float:
    """The rate from when all has settled on, for that long."""
    time.sleep(SETTLED)
    begin = time.monotonic()
    time.sleep(seconds)
    return work.rate(begin, time.monotonic())


def with_gputop(work: Work, environment: dict[str, str], seconds: float) -> float:
    with Terminal(GPUTOP, env=environment, columns=160, rows=50) as terminal:
        terminal.wait_for(lambda t: "busy" in t.text, timeout=30)
        stop = threading.Event()

        def read() -> None:  # as a terminal does
            while not stop.is_set():
                terminal.collect(0.5)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            return measured(work, seconds)
        finally:
            stop.set()
            reader.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each half of a pair")
    options = parser.parse_args()
    order = random.Random(1)  # noqa: S311 - not a secret
    with machine() as (device, environment):
        where = torch.cuda.get_device_name() if device != "cpu" else "CPU, one thread"
        print(f"throughput with gputop open, of that without; {where}, torch {torch.__version__}")
        print(f"{'':10}{'median':>8}{'least':>8}{'most':>8}   each pair")
        for kind in LOADS:
            work = Work(kind, device)
            shares = []
            try:
                for _ in range(options.pairs):
                    rates = {}
                    for is_open in order.sample([True, False], 2):
                        rates[is_open] = (
                            with_gputop(work, environment, options.seconds)
                            if is_open
                            else measured(work, options.seconds)
                        )
                    shares.append(rates[True] / rates[False])
            finally:
                work.end()
            middle, least, most = statistics.median(shares), min(shares), max(shares)
            each = " ".join(f"{share:.4f}" for share in shares)
            print(f"{kind:10}{middle:8.4f}{least:8.4f}{most:8.4f}   {each}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
