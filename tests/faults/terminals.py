"""Faults of the terminal: suspended, not read, of any size, pasted into."""

from __future__ import annotations

import os
import random
import re
import shlex
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.workers import fake_interpreter
from tests.e2e.pretender import worker
from tests.e2e.shipped import ESCAPE_WHOLE, F9, SOON, children, held_by
from tests.faults.scenario import WELL, Scenario
from tests.terminal import ALTERNATE_SCREEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.stage import Stage
    from tests.terminal import Terminal

LATER, LATER_YET = 77, 23
"""Utilizations of device 1 after its 44 %."""
MOST_BYTES = 160_000
"""That a screen, and what the kernel holds of a terminal that nobody reads, have at most."""
MOST_GROWTH = 24 << 20
"""Bytes by which a dashboard may grow that nobody reads: Python's own ups and downs."""
WRONG_AGES = "No data for|NOT RESPONDING|sampler stopped|AWAY for"


def change(stage: Stage, percent: int) -> None:
    """Have device 1 be as busy as that."""
    stage.driver.change(1, gpu_utilization_percent=percent)


# Suspended and stopped.


def in_shell(folder: Path, command: list[str]) -> list[str]:
    """In a shell with job control: once it is stopped, f is as `fg`.

    Other keys are the terminal's answers to a dashboard that did not live to read them.
    """
    line = (
        f"{shlex.join(command)}; s=$?; "
        'while [ -n "$(jobs)" ]; do read -rsn1 key; '
        'if [ "$key" = f ]; then fg; s=$?; fi; done; exit $s'
    )
    return ["bash", "--norc", "--noprofile", "-i", "-c", line]


def suspend(stage: Stage) -> None:
    """Press Ctrl+Z; the shell has the terminal, as it was before."""
    stage.terminal.send("\x1a")
    stage.see("Stopped")
    assert ALTERNATE_SCREEN not in stage.terminal.modes
    assert not stage.terminal.modes & {1000, 1003, 1004, 1006, 2004}
    change(stage, LATER)


def stop(stage: Stage) -> None:
    """Stop the dashboard from outside, for a while, in which its sampler goes on."""
    stage.terminal.kill(signal.SIGSTOP)
    change(stage, LATER)
    stage.terminal.collect(stage.hold)
    stage.memory["raw"] = stage.terminal.bytes_received


def go_on(stage: Stage) -> None:
    """Continue it; of what came meanwhile nothing is shown that is not so any more."""
    change(stage, LATER_YET)
    stage.terminal.collect(2 * stage.interval)
    frames: list[str] = []
    stage.terminal.on_read = lambda terminal: frames.append(terminal.text)
    stage.terminal.kill(signal.SIGCONT)
    stage.see(f"{LATER_YET} %")
    wrong = [frame for frame in frames if re.search(WRONG_AGES, frame)]
    assert not wrong, wrong[0]
    check_bytes(stage)


def check_bytes(stage: Stage) -> None:
    """Check how much had to be read until the screen was of now."""
    late = stage.terminal.bytes_received - stage.memory["raw"]
    assert late < MOST_BYTES, f"{late} bytes of the past"


SUSPENDED = (
    Scenario(
        name="suspended by Ctrl+Z, and resumed",
        within=in_shell,
        fault=suspend,
        says=("Stopped",),
        keys=(),
        alive=None,
        mend=lambda stage: stage.terminal.send("f"),
        then=("0 Test 0", "2 Test 2", f"{LATER} %", "Quit"),
        then_silent=("Stopped",),
    ),
    Scenario(
        name="stopped by kill -STOP for a while, and continued",
        fault=stop,
        keys=(),
        alive=None,
        mend=go_on,
        then=(*WELL[:3], f"{LATER_YET} %"),
    ),
)

# Not read.


def fill_terminal(terminal: Terminal) -> None:
    """Have it draw, and read nothing, until the terminal takes no more."""
    deadline, still, before = time.monotonic() + 3 * SOON, 0, -1
    while still < 6:
        assert time.monotonic() < deadline, "the terminal takes everything"
        terminal.send("21")
        time.sleep(0.1)  # nothing is read that could be waited for
        now = terminal.waiting_bytes
        still, before = (still + 1 if now == before > 0 else 0), now


