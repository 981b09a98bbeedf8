"""Faults of the terminal: suspended, not read, of any size and kind, pasted into."""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.workers import fake_interpreter
from tests.e2e.pretender import worker
from tests.e2e.shipped import ESCAPE_WHOLE, F9, SOON, children, held_by
from tests.faults.scenario import Deed, Scenario
from tests.terminal import ALTERNATE_SCREEN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.faults.stage import Stage
    from tests.terminal import Terminal

WELL = ("0 Test 0", "1 Test 1", "2 Test 2", "44 %")
LATER, LATER_YET = 77, 23
"""Utilizations of device 1 after its 44 %."""
MOST_BYTES = 160_000
"""That a screen, and what the kernel holds of a terminal that nobody reads, have at most."""
MOST_GROWTH = 24 << 20
"""Bytes by which a dashboard may grow that nobody reads: Python's own ups and downs."""
WRONG_AGES = (r"No data for", r"NOT RESPONDING", r"sampler stopped", r"UNREACHABLE")


def change(percent: int) -> Deed:
    """Device 1 is as busy as that."""
    return lambda stage: stage.driver.change(1, gpu_utilization_percent=percent)


def send(keys: str) -> Deed:
    return lambda stage: stage.terminal.send(keys)


def all_of(*deeds: Deed) -> Deed:
    """One after the other."""

    def do(stage: Stage) -> None:
        for deed in deeds:
            deed(stage)

    return do


def press(stage: Stage, key: str, wait: Callable[[float], object] | None = None) -> None:
    """Waits until the dashboard has taken the key and rests: the next goes to what is open then.

    It rests where it sleeps at each of a few looks, between which it is read, or that is waited.
    """
    stage.terminal.send(key)
    deadline, still = time.monotonic() + SOON, 0
    while still < 5:
        assert time.monotonic() < deadline, f"no rest after {key!r}"
        (wait or stage.terminal.collect)(0.02)
        still = still + 1 if state_of(stage.terminal.pid) in "SZ" else 0


# Suspended and stopped.


def in_shell(folder: Path, command: list[str]) -> list[str]:
    """In a shell with job control: once it is stopped, b and f are as `bg` and `fg`.

    Other keys are the terminal's answers to a dashboard that did not live to read them.
    """
    line = (
        f"stty -g > {folder}/before; {shlex.join(command)}; s=$?; "
        'while [ -n "$(jobs)" ]; do read -rsn1 key; '
        'if [ "$key" = b ]; then bg; elif [ "$key" = f ]; then fg; s=$?; fi; '
        f"done; stty -g > {folder}/after; exit $s"
    )
    return ["bash", "--norc", "--noprofile", "-i", "-c", line]


def stopped(stage: Stage) -> None:
    """The shell has the terminal, as it was before."""
    stage.see("Stopped")
    assert ALTERNATE_SCREEN not in stage.terminal.modes
    assert not stage.terminal.modes & {1000, 1003, 1004, 1006, 2004}
    change(LATER)(stage)


def state_of(process: int | Path) -> str:
    """The letter of the process' state: T is stopped."""
    return Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()[0]


def stop(stage: Stage) -> None:
    """Stops the dashboard from outside, for a while, in which its sampler goes on."""
    stage.terminal.kill(signal.SIGSTOP)
    change(LATER)(stage)
    stage.terminal.collect(stage.hold)
    stage.memory["raw"] = stage.terminal.bytes_received


def go_on(stage: Stage) -> None:
    """Lets it go on; of what came meanwhile nothing is shown that is not so any more."""
    change(LATER_YET)(stage)
    stage.terminal.collect(2 * stage.interval)
    frames: list[str] = []
    stage.terminal.on_read = lambda terminal: frames.append(terminal.text)
    stage.terminal.kill(signal.SIGCONT)
    stage.see(f"{LATER_YET} %")
    wrong = [frame for frame in frames if re.search("|".join(WRONG_AGES), frame)]
    assert not wrong, wrong[0]
    sent = stage.terminal.bytes_received - stage.memory["raw"]
    assert sent < MOST_BYTES, f"{sent} bytes to catch up"


