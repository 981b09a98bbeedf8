"""A real torchrun with gloo ranks, whose processes the fake driver lists on devices of their own.

Each rank writes whether it computes or waits in a collective, and the devices follow it as NCCL
would have them: computing draws much power with busy tensor cores, and waiting little without them.

python -m tests.training.gloo    # how long it takes until the shipped command names a rank
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

from tests.driver import GPM, FakeDevice, FakeDriver, FakeProcess, build
from tests.e2e.shipped import dashboard

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.terminal import Terminal

RANKS, BEHIND = 4, 2
COMPUTE, COLLECTIVE, HUNG = "compute", "collective", "hung"
SCRIPT = """
import os, sys, time
import torch, torch.distributed as dist
folder, behind, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
dist.init_process_group('gloo')
rank = dist.get_rank()
is_behind = rank == behind
if is_behind and kind == 'slow':
    os.nice(19)

def say(state):
    path = f'{folder}/{rank}'
    with open(path + '.new', 'w') as file:
        file.write(f'{os.getpid()} {state}')
    os.replace(path + '.new', path)

gradient = torch.ones(1000)
weight = torch.ones(64, 64)
while True:
    say('compute')
    weight = (weight @ weight).clamp(0, 1)
    time.sleep(0.1)
    if is_behind and kind == 'slow':
        time.sleep(0.3)
    if is_behind and os.path.exists(f'{folder}/hang'):
        say('hung')
        time.sleep(3600)
    say('collective')
    dist.all_reduce(gradient)
"""
LOOKS_SECONDS, SHOWN_SECONDS = 0.02, 0.25
"""Seconds between two looks at the ranks, and between two states of the devices."""
MEAN_LOOKS = 50
"""Looks that busy and power are the mean of: a second."""
LONG = 120.0
"""Seconds for the start of four ranks on a busy machine."""
OF_STATE: dict[str, tuple[float, float, float, float]] = {
    COMPUTE: (95, 600, 88, 52),
    COLLECTIVE: (100, 180, 12, 0),
    HUNG: (0, 110, 0, 0),
}
"""Busy, power, SM active and tensor active in each state."""


class Ranks:
    """Ranks of a torchrun, and the devices that follow them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: dict[int, deque[str]] = {}

    def look(self) -> dict[int, int]:
        """Note what each rank does. Return their pids, by rank."""
        pids = {}
        for path in self.folder.glob("[0-9]*"):
            if path.suffix:
                continue
            with contextlib.suppress(OSError, ValueError):
                pid, state = path.read_text().split()
                rank = int(path.name)
                self._seen.setdefault(rank, deque(maxlen=MEAN_LOOKS)).append(state)
                pids[rank] = int(pid)
        return pids

    def device(self, rank: int, pid: int) -> FakeDevice:
        """The device of a rank, by the means of the last second."""
        states = self._seen[rank]
        sums = [0.0] * 4
        for state in states:
            for n, number in enumerate(OF_STATE[state]):
                sums[n] += number
        busy, watts, sm, tensor = (total / len(states) for total in sums)
        return FakeDevice(
            uuid=f"GPU-{rank}",
            gpu_utilization_percent=round(busy),
            samples=(),
            power_milliwatts=round(1000 * watts),
            gpm={**GPM, 2: sm, 5: tensor},
            processes=(FakeProcess(pid, memory_bytes=60 << 30, sm_percent=round(busy)),),
        )


@contextlib.contextmanager
def following(ranks: Ranks, drivers: Sequence[FakeDriver]) -> Iterator[None]:
    """Let the devices follow the ranks, an equal part of them on each driver's machine."""
    over = threading.Event()
    each = RANKS // len(drivers)

    def follow() -> None:
        shown_at = 0.0
        while not over.wait(LOOKS_SECONDS):
            pids = ranks.look()
            if len(pids) < RANKS or time.monotonic() - shown_at < SHOWN_SECONDS:
                continue
            shown_at = time.monotonic()
            for n, driver in enumerate(drivers):
                here = range(n * each, n * each + each)
                driver.write(*(ranks.device(rank, pids[rank]) for rank in here))

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def torchrun(folder: Path, kind: str, *drivers: FakeDriver) -> Iterator[Ranks]:
    """Run four ranks with one that is `slow`, or that hangs once there is a file `hang`.

    There is a launcher for each driver, as on several hosts.
    """
    script = folder / "train.py"
    script.write_text(SCRIPT)
    states = folder / "states"
    states.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run"]
    command += ["--nnodes", f"{len(drivers)}", "--nproc-per-node", f"{RANKS // len(drivers)}"]
    command += ["--master-addr", "127.0.0.1", "--master-port", f"{port}"]
    ranks = Ranks(states)
    log = folder / "log"
    with contextlib.ExitStack() as stack:
        for node in range(len(drivers)):
            words = [*command, "--node-rank", f"{node}", script, states, BEHIND, kind]
            stack.enter_context(launcher([*map(str, words)], log))
        stack.callback(kill, ranks)
        deadline = time.monotonic() + LONG
        while len(ranks.look()) < RANKS:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(LOOKS_SECONDS)
        stack.enter_context(following(ranks, drivers))
        yield ranks


@contextlib.contextmanager
def launcher(command: list[str], log: Path) -> Iterator[None]:
    """Run a launcher until the end."""
    with (
        log.open("ab") as file,
        subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True) as process,
    ):
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def kill(ranks: Ranks) -> None:
    """Kill the ranks, which have sessions of their own."""
    for pid in ranks.look().values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def until_named(terminal: Terminal, *texts: str, seconds: float = LONG) -> float:
    """Wait until all texts are on screen. Return the seconds."""
    begun = time.monotonic()
    terminal.wait_for(lambda t: all(text in t.text for text in texts), seconds, what=f"{texts}")
    return time.monotonic() - begun


def hang(folder: Path) -> None:
    """Let the rank hang before its next collective."""
    (folder / "states" / "hang").touch()


SLOW_TEXT = f"rank {BEHIND} (pid "
HUNG_TEXT = f"all ranks but {BEHIND} wait in a collective for rank {BEHIND} (pid "
FINE = f"{RANKS} ranks. No rank is out of line"


def measure(kind: str, page: str, driver: FakeDriver, folder: Path) -> float:
    """Return the seconds until the rank is named: of a slow one from the start of gputop."""
    environment: dict[str, Any] = driver.environment()
    with (
        torchrun(folder, kind, driver),
        dashboard(env=environment, columns=200) as terminal,
    ):
        until_named(terminal, f"{RANKS} GPUs")
        if page:
            terminal.send(page)
        if kind == "slow":
            return until_named(terminal, SLOW_TEXT)
        time.sleep(40)
        hang(folder)
        return until_named(terminal, HUNG_TEXT)


def main() -> None:
    """Print the table."""
    compiler = which("cc")
    assert compiler is not None, "the fake driver needs a C compiler"
    for kind, what in (("slow", "nice 19 and a sleep of 0.3 s a step"), ("hangs", "hangs")):
        for number in range(3):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                driver = FakeDriver(folder, build(folder, compiler))
                seconds = measure(kind, "", driver, folder)
                print(f"run {number + 1}, rank {BEHIND} {what}: named after {seconds:.1f} s")


if __name__ == "__main__":
    main()
