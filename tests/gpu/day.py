"""Checks on a real GPU what is most doubtful: `python -m tests.gpu.day [--dry] [--out FOLDER]`.

It takes some 20 minutes; `--only NAME …` runs some of it. Each check prints ok, LOOK or FAIL and
what was measured. The folder, `$OUT` if it is set, gets the table, a recording, the answers of
nvidia-smi and a picture of the dashboard. `--dry` runs the same code on the CPU, small. Exit status
1 if something failed. Nothing is changed on the device: no clock, limit or mode.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from gputop.bench.worker.errors import RunError
from gputop.bench.worker.product import Product
from gputop.compat import module_command
from tests.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable

GPUTOP = module_command("gputop")
DTYPES = (
    *("bfloat16", "float16", "float16_acc16", "tf32", "float32", "float64"),
    *("float8_e4m3", "float8_mixed", "int8", "float4"),
)
READINGS = {
    "utilization.gpu": ("gpu_utilization_percent", 1.0, 15.0),
    "temperature.gpu": ("temperature_celsius", 1.0, 3.0),
    "memory.used": ("memory_used_bytes", 1 << 20, 64.0),
    "power.draw": ("power_watts", 1.0, 60.0),
    "clocks.sm": ("sm_clock_mhz", 1.0, 120.0),
    "clocks.mem": ("memory_clock_mhz", 1.0, 1.0),
}
"""Names of nvidia-smi: ours, our units in one of theirs, and how far a moment may be from it."""
INHERITED: tuple[tuple[str, dict[str, str]], ...] = (
    ("float32", {}),
    ("float32", {"CUBLAS_EMULATE_SINGLE_PRECISION": "1", "CUBLAS_EMULATION_STRATEGY": "eager"}),
    ("float64", {}),
    ("float64", {"CUBLAS_EMULATE_DOUBLE_PRECISION": "1", "CUBLAS_EMULATION_STRATEGY": "eager"}),
    ("bfloat16", {"CUBLAS_WORKSPACE_CONFIG": ":16:8"}),
    ("bfloat16", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    ("bfloat16", {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
)
"""Variables that would change the arithmetic or the speed; the worker takes them away."""
KINDS = {"copy": 20, "latency": 15, "sweep": 20, "peak": 40, "step": 30, "memory": 30}
KINDS |= {"pulse": 15, "burn": 20}
"""Seconds of each kind."""


class Day:
    """The checks, and what they found."""

    def __init__(self, out: Path, *, dry: bool) -> None:
        self.out, self.dry = out, dry
        self.place = "cpu" if dry else "cuda"
        self.size, self.long, self.short = (256, 1.0, 0.2) if dry else (8192, 10.0, 0.5)
        self.lines: list[str] = []
        self.failed: list[str] = []

    def say(self, name: str, verdict: str, text: str) -> None:
        """Print a line of the table."""
        self.failed += [name] * (verdict == "FAIL")
        self.lines.append(f"{verdict:4}  {name:30} {text}")
        print(self.lines[-1], flush=True)

    def sync(self) -> None:
        """Wait for the device."""
        if not self.dry:
            torch.cuda.synchronize()

    def rate(self, work: Callable[[], object], flop: float, seconds: float) -> float:
        """Return the TFLOP/s of `work` by wall time."""
        for _ in range(3):
            work()
        self.sync()
        began, done = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            for _ in range(8):
                work()
            self.sync()
            done += 8
        return flop * done / (time.perf_counter() - began) / 1e12

    def product(self, dtype: str, rows: int, columns: int = 0, inner: int = 0) -> Product:
        """Return a product of that shape, square if only one side is given."""
        return Product(torch, dtype, (rows, columns or rows, inner or rows), self.place)

    def bench(
        self, *arguments: str, env: dict[str, str] | None = None, device: str = "0"
    ) -> tuple[int, Any, str]:
        """Return the exit status, the result, and the last line of standard error."""
        device = "cpu" if self.dry else device
        command = [*GPUTOP, "bench", *arguments, "--device", device, "--ignore-busy", "--json"]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
            env={**os.environ, **(env or {})},
        )
        try:
            found = json.loads(done.stdout)
        except ValueError:
            found = {}
        return done.returncode, found, (done.stderr.strip().splitlines() or [""])[-1][:150]


def machine(day: Day) -> None:
    """What it is, and whether the threshold of slowdown by heat is known."""
    if day.dry:
        day.say("machine", "ok", f"torch {torch.__version__} on a CPU")
        return
    found = torch.cuda.get_device_properties(0)
    versions = f"torch {torch.__version__}, CUDA {torch.version.cuda}"
    day.say("machine", "ok", f"{found.name}, {versions}, {torch.cuda.get_arch_list()[-3:]}")
    devices = status(day)["inventory"]["devices"]
    slow = devices[0].get("slowdown_celsius")
    day.say("slowdown threshold", "ok" if slow else "LOOK", f"{slow} °C")


def status(day: Day) -> Any:
    """Return what `gputop status` prints; simulated in a dry run."""
    more = ["--demo"] if day.dry else []
    done = subprocess.run(
        [*GPUTOP, "status", "--json", *more], capture_output=True, check=True, timeout=60
    )
    return json.loads(done.stdout)


def readings(day: Day) -> None:
    """The readings against nvidia-smi's, at nearly the same moments, while the device works."""
    if day.dry:
        day.say("readings", "ok", f"skipped; {len(status(day)['sample']['devices'])} simulated")
        return
    work = day.product("bfloat16", day.size)
    work.fill()
    apart: dict[str, list[float]] = {name: [] for name in READINGS}
    query = ["nvidia-smi", f"--query-gpu={','.join(READINGS)}", "--format=csv,noheader,nounits"]
    for _ in range(12):
        work.multiply(200)
        said = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60).stdout
        ours = status(day)["sample"]["devices"][0]
        day.sync()
        (row, *_) = csv.reader(io.StringIO(said), skipinitialspace=True)
        for (name, (field, unit, _)), text in zip(READINGS.items(), row, strict=True):
            apart[name].append(abs(ours[field] / unit - float(text)))
    for name, distances in apart.items():
        most = statistics.median(distances)
        verdict = "ok" if most <= READINGS[name][2] else "LOOK"
        day.say(f"reading {name}", verdict, f"{most:.3g} apart in the middle of 12")
    everything = subprocess.run([query[0], "-q"], capture_output=True, check=False, timeout=60)
    (day.out / "nvidia-smi-q.txt").write_bytes(everything.stdout)


