"""`gputop run` ends in every way at any moment: the command goes on, and no output is missing."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from gputop.training.runs import Run, read_run
from tests.e2e.shipped import GPUTOP, SOON
from tests.terminal import ScreenError, Terminal

STEPS = 400
LATEST_SECONDS = 3.0
STATUS = 7
CODE = f"""
import sys, time
for n in range({STEPS}):
    print('step', n, 'loss', 1 / (n + 1), flush=True)
    time.sleep(0.01)
sys.exit({STATUS})
"""
WAYS = ("SIGKILL", "SIGHUP", "SIGTERM", "closed terminal", "killed shell", "q")


class Ending(NamedTuple):
    """A way in which gputop ends, and the moment after the command began."""

    way: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.way} after {self.seconds:.2f} s"


def endings(seed: int, times: int) -> list[Ending]:
    """Each way in turn, at random moments."""
    chance = random.Random(seed)  # noqa: S311 - a test
    moments = [chance.uniform(0, LATEST_SECONDS) for _ in range(times)]
    return [Ending(WAYS[n % len(WAYS)], moment) for n, moment in enumerate(moments)]


def perform(ending: Ending, folder: Path) -> None:
    """End gputop so, and compare the output that an attached one prints with the whole of it."""
    environment = {"XDG_DATA_HOME": str(folder)}
    command = [*GPUTOP, "--demo", "run", "--", sys.executable, "-c", CODE]
    if ending.way == "killed shell":
        command = ["/bin/sh", "-c", '"$@"; true', "sh", *command]
    with Terminal(command, env=environment) as terminal:
        run = begun(folder / "gputop" / "runs", terminal)
        terminal.collect(ending.seconds)
        end(ending.way, terminal)
        output = subprocess.run(
            [*GPUTOP, "run", "--attach", run.name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=SOON,
            env={**os.environ, **environment},
        )
    found = [int(line.split()[1]) for line in output.stdout.splitlines()]
    assert found == [*range(STEPS)], f"{ending}: {len(found)} lines"
    assert output.returncode == STATUS, ending


def begun(folder: Path, terminal: Terminal) -> Run:
    """Wait until the relay has noted the command."""
    deadline = time.monotonic() + SOON
    while time.monotonic() < deadline:
        terminal.collect(0.01)
        for each in folder.glob("*"):
            run = read_run(each)
            if run is not None:
                return run
    raise ScreenError(f"no command has begun:\n{terminal.text}")


def end(way: str, terminal: Terminal) -> None:
    """End gputop in one of the ways."""
    match way:
        case "closed terminal":
            terminal.close_pty()
        case "killed shell":
            terminal.kill(signal.SIGKILL)
            terminal.close_pty()
        case "q":
            terminal.send("q")
        case _:
            terminal.kill(signal.Signals[way])
    terminal.wait()
