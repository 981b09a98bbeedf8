"""Runs a scenario on the shipped command in a real pty, and takes the times that it needed."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.e2e.shipped import GPUTOP, SOON
from tests.faults.pretend import Pretended, pretended
from tests.perf.measure import processor_seconds
from tests.terminal import ALTERNATE_SCREEN, SHOW_CURSOR, Terminal

if TYPE_CHECKING:
    from tests.driver import FakeDriver
    from tests.faults.scenario import Key, Scenario

ALIVE = (88, 76, 64, 91)
"""Utilizations that devices of no scenario begin with."""
READY_SECONDS = 1.5
"""From the start until all tabs are made: a key before that waits for its tab, fault or not."""

BUSY = 0.5
"""Of a core: no more may be used where nobody does anything."""


@dataclasses.dataclass(slots=True)
class Outcome:
    """What a scenario took, in seconds."""

    name: str
    named: float = 0.0
    """From the fault, or from the first frame where it was there before, until it was named."""
    keys: list[tuple[float, str]] = dataclasses.field(default_factory=list)
    """From each key to what it does on the screen, and what that is."""
    core: float = 0.0
    """Share of a core that all processes used while the fault lasted and nobody typed."""
    recovered: float | None = None
    """From the end of the fault until all was well; None where it stays."""


class Stage:
    """What deeds are done to. Its methods wait for events, and fail after `SOON` seconds."""

    def __init__(
        self,
        scenario: Scenario,
        driver: FakeDriver,
        folder: Path,
        interval: float = 0.25,
        hold: float = 2.0,
    ) -> None:
        self.scenario = scenario
        self.driver = driver
        self.folder = folder
        """A place for files, and for what deeds have to remember."""
        self.interval = interval
        self.hold = hold
        """Seconds that something lasts which may last for long."""
        self.environment = driver.environment()
        """Variables of gputop, which what prepares it may add to."""
        self.arguments = ["--interval", f"{interval:g}", *scenario.arguments]
        self.stack = contextlib.ExitStack()
        """What has to be ended when it is over."""
        self.memory: dict[str, Any] = {}
        """What a deed leaves for the one that ends it."""
        self._pretended: Pretended | None = None
        self._terminal: Terminal | None = None
        self._faulty = False
        self._never = re.compile("|".join(scenario.never)) if scenario.never else None
        self._alive = 0

    @property
    def terminal(self) -> Terminal:
        assert self._terminal is not None, "not started yet"
        return self._terminal

    @property
    def pretended(self) -> Pretended:
        assert self._pretended is not None, "the scenario does not pretend"
        return self._pretended

    def perform(self, idle_seconds: float = 0.5) -> Outcome:
        """The whole scenario; raises an `AssertionError` that shows the screen where it fails."""
        scenario, outcome = self.scenario, Outcome(self.scenario.name)
        self.driver.write(*scenario.devices(os.getpid()))
        if scenario.pretends:
            self._pretended = pretended(self.folder / "pretended", self.driver.library)
            self.environment |= self.pretended.environment
        if scenario.prepare is not None:
            scenario.prepare(self)
        if scenario.at_start:
            self._begin()
        argv = [*GPUTOP, *self.arguments]
        if scenario.within is not None:
            argv = scenario.within(self.folder, argv)
        with self.stack, Terminal(argv, self.environment, 120, scenario.rows) as terminal:
            self._terminal = terminal
            terminal.on_read = self._look
            if scenario.at_start:
                began = terminal.first_paint_seconds
            else:
                self.see(*scenario.before)
                began = self._begin()
            outcome.named = self.see(*scenario.says, without=scenario.silent) - began
            self.keep_alive()
            terminal.collect(max(0.0, READY_SECONDS - terminal.elapsed))
            outcome.keys = [(self.press(key), key.what) for key in scenario.keys]
            outcome.core = self.used(idle_seconds)
            if outcome.core >= BUSY:  # something may just have been loaded; a busy loop goes on
                outcome.core = self.used(3 * idle_seconds)
            self.see(*scenario.says, without=scenario.silent)
            self.keep_alive()
            self.until(lambda terminal: not zombies(terminal), "end of the zombies")
            if scenario.mend is not None:
                began = terminal.elapsed
                self._faulty = False
                scenario.mend(self)
                seen = self.see(*scenario.then, without=scenario.then_silent)
                outcome.recovered = seen - began
                self.keep_alive()
            self._end()
        return outcome

    def _begin(self) -> float:
        """Lets the fault begin; returns when, in seconds since the start."""
        self.scenario.fault(self)
        self._faulty = True
        return 0.0 if self._terminal is None else self.terminal.elapsed

    def _look(self, terminal: Terminal) -> None:
        """At each frame: nothing wrong may be on the screen for a moment."""
        if self._faulty and self._never is not None and not terminal.is_painting:
            wrong = self._never.search(terminal.text)
            assert wrong is None, f"{wrong[0]!r} on screen:\n{terminal.text}"

    def see(self, *texts: str, without: tuple[str, ...] = ()) -> float:
        """Waits until all of these are on screen together, and none of those without.

        Returns the seconds since the start.
        """
        return self.terminal.wait_for(
            lambda t: all(x in t.text for x in texts) and not any(x in t.text for x in without),
            SOON,
            what=f"{texts} without {without}",
        )

    def keep_alive(self) -> None:
        """Changes a number of a healthy device, and waits until the screen has it."""
        if self.scenario.alive is not None:
            percent = ALIVE[self._alive % len(ALIVE)]
            self._alive += 1
            self.driver.change(self.scenario.alive, gpu_utilization_percent=percent)
            shown = re.compile(rf"\b{percent} ?%")  # in a row there is no room for the blank
            what = f"{percent} % of device {self.scenario.alive}"
            self.terminal.wait_for(lambda t: shown.search(t.text), SOON, what=what)

    def press(self, key: Key) -> float:
        """Presses a key and waits until it has been answered; returns the seconds that it took."""
        what = f"{key.what} after {key.press!r}"
        return self.terminal.answer(key.press, key.answered, SOON, what)

    def used(self, seconds: float) -> float:
        """Return the share of a core that its processes use in the next seconds."""
        began, before = time.monotonic(), processor_seconds(self.terminal.processes())
        self.terminal.collect(seconds)
        after = processor_seconds(self.terminal.processes())
        return (after - before) / (time.monotonic() - began)

    def pid_of(self, *words: str) -> int:
        """The process of this run whose command line has all of these words; waits for it."""
        found: list[int] = []

        def there(terminal: Terminal) -> bool:
            lines = terminal.processes().items()
            found[:] = [pid for pid, line in lines if all(word in line for word in words)]
            return bool(found)

        self.until(there, f"a process of {words}")
        return found[0]

    def until(self, true: Callable[[Terminal], object], what: str) -> None:
        """Waits for something that need not draw anything."""
        deadline = time.monotonic() + SOON
        while not true(self.terminal):
            assert time.monotonic() < deadline, f"no {what}; on screen:\n{self.terminal.text}"
            self.terminal.collect(0.02)

    def _end(self) -> None:
        """Quits; nothing may be left, and the terminal must be as it was."""
        terminal, scenario = self.terminal, self.scenario
        terminal.send("q")
        status = terminal.wait()
        assert status == 0, f"exit status {status}; on screen:\n{terminal.text}"
        terminal.wait_until_gone()
        assert ALTERNATE_SCREEN not in terminal.modes, terminal.text
        assert SHOW_CURSOR in terminal.modes, "the cursor is hidden"
        left = terminal.modes & {1000, 1002, 1003, 1004, 1006, 1015, 2004}
        assert not left, f"modes that it left set: {left}"
        assert terminal.line_modes == terminal.line_modes_before, "echo, and line by line"
        pushed, popped = terminal.raw.count(b"\x1b[>25u"), terminal.raw.count(b"\x1b[<u")
        assert pushed <= popped, "Kitty's keyboard protocol is on"
        assert "Traceback" not in terminal.text, terminal.text
        written = [each for each in scenario.unwritten if each in terminal.raw]
        assert not written, f"it wrote {written}"


def zombies(terminal: Terminal) -> list[int]:
    """Children of its processes that have ended, and that nobody has asked for."""
    parents, found = set(terminal.processes()), []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = file.read_text().rpartition(")")[2].split()[:2]
            if state == "Z" and int(parent) in parents:
                found.append(int(file.parent.name))
    return found