def recording(day: Day) -> None:
    """A recording for the tests: ten seconds of a device that works and rests."""
    path = day.out / "recording.jsonl.gz"
    more = ["--demo"] if day.dry else ["--gpm"]
    command = [*GPUTOP, "stream", "--interval", "0.5", "--count", "20", "--output", str(path)]
    with subprocess.Popen([*command, *more]) as process:
        work = day.product("bfloat16", day.size)
        for _ in range(3):
            day.rate(work.multiply, work.flop, day.short * 2)
            time.sleep(day.short)
        done = process.wait(60)
    day.say("recording", "FAIL" if done else "ok", f"{path.name}, {path.stat().st_size:,} bytes")


def dashboard(day: Day) -> None:
    """The dashboard in a terminal: text, picture, and how long until the first value."""
    env = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME") if name in os.environ}
    more = ["--demo"] if day.dry else []
    with Terminal([*GPUTOP, *more], env, 160, 50) as terminal:
        first = terminal.wait_for("mem", 30)
        terminal.collect(1 + day.long)
        sent = terminal.bytes_received
        terminal.collect(5)
        rate = (terminal.bytes_received - sent) / 5
        (day.out / "dashboard.txt").write_text(terminal.text)
        try:
            from screenshots.scenes import drawing
        except ImportError as error:
            day.say("picture", "LOOK", f"not drawn: {error}")
        else:
            (day.out / "dashboard.svg").write_text(drawing(terminal, "gputop"))
    day.say("dashboard", "ok", f"first values after {1000 * first:.0f} ms, {rate:.0f} B/s")


