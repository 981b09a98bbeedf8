"""How far behind a host on a slow line is shown: `python -m tests.perf.slow_host --seconds 300`.

The dashboard watches one host over a real `sshd` through a line of 20 kB/s each way with 100 ms of
latency. The host has 8 busy devices with 4 processes each. The power of the first one is a clock:
the driver has another one every half second. What the screen has of it is as old as that, however
gputop measures ages; beside it is what the screen says of the age.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gputop.stream.launch import module_command
from tests.driver import FakeDriver, build
from tests.e2e import sshd
from tests.e2e.slow_line import SlowLine
from tests.e2e.sshd import Sshd
from tests.perf.machine import Machine, Scene
from tests.terminal import Terminal

if TYPE_CHECKING:
    from typing import Self

GPUTOP = module_command("gputop")
ROOT = Path(__file__).parents[2]
SCENE = Scene(busy=True, devices=8, columns=160, rows=50, processes=4)
TICK_SECONDS = 0.5
INIT_MILLISECONDS = 500
"""Until the driver answers for the first time: a real one takes as long, or longer."""
FIRST_WATTS, WATTS = 100, 600
ALLOWED_SECONDS = 3.0
SAYS = re.compile(
    r"[\d.:]+(?: s| min)? behind|UNREACHABLE for [\d.:]+(?: s)?|connecting|no data for \S+"
)


class Clock:
    """The first device's power, by which its driver tells the time."""

    def __init__(self, machine: Machine) -> None:
        self._path = Path(machine.driver.environment()["FAKE_NVML"])
        self._frames = machine.frames
        self._changed: dict[int, float] = {}
        """When a power was replaced by the next one."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def age(self, watts: int) -> float:
        """Seconds since the driver had that power last."""
        changed = self._changed.get(watts)
        return 0.0 if changed is None else time.monotonic() - changed

    def _run(self) -> None:
        new, before = self._path.with_suffix(".next"), None
        for tick in itertools.count():
            watts = FIRST_WATTS + tick % WATTS
            frame = self._frames[int(tick * TICK_SECONDS) % len(self._frames)]
            power = rb"(?m)^(device\.0\.(?:power_milliwatts|field\.18[56])) .*$"
            state = re.sub(power, rb"\1 %d" % (1000 * watts), frame)
            init = rb"(?m)^init\.delay_ms .*$"
            new.write_bytes(re.sub(init, b"init.delay_ms %d" % INIT_MILLISECONDS, state))
            new.replace(self._path)
            self._changed.pop(watts, None)
            if before is not None:
                self._changed[before] = time.monotonic()
            before = watts
            if self._ended.wait(TICK_SECONDS):
                return


class Seen(NamedTuple):
    """What was on screen at one moment."""

    second: float
    watts: int | None
    behind: float | None
    """How old the first device's power truly was."""
    said: str

    @property
    def hidden(self) -> bool:
        """True if it was too old, and nothing was said."""
        return self.behind is not None and self.behind > ALLOWED_SECONDS and not self.said


def look(terminal: Terminal, clock: Clock, began: float) -> Seen:
    """What the screen has now."""
    text = terminal.text
    power = re.search(r"(\d+) (?:of|/) ?700 W|(\d+)/700 W", text)
    watts = int(next(filter(None, power.groups()))) if power else None
    found = SAYS.search(text)
    behind = None if watts is None else clock.age(watts)
    return Seen(time.monotonic() - began, watts, behind, found.group() if found else "")


def watch(
    seconds: float,
    bytes_per_second: float,
    delay: float,
    tell: Callable[[Seen], None],
    stall: tuple[float, float] | None = None,
    *more: str,
) -> list[Seen]:
    """The screen, ten times a second; the line stalls from one moment of `stall` to the other.

    `more` are lines of the configuration of `sshd`.
    """
    found: list[Seen] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        driver = FakeDriver(folder, build(folder, "cc"))
        user_key = sshd.make_key(folder / "user-key")
        host = Sshd(folder, "far", user_key, *more)
        host.start()
        with (
            SlowLine(host.port, bytes_per_second, delay) as line,
            Machine(SCENE, driver, folder) as machine,
            Clock(machine) as clock,
        ):
            host.reached_at = line.port
            programs = sshd.ssh_for(folder, [host], user_key)
            environment = {**driver.environment(), "PYTHONPATH": str(ROOT)}
            there = ["env", *(f"{k}={v}" for k, v in environment.items()), *GPUTOP]
            command = [*GPUTOP, "--host", "far", "--remote-command", shlex.join(there)]
            env = {"LD_LIBRARY_PATH": "", "PATH": f"{programs}:{os.environ['PATH']}"}
            try:
                with Terminal(command, env, SCENE.columns, SCENE.rows) as terminal:
                    terminal.wait_for(" 700 W", timeout=60)
                    began = time.monotonic()
                    while time.monotonic() - began < seconds:
                        terminal.collect(0.1)
                        found.append(look(terminal, clock, began))
                        tell(found[-1])
                        if stall is not None:
                            stalls = stall[0] <= found[-1].second < stall[1]
                            (line.stall if stalls else line.resume)()
            finally:
                host.stop()
            print(f"{line.carried / (seconds + 1) / 1000:.2f} kB/s on the line, both ways")
    return found


def main() -> int:
    """Prints a line every few seconds, and the worst at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--bytes-per-second", type=float, default=20_000)
    parser.add_argument("--delay", type=float, default=0.1, help="seconds, each way")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two lines")
    parser.add_argument("--stall", type=float, nargs=2, metavar=("FROM", "TO"))
    parser.add_argument("--uncompressed", action="store_true", help="sshd refuses compression")
    arguments = parser.parse_args()
    due = 0.0

    def tell(seen: Seen) -> None:
        nonlocal due
        if seen.second >= due:
            due += arguments.every
            behind = "     -" if seen.behind is None else f"{seen.behind:6.2f}"
            print(f"{seen.second:7.1f} {behind}  {seen.said}", flush=True)

    print(f"{arguments.bytes_per_second / 1000:g} kB/s, {1000 * arguments.delay:g} ms each way")
    print("seconds  behind  what the screen says of it")
    stall = tuple(arguments.stall) if arguments.stall else None
    speed, delay = arguments.bytes_per_second, arguments.delay
    more = ["Compression no"] if arguments.uncompressed else []
    found = watch(arguments.seconds, speed, delay, tell, stall, *more)
    behind = sorted(each.behind for each in found if each.behind is not None)
    quiet = [each.behind for each in found if each.behind is not None and not each.said]
    print(f"behind: median {behind[len(behind) // 2]:.2f} s, worst {behind[-1]:.2f} s;", end=" ")
    print(f"worst without a word {max(quiet, default=0.0):.2f} s")
    hidden = sum(each.hidden for each in found)
    print(f"looks at more than {ALLOWED_SECONDS:g} s without a word: {hidden} of {len(found)}")
    return 1 if hidden else 0


if __name__ == "__main__":
    sys.exit(main())
