"""How far behind a host on a slow line is shown: `python -m tests.perf.slow_host --seconds 300`.

The dashboard watches one host over a real `sshd` through a line of 20 kB/s each way with 100 ms of
latency. The host has 8 busy devices with 4 processes each. The power of the first one is a clock:
the driver has another one every half second. What the screen has of it is as old as that, however
gputop measures ages; beside it is what the screen says of the age.
"""

import argparse
import contextlib
import os
import re
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from gputop.stream.launch import module_command
from tests.driver import FakeDriver, build
from tests.e2e import sshd
from tests.e2e.slow_line import SlowLine
from tests.perf.machine import Machine, Scene
from tests.terminal import Terminal

GPUTOP = module_command("gputop")
ROOT = Path(__file__).parents[2]
SCENE = Scene(devices=8, columns=160, rows=50, processes=4)
TICK_SECONDS = 0.5
INIT_MILLISECONDS = 500
"""Until the driver answers for the first time: a real one takes as long, or longer."""
FIRST_WATTS, WATTS = 100, 600
ALLOWED_SECONDS = 3.0
DELAY_SECONDS, LINE_SECONDS = 0.1, 10.0
"""Latency of the line each way, and between two lines of the output."""
POWER = re.compile(rb"(?m)^(device\.0\.(?:power_milliwatts|field\.18[56])) .*$")
INIT = re.compile(rb"(?m)^init\.delay_ms .*$")
SAYS = re.compile(
    r"[\d.:]+(?: s| min)? behind|UNREACHABLE for [\d.:]+(?: s)?|connecting|no data for \S+"
)


@contextlib.contextmanager
def far_host(
    folder: Path, bytes_per_second: float, delay: float, *more: str
) -> Iterator[tuple[SlowLine, str]]:
    """Run the `sshd` of the host `far` behind a line.

    Yield the line, and a PATH whose `ssh` knows the host. `more` are lines of sshd's configuration.
    """
    user_key = sshd.make_key(folder / "user-key")
    host = sshd.Sshd(folder, "far", user_key, *more)
    host.start()
    try:
        with SlowLine(host.port, bytes_per_second, delay) as line:
            host.reached_at = line.port
            programs = sshd.ssh_for(folder, [host], user_key)
            yield line, f"{programs}:{os.environ['PATH']}"
    finally:
        host.stop()


class Clock:
    """The first device's power, by which its driver tells the time."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._changed: dict[int, float] = {}
        """When a power was replaced by the next one."""

    def age(self, watts: int) -> float:
        now = time.monotonic()
        return now - self._changed.get(watts, now)

    def frame(self, tick: int) -> bytes:
        """Return the driver's state with the power of that tick."""
        watts = FIRST_WATTS + tick % WATTS
        self._changed[FIRST_WATTS + (tick - 1) % WATTS] = time.monotonic()
        self._changed.pop(watts, None)
        state = self._machine.frame(int(tick * TICK_SECONDS))
        state = POWER.sub(rb"\1 %d" % (1000 * watts), state)
        return INIT.sub(b"init.delay_ms %d" % INIT_MILLISECONDS, state)


def looks(terminal: Terminal, clock: Clock, seconds: float) -> Iterator[tuple[float, float, str]]:
    """Yield ten times a second the time, the first device's true age, and what is said of it."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        terminal.collect(0.1)
        text = terminal.text
        power, said = re.search(r"(\d+) ?(?:of |/ ?)700 W", text), SAYS.search(text)
        behind = clock.age(int(power[1])) if power else 0.0
        yield time.monotonic() - began, behind, said.group() if said else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--bytes-per-second", type=float, default=20_000)
    parser.add_argument("--uncompressed", action="store_true", help="sshd refuses compression")
    parser.add_argument("--there", action="store_true", help="the dashboard runs there: ssh -tC")
    options = parser.parse_args()
    more = ["Compression no"] if options.uncompressed else []
    due, found = 0.0, []
    print(f"{options.bytes_per_second / 1000:g} kB/s, {1000 * DELAY_SECONDS:g} ms each way")
    print("seconds  behind  what the screen says of it")
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        driver = FakeDriver(folder, build(folder, "cc"))
        far = far_host(folder, options.bytes_per_second, DELAY_SECONDS, *more)
        line, path = stack.enter_context(far)
        machine = stack.enter_context(Machine(SCENE, driver, folder))
        clock = Clock(machine)
        stack.enter_context(machine.work(clock.frame, TICK_SECONDS))
        environment = {**driver.environment(), "PYTHONPATH": str(ROOT)}
        there = ["env", *(f"{k}={v}" for k, v in environment.items()), *GPUTOP]
        command = [*GPUTOP, "--host", "far", "--remote-command", shlex.join(there)]
        if options.there:
            ssh = f"{path.partition(':')[0]}/ssh"
            command = [ssh, "-ttC", "far", shlex.join([*there, "--interval", "1"])]
        env = {"LD_LIBRARY_PATH": "", "PATH": path}
        terminal = stack.enter_context(Terminal(command, env, SCENE.columns, SCENE.rows))
        terminal.wait_for(" 700 W", timeout=60)
        print(f"first numbers after {terminal.elapsed:.1f} s")
        for second, behind, said in looks(terminal, clock, options.seconds):
            found.append((behind, said))
            if second >= due:
                due += LINE_SECONDS
                print(f"{second:7.1f} {behind:6.2f}  {said}", flush=True)
        print(f"{line.carried / (options.seconds + 1) / 1000:.2f} kB/s on the line, both ways")
    ages = [behind for behind, _ in found]
    quiet = [behind for behind, said in found if not said]
    print(f"behind: median {statistics.median(ages):.2f} s, worst {max(ages):.2f} s;", end=" ")
    print(f"worst without a word {max(quiet, default=0.0):.2f} s")
    hidden = sum(behind > ALLOWED_SECONDS for behind in quiet)
    print(f"looks at more than {ALLOWED_SECONDS:g} s without a word: {hidden} of {len(found)}")
    return 1 if hidden else 0


if __name__ == "__main__":
    sys.exit(main())
