"""Starts the child that samples: alone in its module, so that it runs while asyncio is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from gputop.stream.lifeline import bound, environment

if TYPE_CHECKING:
    from collections.abc import Sequence


def command(
    *,
    interval: float,
    count: int | None = None,
    demo: bool = False,
    gpm: bool = True,
    control: bool = False,
    secrets: bool = False,
) -> list[str]:
    """The command line of this gputop's own `stream`, whatever is on the PATH."""
    # -P: a file named psutil.py in the working directory is not the one that is meant.
    arguments = [sys.executable, "-P", "-m", "gputop", "stream", "--interval", f"{interval:g}"]
    if count is not None:
        arguments += ["--count", str(count)]
    if demo:
        arguments.append("--demo")
    if control:  # who can ask for GPM will do so when it is shown
        arguments.append("--control")
    if secrets:
        arguments.append("--unmasked")
    return arguments if gpm and not control else [*arguments, "--no-gpm"]


def launch(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """The started child, with pipes to all its streams. The end of its standard input is its end.

    It also ends with the thread that starts it. Raises `OSError` where it cannot be started.
    """
    ours = arguments[0] == sys.executable
    process = subprocess.Popen(
        arguments if ours else bound(arguments),
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl+C in the terminal is for the dashboard
    )
    assert process.stdin is not None
    os.set_blocking(process.stdin.fileno(), False)
    return process
