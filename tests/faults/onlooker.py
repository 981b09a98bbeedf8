"""Looks at any monitor while something breaks, and sees by machine what becomes of it."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tests.faults.basics import INJECTED
from tests.faults.scenario import Scenario, pattern
from tests.peers import Peer, arrow, has_ended, marked
from tests.terminal import Terminal

if TYPE_CHECKING:
    from tests.driver import FakeDriver
    from tests.faults.stage import Stage

NOTICED = 6.0
"""Seconds after which a fault should have been seen: as many intervals, and more."""
FOLLOWED = 5.0
RECOVERED = 10.0
KEY = 2.0
"""Seconds in which a changed number must be on the screen, all numbers again, and a key's work."""
LINE = 80
"""So much of a line is quoted."""
PERCENTAGES = (86, 73, 64, 91, 52)
"""Utilizations that no scenario begins with."""
WORDS = re.compile(
    r"lost|not responding|no answer|no data|N/A|error|unknown|unavailable|fail\w*|crash\w*|waiting"
    r"|cannot|not (?:found|loaded|running|supported|available|answering)"
    r"|no (?:gpu|nvidia|device)s?\b"
    r"|permission|mismatch|upgraded|reset|time[d-]? ?out|slow\b|\?\?|(?<!\S)–(?!\S)",
    re.IGNORECASE,
)
"""How a monitor may say that something is amiss, or that a number is not there."""


class NotForOthersError(Exception):
    """The scenario does something to gputop itself."""


@dataclasses.dataclass(slots=True)
class Setting:
    """What deeds of a scenario may be done to where the monitor is not gputop."""

    scenario: Scenario
    driver: FakeDriver
    folder: Path
    environment: dict[str, str]
    interval: float = 1.0
    arguments: list[str] = dataclasses.field(default_factory=list)
    memory: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(slots=True)
class Outcome:
    """What became of a monitor in a scenario; None is what was not to be seen."""

    ended: str | None = None
    """How it ended by itself, if it did."""
    says: tuple[str, ...] = ()
    """Words that it has for a fault, which it has not while all is well."""
    wrong: str | None = None
    """The first text that must never have been there."""
    follows: bool | None = None
    """Whether numbers of a healthy device went on moving."""
    keys: bool | None = None
    """Whether an arrow moved the mark, where there is a healthy device with a process."""
    recovers: bool | None = None
    quits: bool | None = None
    screen: str = ""
    """While the fault lasted."""


