"""Runs a scenario on the shipped command in a real pty."""

from __future__ import annotations

import os
import re
import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.shipped import GPUTOP, see
from tests.faults.pretend import Pretended, pretended
from tests.perf.measure import processor_seconds
from tests.terminal import ALTERNATE_SCREEN, SHOW_CURSOR, Terminal

if TYPE_CHECKING:
    from tests.driver import FakeDriver
    from tests.faults.scenario import Scenario

ALIVE = (88, 76, 64, 91)
"""Utilizations that devices of no scenario begin with."""
READY_SECONDS = 1.5
"""From the start until all tabs are made: a key before that waits for its tab, fault or not."""
IDLE_SECONDS = 0.5
BUSY = 0.5
"""Of a core: no more may be used where nobody does anything."""


class Stage:
    """What deeds are done to. Its methods wait for events, and fail after `SOON` seconds."""

    interval = 0.25

    def __init__(self, scenario: Scenario, driver: FakeDriver, folder: Path) -> None:
        self.scenario = scenario
        self.driver = driver
        self.folder = folder
        """A place for files."""
        self.environment = driver.environment()
        """Variables of gputop, which what prepares it may add to."""
        self.stopped = 0
        """The process that a deed has stopped."""
        self._terminal: Terminal | None = None
        self._faulty = False
        self._never = re.compile("|".join(scenario.never)) if scenario.never else None
        self._alive = 0

    @property
    def terminal(self) -> Terminal:
        assert self._terminal is not None, "not started yet"
        return self._terminal

    @cached_property
    def pretended(self) -> Pretended:
        """Another machine than this one."""
        made = pretended(self.folder / "pretended", self.driver.library)
        self.environment |= made.environment
        return made

    def perform(self) -> None:
        """Run the whole scenario; an `AssertionError` shows the screen where it fails."""
        scenario = self.scenario
        self.driver.write(*scenario.devices(os.getpid()))
        if scenario.prepare is not None:
            scenario.prepare(self)
        if scenario.at_start:
            self._begin()
        argv = [*GPUTOP, "--interval", f"{self.interval:g}"]
        if scenario.within is not None:
            argv = scenario.within(self.folder, argv)
        with Terminal(argv, self.environment, 120, scenario.rows) as terminal:
            self._terminal = terminal
            terminal.on_read = self._look
            if not scenario.at_start:
                self.see(*scenario.before)
                self._begin()
            self._last(terminal)
            if scenario.mend is not None:
                self._faulty = False
                scenario.mend(self)
                self.see(*scenario.then, without=scenario.then_silent)
                self._keep_alive()
                self._rest()
            self._end()

    def _begin(self) -> None:
        self.scenario.fault(self)
        self._faulty = True

    def _last(self, terminal: Terminal) -> None:
        """See what must be so while the fault lasts."""
        scenario = self.scenario
        self.see(*scenario.says, without=scenario.silent)
        self._keep_alive()
        terminal.collect(max(0.0, READY_SECONDS - terminal.elapsed))
        for key in scenario.keys:
            terminal.send(key.press)
            terminal.wait_for(key.answered, what=f"{key.what} after {key.press!r}")
        self._rest()
        self.see(*scenario.says, without=scenario.silent)
        self._keep_alive()

    def _look(self, terminal: Terminal) -> None:
        """At each frame: nothing wrong may be on the screen for a moment."""
        if self._faulty and self._never is not None and not terminal.is_painting:
            wrong = self._never.search(terminal.text)
            assert wrong is None, f"{wrong[0]!r} on screen:\n{terminal.text}"

    def see(self, *texts: str, without: tuple[str, ...] = ()) -> None:
        """Wait until all of these are on screen together, and none of those without."""
        see(self.terminal, *texts, without=without)

    def _keep_alive(self) -> None:
        """Change a number of a healthy device, and wait until the screen has it."""
        if self.scenario.alive is not None:
            percent = ALIVE[self._alive % len(ALIVE)]
            self._alive += 1
            self.driver.change(self.scenario.alive, gpu_utilization_percent=percent)
            shown = re.compile(rf"\b{percent} ?%")  # in a row there is no room for the blank
            what = f"{percent} % of device {self.scenario.alive}"
            self.terminal.wait_for(lambda t: shown.search(t.text), what=what)

    def _rest(self) -> None:
        """See that nothing runs in a busy loop. Something may just have been loaded."""
        assert self._core(IDLE_SECONDS) < BUSY or self._core(3 * IDLE_SECONDS) < BUSY

    def _core(self, seconds: float) -> float:
        """Return the share of a core that its processes use in the next seconds."""
        began, before = time.monotonic(), processor_seconds(self.terminal.processes())
        self.terminal.collect(seconds)
        after = processor_seconds(self.terminal.processes())
        return (after - before) / (time.monotonic() - began)

    def _end(self) -> None:
        """Quit; nothing may be left, and the terminal must be as it was."""
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
