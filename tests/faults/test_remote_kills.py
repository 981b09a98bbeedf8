"""The local side of hosts is killed: nothing stays on the other side."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e.test_ssh import GONE_SECONDS, WATCH, Lab, lab

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["lab"]
LONGEST_SECONDS = 2.0
"""From before `ssh` has connected until samples come."""


@pytest.mark.parametrize(
    "moments", [3, pytest.param(50, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_killed_at_any_moment(lab: Lab, tmp_path: Path, moments: int) -> None:
    """Wait for the end of each process of the other side, as the kernel says it."""
    home = tmp_path / "home"
    home.mkdir()
    lab.environment |= {"HOME": str(home), "TMPDIR": str(home)}
    lab.add("far", "MaxStartups 100")
    env = {**os.environ, "PATH": f"{lab.programs()}:{os.environ['PATH']}"}
    chance = random.Random(moments)  # noqa: S311
    longest, ran = 0.0, 0
    for _ in range(moments):
        command = [sys.executable, "-c", WATCH]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as watcher:
            assert watcher.stdout is not None
            watcher.stdout.readline()  # all is loaded, and it connects
            time.sleep(chance.uniform(0, LONGEST_SECONDS))
            ran += bool(lab.left())
            watcher.kill()
            killed = time.monotonic()
        # A session that begins meanwhile has to end as well.
        while time.monotonic() < killed + 0.5 or lab.left():
            if lab.left():
                longest = max(longest, time.monotonic() - killed)
            assert longest < 10 * GONE_SECONDS, lab.left()  # of a busy machine
            time.sleep(0.02)
    print(f"{moments} kills, {ran} with an agent there, longest life after it {longest:.2f} s")
    assert ran or moments < 50
    assert [*home.rglob("*")] == []
