"""Several devices of the fake driver under stress, by keys in the benchmark tab: in a pty."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.bench.workers import fake_interpreter
from tests.driver import FakeDevice, FakeDriver
from tests.e2e.pretender import worker
from tests.e2e.shipped import DOWN, END, ENTER, GPUTOP, TAB, run, see
from tests.terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.driver

RUN_SECONDS = 60
"""Until something is there, on a machine that others use as well."""


def opened(driver: FakeDriver, folder: Path, body: str) -> Terminal:
    """The dashboard on that driver, with a worker that does no work."""
    argv = [*GPUTOP, "--python", fake_interpreter(folder, body)]
    return Terminal(argv, env=environment(driver, folder), columns=100, rows=40)


def environment(driver: FakeDriver, folder: Path) -> dict[str, str]:
    return {**driver.environment(), "XDG_DATA_HOME": str(folder / "kept")}


def choose_all(terminal: Terminal, count: int, seconds: str) -> None:
    """All GPUs from the list of devices, and the time."""
    terminal.wait_for(f"{count} GPUs")
    terminal.send("2")
    see(terminal, "Press b to start")
    terminal.send(TAB + ENTER)
    see(terminal, "Kind check", "╭──")
    terminal.send(DOWN + ENTER)
    see(terminal, "Kind soak", "Time s")
    terminal.send(TAB + ENTER)
    see(terminal, f"│all {count} GPUs")
    terminal.send(END + ENTER)
    see(terminal, f"Device all {count} GPUs")
    terminal.send(TAB * 3 + seconds)
    terminal.wait_for(lambda t: re.search(rf"Time s {seconds}\b", t.text) is not None)


def workers(terminal: Terminal) -> list[int]:
    return [pid for pid, line in terminal.processes().items() if "fake_worker" in line]


def row(terminal: Terminal, number: int) -> str:
    """The row of a device in the table."""
    wanted = re.compile(rf"^ GPU {number} ")
    return next((each for each in terminal.text.splitlines() if wanted.match(each)), "")


def see_words(terminal: Terminal, *words: str) -> None:
    """Waits until the devices' rows end in these: a title may be drawn before its table."""
    terminal.wait_for(
        lambda t: [row(t, n).split()[-1:] for n in range(len(words))] == [[each] for each in words],
        what=str(words),
    )


def kept(driver: FakeDriver, folder: Path) -> list[dict[str, Any]]:
    done = run("bench", "--history", "--json", env=environment(driver, folder))
    document: list[dict[str, Any]] = json.loads(done.stdout)
    return document


def test_all_gpus_run_together_and_who_is_behind_is_named(
    driver: FakeDriver, tmp_path: Path
) -> None:
    driver.write(*(FakeDevice() for _ in range(4)))
    with opened(driver, tmp_path, worker(slow=2, broken=3)) as terminal:
        choose_all(terminal, 4, "4")
        terminal.send("b")
        terminal.wait_for("Failed: GPU 3 · bfloat16", timeout=RUN_SECONDS)
        terminal.wait_for(lambda t: "% behind" in row(t, 2), timeout=RUN_SECONDS)
        assert row(terminal, 3).rstrip().endswith("failed")
        see(terminal, "GPU 3: The products do not fit: too little is free. Choose a smaller size")
        see(terminal, "TFLOP/s over time (s)  GPU 0  GPU 1  GPU 2  GPU 3")
        terminal.wait_for(lambda t: "DEGRADED" in row(t, 2), timeout=RUN_SECONDS)
        see_words(terminal, "ok", "ok", "DEGRADED", "failed")
        assert workers(terminal) == []
        terminal.send("q")
        assert terminal.wait() == 0
        terminal.wait_until_gone()
    results = kept(driver, tmp_path)
    assert {each["device_uuid"][-1] for each in results} == {"0", "1", "2"}
    assert {each["stopped"] for each in results} == {"time"}
