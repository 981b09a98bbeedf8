import argparse
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import psutil

import gputop
from gputop.commands import bench
from gputop.commands.parser import parse

COMMAND = [sys.executable, "-m", "gputop", "bench"]


def parsed(*arguments: str) -> argparse.Namespace:
    return parse(["bench", *arguments])


def run(*arguments: str) -> int:
    return bench.run(parsed(*arguments))


def environment() -> dict[str, str]:
    """The environment of the tests, in which `-m gputop` is this gputop."""
    return {**os.environ, "PYTHONPATH": str(Path(gputop.__file__).parent.parent)}


def ran(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """It has ended; `changes` are of its environment."""
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment() | changes,
        stdin=subprocess.DEVNULL,
        check=False,
    )


class InTerminal:
    """The command with a terminal as its standard input and error, and a pipe for its result."""

    def __init__(self, *arguments: str, **changes: str) -> None:
        """Start it; `changes` are of its environment."""
        self.terminal, other = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=other,
            stdout=subprocess.PIPE,
            stderr=other,
            env=environment() | changes,
        )
        os.close(other)
        self.screen = ""

    def until(self, text: str) -> None:
        while text not in self.screen:
            ready, _, _ = select.select([self.terminal], [], [], 60)
            assert ready, f"{text!r} did not come: {self.screen!r}"
            self.screen += os.read(self.terminal, 4096).decode()

    def read_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([self.terminal], [], [], left)[0]:
                self.screen += os.read(self.terminal, 4096).decode()

    def worker(self) -> psutil.Process:
        (worker,) = [
            process
            for process in psutil.Process(self.process.pid).children(recursive=True)
            if any(part.endswith("worker/__main__.py") for part in process.cmdline())
        ]
        return worker

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self.process:
            self.process.kill()
        os.close(self.terminal)