class Onlooker:
    """Of one monitor in one scenario."""

    def __init__(self, peer: Peer, scenario: Scenario, driver: FakeDriver, folder: Path) -> None:
        self.peer = peer
        self.scenario = scenario
        self.driver = driver
        environment = {**peer.environment(driver, folder), **scenario.environment}
        self.setting = Setting(scenario, driver, folder, environment)
        self.outcome = Outcome()
        self._never = pattern(scenario.never)
        self._faulty = False
        self._turn = 0

    def look(self, usual: Counter[str]) -> Outcome:
        """The whole scenario; `usual` are the words of a monitor without a fault."""
        scenario, outcome = self.scenario, self.outcome
        if scenario.arguments or scenario.quit or scenario.lead:
            raise NotForOthersError
        self.driver.write(*scenario.devices(os.getpid()), **scenario.machine)
        self.peer.configure(self.setting.folder, len(self.driver.devices), scenario.rows)
        if scenario.at_start:
            self._break()
        self._do("prepare")
        env, size = self.setting.environment, (scenario.columns, scenario.rows)
        try:
            with Terminal(self.peer.command, env, *size) as terminal:
                terminal.on_read = self._check
                said = self._watch(terminal) - usual
                outcome.says = tuple(f"{word} x{count}" for word, count in sorted(said.items()))
                outcome.quits = outcome.ended is not None or self._quit(terminal)
        finally:
            if self._faulty:
                self._do("mend")
        return outcome

    def usual(self) -> Counter[str]:
        """The words that are on its screen while all is well."""
        self.driver.write(*self.scenario.devices(os.getpid()))
        self.peer.configure(self.setting.folder, len(self.driver.devices), self.scenario.rows)
        with Terminal(self.peer.command, self.setting.environment, 120, 40) as terminal:
            self._sees(terminal, self._percent(0), RECOVERED)
            terminal.collect(2.0)
            return words(terminal.text)

    def _watch(self, terminal: Terminal) -> Counter[str]:
        """From a healthy start, or not, to its recovery, or its end; what it said meanwhile."""
        scenario, outcome = self.scenario, self.outcome
        if not scenario.at_start:
            assert self._sees(terminal, self._percent(0), RECOVERED), terminal.text
            self._break()
        began = terminal.elapsed
        terminal.collect(NOTICED)
        if terminal.elapsed - began < NOTICED:  # it has let go of its terminal, and is about to end
            has_ended(terminal.pid, within=KEY)
        if scenario.alive is not None:
            outcome.follows = self._follows(terminal, scenario.alive, FOLLOWED)
            if self.peer.answers_keys and not has_ended(terminal.pid):
                outcome.keys = self._moves(terminal)
        outcome.screen = terminal.text
        said = words(terminal.text)
        if has_ended(terminal.pid):
            outcome.ended = ending(terminal)
        elif scenario.mend is not None:
            self._do("mend")
            self._faulty = False
            last = len(self.driver.devices) - 1
            outcome.recovers = all(
                self._follows(terminal, index, RECOVERED) for index in {0, min(1, last)}
            )
            if has_ended(terminal.pid):
                outcome.ended = "later: " + ending(terminal)
        return said

    def _break(self) -> None:
        self._do("fault")
        self._faulty = True

    def _do(self, name: str) -> None:
        deed = getattr(self.scenario, name)
        try:
            if deed is not None:
                deed(cast("Stage", self.setting))
        except AttributeError as error:  # of a stage: its terminal, its keys, its processes
            raise NotForOthersError from error

    def _check(self, terminal: Terminal) -> None:
        """At each piece of output: nothing wrong may be there for a moment."""
        if self.outcome.wrong is None and self._faulty:
            found = self._never.search(plain(terminal.text)) if self._never else None
            if INJECTED.encode() in terminal.raw:
                self.outcome.wrong = "escape sequence passed on"
            elif found is not None:
                self.outcome.wrong = found[0]

    def _percent(self, index: int) -> str:
        return f"{self.driver.devices[index].gpu_utilization_percent} %"

    def _follows(self, terminal: Terminal, index: int, seconds: float) -> bool:
        """Whether a changed number of the device comes onto the screen."""
        percent = PERCENTAGES[self._turn % len(PERCENTAGES)]
        self._turn += 1
        self.driver.change(index, gpu_utilization_percent=percent)
        return self._sees(terminal, f"{percent} %", seconds)

    def _sees(self, terminal: Terminal, text: str, seconds: float) -> bool:
        deadline = terminal.elapsed + seconds
        while text not in plain(terminal.text):
            if terminal.elapsed > deadline or has_ended(terminal.pid):
                return False
            terminal.collect(0.1)
        return True

    def _moves(self, terminal: Terminal) -> bool:
        """Whether an arrow key moves the mark; twice, since the first may have nothing to leave."""
        for letter in "BB":
            before = marked(terminal)
            terminal.send(arrow(terminal, letter))
            deadline = terminal.elapsed + KEY
            while terminal.elapsed < deadline:
                terminal.collect(0.1)
                if marked(terminal) != before:
                    return True
        return False

    def _quit(self, terminal: Terminal) -> bool:
        """Whether it leaves when it is told to."""
        terminal.send("q" if self.peer.answers_keys else "\x03")
        deadline = terminal.elapsed + KEY
        while not has_ended(terminal.pid) and terminal.elapsed < deadline:
            terminal.collect(0.05)
        return has_ended(terminal.pid)


def plain(text: str) -> str:
    """Numbers with their units as gputop writes them: other monitors write 44% and 48C."""
    text = re.sub(r"(?<=\d) ?[°f]?C\b", "°C", text)
    text = re.sub(r"(?<=\d) ?%", " %", text)
    return re.sub(r"(?<=\d) ?W\b", " W", text)


def words(text: str) -> Counter[str]:
    """How often it has each of the words for something that is amiss."""
    return Counter(word.lower() for word in WORDS.findall(text))


def ending(terminal: Terminal) -> str:
    """The signal, or the exit status and what it left on the screen that tells most."""
    status = terminal.wait()
    if status < 0:
        return signal.Signals(-status).name
    lines = [line.strip() for line in terminal.text.splitlines() if line.strip()]
    told = next((line for line in lines if WORDS.search(line)), lines[-1] if lines else "")
    traceback = ", a traceback" if "Traceback" in terminal.text else ""
    return f"status {status}{traceback}: {told[:LINE] or 'without a word'}"