def dtypes(day: Day) -> None:
    """Each data type: made, exact, within its error band, and the same bits each time."""
    for name in DTYPES:
        if day.dry and name in ("tf32", "float4"):  # CPUs have neither
            continue
        size = day.size // 2 if name in ("float64", "float32") else day.size
        try:
            product = day.product(name, size)
            wrong = product.exact()
            product.fill()
            product.keep_first()
            wrong += product.judge()
            low, high = product.errors()
            differ = 0
            for _ in range(20 if day.dry else 300):
                product.multiply()
                differ += int((product.c_bits != product.first_bits).any())
            speed = day.rate(product.multiply, product.flop, day.short)
        except (RunError, RuntimeError, TypeError, ValueError, AttributeError) as error:
            day.say(f"dtype {name}", "LOOK", f"{type(error).__name__}: {str(error)[:120]}")
            continue
        inside = low <= product.relative_error < high
        verdict = "FAIL" if wrong or not inside else "LOOK" if differ else "ok"
        band = f"error {product.relative_error:.1e} in [{low:.0e}, {high:.0e})"
        day.say(
            f"dtype {name}",
            verdict,
            f"{speed:.4g} TFLOP/s, {band}, {wrong} wrong, {differ} with other bits",
        )


def bits(day: Day) -> None:
    """The same bits on another stream, in a graph, and beside copies."""
    if day.dry:
        day.say("bits", "ok", "skipped on a CPU")
        return
    n = day.size
    for shape in ((n, n, n), (256, 256, 65536), (4096, 128, 16384)):  # the last two invite split-k
        product = day.product("bfloat16", *shape)
        product.fill()
        product.keep_first()
        found, side = {}, torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            product.multiply(3)
        day.sync()
        found["stream"] = int((product.c_bits != product.first_bits).sum())
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            product.multiply(4)
        product.c.zero_()
        graph.replay()
        day.sync()
        found["graph"] = int((product.c_bits != product.first_bits).sum())
        host = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=True)
        copy = torch.empty(1 << 28, dtype=torch.uint8, device=day.place)
        with torch.cuda.stream(side):
            for _ in range(8):
                copy.copy_(host, non_blocking=True)
        product.multiply(20)
        day.sync()
        found["beside copies"] = int((product.c_bits != product.first_bits).sum())
        verdict = "LOOK" if any(found.values()) else "ok"
        day.say(f"bits {'x'.join(map(str, shape))}", verdict, f"other bits {found}")
        del product, graph


def choices(day: Day) -> None:
    """Fast accumulation of float8, cuBLAS against cuBLASLt, random values against zeros."""
    if day.dry:
        day.say("choices", "ok", "skipped on a CPU")
        return
    product = day.product("float8_e4m3", day.size)
    product.fill()
    first, second = product.scales
    for fast in (False, True):

        def scaled(fast: bool = fast) -> None:
            torch._scaled_mm(
                product.a,
                product.b,
                scale_a=first,
                scale_b=second,
                out_dtype=torch.bfloat16,
                out=product.c,
                use_fast_accum=fast,
            )

        day.say(f"fp8 fast_accum={fast}", "ok", f"{day.rate(scaled, product.flop, 2):.0f} TFLOP/s")
    product = day.product("bfloat16", day.size)
    product.fill()
    for library in ("cublas", "cublaslt", "cublas", "cublaslt"):
        torch.backends.cuda.preferred_blas_library(library)
        speed = day.rate(product.multiply, product.flop, 2)
        day.say(f"bf16 by {library}", "ok", f"{speed:.0f} TFLOP/s")
    torch.backends.cuda.preferred_blas_library("default")
    product.a.zero_()
    product.b.zero_()
    day.say("bf16 of zeros", "ok", f"{day.rate(product.multiply, product.flop, 2):.0f} TFLOP/s")


