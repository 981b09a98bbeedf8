"""What a scenario is, and the stage that runs it: the shipped command in a real pty."""

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from tests.driver import FakeDevice, FakeDriver, FakeProcess
from tests.e2e.shipped import GIB, GPUTOP, see
from tests.faults.pretend import Pretended, pretended
from tests.perf.measure import processor_seconds
from tests.terminal import ALTERNATE_SCREEN, SHOW_CURSOR, Terminal

Deed = Callable[["Stage"], object]
Seen = Callable[[Terminal], object]


@dataclass(frozen=True, slots=True)
class Key:
    press: str
    answered: Seen
    what: str


def shows(*texts: str) -> Seen:
    return lambda terminal: all(text in terminal.text for text in texts)


def hides(text: str) -> Seen:
    return lambda terminal: text not in terminal.text


KEYS = (
    Key("?", shows("Main keys"), "help opens"),
    Key("?", hides("Main keys"), "help closes"),
    Key("2", shows(" Kind "), "the benchmark"),
    Key("1", hides(" Kind "), "the monitor again"),
)
WELL = ("0 Test 0", "1 Test 1", "2 Test 2", "44 %")
NO_ZERO = (r"\b0 ?°C", r"\b0 W", r"\b0 MHz")


def three(pid: int) -> tuple[FakeDevice, ...]:
    return tuple(
        FakeDevice(
            name=f"NVIDIA Test {n}",
            gpu_utilization_percent=(31, 44, 59)[n],
            memory_used_bytes=(2 * n + 5) * 4 * GIB,
            temperature_celsius=43 + 5 * n,
            power_milliwatts=211_000 + 102_000 * n,
            sm_clock_mhz=1215 + 105 * n,
            processes=(FakeProcess(pid, memory_bytes=(n + 1) * GIB),),
        )
        for n in range(3)
    )


def free(_: int) -> tuple[FakeDevice, ...]:
    """Return three devices that nobody uses: a stress test begins without a question."""
    return tuple(replace(each, processes=()) for each in three(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One way to break it. Deeds are done to a `Stage`, which has the driver and the terminal."""

    name: str
    fault: Deed
    says: tuple[str, ...] = ()
    """What the screen has, all at once, once the fault is noticed: what it is, and the remedy."""
    silent: tuple[str, ...] = ()
    """What it has no more by then: the numbers of what does not answer."""
    never: tuple[str, ...] = ()
    """Patterns that are on no frame from the fault on: numbers that would be wrong."""
    mend: Deed | None = None
    """Ends the fault; None where it stays."""
    then: tuple[str, ...] = ()
    then_silent: tuple[str, ...] = ()
    at_start: bool = False
    """Whether the fault is there before gputop starts; else all is well on screen before."""
    before: tuple[str, ...] = WELL
    alive: int | None = 0
    """A device whose numbers must go on moving meanwhile; None where there is none."""
    keys: tuple[Key, ...] = KEYS
    devices: Callable[[int], tuple[FakeDevice, ...]] = three
    prepare: Deed | None = None
    """Done before gputop starts: files, and more `environment` of the stage."""
    within: Callable[[Path, list[str]], list[str]] | None = None
    """What it is run in, such as a shell: makes that of a folder for files and its command."""
    unwritten: tuple[bytes, ...] = ()
    rows: int = 40

    def __str__(self) -> str:
        return self.name


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
        if self._faulty and self._never is not None and not terminal.is_painting:
            wrong = self._never.search(terminal.text)
            assert wrong is None, f"{wrong[0]!r} on screen:\n{terminal.text}"

    def see(self, *texts: str, without: tuple[str, ...] = ()) -> None:
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
        began, before = time.monotonic(), processor_seconds(self.terminal.processes())
        self.terminal.collect(seconds)
        after = processor_seconds(self.terminal.processes())
        return (after - before) / (time.monotonic() - began)

    def _end(self) -> None:
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
