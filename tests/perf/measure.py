"""What a monitor costs and how soon it answers, seen from the terminal that it runs in."""

import compileall
import os
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import gputop
from tests.peers import Peer, arrow, marked
from tests.perf.machine import FIRST_CELSIUS, Machine
from tests.terminal import Terminal

TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE = 20.0
"""Seconds after which something is taken for not coming any more."""
SLICE = 0.1
"""Seconds of output that are looked at together."""
SETTLED = 6.0
"""Seconds after which a monitor does what it does for good."""
VALUE = re.compile(rf"(?<!\d){FIRST_CELSIUS}.?C")
"""A temperature is 71°C, 71C, or 71 and a sign that the test's terminal has no name for."""


def compile_package() -> None:
    """Compile gputop as an installer does. Otherwise its start takes a fifth longer."""
    compileall.compile_dir(Path(gputop.__file__).parent, quiet=1)


Figures = dict[str, float | None]
"""Of one monitor in one scene by the title of their column; None is what never came."""


class Recorder(Terminal):
    """A terminal that notes what came and when, and draws its screen only when asked to."""

    synchronizes = False  # since it answers late, and there are many terminals that do not

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.pieces: list[tuple[float, bytes]] = []
        self._seen = 0
        super().__init__(*arguments, **named)

    def _take(self, data: bytes) -> None:
        self.pieces.append((self.elapsed, data))

    def when(
        self, true: Callable[[Terminal], object], timeout: float = PATIENCE, first: float = SLICE
    ) -> float | None:
        """Return the time of the output after which that was true of the screen, or None.

        Output of the `first` seconds is looked at together.
        """
        deadline = self.elapsed + timeout
        pause = first
        while True:
            began = self.elapsed
            self.collect(pause)
            gone = self.elapsed - began < pause / 2
            for at, data in self.pieces[self._seen :]:
                self._seen += 1
                super()._take(data)
                if true(self):
                    return at
            if gone or self.elapsed > deadline:
                return None
            pause = SLICE

    def look(self) -> None:
        self.when(lambda _: False, timeout=0.0, first=0.01)


def has_text(terminal: Terminal) -> bool:
    return bool(terminal.text.strip())


def has_values(terminal: Terminal) -> bool:
    return VALUE.search(terminal.text) is not None


class Bench(NamedTuple):
    """Seconds of costs, number of keys, and number of starts."""

    seconds: float
    keys: int
    starts: int

    def measure(self, peer: Peer, machine: Machine) -> tuple[Figures, list[float]]:
        """Return the figures of a monitor, and the milliseconds that each key took."""
        starts: list[tuple[float | None, float | None]] = []
        found: Figures = {}
        if peer.draws:
            starts = [self._start(peer, machine) for _ in range(self.starts)]
            found["driver s"] = self._awaited(peer, machine)
        found["screen s"] = middle(screen for screen, _ in starts)
        found["values s"] = middle(values for _, values in starts)
        machine.rest()
        with self._open(peer, machine) as terminal:
            if peer.draws:
                terminal.when(has_values, first=1.0)
            with machine.work():
                terminal.collect(SETTLED)
                pieces, sent = len(terminal.pieces), terminal.bytes_received
                began, used = time.monotonic(), processor_seconds(terminal.processes())
                terminal.collect(self.seconds)
                took = time.monotonic() - began
                processes = terminal.processes()
                found["core %"] = 100 * (processor_seconds(processes) - used) / took
                found["writes/s"] = (len(terminal.pieces) - pieces) / took
                found["kB/s"] = (terminal.bytes_received - sent) / took / 1000
                found["PSS MiB"] = sum(map(pss, processes)) / 2**20
                keys = self._keys(peer, terminal) if peer.answers_keys else []
        return found, keys

    def _open(self, peer: Peer, machine: Machine, *, counted: bool = False) -> Recorder:
        scene, home = machine.scene, Path(tempfile.mkdtemp(dir=machine.folder))
        env = peer.environment(machine.driver, home)
        if not counted:  # each call would be written into a file
            del env["FAKE_NVML_CALLS"]
        return Recorder(peer.command, env=env, columns=scene.columns, rows=scene.rows)

    def _start(self, peer: Peer, machine: Machine) -> tuple[float | None, float | None]:
        """When there is a first cell, and when a first number."""
        machine.rest()
        with self._open(peer, machine) as terminal:
            screen = terminal.when(has_text, first=1.0)
            if screen is not None and has_values(terminal):
                return screen, screen
            return screen, terminal.when(has_values)

    def _awaited(self, peer: Peer, machine: Machine) -> float | None:
        """Return the seconds from the driver's first answer to the first number."""
        machine.rest(init_hang=True)
        machine.driver.forget_calls()
        with self._open(peer, machine, counted=True) as terminal:
            while not machine.driver.calls() and terminal.elapsed < PATIENCE:
                terminal.collect(SLICE)
            terminal.collect(1.0)  # by now all of it waits for the driver alone
            machine.rest()
            released = terminal.elapsed
            values = terminal.when(has_values, first=1.0)
        return None if values is None else values - released

    def _keys(self, peer: Peer, terminal: Recorder) -> list[float]:
        """Milliseconds from each of some keys, at random moments, to what they do on the screen."""
        moments = random.Random(1)  # noqa: S311 - to spread them over the interval
        terminal.send(peer.to_processes)
        terminal.collect(0.5)
        for _ in range(2):  # whatever is marked at first, there are rows before it and after it
            terminal.send(arrow(terminal, "B"))
            terminal.collect(1.2)
        terminal.look()
        found = []
        for number in range(self.keys):
            before = marked(terminal)
            sent = terminal.elapsed
            terminal.send(arrow(terminal, "AB"[number % 2]))
            at = terminal.when(lambda t, b=before: marked(t) != b, timeout=3.0)  # type: ignore[misc]
            if at is None:
                break
            found.append(1000 * (at - sent))
            terminal.collect(moments.uniform(0.05, 0.6))
            terminal.look()
        return found


def processor_seconds(pids: dict[int, str]) -> float:
    """User and system time of all of them, and of their children that have ended."""
    total = 0.0
    for pid in pids:
        try:
            # The kernel's clock of that process, in nanoseconds where /proc counts hundredths.
            total += time.clock_gettime(~pid << 3 | 2)
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += (int(fields[13]) + int(fields[14])) / TICKS
    return total


def pss(pid: int) -> int:
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    found = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
    return 1024 * int(found[1]) if found else 0


def middle(values: Iterable[float | None]) -> float | None:
    """Return the median of the known values."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
