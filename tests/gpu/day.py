"""Eight minutes on one real GPU: `python -m tests.gpu.day [STEP …]`.

The steps run the shipped commands, each with a limit of time, and add a row to the table that comes
last. The outputs are kept in the folder `--out`. Nothing is changed on the device: no clock, limit
or mode.

`--dry` rehearses it, small, on the fake driver and the fake CUDA of the tests. Exit status 1 if a
row of the table is doubtful.
"""

import argparse
import contextlib
import csv
import io
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gputop.bench.plan.kinds import DTYPES
from gputop.console import DEGRADED
from gputop.stream.launch import module_command
from tests.bench.commands import InTerminal

GPUTOP = module_command("gputop")
TOTAL_SECONDS = 480.0
LATE_SECONDS = 30.0
"""Longest time of a run beside its seconds: interpreter, context, preparation and end."""
STOP_SECONDS, FREED_SECONDS = 1.5, 10.0
"""Longest time from Ctrl+C to the end, and to the free memory."""
KINDS = {
    "soak": 25,
    **{f"soak --dtype {name} --verify all": 4 for name in DTYPES},
    "sweep --dtype bfloat16,tf32,float8_e4m3,int8": 20,
    "peak --dtype tf32": 8,
    "peak --dtype float8_e4m3": 15,
    "copy": 12,
    "memory": 8,
    "pulse": 6,
    "burn": 10,
    "step": 10,
}
"""Runs, and their seconds."""
SIZED = ("soak", "sweep", "peak", "pulse", "burn")
BETWEEN = {"copy": 15, "collective": 6}
"""Runs between GPUs, where there are several."""
READINGS = {
    "utilization.gpu": ("gpu_utilization_percent", 1.0, 15.0),
    "temperature.gpu": ("temperature_celsius", 1.0, 3.0),
    "memory.used": ("memory_used_bytes", 1 << 20, 64.0),
    "power.draw": ("power_watts", 1.0, 60.0),
    "clocks.sm": ("sm_clock_mhz", 1.0, 120.0),
    "clocks.mem": ("memory_clock_mhz", 1.0, 1.0),
}
"""Names of nvidia-smi: ours, our units in one of theirs, and how far a moment may be from it."""
HEAD = ("step", "asked", "exit", "seconds", "state", "found")


