"""The soak: runs the dashboard under load, and measures it at rest, at even intervals."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.workers import fake_interpreter
from tests.e2e.pretender import worker
from tests.e2e.shipped import ESCAPE, dashboard
from tests.soak import witness
from tests.soak.errands import ERRANDS, SIZE, STRESS_TEST, TESTS_A_MINUTE, Step
from tests.soak.load import DEVICES, Load

if TYPE_CHECKING:
    from tests.driver import FakeDriver
    from tests.terminal import Terminal

INTERVAL = 0.25
MOST_GROWTH = 0.05
"""Of memory."""
SPARE_THREADS, SPARE_DESCRIPTORS = 4, 3
"""A pool of threads fills by and by; what has just ended may still be closing."""
OWN_FAULT = b"A fault in gputop"


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one process takes at one moment."""

    pid: int
    bytes: int
    """Memory of its own that it has written to: shared memory, such as code, comes and goes."""
    threads: int
    descriptors: int

    def __str__(self) -> str:
        return f"{self.bytes / (1 << 20):7.1f} {self.threads:3d} {self.descriptors:3d}"


def footprint(pid: int) -> Footprint:
    """Return the footprint of a process."""
    proc = Path("/proc") / str(pid)
    threads, descriptors = (len(list((proc / kind).iterdir())) for kind in ("task", "fd"))
    own = 0
    for line in (proc / "smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            own += int(line.split()[1]) << 10
    return Footprint(pid, own, threads, descriptors)


@dataclass(frozen=True, slots=True)
class Row:
    """A moment at rest."""

    minutes: float
    dashboard: Footprint
    sampler: Footprint


Feet = list[Footprint]


@dataclass
class Soak:
    """A soak on that driver; what the program writes lands in `folder`."""

    driver: FakeDriver
    folder: Path
    seed: int = 1
    rows: list[Row] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)
    """How often each errand was run, and each thing happened."""
    faults: list[str] = field(default_factory=list)
    """What went wrong, apart from growth."""
    _to_do: list[str] = field(default_factory=list)
    """The errands that are left until each was run as often as the others."""
    _began: float = 0.0

    def run(self, seconds: float, every: float, kills: tuple[float, ...]) -> Iterator[Row]:
        """Goes on that long, a row at each interval; the sampler is killed after those seconds."""
        load = Load(self.driver, random.Random(self.seed))  # noqa: S311 - to be had again
        load.rest(40)
        with contextlib.closing(load), self._dashboard() as terminal:
            self._at_rest(terminal, load, 40)
            began = self._began = time.monotonic()
            due = [*kills]
            while time.monotonic() - began < seconds:
                until = began + (len(self.rows) + 1) * every
                while time.monotonic() < until:
                    if due and time.monotonic() - began >= due[0]:
                        due.pop(0)
                        os.kill(sampler_of(terminal), signal.SIGKILL)
                        self._count("sampler killed")
                    self._errand(terminal, load)
                row = self._measure(terminal, load, began)
                self.rows.append(row)
                yield row
                if self.faults or self._noted.exists():
                    break  # an hour more would not make it better
            self._end(terminal)
            for what, many in load.seen.items():
                self.done[what] = many

    def _dashboard(self) -> Terminal:
        hook = self.folder / "hook"
        hook.mkdir()
        (hook / "sitecustomize.py").symlink_to(Path(witness.__file__))
        environment = self.driver.environment() | {
            "PYTHONPATH": os.pathsep.join(filter(None, (str(hook), os.environ.get("PYTHONPATH")))),
            "GPUTOP_DEBUG": "1",
            witness.NAME: str(self.folder),
        }
        del environment["FAKE_NVML_CALLS"]  # nobody counts them, and there are millions
        python = fake_interpreter(self.folder, worker())
        arguments = ("--interval", f"{INTERVAL:g}", "--python", python)
        return dashboard(*arguments, env=environment, columns=SIZE[0], rows=SIZE[1])

    def _errand(self, terminal: Terminal, load: Load) -> None:
        if not self._to_do:
            self._to_do = load.chance.sample(list(ERRANDS), len(ERRANDS))
        wanted = TESTS_A_MINUTE * (time.monotonic() - self._began) / 60
        name = STRESS_TEST if self.done.get(STRESS_TEST, 0) < wanted else self._to_do.pop()
        self._count(name)
        self._do(ERRANDS[name], terminal, load)
        self._work(terminal, load, load.chance.uniform(0.3, 3.0))

    def _do(self, steps: tuple[Step, ...], terminal: Terminal, load: Load) -> None:
        for step in steps:
            if isinstance(step.does, str):
                terminal.send(step.does)
            else:
                terminal.resize(*step.does)
            self._work(terminal, load, step.seconds)

    def _work(self, terminal: Terminal, load: Load, seconds: float) -> None:
        """That long under load, a tick at each interval."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            load.tick()
            terminal.collect(min(INTERVAL, left))
            if OWN_FAULT in terminal.raw:
                self.faults.append(f"it says {OWN_FAULT.decode()!r}:\n{terminal.text}")
            # Kept whole it would grow here, and what is cut in two is seen the next time.
            terminal.raw = terminal.raw[-len(OWN_FAULT) + 1 :]

    def _measure(self, terminal: Terminal, load: Load, began: float) -> Row:
        self._at_rest(terminal, load, 41 + len(self.rows) % 30)
        pids = terminal.pid, sampler_of(terminal)
        feet = map(footprint, pids)
        return Row((time.monotonic() - began) / 60, *feet)

    def _at_rest(self, terminal: Terminal, load: Load, temperature: int) -> None:
        """Back on the monitor with every fault over; waits until all devices say so."""
        for key in (ESCAPE, ESCAPE, "1"):
            terminal.send(key)
            terminal.collect(0.3)
        load.rest(temperature)
        terminal.wait_for(
            lambda t: t.text.count(f"{temperature}°C") >= DEVICES and "Test 7" in t.text,
            timeout=60,
            what=f"{DEVICES} devices of {temperature}°C",
        )
        terminal.wait_for(
            lambda t: len(t.processes()) <= 2, timeout=20, what="no worker that is left"
        )

    def _end(self, terminal: Terminal) -> None:
        terminal.send("q")
        status = terminal.wait(20)
        if status:
            self.faults.append(f"it ended with {status}:\n{terminal.text}")
        terminal.wait_until_gone()
        if self._noted.exists():
            self.faults.append(self._noted.read_text())

    @property
    def _noted(self) -> Path:
        """Where the witness writes."""
        return self.folder / "faults"

    def _count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1


def sampler_of(terminal: Terminal) -> int:
    """The pid of the dashboard's sampler; waits for the next one where one has just died."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for pid, line in terminal.processes().items():
            if "gputop stream" in line and "--control" in line:
                return pid
        terminal.collect(0.1)
    raise TimeoutError(f"there is no sampler:\n{terminal.text}")


