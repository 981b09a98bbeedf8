"""`kill -9` of any one process at any moment of a benchmark: nothing stays, or it is back.

    python -m tests.faults.kills [--times 100] [--seed N] [--play dashboard] [--role command]

Where a command itself is killed, all that it started must be gone; where its sampler is, it must be
back; where a worker is, the run must say so, and everything else goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from tests.bench.workers import fake_interpreter
from tests.driver import FakeDriver, build
from tests.e2e.pretender import worker
from tests.e2e.shipped import GPUTOP, SOON
from tests.faults.scenario import free
from tests.terminal import ScreenError, Terminal

RUN_SECONDS = 3
ROOT, SAMPLER, WORKER = "the command", "its sampler", "a worker"
WORDS = {SAMPLER: "gputop stream", WORKER: "fake_worker"}


class Play:
    """A command that is running, and how to see that it goes on."""

    roles: tuple[str, ...] = (ROOT, SAMPLER, WORKER)
    latest = 4.5
    """Seconds after the start within which it is killed: of a benchmark, past its end."""
    columns, rows = 100, 40

    def __init__(self, driver: FakeDriver, folder: Path) -> None:
        self.driver, self.folder = driver, folder
        body = worker().replace('asked["seconds"]:', f"{RUN_SECONDS}:")
        self.python = fake_interpreter(folder, body)
        self.environment = {**driver.environment(), "XDG_DATA_HOME": str(folder / "kept")}
        self.percent = 60

    def argv(self) -> list[str]:
        return [*GPUTOP, "--interval", "0.25", "--python", self.python]

    def prepare(self, terminal: Terminal) -> None:
        """Up to the moment from which on it may be killed."""
        terminal.wait_for("2 Test 2")
        terminal.send("2")
        terminal.wait_for(" Kind ")
        terminal.send("1")
        terminal.wait_for("2 Test 2")

    def start(self, terminal: Terminal) -> None:
        """The benchmark."""
        terminal.send("b")

    def ended(self, terminal: Terminal) -> bool:
        """Whether the run says how it ended."""
        return "SIGKILL" in terminal.text or "Done" in terminal.text

    def back(self, terminal: Terminal) -> None:
        """Waits for a number that is new."""
        self.percent += 1
        self.driver.change(0, gpu_utilization_percent=self.percent)
        terminal.send("1")
        terminal.wait_for(f"{self.percent} %", SOON)

    def quit(self, terminal: Terminal) -> None:
        """Ends it, as its user would."""
        terminal.send("q")
        assert terminal.wait() == 0, terminal.text


class Bench(Play):
    """`gputop bench`, which ends by itself."""

    latest = 5.0

    def argv(self) -> list[str]:
        return [
            *GPUTOP,
            "bench",
            "--device",
            "all",
            "--seconds",
            f"{RUN_SECONDS}",
            "--python",
            self.python,
        ]

    def prepare(self, terminal: Terminal) -> None:
        """It begins at once."""

    def start(self, terminal: Terminal) -> None:
        """It has begun."""

    def ended(self, terminal: Terminal) -> bool:
        return terminal.wait(SOON) in (0, 3)

    def back(self, terminal: Terminal) -> None:
        """A sampler is back where there is a run to watch."""

    def quit(self, terminal: Terminal) -> None:
        status = terminal.wait(SOON)
        assert status in (0, 3), terminal.text
        assert (status == 3) == ("SIGKILL" in terminal.text), terminal.text


class Exporter(Play):
    """`gputop exporter`, which has no worker."""

    roles = (ROOT, SAMPLER)
    latest = 1.0

    def argv(self) -> list[str]:
        return [*GPUTOP, "exporter", "--interval", "0.25", "--listen", "127.0.0.1:0"]

    def prepare(self, terminal: Terminal) -> None:
        terminal.wait_for("/metrics")

    def start(self, terminal: Terminal) -> None:
        """It has begun."""

    def back(self, terminal: Terminal) -> None:
        self.percent += 1
        self.driver.change(0, gpu_utilization_percent=self.percent)
        found = re.search(r"http://\S+/metrics", terminal.text)
        assert found is not None, terminal.text
        wanted, deadline = f"}} 0.{self.percent}\n", time.monotonic() + SOON
        while True:
            with urlopen(found[0], timeout=SOON) as answer:  # noqa: S310 - of this machine
                if wanted in answer.read().decode():
                    return
            assert time.monotonic() < deadline, f"no {wanted!r} in the metrics"
            terminal.collect(0.05)

    def quit(self, terminal: Terminal) -> None:
        terminal.kill(signal.SIGINT)
        assert terminal.wait() == 130, terminal.text


PLAYS: dict[str, type[Play]] = {
    "dashboard": Play,
    "bench": Bench,
    "exporter": Exporter,
}


@dataclass(frozen=True, slots=True)
class Kill:
    """Which process is killed when; where there is none, another one is."""

    play: str
    role: str
    after_seconds: float
    choice: float
    """Which of several, from 0 to 1."""

    def __str__(self) -> str:
        return f"{self.play}: {self.role} after {self.after_seconds:.2f} s"


def kills(seed: int, only: str = "", of: str = "") -> Iterator[Kill]:
    """Yield kills without an end: as many of each command and each role as of the others.

    With `only` and `of`, yield those of one command and of roles with that word.
    """
    dice = random.Random(seed)  # noqa: S311 - it hides nothing
    cases = []
    for name, play in PLAYS.items():
        for role in play.roles:
            if name.startswith(only) and of in role:
                cases.append((name, role))
    while True:
        dice.shuffle(cases)
        for name, role in cases:
            yield Kill(name, role, dice.uniform(0.0, PLAYS[name].latest), dice.random())


def perform(kill: Kill, driver: FakeDriver, folder: Path) -> str:
    """Do it, and return which process was killed.

    Raises an `AssertionError` where something stays, or does not come back.
    """
    driver.write(*free(0))
    play = PLAYS[kill.play](driver, folder)
    with Terminal(play.argv(), play.environment, play.columns, play.rows) as terminal:
        play.prepare(terminal)
        play.start(terminal)
        terminal.collect(kill.after_seconds)
        role, pid = victim(terminal, kill)
        if pid is None:  # a bench that has ended before
            return "nothing"
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if role == ROOT:
            began = time.monotonic()
            terminal.wait_until_gone()
            return f"{role}, all gone after {time.monotonic() - began:.2f} s"
        if role == WORKER:
            wait(lambda: play.ended(terminal), terminal)
        play.back(terminal)
        play.quit(terminal)
        terminal.wait_until_gone()
        return role


def wait(true: Callable[[], bool], terminal: Terminal) -> None:
    """Until it is so."""
    deadline = time.monotonic() + SOON
    while not true():
        if time.monotonic() > deadline:
            raise ScreenError(f"it does not end; on screen:\n{terminal.text}")
        terminal.collect(0.02)


def victim(terminal: Terminal, kill: Kill) -> tuple[str, int | None]:
    """The process to be killed, and what it is."""
    there = terminal.processes()
    roles = {pid: ROOT for pid in there if pid == terminal.pid}
    for pid, line in there.items():
        for role, word in WORDS.items():
            if word in line and pid != terminal.pid:
                roles[pid] = role
    wanted = [pid for pid in sorted(roles) if roles[pid] == kill.role] or sorted(roles)
    if not wanted:
        return "nothing", None
    pid = wanted[int(kill.choice * len(wanted))]
    return roles[pid], pid


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--play", choices=PLAYS, default="", help="kills of this command only")
    parser.add_argument("--role", default="", help="kills of processes whose role has this word")
    options = parser.parse_args()
    compiler = shutil.which("cc")
    assert compiler is not None, "the fake driver needs a C compiler"
    failed = 0
    drawn = kills(options.seed, options.play, options.role)
    with tempfile.TemporaryDirectory() as home:
        library = build(Path(home), compiler, ())
        for variable in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
            os.environ[variable] = home
        for n in range(options.times):
            kill, folder = next(drawn), Path(home, str(n))
            folder.mkdir()
            try:
                killed = perform(kill, FakeDriver(folder, library), folder)
            except (AssertionError, OSError) as error:
                failed += 1
                print(f"{kill}: FAILED: {error}", flush=True)
                continue
            print(f"{kill}: {killed}", flush=True)
    print(f"seed {options.seed}: {options.times} kills, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