def cold(day: Day) -> None:
    """The burst of a device that was idle, product by product."""
    if day.dry:
        day.say("cold", "ok", "skipped on a CPU")
        return
    product = day.product("bfloat16", day.size)
    product.fill()
    product.multiply(2)
    day.sync()
    time.sleep(20)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2001)]
    events[0].record()
    for event in events[1:]:
        product.multiply()
        event.record()
    day.sync()
    each = [a.elapsed_time(b) for a, b in itertools.pairwise(events)]

    def speed(part: list[float]) -> float:
        return product.flop / statistics.median(part) / 1e9

    droop = 100 * (1 - speed(each[-500:]) / speed(each[5:25]))
    parts = f"{speed(each[:20]):.0f}, then {speed(each[20:100]):.0f}, last {speed(each[-500:]):.0f}"
    day.say("cold burst", "ok", f"{parts} TFLOP/s: a droop of {droop:.1f} %")


def agreement(day: Day) -> None:
    """A soak against a bare loop, in turns; and with every product verified."""
    n = day.size
    a = torch.randn(n, n, device=day.place).bfloat16()
    b = torch.randn(n, n, device=day.place).bfloat16().t()
    c = torch.empty_like(a)

    def bare() -> float:
        return day.rate(lambda: torch.mm(a, b, out=c), 2 * n**3, day.long)

    for verify in ("some", "some", "all"):
        before = bare()
        exit_status, result, error = day.bench(
            *("soak", "--dtype", "bfloat16", "--size", str(n), "--seconds", str(day.long + 1)),
            *(("--verify", "all") if verify == "all" else ()),
        )
        loop = (before + bare()) / 2
        mean = result.get("tflops_mean") or 0.0
        seen = 100 * (result.get("verified_products") or 0) / (result.get("iterations") or 1)
        near = abs(mean / loop - 1) < (0.05 if verify == "all" else 0.02)
        text = f"bare {loop:.4g}, gputop {mean:.4g}: {mean / loop:.3f}; {seen:.1f} % verified"
        droop = result.get("droop_percent")
        text += f"; droop {droop}; exit {exit_status} {error}"
        day.say(f"agreement, {verify} verified", "ok" if near else "LOOK", text)


def inherited(day: Day) -> None:
    """Variables of the environment that must not change what is measured."""
    for dtype, env in INHERITED:
        exit_status, result, error = day.bench(
            "soak", "--dtype", dtype, "--seconds", "0.5" if day.dry else "4", env=dict(env)
        )
        name = f"{dtype} {' '.join(env) or 'plain'}"[:60]
        text = f"{result.get('tflops_mean')} TFLOP/s, exit {exit_status} {error}"
        day.say(name, "ok" if result else "LOOK", text)


def kinds(day: Day) -> None:
    """Each other kind: that it ends, what it found, and its widest scatter."""
    for kind, seconds in KINDS.items():
        exit_status, result, error = day.bench(kind, "--seconds", "2" if day.dry else str(seconds))
        best: dict[str, float] = {}
        widest = 0.0
        for point in result.get("points", []):
            values, series = point["values"], point["series"]
            speed = max(values.get("bytes_per_second", 0) / 1e9, values.get("tflops", 0))
            best[series] = max(best.get(series, 0.0), speed)
            widest = max(widest, values.get("spread_percent", 0.0))
        rows = ", ".join(f"{name} {value:.4g}" for name, value in [*best.items()][:6])
        rows = rows or f"{result.get('tflops_mean')} TFLOP/s"
        verdict = "ok" if exit_status in (0, 4) and result else "FAIL"
        text = f"exit {exit_status}; ± {widest:.0f} % at most; {rows} {error}"
        day.say(f"kind {kind}", verdict, text)


