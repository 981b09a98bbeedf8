"""The steps of `tests.gpu.day`, in the order of doubt, and how many seconds each may take."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import signal
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from gputop.bench.plan.kinds import DTYPES
from gputop.bench.worker.product import Product
from tests.bench.commands import InTerminal
from tests.gpu.day import GPUTOP

if TYPE_CHECKING:
    from tests.gpu.day import Day

READINGS = {
    "utilization.gpu": ("gpu_utilization_percent", 1.0, 15.0),
    "temperature.gpu": ("temperature_celsius", 1.0, 3.0),
    "memory.used": ("memory_used_bytes", 1 << 20, 64.0),
    "power.draw": ("power_watts", 1.0, 60.0),
    "clocks.sm": ("sm_clock_mhz", 1.0, 120.0),
    "clocks.mem": ("memory_clock_mhz", 1.0, 1.0),
}
"""Names of nvidia-smi: ours, our units in one of theirs, and how far a moment may be from it."""
REPETITIONS = 50
LATE_SECONDS = 30.0
"""Longest time of a run beside its seconds: interpreter, context, preparation and end."""
STOP_SECONDS, FREED_SECONDS = 1.5, 10.0
"""Longest time from Ctrl+C to the end, and to the free memory."""
KINDS = {
    "soak": 25,
    "sweep --dtype bfloat16,tf32,float8_e4m3,int8": 20,
    "peak --dtype tf32": 8,
    "peak --dtype float8_e4m3": 15,
    "copy": 12,
    "memory": 8,
    "pulse": 6,
    "burn": 10,
    "soak --verify all": 8,
    "soak --dtype int8": 5,
    "soak --dtype float32": 5,
    "step": 10,
}
"""Runs, and their seconds."""
SIZED = ("soak", "sweep", "peak", "pulse", "burn")
BETWEEN = {"copy": 15, "collective": 6}
"""Runs between GPUs, where there are several."""


def facts(day: Day) -> None:
    """Check the machine, the context, and the thresholds of heat."""
    (day.out / "smi-q-idle.txt").write_text(day.smi("-q"))
    began = time.perf_counter()
    a = torch.randn(1024, 1024, device="cuda").half()
    torch.mm(a, a)
    torch.cuda.synchronize()
    cold = time.perf_counter() - began
    major, minor = torch.cuda.get_device_capability(0)
    text = f"{torch.cuda.device_count()} × {torch.cuda.get_device_name(0)}, {major}.{minor}, "
    text += f"torch {torch.__version__}, first product after {cold:.2f} s"
    day.add("the machine", text, ok=True)
    device = status()["inventory"]["devices"][0]
    limits = ("temperature_slowdown_celsius", "temperature_slowdown_margin_celsius")
    known = [f"{name} {device[name]}" for name in limits if name in device]
    day.add("slowdown by heat", ", ".join(known), ok=bool(known))


def status() -> Any:
    command = [*GPUTOP, "status", "--json"]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def numbers(day: Day) -> None:
    """Check each data type: exact, error and its band, bits of repetitions."""
    capability = tuple(torch.cuda.get_device_capability(0))
    for name, dtype in DTYPES.items():
        began = time.monotonic()
        if capability < dtype.capability:
            text, well = f"not on this GPU: {dtype.why_missing}", True
        else:
            try:
                text, well = products_of(day, name)
            except Exception as error:  # noqa: BLE001 - the other types may well work
                text, well = f"{type(error).__name__}: {error}", False
        day.add(name, text, ok=well, seconds=time.monotonic() - began)


def products_of(day: Day, name: str) -> tuple[str, bool]:
    """Return what the products of a data type are like, and if all is well."""
    n = day.size // 2 if name in ("float32", "float64") else day.size
    product = Product(torch, name, (n, n, n), "cuda")
    wrong = product.exact()
    product.fill()
    product.keep_first()
    wrong += product.judge()
    differ = torch.zeros((), dtype=torch.int64, device="cuda")
    began = time.perf_counter()
    for _ in range(REPETITIONS):
        product.multiply()
        differ += (product.c_bits != product.first_bits).any()
    other_bits = int(differ)
    rate = product.flop * REPETITIONS / (time.perf_counter() - began) / 1e12
    error, (low, high) = product.relative_error, product.errors()
    text = f"over {rate:.4g} TFLOP/s, error {error:.1e} in [{low:.0e}, {high:.0e}), "
    text += f"{wrong} wrong, {other_bits} with other bits"
    return text, low <= error < high and not wrong and not other_bits


def sized(day: Day, kind: str) -> list[str]:
    """Return the option for the size in a rehearsal, if the kind has a size."""
    return ["--size", str(day.size)] if day.small and kind in SIZED else []


def kinds(day: Day) -> None:
    torch.cuda.empty_cache()
    time.sleep(day.seconds(12))  # the first one begins from idle
    for text, usual in KINDS.items():
        run_kind(day, text, usual, "0")
    if torch.cuda.device_count() > 1:
        for text, usual in BETWEEN.items():
            run_kind(day, text, usual, "all")


def run_kind(day: Day, text: str, usual: float, device: str) -> None:
    kind, *options = text.split()
    seconds = day.seconds(usual)
    command = [kind, *options, *sized(day, kind), "--seconds", f"{seconds:g}"]
    ran = day.bench(*command, device=device)
    rows, best = ran.result.get("points") or [], ran.result.get("tflops_peak")
    wrong = ran.result.get("wrong_elements")
    known = ran.result.get("conditions") or {}
    shares = known.get("percent_of_peak") or {}
    held = known.get("clock_event_seconds") or {}
    found = [
        f"{len(rows)} rows" if rows else "",
        f"{best:.4g} TFLOP/s" if best else "",
        *(f"{share:.0f} % of the {name}" for name, share in shares.items()),
        *(f"{name} for {span:.0f} s" for name, span in held.items()),
        f"{wrong} wrong" if wrong else "",
        ran.why,
        *(ran.result.get("notes") or [])[:3],
    ]
    in_time = day.small or ran.seconds < seconds + LATE_SECONDS
    well = ran.status == 0 and in_time and not wrong
    asked = f"{text}, {seconds:g} s" + ("" if device == "0" else f", {device}")
    said = "; ".join(filter(None, found))
    day.add(asked, said, ok=well, status=ran.status, seconds=ran.seconds)


def stops(day: Day) -> None:
    """Interrupt runs in the middle: how long until the end, and until the memory is free."""
    for kind in ("soak", "burn", "memory"):
        before = torch.cuda.mem_get_info()[0]
        arguments = day.bench_command(kind, *sized(day, kind), "--seconds", "60", "--device", "0")
        with InTerminal(*arguments[len(GPUTOP) + 1 :]) as run:
            run.until("/s")  # a rate: it is in the middle
            run.read_for(day.seconds(4))
            began = time.monotonic()
            run.process.send_signal(signal.SIGINT)
            output, _ = run.process.communicate()
        ended = freed = time.monotonic() - began
        while torch.cuda.mem_get_info()[0] < before - (64 << 20) and freed < FREED_SECONDS:
            time.sleep(0.02)
            freed = time.monotonic() - began
        code, stopped = run.process.returncode, json.loads(output or "{}").get("stopped")
        well = code == 130 and stopped == "user" and ended < STOP_SECONDS and freed < FREED_SECONDS
        text = f"ended after {ended:.2f} s, memory free after {freed:.2f} s, stopped {stopped}"
        day.add(f"Ctrl+C in {kind}", text, ok=well, status=code, seconds=ended)


def pressure(day: Day) -> None:
    """Run with little memory left, and with all of it. A run may be refused, but may not fail."""
    free = torch.cuda.mem_get_info()[0]
    size = 1 << 20 if day.small else int(0.9 * free)
    held = torch.empty(size, dtype=torch.uint8, device="cuda")
    runs = ("soak", "memory", "soak --size 32768", "memory --memory-share 1")
    for text in runs:
        if text == runs[-1]:
            del held
            torch.cuda.empty_cache()
        usual = sized(day, text)  # none for a size that is asked for
        ran = day.bench(*text.split(), *usual, "--seconds", f"{day.seconds(3):g}")
        asked = text if text == runs[-1] else f"{text}, 90 % taken"
        found, well = ran.why or "ended with a result", ran.status in (0, 3)
        day.add(asked, found, ok=well, status=ran.status, seconds=ran.seconds)


def recording(day: Day) -> None:
    """Record a device that works and rests, and compare the readings with those of nvidia-smi."""
    path = day.out / "recording.jsonl.gz"
    count = 6 if day.small else 24
    command = [*GPUTOP, "stream", "--gpm", "--interval", "0.5", "--count", str(count)]
    load = day.bench_command("soak", *sized(day, "soak"), "--seconds", "8", "--device", "0")
    null = subprocess.DEVNULL
    with subprocess.Popen([*command, "--output", str(path)]) as process:
        with subprocess.Popen(load, stdin=null, stdout=null, stderr=null):
            time.sleep(day.seconds(5))
            (day.out / "smi-q-load.txt").write_text(day.smi("-q"))
            compare_readings(day)
        ended = process.wait()
    text = f"{path.name}, {path.stat().st_size:,} bytes" if path.exists() else "no file"
    day.add(f"a recording of {count} samples", text, ok=ended == 0, status=ended)


def compare_readings(day: Day) -> None:
    """Compare readings with those of nvidia-smi, at nearly the same moments, under load."""
    apart: dict[str, list[float]] = {name: [] for name in READINGS}
    for _ in range(5):
        said = day.smi(f"--query-gpu={','.join(READINGS)}", "--format=csv,noheader,nounits")
        if said.startswith("nvidia-smi: "):
            day.add("readings", f"not compared: {said}", ok=day.small)
            return
        ours = status()["sample"]["devices"][0]
        row = next(csv.reader(io.StringIO(said), skipinitialspace=True))
        for (name, (field, unit, _)), text in zip(READINGS.items(), row, strict=True):
            with contextlib.suppress(KeyError, ValueError):  # one that this GPU does not have
                apart[name].append(abs(ours[field] / unit - float(text)))
    for name, distances in apart.items():
        if not distances:
            day.add(name, "not on this GPU", ok=True)
            continue
        most = statistics.median(distances)
        day.add(name, f"{most:.3g} apart", ok=most <= READINGS[name][2])


STEPS: dict[Callable[[Day], None], float] = {
    facts: 15,
    numbers: 55,
    kinds: 290,
    stops: 50,
    pressure: 40,
    recording: 25,
}
"""Steps, and the most seconds of each."""
