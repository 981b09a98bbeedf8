"""Eight minutes on one real GPU, the most doubtful first: `python -m tests.gpu.day [STEP …]`.

The steps are in `tests.gpu.steps`. Each has a budget of seconds, after which it is ended. After
each step the raw data are written to `day.json` in the folder `--out`, and the table comes last.
Nothing is changed on the device: no clock, limit or mode.

`--dry` rehearses it, small, on the fake driver and the fake CUDA of the tests. Exit status 1 if a
row of the table is doubtful.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from gputop.console import DEGRADED
from gputop.stream.launch import module_command

GPUTOP = module_command("gputop")
TOTAL_SECONDS = 480.0
GRACE_SECONDS = 20.0
"""Time after its budget in which a step ends by itself. Then it hangs in the driver."""
HEAD = ("step", "asked", "exit", "seconds", "state", "found")


class OverBudgetError(BaseException):
    """The time of a step is up. No step may catch it."""


class Ran(NamedTuple):
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
    rows: list[tuple[str, ...]] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    step: str = ""
    doubtful: int = 0

    @property
    def size(self) -> int:
        return 512 if self.small else 8192

    def seconds(self, usual: float) -> float:
        """Return how long something takes, which is less in a rehearsal."""
        return max(0.5, 0.1 * usual) if self.small else usual

    def add(
        self,
        asked: str,
        found: str,
        *,
        ok: bool,
        status: int | None = None,
        seconds: float | None = None,
    ) -> None:
        """Add a row to the table, and print it. `status` is that of a command."""
        shown = "" if status is None else str(status)
        took = "" if seconds is None else f"{seconds:.1f}"
        state = "ok" if ok else "doubtful"
        row = (self.step, asked, shown, took, state, " ".join(found.split())[:160])
        self.rows.append(row)
        self.doubtful += not ok
        print(f"{time.monotonic() - self.began:6.1f}", *filter(None, row), sep="  ", flush=True)

    def bench_command(self, *arguments: str) -> list[str]:
        more = ["--python", self.python] if self.python else []
        return [*GPUTOP, "bench", *arguments, *more, "--ignore-busy", "--json"]

    def bench(self, *arguments: str, device: str = "0") -> Ran:
        """Run a stress test to its end."""
        began = time.monotonic()
        command = self.bench_command(*arguments, "--device", device)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - began
        found = json.loads(done.stdout or "{}")
        results = found if isinstance(found, list) else [found]
        bad = []
        for result in results:
            for part in (result.get("verdict") or {}).get("parts", []):
                if part["state"] in ("degraded", "faulty"):
                    bad.append(f"{part['name']} {part['state']}: {part['why']}")
        said = done.stderr.strip().splitlines()
        why = "; ".join(bad or said[-1:])
        self.data.setdefault("bench", []).append([arguments, done.returncode, seconds, found, why])
        is_fine = self.small and done.returncode == DEGRADED  # small products are slow
        return Ran(0 if is_fine else done.returncode, seconds, results[0], why)

    def smi(self, *arguments: str) -> str:
        """Return what nvidia-smi prints, or why it cannot."""
        command = ["nvidia-smi", *arguments]
        try:
            return subprocess.run(command, capture_output=True, text=True, check=False).stdout
        except OSError as error:
            return f"nvidia-smi: {error.strerror}"

    def write(self) -> None:
        rows = [dict(zip(HEAD, row, strict=True)) for row in self.rows]
        document = json.dumps({"rows": rows, **self.data}, default=str)
        (self.out / "day.json").write_text(document)

    def table(self) -> str:
        lines = [HEAD, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = ""
        for line in lines:
            cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
            text += "  ".join(cells).rstrip() + "\n"
        took = time.monotonic() - self.began
        return f"{text}{len(self.rows)} rows, {self.doubtful} doubtful, {took:.0f} s\n"


@contextlib.contextmanager
def budget(seconds: float) -> Iterator[None]:
    """End what is inside after so many seconds, and the whole day if it hangs in the driver."""

    def over(*_: object) -> None:
        raise OverBudgetError(f"ended after {seconds:.3g} s")

    late = seconds + GRACE_SECONDS
    faulthandler.dump_traceback_later(late, exit=True, file=sys.__stderr__)
    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        faulthandler.cancel_dump_traceback_later()


def run_steps(day: Day, steps: Mapping[Callable[[Day], None], float]) -> int:
    for step, seconds in steps.items():
        day.step, began = step.__name__, time.monotonic()
        left = TOTAL_SECONDS - (began - day.began)
        problem = ""
        try:
            with budget(min(seconds, max(0.1, left))):
                step(day)
        except OverBudgetError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - the other steps may well work
            problem = f"{type(error).__name__}: {error}"
        if problem:
            took = time.monotonic() - began
            day.add(f"an end within {seconds:g} s", problem, ok=False, seconds=took)
        day.write()
    table = day.table()
    (day.out / "day.txt").write_text(table)
    print(f"\n{table}", end="", flush=True)
    return int(day.doubtful > 0)


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
