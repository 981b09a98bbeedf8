"""What a scenario is: a fault, what the screen must say of it, and what must be so afterwards."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tests.driver import FakeDevice, FakeProcess
from tests.e2e.shipped import GIB
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


def shows(*texts: str) -> Seen:
    """True of a screen that has all of the texts at once."""
    return lambda terminal: all(text in terminal.text for text in texts)


def hides(text: str) -> Seen:
    """True of a screen that does not have the text."""
    return lambda terminal: text not in terminal.text


KEYS = (
    Key("?", shows("Main keys"), "help opens"),
    Key("?", hides("Main keys"), "help closes"),
    Key("2", shows(" Kind "), "the benchmark"),
    Key("1", hides(" Kind "), "the monitor again"),
)
"""These must be answered, whatever happens."""
WELL = ("0 Test 0", "1 Test 1", "2 Test 2", "44 %")
NO_ZERO = (r"\b0 ?°C", r"\b0 W", r"\b0 MHz")


def three(pid: int) -> tuple[FakeDevice, ...]:
    """Return three devices whose numbers all differ, each held by the process."""
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
    """What the screen has, all at once, once it is mended."""
    then_silent: tuple[str, ...] = ()
    at_start: bool = False
    """Whether the fault is there before gputop starts; else all is well on screen before."""
    before: tuple[str, ...] = WELL
    """What the screen has while all is well."""
    alive: int | None = 0
    """A device whose numbers must go on moving meanwhile; None where there is none."""
    keys: tuple[Key, ...] = KEYS
    """What must be answered while the fault lasts."""
    devices: Callable[[int], tuple[FakeDevice, ...]] = three
    """Those of the machine, of a process id to hold them."""
    prepare: Deed | None = None
    """Done before gputop starts: files, and more `environment` of the stage."""
    within: Callable[[Path, list[str]], list[str]] | None = None
    """What it is run in, such as a shell: makes that of a folder for files and its command."""
    unwritten: tuple[bytes, ...] = ()
    """What it never writes to the terminal."""
    rows: int = 40

    def __str__(self) -> str:
        return self.name
