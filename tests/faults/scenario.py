"""What a scenario is: a fault, what the screen must say of it, and what must be so afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.driver import FakeDevice, FakeProcess
from tests.e2e.shipped import GIB

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.stage import Stage
    from tests.terminal import Terminal

Deed = Callable[["Stage"], object]
Seen = Callable[["Terminal"], object]


@dataclass(frozen=True, slots=True)
class Key:
    """A key, and how to see on the screen that it has been answered."""

    press: str
    answered: Seen
    what: str


def shows(text: str) -> Seen:
    """That the screen has the text."""
    return lambda terminal: text in terminal.text


def all_shown(*texts: str) -> Seen:
    """That the screen has all of the texts at once."""
    return lambda terminal: all(text in terminal.text for text in texts)


def hides(text: str) -> Seen:
    """That the screen does not have the text."""
    return lambda terminal: text not in terminal.text


KEYS = (
    Key("?", shows("Main keys"), "help opens"),
    Key("?", hides("Main keys"), "help closes"),
    Key("2", shows(" Kind "), "the benchmark"),
    Key("1", hides(" Kind "), "the monitor again"),
)
"""What must do its work whatever happens: of a screen of 80 columns or more."""


def three(pid: int) -> tuple[FakeDevice, ...]:
    """Three devices that no number of one can be taken for one of another's."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One way to break it. Deeds are done to a `Stage`, which has the driver and the terminal."""

    name: str
    fault: Deed
    says: tuple[str, ...]
    """What the screen has, all at once, once the fault is noticed: what it is, and the remedy."""
    silent: tuple[str, ...] = ()
    """What it has no more by then: the numbers of what does not answer."""
    never: tuple[str, ...] = ()
    """Patterns that are on no frame from the fault on: numbers that would be wrong."""
    mend: Deed | None = None
    """Ends the fault; None where it stays."""
    then: tuple[str, ...] = ()
    """What the screen has, all at once, once it is mended."""
    then_silent: tuple[str, ...] = ()
    at_start: bool = False
    """Whether the fault is there before gputop starts; else all is well on screen before."""
    before: tuple[str, ...] = ("0 Test 0", "1 Test 1", "2 Test 2", "44 %")
    """What the screen has while all is well."""
    passes: bool = False
    """Whether it ends by itself, and its words with it."""
    alive: int | None = 0
    """A device whose numbers must go on moving meanwhile; None where there is none."""
    keys: tuple[Key, ...] = KEYS
    """What must be answered while the fault lasts."""
    devices: Callable[[int], tuple[FakeDevice, ...]] = three
    """Those of the machine, of a process id to hold them."""
    machine: Mapping[str, object] = field(default_factory=dict)
    prepare: Deed | None = None
    """Done before gputop starts: files, and more `environment` and `arguments` of the stage."""
    lead: Deed | None = None
    """Done once all is well, before the fault: leads to the state in which it is broken."""
    within: Callable[[Path, list[str]], list[str]] | None = None
    """What it is run in, such as a shell: makes that of a folder for files and its command."""
    driver_without: tuple[str, ...] = ()
    """Functions that the driver does not have, being old."""
    environment: Mapping[str, str] = field(default_factory=dict)
    pretends: bool = False
    """Whether the machine is another one than this: `stage.pretended` says in what."""
    unwritten: tuple[bytes, ...] = ()
    """What it never writes to the terminal."""
    arguments: tuple[str, ...] = ()
    columns: int = 120
    rows: int = 40
    quit: Deed | None = None
    """How it is ended; None is by the key q, with exit status 0."""

    def __str__(self) -> str:
        return self.name


def pattern(texts: tuple[str, ...]) -> re.Pattern[str] | None:
    """One for all of them."""
    return re.compile("|".join(texts)) if texts else None
