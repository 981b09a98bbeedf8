"""Eight minutes on one real GPU, the most doubtful first: `python -m tests.gpu.day [STEP …]`.

The steps are in `tests.gpu.steps`. Each has a budget of seconds, after which it is ended, and all
together have 480. After each step the raw data are written to `day.json` in the folder `--out`, and
the table comes last. Nothing is changed on the device: no clock, limit or mode.

`--dry` rehearses it, small, on the fake driver and the fake CUDA of the tests. Exit status 1 if a
row of the table is doubtful.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gputop.console import DEGRADED
from gputop.stream.launch import module_command

GPUTOP = module_command("gputop")
TOTAL_SECONDS = 480.0
GRACE_SECONDS = 20.0
"""Time after its budget in which a step ends by itself. Then it hangs in the driver."""
OK, DOUBTFUL = "ok", "doubtful"
LONGEST_TEXT = 160
"""Characters of what a row found. The raw data have all of it."""


class OverBudgetError(BaseException):
    """The time of a step is up. No step may catch it."""


@dataclass
class Row:
    """A row of the table. Steps add what they asked, and what they found."""

    step: str
    asked: str
    found: str
    ok: bool
    status: int | None = None
    """Exit status of a command, or None without one."""
    seconds: float | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        """The texts of the row."""
        status = "" if self.status is None else str(self.status)
        seconds = "" if self.seconds is None else f"{self.seconds:.1f}"
        return self.step, self.asked, status, seconds, OK if self.ok else DOUBTFUL, self.found


HEAD = ("step", "asked", "exit", "seconds", "state", "found")


@dataclass
class Ran:
    """A stress test that has ended."""

    status: int
    seconds: float
    result: dict[str, Any]
    why: str
    """What is not ok: parts of the verdict, or the last line of standard error."""


@dataclass
class Day:
    """The rows and raw data so far, and the options."""

    out: Path
    python: str | None = None
    """Interpreter of the workers, or None for the usual one."""
    small: bool = False
    rows: list[Row] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    step: str = ""

    @property
    def size(self) -> int:
        """Size of the products."""
        return 512 if self.small else 8192

    def seconds(self, usual: float) -> float:
        """Return how long something takes, which is less in a rehearsal."""
        return max(0.5, 0.1 * usual) if self.small else usual

    @property
    def left(self) -> float:
        """Seconds left for all steps."""
        return TOTAL_SECONDS - (time.monotonic() - self.began)

    def add(
        self,
        asked: str,
        found: str,
        *,
        ok: bool,
        status: int | None = None,
        seconds: float | None = None,
    ) -> None:
        """Add a row, and print it."""
        row = Row(self.step, asked, " ".join(found.split())[:LONGEST_TEXT], ok, status, seconds)
        self.rows.append(row)
        elapsed = time.monotonic() - self.began
        print(f"{elapsed:6.1f}", *filter(None, row.cells), sep="  ", flush=True)

    def bench_command(self, *arguments: str) -> list[str]:
        """Return the command of a stress test."""
        more = ["--python", self.python] if self.python else []
        return [*GPUTOP, "bench", *arguments, *more, "--ignore-busy", "--json"]

    def bench(self, *arguments: str, device: str = "0") -> Ran:
        """Run a stress test to its end."""
        began = time.monotonic()
        done = subprocess.run(
            self.bench_command(*arguments, "--device", device),
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - began
        try:
            found = json.loads(done.stdout)
        except ValueError:
            found = {}
        results = found if isinstance(found, list) else [found]
        bad = [part for result in results for part in bad_parts(result)]
        said = done.stderr.strip().splitlines()
        why = "; ".join(bad) or (said[-1] if said else "")
        self.data.setdefault("bench", []).append([arguments, done.returncode, seconds, found, why])
        merged = results[0] if len(results) == 1 else {"points": points_of(results)}
        status = done.returncode
        if self.small and status == DEGRADED:  # the speed of small products says nothing
            status = 0
        return Ran(status, seconds, merged, why)

    def smi(self, *arguments: str) -> str:
        """Return what nvidia-smi prints, or why it cannot."""
        try:
            done = subprocess.run(
                ["nvidia-smi", *arguments],  # noqa: S607
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError as error:
            return f"nvidia-smi: {error.strerror}"
        return done.stdout

    def write(self) -> None:
        """Write the raw data, whole or not at all."""
        document = {"rows": [asdict(row) for row in self.rows], **self.data}
        new = self.out / "day.json.new"
        new.write_text(json.dumps(document, default=str))
        new.replace(self.out / "day.json")

    def table(self) -> str:
        """Return the table of all rows."""
        lines = [HEAD, *(row.cells for row in self.rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD) - 1)]
        text = []
        for line in lines:
            cells = [cell.ljust(width) for cell, width in zip(line[:-1], widths, strict=True)]
            text.append("  ".join([*cells, line[-1]]).rstrip())
        doubtful = sum(not row.ok for row in self.rows)
        took = time.monotonic() - self.began
        text.append(f"{len(self.rows)} rows, {doubtful} doubtful, {took:.0f} s")
        return "\n".join(text) + "\n"

    def finish(self) -> int:
        """Print the table, write it, and return the exit status."""
        self.write()
        table = self.table()
        (self.out / "day.txt").write_text(table)
        print(f"\n{table}", end="", flush=True)
        return int(any(not row.ok for row in self.rows))


def bad_parts(result: dict[str, Any]) -> list[str]:
    """Return the parts of a verdict that are not ok, in words."""
    parts = (result.get("verdict") or {}).get("parts", [])
    bad = [part for part in parts if part["state"] in ("degraded", "faulty")]
    return [f"{part['name']} {part['state']}: {part['why']}" for part in bad]


def points_of(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of all results."""
    return [point for result in results for point in result.get("points") or []]