@dataclass
class Day:
    """The rows so far, and the options."""

    out: Path
    python: str | None = None
    """Interpreter of the workers, or None for the usual one."""
    small: bool = False
    rows: list[tuple[str, ...]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    step: str = ""

    def seconds(self, usual: float) -> float:
        """Return how long something takes, which is less in a rehearsal."""
        return max(0.5, 0.1 * usual) if self.small else usual

    def add(self, asked: str, found: str, *, ok: bool, status: object = "", took: str = "") -> None:
        """Add a row to the table, and print it. `status` is that of a command."""
        state = "ok" if ok else "doubtful"
        row = (self.step, asked, str(status), took, state, " ".join(found.split())[:160])
        self.rows.append(row)
        print(*filter(None, row), sep="  ", flush=True)

    def run(self, asked: str, command: list[str], limit: float) -> tuple[int, str, str] | None:
        """Run a command to its end; return its status and outputs, or None if it took too long."""
        left = TOTAL_SECONDS - (time.monotonic() - self.began)
        began = time.monotonic()
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=min(limit, left)
            )
        except subprocess.TimeoutExpired:
            took = f"{time.monotonic() - began:.1f}"
            self.add(asked, "it was ended: its time was up", ok=False, took=took)
            return None
        (self.out / f"{len(self.rows)}.txt").write_text(f"{command}\n{done.stdout}{done.stderr}")
        return done.returncode, done.stdout, done.stderr

    def bench_command(self, asked: str, seconds: float, device: str = "0") -> list[str]:
        """Return the command of a stress test."""
        more = ["--python", self.python] if self.python else []
        if self.small and asked.split(maxsplit=1)[0] in SIZED and "--size" not in asked:
            more += ["--size", "512"]
        limits = ["--seconds", f"{seconds:g}", "--device", device]
        return [*GPUTOP, "bench", *asked.split(), *limits, *more, "--ignore-busy", "--json"]

    def bench(self, asked: str, usual: float, device: str = "0", *allowed: int) -> None:
        """Run a stress test, and add what it found. It may end with the `allowed` statuses, too."""
        seconds, began = self.seconds(usual), time.monotonic()
        limit = 120 if self.small else seconds + LATE_SECONDS
        done = self.run(asked, self.bench_command(asked, seconds, device), limit)
        if done is None:
            return
        status, output, errors = done
        found = json.loads(output or "{}")
        result = found[0] if isinstance(found, list) else found
        known = result.get("conditions") or {}
        said = [f"{len(result['points'])} rows"] if result.get("points") else []
        if result.get("tflops_peak"):
            said.append(f"{result['tflops_peak']:.4g} TFLOP/s")
        for name, share in (known.get("percent_of_peak") or {}).items():
            said.append(f"{share:.0f} % of the {name}")
        for part in (result.get("verdict") or {}).get("parts", []):
            if part["state"] in ("degraded", "faulty"):
                said.append(f"{part['name']} {part['state']}: {part['why']}")
        said += errors.strip().splitlines()[-1:] if status else []
        said += [*(result.get("mismatches") or {}), *(result.get("notes") or [])[:3]]
        if self.small and status == DEGRADED:  # small products are slow
            status = 0
        took = f"{time.monotonic() - began:.1f}"
        self.add(asked, "; ".join(said), ok=status in (0, *allowed), status=status, took=took)

    def table(self) -> str:
        """Return the table of all rows."""
        lines = [HEAD, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = ""
        for line in lines:
            cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
            text += "  ".join(cells).rstrip() + "\n"
        doubtful = sum("doubtful" in row for row in self.rows)
        took = time.monotonic() - self.began
        return f"{text}{len(self.rows)} rows, {doubtful} doubtful, {took:.0f} s\n"


def status() -> Any:
    command = [*GPUTOP, "status", "--json"]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def memory_used() -> float:
    return float(status()["sample"]["devices"][0]["memory_used_bytes"])


def nvidia_smi(*arguments: str) -> str:
    """Return what nvidia-smi prints, or nothing where it is not."""
    with contextlib.suppress(OSError):
        command = ["nvidia-smi", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return ""


def machine(day: Day) -> None:
    """Look at the machine, and at the thresholds of heat."""
    (day.out / "smi-q-idle.txt").write_text(nvidia_smi("-q"))
    gpus = status()["inventory"]["devices"]
    day.add("the machine", f"{len(gpus)} × {gpus[0]['name']}", ok=True)
    limits = ("temperature_slowdown_celsius", "temperature_slowdown_margin_celsius")
    known = [f"{name} {gpus[0][name]}" for name in limits if name in gpus[0]]
    day.add("slowdown by heat", ", ".join(known), ok=bool(known))


def kinds(day: Day) -> None:
    """Run each kind and each data type, short. One that the GPU does not have is refused."""
    ran = set()
    for asked, usual in KINDS.items():
        kind, *_ = asked.split()
        if day.small and kind in ran:  # once is enough for a rehearsal
            continue
        ran.add(kind)
        day.bench(asked, usual, "0", *([2, 3] if "--verify" in asked else []))
    if len(status()["inventory"]["devices"]) > 1:
        for asked, usual in BETWEEN.items():
            day.bench(asked, usual, "all")


def stops(day: Day) -> None:
    """Interrupt runs in the middle: how long until the end, and until the memory is free."""
    for kind in ("soak", "burn", "memory"):
        before = memory_used()
        arguments = day.bench_command(kind, 60)
        with InTerminal(*arguments[len(GPUTOP) + 1 :]) as run:
            run.until("/s")  # a rate: it is in the middle
            run.read_for(day.seconds(4))
            began = time.monotonic()
            run.process.send_signal(signal.SIGINT)
            output, _ = run.process.communicate()
        ended = freed = time.monotonic() - began
        while memory_used() > before + (64 << 20) and freed < FREED_SECONDS:
            freed = time.monotonic() - began
        code, stopped = run.process.returncode, json.loads(output or "{}").get("stopped")
        in_time = stopped == "user" and ended < STOP_SECONDS and freed < FREED_SECONDS
        well = code == 130 and (in_time or day.small)  # a rehearsal may be slow
        text = f"ended after {ended:.2f} s, memory free after {freed:.2f} s, stopped {stopped}"
        day.add(f"Ctrl+C in {kind}", text, ok=well, status=code)


@contextlib.contextmanager
def beside(command: list[str]) -> Any:
    """Run a stress test meanwhile, and interrupt it at the end."""
    null = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=null, stdout=null, stderr=null) as process:
        yield
        process.send_signal(signal.SIGINT)


def pressure(day: Day) -> None:
    """Run with little memory left, and with all of it. A run may be refused, but may not fail."""
    with beside(day.bench_command("memory --memory-share 0.9", 60)):
        time.sleep(day.seconds(10))
        for asked in ("soak", "memory", "soak --size 32768"):
            day.bench(asked, 3, "0", 3)
    day.bench("memory --memory-share 1", 4, "0", 3)


def recording(day: Day) -> None:
    """Record a device that works and rests, and compare the readings with those of nvidia-smi."""
    path = day.out / "recording.jsonl.gz"
    count = 6 if day.small else 24
    command = [*GPUTOP, "stream", "--gpm", "--interval", "0.5", "--count", str(count)]
    with subprocess.Popen([*command, "--output", str(path)]) as process:
        with beside(day.bench_command("soak", 30)):
            time.sleep(day.seconds(6))
            (day.out / "smi-q-load.txt").write_text(nvidia_smi("-q"))
            compare_readings(day)
        ended = process.wait()
    day.add(f"a recording of {count} samples", path.name, ok=ended == 0, status=ended)


def compare_readings(day: Day) -> None:
    apart: dict[str, list[float]] = {name: [] for name in READINGS}
    for _ in range(5):
        said = nvidia_smi(f"--query-gpu={','.join(READINGS)}", "--format=csv,noheader,nounits")
        ours = status()["sample"]["devices"][0]
        row = next(csv.reader(io.StringIO(said), skipinitialspace=True), [])
        for name, text in zip(READINGS, row, strict=False):
            ours_name, unit, _ = READINGS[name]
            with contextlib.suppress(KeyError, ValueError):  # one that this GPU does not have
                apart[name].append(abs(ours[ours_name] / unit - float(text)))
    for name, distances in apart.items():
        most = statistics.median(distances or [0.0])
        text = f"{most:.3g} apart" if distances else "not known"
        day.add(name, text, ok=most <= READINGS[name][2])


STEPS = {step.__name__: step for step in (machine, kinds, stops, pressure, recording)}


def rehearse(arguments: list[str]) -> int:
    """Run this script on the fake driver and the fake CUDA."""
    from tests.driver import FakeDevice, FakeDriver, build
    from tests.fake_cuda import PYTHON
    from tests.fake_cuda.settings import Settings

    settings = Settings(memory_gib=3.0, context_mib=300.0)
    with tempfile.TemporaryDirectory() as folder:
        driver = FakeDriver(Path(folder), build(Path(folder), "cc"))
        driver.write(FakeDevice(memory_total_bytes=3 << 30, memory_used_bytes=300 << 20))
        fakes = {**driver.environment(), **settings.environment()}
        environment = {**os.environ, **fakes, "FAKE_CUDA_PYTHON": sys.executable}
        command = [sys.executable, "-m", "tests.gpu.day", "--small", "--python", str(PYTHON)]
        return subprocess.run([*command, *arguments], env=environment, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(STEPS))
    parser.add_argument("--dry", action="store_true", help="rehearse it without a GPU")
    parser.add_argument("--small", action="store_true", help="small products and short runs")
    parser.add_argument("--python", help="the interpreter of the workers")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "gpu-day")))
    options = parser.parse_args()
    if unknown := set(options.steps) - set(STEPS):
        parser.error(f"there is no step {', '.join(unknown)}. Choose from {', '.join(STEPS)}")
    if options.dry:
        return rehearse([*options.steps, "--out", str(options.out)])
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ["XDG_DATA_HOME"] = str(options.out.resolve() / "data")
    day = Day(options.out, options.python, options.small)
    for day.step in options.steps or STEPS:
        try:
            STEPS[day.step](day)
        except Exception as error:  # noqa: BLE001 - the other steps may well work
            day.add("an end", f"{type(error).__name__}: {error}", ok=False)
    table = day.table()
    (day.out / "day.txt").write_text(table)
    print(f"\n{table}", end="", flush=True)
    return int(" doubtful  " in table)


if __name__ == "__main__":
    sys.exit(main())
