import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

from gputop.bench.plan.request import Request, Target
from gputop.bench.run.worker_launch import WORKER
from gputop.bench.run.worker_order import worker_request
from gputop.bench.worker.events import to_line
from gputop.bench.worker.main import WorkerRun
from gputop.bench.worker.request import WorkerRequest
from tests import sessions
from tests.bench.forked import forking

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed in this Python"
)

STOP_SECONDS = 20.0
"""Most that a stop may take, however busy the machine is: what is stopped would go on far longer.
With a free core it is half a second."""

FAKE_WORKER = "fake_worker.py"
"""What an executable of `fake_interpreter` runs, beside it."""

CPU = Target("cpu", None, None, "a CPU", None, 4 << 30)


def request(
    dtype: str = "float32",
    size: int | None = 256,
    seconds: float = 0.5,
    kind: str = "soak",
    *further: str,
) -> Request:
    """A short stress test of the CPU, by the Python of the tests."""
    return Request(CPU, dtype, size, seconds, sys.executable, kind, further)


class RawWorker:
    """The worker as a process, without a session: what it is told and what it says."""

    def __init__(
        self, asked: Request, fault: str = "", folders: Sequence[str] | None = None
    ) -> None:
        """Start it; `fault` is as of `broken_worker`. Without folders it has no guard."""
        body = broken_worker(fault) if fault else None
        self.process = subprocess.Popen(
            [sys.executable, *(["-c", body] if body else [str(WORKER)])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            **forking(body, os.environ),
        )
        self.tell(worker_request(asked, folders).to_line().decode().strip())

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def close(self) -> None:
        """What the end of the parent looks like to the worker."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def events(self) -> Iterator[dict[str, Any]]:
        """What it says until it ends."""
        assert self.process.stdout is not None
        yield from map(json.loads, self.process.stdout)

    def until(self, name: str) -> dict[str, Any]:
        return next(event for event in self.events() if event["event"] == name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self.process:  # closes the pipes
            self.process.kill()


class RecordedRun(WorkerRun):
    """A run in this process, whose events are kept as the parent would read them."""

    def __init__(self, asked: WorkerRequest) -> None:
        self.sent: list[dict[str, Any]] = []
        super().__init__(-1, asked)

    def send(self, event: object) -> None:
        self.sent.append(json.loads(to_line(event)))


def fake_interpreter(folder: Path, body: str, torch: str | None = "9.9.9") -> str:
    """An executable that answers the probe as a Python with that torch, and runs `body` as worker.

    `body` is Python: its standard input has the request.
    """
    answer = json.dumps({"python": [3, 11, 0], "torch": torch})
    worker = folder / FAKE_WORKER
    worker.write_text(body)
    script = folder / "python"
    script.write_text(
        "#!/bin/sh\n"
        f"if [ \"$1\" = -c ]; then echo '{answer}'; exit 0; fi\n"
        f'exec "{sys.executable}" "{worker}"\n'
    )
    script.chmod(0o755)
    return str(script)


PARTS = "backends burn collective copies copy_paths errors formats loads main memory product"
PARTS += " rows shapes step throughput"
"""Modules of the worker that faults are made in."""

QUICK = "rows.LEAST_BLOCKS, rows.LEAST_SECONDS, rows.REPEATABLE = 1, 0.0, float('inf')\n"
"""A fault that is none: rows take no longer than they must, where their rates do not matter."""


def broken_worker(fault: str) -> str:
    """The body of a fake interpreter: the real worker, in which the device fails as `fault` says.

    `fault` is Python that redefines what it needs of the worker's modules.
    """
    return (
        f"import runpy, sys, threading\nrunpy.run_path({str(WORKER)!r})['load']()\n"
        f"from gputop_worker import {', '.join(PARTS.split())}\n"
        f"Product = product.Product\n{fault}\nmain.main()\n"
    )


RESULT = replace(
    sessions.RESULT,
    device="a CPU",
    tflops_mean=0.18,
    tflops_peak=0.2,
    seconds=5.01,
    iterations=420,
    checks=6,
    torch_version="9.9.9",
    python="/usr/bin/python3",
    method="by hand",
    started_at=1.7e9,
)
"""A run as one may have been."""
