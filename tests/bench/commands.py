"""Running `gputop bench` as a program of its own."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import gputop

COMMAND = [sys.executable, "-m", "gputop", "bench"]


def environment() -> dict[str, str]:
    """The environment of the tests, in which `-m gputop` is this gputop."""
    return {**os.environ, "PYTHONPATH": str(Path(gputop.__file__).parent.parent)}


def ends(pid: int, seconds: float) -> bool:
    """Whether it ends in that time. Who inherits it may ask for its status much later."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


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
