import contextlib
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.bench.workers import fake_interpreter
from tests.driver import FakeDriver
from tests.e2e.pretender import worker
from tests.e2e.shipped import ESCAPE, dashboard
from tests.soak.errands import ERRANDS, SIZE
from tests.soak.load import DEVICES, Load
from tests.terminal import Terminal

INTERVAL = 0.25
MIB = 1 << 20
MOST_GROWTH = 0.05
"""Of memory."""
SPARE_THREADS, SPARE_DESCRIPTORS = 4, 3
"""A pool of threads fills by and by; what has just ended may still be closing."""
OWN_FAULT = b"A fault in gputop"


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one process takes at one moment."""

    bytes: int
    """Memory of its own that it has written to: shared memory, such as code, comes and goes."""
    threads: int
    descriptors: int

    def __str__(self) -> str:
        return f"{self.bytes / MIB:7.1f} {self.threads:3d} {self.descriptors:3d}"

    @classmethod
    def of(cls, pid: int) -> Self:
        proc = Path("/proc") / str(pid)
        threads, descriptors = (len(list((proc / kind).iterdir())) for kind in ("task", "fd"))
        written = (proc / "smaps_rollup").read_text().partition("Private_Dirty:")[2]
        return cls(int(written.split()[0]) << 10, threads, descriptors)


@dataclass(frozen=True, slots=True)
class Row:
    minutes: float
    dashboard: Footprint
    sampler: Footprint


@dataclass
class Soak:
    """A soak on that driver; what the program writes lands in `folder`."""

    driver: FakeDriver
    folder: Path
    seed: int = 1
    rows: list[Row] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """What went wrong, apart from growth."""
    _to_do: list[str] = field(default_factory=list)
    """The errands that are left until each was run as often as the others."""

    def run(self, seconds: float, every: float) -> Iterator[Row]:
        """Go on that long, a row at each interval."""
        load = Load(self.driver, random.Random(self.seed))  # noqa: S311 - to be had again
        load.rest(40)
        with contextlib.closing(load), self._dashboard() as terminal:
            self._at_rest(terminal, load, 40)
            began = time.monotonic()
            while time.monotonic() - began < seconds:
                until = began + (len(self.rows) + 1) * every
                while time.monotonic() < until:
                    self._errand(terminal, load)
                row = self._measure(terminal, load, began)
                self.rows.append(row)
                yield row
                if self.faults:
                    break  # an hour more would not make it better
            self._end(terminal)

    def _dashboard(self) -> Terminal:
        environment = self.driver.environment() | {"GPUTOP_DEBUG": "1"}
        del environment["FAKE_NVML_CALLS"]  # nobody counts them, and there are millions
        python = fake_interpreter(self.folder, worker())
        arguments = ("--interval", f"{INTERVAL:g}", "--python", python)
        return dashboard(*arguments, env=environment, columns=SIZE[0], rows=SIZE[1])

    def _errand(self, terminal: Terminal, load: Load) -> None:
        if not self._to_do:
            self._to_do = load.chance.sample(list(ERRANDS), len(ERRANDS))
        for step in ERRANDS[self._to_do.pop()]:
            if isinstance(step, str):
                terminal.send(step)
                self._work(terminal, load, 0.3)
            elif isinstance(step, tuple):
                terminal.resize(*step)
                self._work(terminal, load, 0.05)
            else:
                self._work(terminal, load, step)
        self._work(terminal, load, load.chance.uniform(0.3, 3.0))

    def _work(self, terminal: Terminal, load: Load, seconds: float) -> None:
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
        sampler = next(pid for pid, line in terminal.processes().items() if " --control" in line)
        minutes = (time.monotonic() - began) / 60
        return Row(minutes, Footprint.of(terminal.pid), Footprint.of(sampler))

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


def verdict(rows: list[Row], warm: float, few: int = 3) -> tuple[list[str], list[str]]:
    """Return the memory of each process after so many minutes and at the end, and what grew."""
    said, found = [], []
    for name in ("dashboard", "sampler"):
        feet: list[Footprint] = [getattr(row, name) for row in rows if row.minutes >= warm]
        first, last = feet[:few], feet[-few:]
        before, after = (statistics.median(each.bytes for each in some) for some in (first, last))
        more = after / before - 1
        said.append(f"{name}: {before / MIB:.1f} to {after / MIB:.1f} MiB, {more:+.1%}")
        if more > MOST_GROWTH:
            found.append(f"the {name} grew by {more:.1%}")
        if min(e.threads for e in last) > max(e.threads for e in first) + SPARE_THREADS:
            found.append(f"the {name} has more and more threads")
        files = SPARE_DESCRIPTORS + max(e.descriptors for e in first)
        if min(e.descriptors for e in last) > files:
            found.append(f"the {name} has more and more files open")
    return said, found
