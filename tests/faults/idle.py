"""States of the program in which nobody does anything: none may keep a core busy.

Those at one cell by one, suspended, or stopped are among the faults of the terminal.
"""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.e2e.shipped import ENTER, F9, GPUTOP
from tests.faults.scenario import Deed, Scenario, three
from tests.faults.terminals import fill, leave, pretend_worker, send, start

if TYPE_CHECKING:
    from tests.faults.stage import Stage


def state(name: str, reached: Deed, says: tuple[str, ...], **more: object) -> Scenario:
    """One that is reached by that deed and known by those words."""
    return Scenario(
        name=name,
        fault=reached,
        says=says,
        keys=(),
        alive=None,
        quit=leave,  # q closes what is open
        **more,  # type: ignore[arg-type]
    )


def nothing(stage: Stage) -> None:
    """It is there as it starts."""


def recording(stage: Stage) -> None:
    """A short one, played in place of this machine."""
    file = stage.folder / "recording.jsonl"
    arguments = ["stream", "--demo", "--interval", "0.25", "--count", "16", "--output", str(file)]
    subprocess.run([*GPUTOP, *arguments], check=True, capture_output=True, timeout=60)
    stage.arguments[:] = ["--replay", str(file)]


def no_host(stage: Stage) -> None:
    """A machine that ssh does not reach."""
    ssh = stage.folder / "ssh"
    ssh.write_text("#!/bin/sh\necho 'ssh: connect to host away: No route to host' >&2\nexit 255\n")
    ssh.chmod(0o755)
    stage.environment["PATH"] = f"{stage.folder}{os.pathsep}{os.environ['PATH']}"
    stage.arguments += ["--host", "away"]


def stop_test(stage: Stage) -> None:
    """A stress test that has ended."""
    start(stage)
    stage.terminal.send("x")


def unread(stage: Stage) -> None:
    """Measured here: the stage would read."""
    fill(stage)
    stage.shares = stage.used(2.0, read=False)


def stop_sampler(stage: Stage) -> None:
    os.kill(stage.pid_of(" stream "), signal.SIGSTOP)


SCENARIOS = (
    state("the monitor", nothing, ("44 %",)),
    state("the benchmark", send("2"), (" Kind ",)),
    state("the processes", send("3"), ("COMMAND",)),
    state("a device's page", send(ENTER), ("statistics",)),
    state("the findings", send("w"), ("Why is it slow?",)),
    state("the help", send("?"), ("Main keys",)),
    state("a dialog", send(F9), ("Send a signal",)),
    state("paused", send(" "), ("PAUSED",)),
    state("eight devices, simulated", nothing, ("7 H100",), before=(), arguments=("--demo",)),
    state(
        "no driver", nothing, ("No NVIDIA driver",), before=(), environment={"LD_LIBRARY_PATH": ""}
    ),
    state("a host that is not reached", nothing, ("UNREACHABLE",), before=(), prepare=no_host),
    state("a recording at its end", nothing, ("  end  ",), before=(), prepare=recording),
    state("a recording, paused", send(" "), ("paused",), before=("H100",), prepare=recording),
    state(
        "a stress test that has ended",
        stop_test,
        ("Stopped bfloat16",),
        prepare=pretend_worker,
        devices=lambda _: tuple(replace(each, processes=()) for each in three(0)),
    ),
    state("a terminal that nobody reads", unread, ("44 %",)),
    state("a sampler that is stopped", stop_sampler, ("No data for",)),
)