def resident_bytes(pid: int) -> int:
    """Return how much memory of a process is in use."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def press(stage: Stage, key: str, wait: Callable[[float], object]) -> None:
    """Wait until the dashboard has taken the key and sleeps at each of a few looks."""
    stage.terminal.send(key)
    deadline, still = time.monotonic() + SOON, 0
    while still < 5:
        assert time.monotonic() < deadline, f"no rest after {key!r}"
        wait(0.02)
        state = Path(f"/proc/{stage.terminal.pid}/stat").read_text().rpartition(")")[2].split()[0]
        still = still + 1 if state in "SZ" else 0


def nobody_reads(stage: Stage) -> None:
    """For a while; meanwhile it goes on, does not grow, and takes keys: the last shows the rest."""
    terminal = stage.terminal
    fill_terminal(terminal)
    memory, until = resident_bytes(terminal.pid), time.monotonic() + stage.hold
    percent, reads = 50, stage.driver.calls(1)["nvmlDeviceGetUtilizationRates"]
    while time.monotonic() < until:
        percent = 50 + (percent + 1) % 20
        change(stage, percent)
        terminal.send("2")
        time.sleep(stage.interval / 2)
        terminal.send("?")  # closes it on any tab, or opens it
        terminal.send(ESCAPE_WHOLE)
        time.sleep(stage.interval / 2)
    for key in (ESCAPE_WHOLE, "1"):
        press(stage, key, time.sleep)
    grown = resident_bytes(terminal.pid) - memory
    assert grown < MOST_GROWTH, f"grew by {grown} bytes while nobody read"
    assert stage.driver.calls(1)["nvmlDeviceGetUtilizationRates"] > reads, "nobody samples"
    change(stage, LATER)
    time.sleep(2 * stage.interval)
    stage.memory["raw"] = terminal.bytes_received


UNREAD = Scenario(
    name="nobody reads the terminal",
    fault=nobody_reads,
    says=(*WELL[:3], f"{LATER} %", "Quit"),
    silent=("Main keys",),
    mend=check_bytes,
    then=(f"{LATER} %",),
)

# Of any size.


def resize_often(stage: Stage) -> None:
    """As small as a terminal can be, and then a hundred sizes, as of a window that is dragged."""
    for columns, rows in ((200, 1), (1, 60), (19, 4), (1, 1)):
        stage.terminal.resize(columns, rows)
        stage.terminal.collect(stage.interval)
    dice = random.Random(7)  # noqa: S311 - no secret
    for _ in range(100):
        stage.terminal.resize(dice.randint(1, 250), dice.randint(1, 80))
        stage.terminal.collect(0.01)
    stage.terminal.resize(120, 40)


SIZES = Scenario(
    name="one cell by one, and a hundred sizes in a second",
    fault=resize_often,
    says=(*WELL, "Quit"),
)

# Pasted into.

VICTIMS = ("train-alpha", "train-beta", "serve-gamma")
MEGABYTE = 1 << 20
TEXT = f"3{F9}\r y b q x \x1b[B\x1b{'y' * 40} 9y\n2b\ty\r"
"""What would do much if it were keys: it has signals, stress tests, and their confirmation."""


def victims(stage: Stage) -> None:
    """Start processes that may be sent signals by mistake; stress tests do no work."""
    processes = stage.stack.enter_context(children(*VICTIMS))
    stage.memory["victims"] = processes
    for number in range(3):
        stage.driver.change(number, processes=held_by(processes))
    stage.arguments += ["--python", fake_interpreter(stage.folder, worker())]
    stage.environment["XDG_DATA_HOME"] = str(stage.folder)


def unharmed(stage: Stage) -> None:
    """Check that no process got a signal, and that none was started."""
    ended = [name for name, each in stage.memory["victims"].items() if each.poll() is not None]
    assert not ended, f"{ended} got a signal"
    assert len(stage.terminal.processes()) == 2, stage.terminal.processes()


def paste(stage: Stage) -> None:
    """Paste a megabyte as terminals do: in pieces, and what comes back is read meanwhile."""
    data = f"\x1b[200~{TEXT * (MEGABYTE // len(TEXT))}\x1b[201~".encode()
    for at in range(0, len(data), 1024):
        stage.terminal.send(data[at : at + 1024])
        stage.terminal.collect(0.0)
    unharmed(stage)


PASTED = Scenario(
    name="a megabyte pasted, bracketed, on the monitor",
    prepare=victims,
    before=(*WELL, "train-alpha"),
    fault=paste,
    says=(*WELL, "train-alpha"),
    mend=unharmed,
    then=WELL,
)
SCENARIOS: tuple[Scenario, ...] = (*SUSPENDED, UNREAD, SIZES, PASTED)
