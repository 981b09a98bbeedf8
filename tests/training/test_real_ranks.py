"""Four gloo ranks of a real torchrun: a slow one and one that hangs are named; two hosts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.driver import FakeDriver
from tests.e2e.conftest import lab
from tests.e2e.shipped import NO_DRIVER, dashboard
from tests.training.gloo import (
    BEHIND,
    FINE,
    HUNG_TEXT,
    RANKS,
    SLOW_TEXT,
    hang,
    torchrun,
    until_named,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e.conftest import Lab

assert lab
pytestmark = [pytest.mark.slow, pytest.mark.driver]


@pytest.fixture(autouse=True)
def _torch() -> None:
    pytest.importorskip("torch")


def test_a_slow_rank_is_named(driver: FakeDriver, tmp_path: Path) -> None:
    with (
        torchrun(tmp_path, "slow", driver),
        dashboard(env=driver.environment(), columns=200) as terminal,
    ):
        until_named(terminal, f"{RANKS} GPUs", SLOW_TEXT)
        terminal.send("R")
        until_named(terminal, f"Rank {BEHIND} (GPU {BEHIND}, pid ", "the others wait for it")


def test_a_rank_that_hangs_is_named(driver: FakeDriver, tmp_path: Path) -> None:
    with (
        torchrun(tmp_path, "hangs", driver),
        dashboard(env=driver.environment(), columns=200) as terminal,
    ):
        until_named(terminal, f"{RANKS} GPUs")
        terminal.send("R")
        until_named(terminal, FINE)
        hang(tmp_path)
        until_named(terminal, HUNG_TEXT, "waits in a collective", "the others wait for it")


def test_ranks_on_two_real_hosts_are_one_job(
    lab: Lab, build_driver: Callable[..., Path], tmp_path: Path
) -> None:
    """Each host has two of the ranks, and the page has all of them."""
    drivers = []
    own = lab.environment
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        drivers.append(FakeDriver(folder, build_driver()))
        lab.environment = own | drivers[-1].environment()
        lab.add(name)
    env = {**NO_DRIVER, "PATH": f"{lab.programs()}:{os.environ['PATH']}"}
    with (
        torchrun(tmp_path, "hangs", *drivers),
        dashboard("--host", "one", "--host", "two", env=env, columns=200) as terminal,
    ):
        until_named(terminal, "2 hosts", f"{RANKS} GPUs")
        terminal.send("R")
        until_named(terminal, FINE, " 0 one ", " 1 one ", " 2 two ", " 3 two ")
        hang(tmp_path)
        until_named(terminal, f"for rank {BEHIND} (GPU two:0, pid ", "the others wait for it")
        terminal.send("q")
        assert terminal.wait() == 0