SUSPENDED = (
    Scenario(
        name="suspended by Ctrl+Z, and resumed",
        within=in_shell,
        fault=all_of(send("\x1a"), stopped),
        says=("Stopped",),
        keys=(),
        alive=None,
        mend=send("f"),
        then=("0 Test 0", "2 Test 2", f"{LATER} %", "Quit"),
        then_silent=("Stopped",),
    ),
    Scenario(
        name="stopped by kill -STOP for a while, and continued",
        fault=stop,
        says=(),
        keys=(),
        alive=None,
        mend=go_on,
        then=(*WELL[:3], f"{LATER_YET} %"),
        then_silent=("Stopped",),
    ),
)

# Not read.


def resident_bytes(pid: int) -> int:
    """Of the memory of a process what is in use."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def fill(stage: Stage) -> None:
    """Nobody reads, and the terminal takes no more."""
    fill_terminal(stage.terminal)


def fill_terminal(terminal: Terminal) -> None:
    """Has it draw, and reads nothing, until the terminal takes no more."""
    deadline, still, before = time.monotonic() + 3 * SOON, 0, -1
    while still < 6:
        assert time.monotonic() < deadline, "the terminal takes everything"
        terminal.send("21")
        time.sleep(0.1)  # nothing is read that could be waited for
        now = terminal.waiting_bytes
        still, before = (still + 1 if now == before > 0 else 0), now


def nobody_reads(stage: Stage) -> None:
    """For a while; meanwhile it goes on, does not grow, and takes keys: the last shows the rest."""
    terminal = stage.terminal
    fill(stage)
    memory, until = resident_bytes(terminal.pid), time.monotonic() + stage.hold
    percent, reads = 50, stage.driver.calls(1)["nvmlDeviceGetUtilizationRates"]
    while time.monotonic() < until:
        percent = 50 + (percent + 1) % 20
        change(percent)(stage)
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
    change(LATER)(stage)
    time.sleep(2 * stage.interval)
    stage.memory["raw"] = terminal.bytes_received


def no_replay(stage: Stage) -> None:
    """What had to be read until the screen was of now."""
    late = stage.terminal.bytes_received - stage.memory["raw"]
    assert late < MOST_BYTES, f"{late} bytes of the past"


UNREAD = (
    Scenario(
        name="nobody reads the terminal",
        fault=nobody_reads,
        says=(*WELL[:3], f"{LATER} %", "Quit"),
        silent=("Main keys",),
        mend=no_replay,
        then=(f"{LATER} %",),
    ),
)

# Of any size.

PLACES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "the monitor": ("", WELL),
    "the benchmark": ("2", ("Press b", " Kind ")),
    "a question before a stress test": ("2b", ("GPU 0, NVIDIA Test 0 is in use", "y Start anyway")),
}
"""Keys to get there from the monitor, and what is seen there."""


def go_to(place: str) -> Deed:
    keys, texts = PLACES[place]

    def go(stage: Stage) -> None:
        for key in [keys[:1], keys[1:]]:
            if key:
                press(stage, key)
        stage.see(*texts)

    return go


def leave(stage: Stage) -> None:
    """Out of all that is open."""
    for key in (ESCAPE_WHOLE, ESCAPE_WHOLE, "q"):
        press(stage, key)


def pretend_worker(stage: Stage) -> None:
    """Stress tests do no work, and keep their results in the folder."""
    stage.arguments += ["--python", fake_interpreter(stage.folder, worker())]
    stage.environment["XDG_DATA_HOME"] = str(stage.folder)


def tiny(stage: Stage) -> None:
    """As small as a terminal can be, by way of other sizes that nothing fits in."""
    for columns, rows in ((200, 1), (1, 60), (19, 4), (1, 1)):
        stage.terminal.resize(columns, rows)
        stage.terminal.collect(stage.interval)


def resize_often(stage: Stage) -> None:
    """A hundred sizes in a second, as of a window that is dragged."""
    dice = random.Random(7)  # noqa: S311 - no secret
    for _ in range(100):
        stage.terminal.resize(dice.randint(1, 250), dice.randint(1, 80))
        stage.terminal.collect(0.01)
    stage.terminal.resize(120, 40)


SIZES = (
    *(
        Scenario(
            name=f"one cell by one, and back, on {place}",
            lead=go_to(place),
            fault=tiny,
            says=(),
            keys=(),
            alive=None,
            mend=lambda stage: stage.terminal.resize(120, 40),
            then=texts,
            quit=leave,
        )
        for place, (_, texts) in PLACES.items()
    ),
    Scenario(name="a hundred sizes in a second", fault=resize_often, says=(*WELL, "Quit")),
)

# Of any kind.


def in_tmux(folder: Path, command: list[str]) -> list[str]:
    """As the only window of a tmux of its own."""
    arguments = ("-f", "/dev/null", "-S", str(folder / "tmux"), "new-session", shlex.join(command))
    return [shutil.which("tmux") or "tmux", *arguments]


KINDS: Mapping[str, Mapping[str, str]] = {
    "16 colours": {"TERM": "xterm-16color"},
    "no colour": {"NO_COLOR": "1"},
    "C": {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


def of_kind(name: str, **more: object) -> Scenario:
    """A device that is lost, on a terminal of that kind: what is wrong is seen without colours."""
    return Scenario(
        name=f"a terminal that is {name}",
        fault=lambda stage: stage.driver.change(1, code=15),
        says=("LOST", "1 not answering"),
        silent=("44 %",),
        mend=lambda stage: stage.driver.change(1, code=0),
        then=("44 %",),
        then_silent=("LOST",),
        **more,  # type: ignore[arg-type]
    )


KIND = (
    *(of_kind(name, environment=variables) for name, variables in KINDS.items()),
    *([of_kind("tmux", within=in_tmux)] if shutil.which("tmux") else []),
)

# Pasted into.

VICTIMS = ("train-alpha", "train-beta", "serve-gamma")
MEGABYTE = 1 << 20
TEXT = f"3{F9}\r y b q x \x1b[B\x1b{'y' * 40} 9y\n2b\ty\r"
"""What would do much if it were keys: it has signals, stress tests, and their confirmation."""


def victims(stage: Stage) -> None:
    """Processes that may be sent signals by mistake, and a worker that does no work."""
    processes = stage.stack.enter_context(children(*VICTIMS))
    stage.memory["victims"] = processes
    for number in range(3):
        stage.driver.change(number, processes=held_by(processes))
    pretend_worker(stage)


def unharmed(stage: Stage) -> None:
    """No process got a signal, none was started."""
    ended = [name for name, each in stage.memory["victims"].items() if each.poll() is not None]
    assert not ended, f"{ended} got a signal"
    assert len(stage.terminal.processes()) == 2, stage.terminal.processes()


def paste(before: str, text: str, after: str) -> Deed:
    def do(stage: Stage) -> None:
        data = (before + text * (MEGABYTE // len(text)) + after).encode()
        # As terminals do: in pieces, and what comes back is read meanwhile.
        for at in range(0, len(data), 1024):
            stage.terminal.send(data[at : at + 1024])
            stage.terminal.collect(0.0)

    return do


PASTED = (
    Scenario(
        name="a megabyte pasted, bracketed, on the monitor",
        prepare=victims,
        before=(*WELL, "train-alpha"),
        fault=all_of(paste("\x1b[200~", TEXT, "\x1b[201~"), unharmed),
        says=(*WELL, "train-alpha"),
        mend=unharmed,
        then=WELL,
    ),
)

SCENARIOS = (*SUSPENDED, *UNREAD, *SIZES, *KIND, *PASTED)
