"""Running `gputop bench` as a program of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import gputop

COMMAND = [sys.executable, "-m", "gputop", "bench"]


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
