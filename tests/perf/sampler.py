"""What the sampler costs: `python -m tests.perf.sampler [--against CHECKOUT]`.

Processor time of `gputop stream` per second, of this checkout and another one at the same time, on
the same driver and the same real processes: of all its threads, of the one that emits, and of the
one that waits for events, which is left out of the ratio: the fake driver looks for them 20 times a
second, where a real one sleeps. Then what a sample of that scene costs to encode and decode.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

from gputop.agent.lines import to_line
from gputop.schema.decode import decode
from gputop.stream.launch import module_command
from tests.driver import FakeDriver, build
from tests.perf.machine import Machine, Scene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parents[2]
SCENES = {8: Scene(True, 8, 160, 50), 64: Scene(True, 64, 160, 50, processes=8)}
SETTLED = 12.0
"""Seconds after which every tier of queries has been asked."""


@contextlib.contextmanager
def stream(checkout: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A sampler of that checkout, whose lines nobody keeps."""
    command = [*module_command("gputop"), "stream", "--interval", "1"]
    environment = {**environment, "PYTHONPATH": str(checkout)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment, cwd=checkout
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def used(pid: int) -> tuple[int, int, int]:
    """Nanoseconds on a processor: of all threads, of the first one, and of the last one."""
    threads = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        threads[int(task.name)] = int((task / "schedstat").read_text().split()[0])
    return sum(threads.values()), threads[pid], threads[max(threads)]


def samplers(scene: Scene, checkouts: list[Path], seconds: float) -> None:
    """Print what each takes, and their ratio to the last one."""
    compiler = which("cc")
    assert compiler is not None, "the fake driver needs a C compiler"
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        driver = FakeDriver(folder, build(folder, compiler))
        machine = stack.enter_context(Machine(scene, driver, folder))
        machine.rest()
        environment = {**os.environ, **driver.environment()}
        environment.pop("FAKE_NVML_CALLS", None)  # each call would be written into a file
        stack.enter_context(machine.work())
        children = [stack.enter_context(stream(each, environment)) for each in checkouts]
        time.sleep(SETTLED)
        before = [used(child.pid) for child in children]
        began = time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        after = [used(child.pid) for child in children]
    print(f"{scene}, ms/s{'':12}all  emitter  events  times")
    found = [
        [(now - then) / 1e6 / took for now, then in zip(*pair, strict=True)]
        for pair in zip(after, before, strict=True)
    ]
    last = found[-1][0] - found[-1][2]
    for checkout, (whole, emitter, events) in zip(checkouts, found, strict=True):
        times = (whole - events) / last
        print(f"{checkout!s:40}{whole:8.2f} {emitter:8.2f} {events:7.2f} {times:6.2f}")


def each_ms(call: Callable[[], object], seconds: float = 1.0) -> float:
    """Processor milliseconds of a call, the least of several rounds."""
    best, end = float("inf"), time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.thread_time_ns()
        for _ in range(5):
            call()
        best = min(best, (time.thread_time_ns() - began) / 5e6)
    return best


def coding(scene: Scene, line: bytes) -> None:
    """Print what encoding and decoding a sample of a scene take."""
    record = decode(line)
    print(f"{scene}, {len(line):,} bytes, ms a sample")
    print(f"{'encode':40}{each_ms(lambda: to_line(record)):8.3f}")
    print(f"{'decode':40}{each_ms(lambda: decode(line)):8.3f}")


def a_sample(scene: Scene) -> bytes:
    """Return a line of the stream of that scene: its tenth sample."""
    compiler = which("cc")
    assert compiler is not None, "the fake driver needs a C compiler"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        driver = FakeDriver(folder, build(folder, compiler))
        with Machine(scene, driver, folder) as machine:
            machine.rest()
            command = [
                sys.executable,
                "-m",
                "gputop",
                "stream",
                "--interval",
                "0.5",
                "--count",
                "10",
            ]
            environment = {**os.environ, **driver.environment()}
            lines = subprocess.run(command, capture_output=True, check=True, env=environment).stdout
    return lines.splitlines()[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--against", type=Path, help="another checkout, to compare with")
    parser.add_argument("--devices", type=int, nargs="+", choices=SCENES, default=list(SCENES))
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    checkouts = [HERE, *([options.against.resolve()] if options.against else [])]
    for count in options.devices:
        samplers(SCENES[count], checkouts, options.seconds)
        coding(SCENES[count], a_sample(SCENES[count]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
