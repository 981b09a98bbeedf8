"""The steps of `tests.gpu.day`, in the order of doubt, and how many seconds each may take."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pynvml
import torch

from gputop.bench.plan.kinds import DTYPES
from gputop.bench.worker.product import Product
from tests.bench.commands import InTerminal
from tests.gpu.day import GPUTOP

if TYPE_CHECKING:
    from typing import Self

    from tests.gpu.day import Day, Ran

READINGS = {
    "utilization.gpu": ("gpu_utilization_percent", 1.0, 15.0),
    "temperature.gpu": ("temperature_celsius", 1.0, 3.0),
    "memory.used": ("memory_used_bytes", 1 << 20, 64.0),
    "power.draw": ("power_watts", 1.0, 60.0),
    "clocks.sm": ("sm_clock_mhz", 1.0, 120.0),
    "clocks.mem": ("memory_clock_mhz", 1.0, 1.0),
}
"""Names of nvidia-smi: ours, our units in one of theirs, and how far a moment may be from it."""
TF32_SIZES = (32, 64, 96, 128, 192, 256, 384, 496, 512, 768, 1024, 2048)
TF32_ERROR = 5e-5
"""Relative error from which a product was made in TF32."""
FAST_DEPTHS = (4096, 16384, 65536)
FAST_LIMIT = 1e-2
REPETITIONS = 50
LATE_SECONDS = 30.0
"""Longest time of a run beside its seconds: interpreter, context, preparation and end."""
STOP_SECONDS, FREED_SECONDS = 1.5, 10.0
"""Longest time from Ctrl+C to the end, and to the free memory."""
POWER_CAP = 0x4
POWER_CAP_FIELD, POWER_FIELD = 74, 186
KINDS = {
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


def rate(work: Callable[[], object], flop: float, seconds: float) -> float:
    """Return the TFLOP/s of some work by wall time."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for _ in range(8):
            work()
        torch.cuda.synchronize()
        done += 8
    return flop * done / (time.perf_counter() - began) / 1e12