def growth(before: list[int], after: list[int]) -> float:
    """By which part the median went up."""
    return statistics.median(after) / statistics.median(before) - 1


def lives(rows: list[Row], warm: float, few: int) -> Iterator[tuple[str, Feet, Feet]]:
    """The first and the last rows of each process after so many minutes of its life."""
    for name in ("dashboard", "sampler"):
        by_pid: dict[int, list[tuple[float, Footprint]]] = {}
        for row in rows:
            each: Footprint = getattr(row, name)
            by_pid.setdefault(each.pid, []).append((row.minutes, each))
        for pid, life in by_pid.items():
            began = life[0][0] - rows[0].minutes
            known = [each for at, each in life if at >= began + warm]
            if len(known) >= 2:
                yield f"the {name} (process {pid})", known[:few], known[-few:]


def summary(rows: list[Row], warm: float, few: int = 3) -> Iterator[str]:
    """How much memory each process had after so many minutes and at the end."""
    for who, first, last in lives(rows, warm, few):
        before, after = ([each.bytes for each in feet] for feet in (first, last))
        mib = (statistics.median(each) / (1 << 20) for each in (before, after))
        yield "{}: {:.1f} to {:.1f} MiB, {:+.1%}".format(who, *mib, growth(before, after))


def verdict(rows: list[Row], warm: float, few: int = 3) -> list[str]:
    """What grew, in rows after so many minutes of each process's life; nothing if all is well."""
    found = []
    for who, first, last in lives(rows, warm, few):
        more = growth([each.bytes for each in first], [each.bytes for each in last])
        if more > MOST_GROWTH:
            found.append(f"{who} grew by {more:.1%}")
        if min(e.threads for e in last) > max(e.threads for e in first) + SPARE_THREADS:
            found.append(f"{who} has more and more threads")
        files = SPARE_DESCRIPTORS + max(e.descriptors for e in first)
        if min(e.descriptors for e in last) > files:
            found.append(f"{who} has more and more files open")
    return found


def say(line: str) -> None:
    """One line, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