@contextlib.contextmanager
def budget(day: Day, seconds: float) -> Iterator[None]:
    """End what is inside after so many seconds, and the whole day if it hangs in the driver."""

    def over(*_: object) -> None:
        raise OverBudgetError(f"ended after {seconds:.3g} s")

    def give_up() -> None:
        day.add("an end", f"a call has hung for {GRACE_SECONDS:.0f} s", ok=False)
        day.finish()
        os._exit(1)

    watchdog = threading.Timer(seconds + GRACE_SECONDS, give_up)
    watchdog.daemon = True
    watchdog.start()
    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        watchdog.cancel()


Steps = Mapping["Callable[[Day], None]", float]
"""Steps, and the most seconds of each."""


def run_steps(day: Day, steps: Steps) -> int:
    """Run the steps, and return the exit status."""
    for step, seconds in steps.items():
        day.step, began = step.__name__, time.monotonic()
        asked = f"an end within {seconds:g} s"
        try:
            with budget(day, min(seconds, max(0.1, day.left))):
                step(day)
        except OverBudgetError as error:
            day.add(asked, str(error), ok=False, seconds=time.monotonic() - began)
        except Exception as error:  # noqa: BLE001 - the other steps may well work
            text = f"{type(error).__name__}: {error}"
            day.add(asked, text, ok=False, seconds=time.monotonic() - began)
        day.write()
    return day.finish()


def rehearse(arguments: list[str]) -> int:
    """Run this script on the fake driver and the fake CUDA."""
    from tests.driver import FakeDevice, FakeDriver, build
    from tests.fake_cuda import PYTHON
    from tests.fake_cuda.settings import Settings

    settings = Settings(memory_gib=3.0, context_mib=300.0)
    total, used = int(settings.memory_gib * 2**30), int(settings.context_mib * 2**20)
    with tempfile.TemporaryDirectory() as folder:
        driver = FakeDriver(Path(folder), build(Path(folder), "cc"))
        driver.write(FakeDevice(memory_total_bytes=total, memory_used_bytes=used))
        environment = {
            **os.environ,
            **driver.environment(),
            **settings.environment(),
            "FAKE_CUDA_PYTHON": sys.executable,
        }
        command = [str(PYTHON), "-m", "tests.gpu.day", "--small", "--python", str(PYTHON)]
        return subprocess.run([*command, *arguments], env=environment, check=False).returncode


def main() -> int:
    """Run the steps, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("steps", nargs="*", metavar="STEP", help="only these steps")
    parser.add_argument("--dry", action="store_true", help="rehearse it without a GPU")
    parser.add_argument("--small", action="store_true", help="small products and short runs")
    parser.add_argument("--python", help="the interpreter of the workers")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "gpu-day")))
    options = parser.parse_args()
    if options.dry:
        return rehearse([*options.steps, "--out", str(options.out)])
    from tests.gpu.steps import STEPS

    names = [step.__name__ for step in STEPS]
    for name in options.steps:
        if name not in names:
            parser.error(f"there is no step {name}. Choose from {', '.join(names)}")
    wanted = options.steps or names
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ["XDG_DATA_HOME"] = str(options.out.resolve() / "data")
    steps = {step: seconds for step, seconds in STEPS.items() if step.__name__ in wanted}
    return run_steps(Day(options.out, options.python, options.small), steps)


if __name__ == "__main__":
    sys.exit(main())