@contextlib.contextmanager
def load(day: Day) -> Iterator[None]:
    """Keep the device busy with products, in a thread, until what is inside has ended."""
    product = Product(torch, "float16", (day.size, day.size, day.size), "cuda")
    product.fill()
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            product.multiply(8)
            torch.cuda.synchronize()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def facts(day: Day) -> None:
    """Check the machine, the context, and the thresholds of heat."""
    (day.out / "smi-q-idle.txt").write_text(day.smi("-q"))
    free, began = torch.cuda.mem_get_info()[0], time.perf_counter()
    a = torch.randn(1024, 1024, device="cuda").half()
    torch.mm(a, a)
    torch.cuda.synchronize()
    cold = time.perf_counter() - began
    own = free - torch.cuda.mem_get_info()[0] - torch.cuda.memory_reserved()
    name, capability = torch.cuda.get_device_name(0), torch.cuda.get_device_capability(0)
    found = {
        "name": name,
        "capability": capability,
        "devices": torch.cuda.device_count(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "archs": torch.cuda.get_arch_list(),
        "first_product_seconds": cold,
        "kernels_and_workspace_bytes": own,
        "compute_apps": day.smi("--query-compute-apps=pid,used_memory", "--format=csv,noheader"),
    }
    day.data["facts"] = found
    text = f"{name}, {capability[0]}.{capability[1]}, torch {torch.__version__}"
    day.add("the machine", f"{text}, first product after {cold:.2f} s", ok=True)
    device = status()["inventory"]["devices"][0]
    slow = device.get("temperature_slowdown_celsius")
    margin = device.get("temperature_slowdown_margin_celsius")
    text = f"{slow} °C, T.Limit {margin} °C"
    day.add("slowdown by heat", text, ok=slow is not None or margin is not None)


def status() -> Any:
    """Return what `gputop status --json` prints."""
    command = [*GPUTOP, "status", "--json"]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def numbers(day: Day) -> None:
    """Check each data type: exact, error and its band, bits of repetitions, speed."""
    capability = tuple(torch.cuda.get_device_capability(0))
    day.data["numbers"] = found = {}
    for name, dtype in DTYPES.items():
        if capability < dtype.capability:
            day.add(name, f"not on this GPU: {dtype.why_missing}", ok=True)
            continue
        began = time.monotonic()
        try:
            found[name] = facts_of_dtype(day, name)
        except Exception as error:  # noqa: BLE001 - the other types may well work
            text = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"
            found[name] = {"error": text}
            day.add(name, text, ok=False, seconds=time.monotonic() - began)
            continue
        seen = found[name]
        low, high = seen["band"]
        inside = low <= seen["relative_error"] < high
        text = f"{seen['tflops']:.4g} TFLOP/s, error {seen['relative_error']:.1e} in [{low:.0e}, "
        text += f"{high:.0e}), {seen['wrong']} wrong, {seen['other_bits']} with other bits"
        well = inside and not seen["wrong"] and not seen["other_bits"]
        day.add(name, text, ok=well, seconds=time.monotonic() - began)
    tf32_by_size(day)
    fast_accumulate(day)


def facts_of_dtype(day: Day, name: str) -> dict[str, Any]:
    """Return what the products of a data type are like."""
    n = day.size // 2 if name in ("float32", "float64") else day.size
    product = Product(torch, name, (n, n, n), "cuda")
    wrong = product.exact()
    product.fill()
    product.keep_first()
    wrong += product.judge()
    differ = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(REPETITIONS):
        product.multiply()
        differ += (product.c_bits != product.first_bits).any()
    return {
        "wrong": wrong,
        "relative_error": product.relative_error,
        "band": product.errors(),
        "other_bits": int(differ),
        "tflops": rate(product.multiply, product.flop, day.seconds(0.4)),
    }


def tf32_by_size(day: Day) -> None:
    """Find the size from which cuBLAS uses TF32."""
    if tuple(torch.cuda.get_device_capability(0)) < DTYPES["tf32"].capability:
        return
    errors = {}
    for n in TF32_SIZES:
        product = Product(torch, "tf32", (n, n, n), "cuda")
        product.fill()
        product.keep_first()
        product.judge()
        errors[n] = product.relative_error
    day.data["tf32_error_by_size"] = errors
    used = [n for n, error in errors.items() if error >= TF32_ERROR]
    text = f"from size {used[0]} on" if used else "at no size"
    day.add("where TF32 is used", text, ok=bool(used))


def fast_accumulate(day: Day) -> None:
    """Compare both ways to sum products of float8: error by depth, and speed."""
    if tuple(torch.cuda.get_device_capability(0)) < DTYPES["float8_e4m3"].capability:
        return
    found: dict[str, float] = {}
    for depth in FAST_DEPTHS[: 1 if day.small else None]:
        product: Any = Product(torch, "float8_e4m3", (256, 256, depth), "cuda")
        product.fill()
        for fast in (False, True):
            product.format.fast = fast
            product.keep_first()
            product.judge()
            found[f"error, K {depth}, fast {fast}"] = product.relative_error
    most = max(found.values())
    product = Product(torch, "float8_e4m3", (day.size, day.size, day.size), "cuda")
    product.fill()
    for fast in (False, True):
        product.format.fast = fast
        found[f"fast {fast}"] = rate(product.multiply, product.flop, day.seconds(0.5))
    day.data["float8"] = found
    text = f"{found['fast False']:.4g} and fast {found['fast True']:.4g} TFLOP/s, error {most:.1e}"
    day.add("float8, both sums", text, ok=most < FAST_LIMIT)


class Watch:
    """Readings of the first GPU ten times a second, by NVML alone."""

    NAMES = ("time", "reasons", "power_cap_ns", "power", "power_now", "sm_clock", "temperature")

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def column(self, name: str) -> list[int]:
        """Return the known readings of that name."""
        at = self.NAMES.index(name)
        return [row[at] for row in self.rows if isinstance(row[at], int)]

    def _watch(self) -> None:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)

        def read(function: Any, *arguments: int) -> Any:
            try:
                return function(handle, *arguments)
            except pynvml.NVMLError as error:
                return str(error)

        def read_field(number: int) -> Any:
            try:
                value = pynvml.nvmlDeviceGetFieldValues(handle, [number])[0]
            except pynvml.NVMLError as error:
                return str(error)
            return value.value.ullVal if value.nvmlReturn == 0 else f"error {value.nvmlReturn}"

        while not self._over.wait(0.1):
            row = (
                time.time(),
                read(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons),
                read_field(POWER_CAP_FIELD),
                read(pynvml.nvmlDeviceGetPowerUsage),
                read_field(POWER_FIELD),
                read(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
                read(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
            )
            self.rows.append(row)


def soak(day: Day) -> None:
    """Check a soak from idle: the verdict, and the driver's own account of the power cap."""
    torch.cuda.empty_cache()
    time.sleep(day.seconds(12))
    seconds = day.seconds(25)
    with Watch() as watch:
        ran = day.bench("soak", *sized(day, "soak"), "--seconds", f"{seconds:g}")
    day.data["soak"] = {"nvml": [watch.NAMES, *watch.rows]}
    mean, device = ran.result.get("tflops_mean"), ran.result.get("tflops_device")
    percent = (ran.result.get("conditions") or {}).get("percent_of_peak") or {}
    shares = [f"{share:.0f} % of the {name}" for name, share in percent.items()]
    text = f"{mean or 0:.4g} TFLOP/s, by device events {device or 0:.4g}; {', '.join(shares)}"
    text += f"; {ran.why}" if ran.why else ""
    day.add(f"soak {seconds:g} s", text, ok=ran.status == 0, status=ran.status, seconds=ran.seconds)
    bits = watch.column("reasons")
    capped = sum(bool(bit & POWER_CAP) for bit in bits)
    counter = watch.column("power_cap_ns")
    rise = f"{(counter[-1] - counter[0]) / 1e9:.1f} s" if counter else "not readable"
    text = f"the bit in {capped} of {len(bits)} looks, the counter rose by {rise}"
    day.add("power cap by the driver", text, ok=bool(bits and counter))


def sized(day: Day, kind: str) -> list[str]:
    """Return the option for the size in a rehearsal, if the kind has a size."""
    return ["--size", str(day.size)] if day.small and kind in SIZED else []


def kinds(day: Day) -> None:
    """Run each kind, short."""
    for text, usual in KINDS.items():
        run_kind(day, text, usual, "0")
    if torch.cuda.device_count() > 1:
        for text, usual in BETWEEN.items():
            run_kind(day, text, usual, "all")


def run_kind(day: Day, text: str, usual: float, device: str) -> None:
    """Run a kind, and add what it found."""
    kind, *options = text.split()
    seconds = day.seconds(usual)
    command = [kind, *options, *sized(day, kind), "--seconds", f"{seconds:g}"]
    ran = day.bench(*command, device=device)
    rows, best = ran.result.get("points") or [], ran.result.get("tflops_peak")
    found = [f"{len(rows)} rows"] if rows else []
    if best:
        found.append(f"{best:.4g} TFLOP/s")
    wrong = ran.result.get("wrong_elements")
    found += [f"{wrong} wrong"] if wrong else []
    found += [each for each in (ran.why, *(ran.result.get("notes") or [])[:3]) if each]
    in_time = day.small or ran.seconds < seconds + LATE_SECONDS
    well = ran.status == 0 and in_time and not wrong
    asked = f"{text}, {seconds:g} s" + ("" if device == "0" else f", {device}")
    day.add(asked, "; ".join(found), ok=well, status=ran.status, seconds=ran.seconds)


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
        stopped = json.loads(output or "{}").get("stopped")
        well = (
            run.process.returncode == 130
            and stopped == "user"
            and ended < STOP_SECONDS
            and freed < FREED_SECONDS
        )
        text = f"ended after {ended:.2f} s, memory free after {freed:.2f} s, stopped {stopped}"
        asked = f"Ctrl+C in {kind}"
        day.add(asked, text, ok=well, status=run.process.returncode, seconds=ended)


def pressure(day: Day) -> None:
    """Run with little memory left, and with all of it."""
    free = torch.cuda.mem_get_info()[0]
    size = 1 << 20 if day.small else int(0.9 * free)
    held = torch.empty(size, dtype=torch.uint8, device="cuda")
    seconds = f"{day.seconds(3):g}"
    for text in ("soak", "memory", "soak --size 32768"):
        usual = sized(day, text)  # none for a size that is asked for
        ran = day.bench(*text.split(), *usual, "--seconds", seconds)
        add_refusal(day, f"{text}, 90 % taken", ran)
    del held
    torch.cuda.empty_cache()
    ran = day.bench("memory", "--seconds", f"{day.seconds(4):g}", "--memory-share", "1")
    add_refusal(day, "memory, all of it", ran)


def add_refusal(day: Day, asked: str, ran: Ran) -> None:
    """Add a run that may be refused for want of memory, but may not fail."""
    found, well = ran.why or "ended with a result", ran.status in (0, 3)
    day.add(asked, found, ok=well, status=ran.status, seconds=ran.seconds)


def recording(day: Day) -> None:
    """Record a device that works and rests, and compare the readings with those of nvidia-smi."""
    path = day.out / "recording.jsonl.gz"
    count = 6 if day.small else 24
    command = [*GPUTOP, "stream", "--gpm", "--interval", "0.5", "--count", str(count)]
    with subprocess.Popen([*command, "--output", str(path)]) as process:
        with load(day):
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
    day.data["readings"] = apart
    for name, distances in apart.items():
        if not distances:
            day.add(name, "not on this GPU", ok=True)
            continue
        most = statistics.median(distances)
        day.add(name, f"{most:.3g} apart", ok=most <= READINGS[name][2])


STEPS: dict[Callable[[Day], None], float] = {
    facts: 15,
    numbers: 55,
    soak: 55,
    kinds: 235,
    stops: 50,
    pressure: 40,
    recording: 25,
}
"""Steps, and the most seconds of each."""