def between(day: Day) -> None:
    """Copies between all GPUs, and those that the first one writes against torch's own."""
    if day.dry or torch.cuda.device_count() < 2:
        day.say("between", "ok", "skipped: there are no two GPUs")
        return
    exit_status, results, error = day.bench("copy", "--seconds", "60", device="all")
    day.say("between", "ok" if exit_status in (0, 4) else "FAIL", f"exit {exit_status} {error}")
    points = [point for result in results for point in result.get("points", [])]
    for point in (each for each in points if ": " in each["series"]):
        rate, latency = point["values"]["bytes_per_second"], point["values"].get("latency_seconds")
        text, verdict = f"{rate / 1e9:.4g} GB/s, latency {latency} s", "ok"
        if point["series"].startswith("GPU 0: write to GPU "):
            here = torch.empty(int(point["x"]), dtype=torch.uint8, device="cuda:0")
            there = torch.empty_like(here, device=f"cuda:{point['series'].rpartition(' ')[2]}")
            bare = day.rate(partial(there.copy_, here), point["x"], 1) * 1e12
            text += f", torch {bare / 1e9:.4g} GB/s"
            verdict = "ok" if abs(rate / bare - 1) < 0.1 else "LOOK"
        day.say(point["series"], verdict, text)


def ends(day: Day) -> None:
    """A size that cannot be, and Ctrl+C."""
    exit_status, _, error = day.bench("soak", "--size", "1048576", "--seconds", "1")
    day.say("too large", "ok" if exit_status == 3 else "FAIL", f"exit {exit_status} {error[:110]}")
    command = [*GPUTOP, "bench", "--device", "cpu" if day.dry else "0", "--ignore-busy"]
    with subprocess.Popen(
        [*command, "--seconds", "60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        time.sleep(8 if day.dry else 20)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        ended = process.wait(20)
    seconds = time.monotonic() - began
    well = ended == 130 and seconds < 1.5
    day.say("Ctrl+C", "ok" if well else "LOOK", f"exit {ended} after {seconds:.2f} s")


def watching(day: Day) -> None:
    """What gputop costs the work that it watches."""
    pairs = ["--pairs", "1", "--seconds", "2"] if day.dry else ["--pairs", "4", "--seconds", "5"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.perf.overhead", *pairs],
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    said = " | ".join(done.stdout.strip().splitlines()[-4:])
    day.say("cost of watching", "LOOK" if done.returncode else "ok", said[:300])


CHECKS: tuple[Callable[[Day], None], ...] = (
    *(machine, readings, recording, dashboard, dtypes, bits, choices, cold),
    *(agreement, inherited, kinds, between, ends, watching),
)


def main() -> int:
    """Run the checks, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dry", action="store_true", help="on the CPU, small: does it run?")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "gpu-day")))
    parser.add_argument("--only", nargs="+", choices=[check.__name__ for check in CHECKS])
    options = parser.parse_args()
    if not options.dry and not torch.cuda.is_available():
        parser.error("there is no CUDA device here; --dry runs on the CPU")
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ["XDG_DATA_HOME"] = str(options.out / "data")
    day = Day(options.out, dry=options.dry)
    for check in CHECKS:
        if options.only is None or check.__name__ in options.only:
            try:
                check(day)
            except Exception as error:  # noqa: BLE001 - the other checks may well work
                day.say(check.__name__, "FAIL", f"{type(error).__name__}: {str(error)[:160]}")
    day.say("end", "ok", f"{len(day.failed)} failed: {', '.join(day.failed)}")
    (day.out / "day.txt").write_text("\n".join(day.lines) + "\n")
    return int(bool(day.failed))


if __name__ == "__main__":
    sys.exit(main())
