"""The stress test's worker: matrix products on one device, in the interpreter that has torch.

Run as a file in a process of its own, with nothing but the standard library and torch (Python 3.9
and later). The request is the first line of standard input, as JSON; then `stop` ends the run, and
end of file means that the parent is gone. Events are JSON lines on what was standard output:
`hello, verify, plan, sample…, verify…` and at last one `done` or `error`.

Only products between launch and completion count as time. Every throughput is 2·m·n·k FLOP per
product over that time. C is compared with the first product about once a second.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, NoReturn

PRODUCT_SECONDS = 0.05
"""`auto` takes no size whose product takes longer."""
TRIAL_SECONDS = 0.4
"""No product that is made to choose a size is expected to take longer."""
BATCH_SECONDS = 0.05
"""What a batch aims at: half of what a stop may wait for, since a hot device gets slower."""
WINDOW_SECONDS = 0.2
"""A sample's share of the run; the peak is the best of them."""
VERIFY_SECONDS = 1.0
WARM_UP_SECONDS, WARM_UP_PRODUCTS = 0.2, 50
STOP_SECONDS = 0.2
"""How long the product in hand may go on after a stop, until the process ends under it."""
DROOP_SECONDS = 10.0
"""A run shorter than this says nothing about droop."""
ROWS = 64
"""Rows that are looked at in float64 at a time."""
TF32_ERROR = (5e-5, 5e-3)
"""Relative error of a TF32 product against float64; IEEE float32 stays well below it."""


class RefusedError(Exception):
    """The run cannot be done: a word for programs, and what, why and the remedy for people."""

    def __init__(self, kind: str, what: str, why: str, remedy: str) -> None:
        super().__init__(what)
        self.fields = {"kind": kind, "what": what, "why": why, "remedy": remedy}


class Run:
    """What has been done so far, and the one ending of it, by whichever thread comes first."""

    def __init__(self, fd: int, request: dict[str, Any]) -> None:
        self.request = request
        self.halt = threading.Event()
        self.halted_by = "time"
        self.deadline = time.monotonic() + request["prepare_seconds"]
        self.tally = Tally()
        self._fd = fd
        self._line = threading.Lock()
        self._ending = threading.Lock()

    def send(self, event: str, **fields: Any) -> None:
        """Writes one event."""
        line = json.dumps({"event": event, **fields}, allow_nan=False).encode() + b"\n"
        with self._line:
            while line:
                line = line[os.write(self._fd, line) :]

    def end(self, event: str, **fields: Any) -> NoReturn:
        """Writes the last event and ends the process, whatever its other threads are doing."""
        self._ending.acquire()  # never released: who comes second waits for the end
        try:
            self.send(event, **fields)
        finally:
            # Not sys.exit: tearing torch down takes longer than a stop may.
            os._exit(0)

    def finish(self) -> NoReturn:
        """Ends with what was measured."""
        tally = self.tally
        if tally.iterations == 0 and self.halted_by == "time":
            self.end("error", **_too_slow(self.request).fields)
        self.end("done", stopped=self.halted_by, **tally.result())

    def watch(self, received: bytes) -> None:
        """Waits for `stop`, the deadline or the parent's end; the body of a thread."""
        while not self.halt.is_set():
            left = self.deadline - time.monotonic()
            if left <= 0:
                self.halt.set()
            elif select.select([0], [], [], min(left, 1.0))[0]:
                data = os.read(0, 4096)
                if not data:
                    os._exit(1)  # the parent is gone, and nobody reads what could be said
                received += data
            if b"stop\n" in received:
                self.halted_by = "user"
                self.halt.set()
        # The main thread ends by itself between two products; in a long one it cannot.
        threading.Event().wait(STOP_SECONDS)
        self.finish()


class Tally:
    """Counts of a run. The watching thread reads what the main thread writes."""

    def __init__(self, flop: int = 0) -> None:
        self.flop = flop
        self.checks = 0
        self.wrong = 0
        self.peak = 0.0
        self.device_seconds: float | None = None
        self.windows: list[tuple[float, int]] = [(0.0, 0)]
        """Seconds and products at the end of each batch: the last is the whole run."""

    @property
    def seconds(self) -> float:
        return self.windows[-1][0]

    @property
    def iterations(self) -> int:
        return self.windows[-1][1]

    def add(self, products: int, seconds: float, device_seconds: float | None) -> None:
        """Counts a batch that has ended."""
        if device_seconds is not None:
            self.device_seconds = (self.device_seconds or 0.0) + device_seconds
        before, done = self.windows[-1]
        self.windows.append((before + seconds, done + products))  # one step for the other thread

    def rate(self, iterations: int, seconds: float) -> float:
        """TFLOP/s."""
        return self.flop * iterations / seconds / 1e12 if seconds > 0 else 0.0

    def result(self) -> dict[str, Any]:
        """The numbers of the run as it is now."""
        windows = self.windows[:]
        seconds, iterations = windows[-1]
        mean = self.rate(iterations, seconds)
        peak = max(self.peak, mean)
        sustained = droop = None
        if seconds >= DROOP_SECONDS:
            half, done = next(each for each in windows if each[0] >= seconds / 2)
            sustained = self.rate(iterations - done, seconds - half)
            droop = 100 * (1 - sustained / peak)
        device = self.device_seconds
        return {
            "seconds": seconds,
            "iterations": iterations,
            "tflops_mean": mean,
            "tflops_peak": peak,
            "tflops_sustained": sustained,
            "droop_percent": droop,
            "tflops_device": self.rate(iterations, device) if device else None,
            "checks": self.checks,
            "wrong_elements": self.wrong,
        }


class Product:
    """C = A·B with all that is needed to trust it. `place` is torch's name of the device."""

    def __init__(self, torch: Any, dtype: str, n: int, place: str) -> None:
        self.torch, self.dtype, self.n, self.place = torch, dtype, n, place
        kind = getattr(torch, "float32" if dtype == "tf32" else dtype)
        words = {2: torch.int16, 4: torch.int32, 8: torch.int64}
        self.a, b, self.c, self.first = (
            torch.empty((n, n), dtype=kind, device=place) for _ in range(4)
        )
        # On GPUs B is column-major: the kernels reach their maximum more often.
        self.b = b if place == "cpu" else b.t()
        # As integers NaN differs from a number, and -0 from 0.
        self.c_bits, self.first_bits = (
            x.view(words[x.element_size()]) for x in (self.c, self.first)
        )
        self.epsilon = torch.finfo(kind).eps

    def multiply(self) -> None:
        """One product, enqueued on a GPU, done on a CPU."""
        self.torch.mm(self.a, self.b, out=self.c)

    def fill(self) -> None:
        """Random normal numbers, made in place: no wider copy is taken to cast from."""
        self.a.normal_()
        self.b.normal_()

    def exact(self) -> int:
        """Elements that differ from the known answer of a product of small integers.

        A = u·vᵀ and B = w·xᵀ with small integers, so that C = (v·w)·u·xᵀ: every sum on the way is
        an integer that every data type holds, in whatever order it is made.
        """
        torch, n = self.torch, self.n
        answer = 16 + n % 2  # v·w is odd where n is
        signs = torch.ones(n)
        signs[: (n - answer) // 2] = -1
        signs = signs[torch.randperm(n)]
        w, x = (torch.randint(0, 2, (n,)).float() * 2 - 1 for _ in range(2))
        u = torch.randint(1, 4, (n,)).float()
        u, v, w, x = (each.to(self.c) for each in (u, w * signs, w, x))
        torch.outer(u, v, out=self.a)
        torch.outer(w, x, out=self.b)
        self.c.fill_(float("nan"))  # what is not written is wrong
        self.multiply()
        wrong = 0
        for at in range(0, n, ROWS):
            right = torch.outer(u[at : at + ROWS] * answer, x)
            wrong += int((self.c[at : at + ROWS] != right).sum())
        return wrong

    def keep_first(self) -> None:
        """Makes the product that all later ones are compared with."""
        self.multiply()
        self.first.copy_(self.c)

    def error(self) -> float:
        """Relative error of the first product, in a corner of it, against float64."""
        right = self.a[:ROWS].double() @ self.b[:, :ROWS].double()
        return float((self.first[:ROWS, :ROWS].double() - right).norm() / right.norm())

    def unexplained(self) -> int:
        """Elements of C that differ from the first product by more than any order of summation can.

        CPU libraries do not promise the same bits every time. Two sums of k products, both in
        float32 or better, differ by at most 2·k·eps·|a|·|b| of the row and the column (Higham,
        Accuracy and Stability, chapter 3), and then each is rounded to the data type.
        """
        torch, n = self.torch, self.n
        slack = 2 * n * min(self.epsilon, 2.0**-23)
        blocks = range(0, n, ROWS)
        squares = sum(self.b[at : at + ROWS].double().square().sum(0) for at in blocks)
        columns = torch.as_tensor(squares).sqrt()
        wrong = 0
        for at in blocks:
            rows = slice(at, at + ROWS)
            bound = slack * torch.outer(self.a[rows].double().norm(dim=1), columns)
            first = self.first[rows].double()
            bound += 4 * self.epsilon * first.abs()
            far = ~((self.c[rows].double() - first).abs() <= bound)  # NaN is far
            wrong += int((far & (self.c_bits[rows] != self.first_bits[rows])).sum())
        return wrong


class Batch:
    """Products that have ended: when they were begun and ended (`time.perf_counter`)."""

    def __init__(
        self,
        products: int,
        began: float,
        ended: float,
        device_seconds: float | None = None,
        wrong: int | None = None,
    ) -> None:
        self.products, self.began, self.ended = products, began, ended
        self.device_seconds = device_seconds
        self.wrong = wrong
        """Wrong elements after the batch, None where it was not checked."""


class Cpu:
    """Runs batches at once."""

    most_in_flight = 1
    smallest_size = 64
    timing = "wall time"

    def __init__(self, torch: Any, halt: threading.Event) -> None:
        self.torch, self.place, self._halt = torch, "cpu", halt
        # Also fixes MKL's choice of threads, on which the order of summation depends.
        torch.set_num_threads(torch.get_num_threads())
        self._ended: deque[Batch] = deque()

    @property
    def in_flight(self) -> int:
        return len(self._ended)

    def launch(self, product: Product, products: int, *, check: bool) -> None:
        """Makes that many products, fewer where the run is halted, then checks the last."""
        done, began = 0, time.perf_counter()
        while done < products and not self._halt.is_set():
            product.multiply()
            done += 1
        ended = time.perf_counter()
        wrong = self.compare(product) if check and not self._halt.is_set() else None
        self._ended.append(Batch(done, began, ended, None, wrong))

    def poll(self) -> Batch | None:
        """The oldest batch that has ended and was not asked for yet."""
        return self._ended.popleft() if self._ended else None

    def compare(self, product: Product) -> int:
        """Wrong elements of C."""
        same = self.torch.equal(product.c_bits, product.first_bits)
        return 0 if same else product.unexplained()

    def measure(self, product: Product, products: int) -> float:
        """Seconds of one product, the mean of some."""
        began = time.perf_counter()
        for _ in range(products):
            product.multiply()
        return (time.perf_counter() - began) / products

    def free_bytes(self) -> int | None:
        return None


class Cuda:
    """Keeps two batches in flight on one stream, so that the device never waits for Python."""

    most_in_flight = 2
    smallest_size = 1024
    timing = "wall time, and device events around batches"

    def __init__(self, torch: Any, halt: threading.Event) -> None:
        self.torch, self.place, self._halt = torch, "cuda", halt
        self._queue: deque[tuple[int, float, Any, Any, Any, Any]] = deque()

    @property
    def in_flight(self) -> int:
        return len(self._queue)

    def launch(self, product: Product, products: int, *, check: bool) -> None:
        """Enqueues that many products, and where asked for the check of the last."""
        torch = self.torch
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began = time.perf_counter()
        first.record()
        for _ in range(products):
            product.multiply()
        last.record()
        count, ended = None, last
        if check:
            count = torch.empty((), dtype=torch.int64, pin_memory=True)
            count.copy_(self.compare(product), non_blocking=True)
            ended = torch.cuda.Event()
            ended.record()
        self._queue.append((products, began, first, last, ended, count))

    def poll(self) -> Batch | None:
        """The oldest batch in flight, once it has ended; looks for half a millisecond."""
        if not self._queue:
            return None
        products, began, first, last, ended, count = self._queue[0]
        if not ended.query():
            self._halt.wait(0.0005)
            return None
        now = time.perf_counter()
        self._queue.popleft()
        wrong = None if count is None else int(count)
        return Batch(products, began, now, first.elapsed_time(last) / 1000, wrong)

    def compare(self, product: Product) -> Any:
        """Wrong elements of C, as a number on the device.

        Bit for bit: cuBLAS gives the same bits every time on one stream of one device.
        """
        return (product.c_bits != product.first_bits).sum()

    def measure(self, product: Product, products: int) -> float:
        """Seconds of one product, the mean of some, by device events."""
        first, last = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(products):
            product.multiply()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) / 1000 / products

    def free_bytes(self) -> int | None:
        self.torch.cuda.empty_cache()
        return int(self.torch.cuda.mem_get_info()[0])


def open_device(torch: Any, run: Run) -> Any:
    """The device of the request, ready; raises `RefusedError`."""
    if run.request["kind"] == "cpu":
        return Cpu(torch, run.halt)
    python = sys.executable
    remedy = f"Install a CUDA build of torch into {python}, or choose another with --python"
    if torch.version.cuda is None:
        why = f"torch {torch.__version__} of {python} is built without it"
        raise RefusedError("no_cuda", "There is no CUDA in this torch", why, remedy)
    try:
        torch.cuda.init()
        capability = torch.cuda.get_device_capability(0)
    except Exception as error:
        raise RefusedError(
            "no_device",
            "torch cannot use the GPU",
            first_line(error),
            "Run `nvidia-smi` to see whether the driver works, and update it if it is too old",
        ) from error
    archs = torch.cuda.get_arch_list()
    if not runs_on(archs, capability):
        raise RefusedError(
            "architecture",
            f"This torch has no code for compute capability {capability[0]}.{capability[1]}",
            f"torch {torch.__version__} is built for {' '.join(archs)}",
            remedy,
        )
    set_precision(torch.backends.cuda.matmul, run.request["dtype"])
    return Cuda(torch, run.halt)


def runs_on(archs: list[str], capability: tuple[int, int]) -> bool:
    """Whether a build for these architectures has code for a device of that compute capability.

    `sm_80` is machine code, for 8.0 and later minor versions of 8; `compute_80` is compiled by the
    driver for anything later; `sm_90a` is for exactly 9.0.
    """
    for arch in archs:
        kind, _, number = arch.partition("_")
        digits = number.rstrip("abcdefghijklmnopqrstuvwxyz")
        if not digits.isdigit():
            continue
        built = (int(digits[:-1]), int(digits[-1]))
        if kind == "compute" and built <= capability:
            return True
        exact = number.endswith("a")
        if kind == "sm" and (built == capability if exact else _covers(built, capability)):
            return True
    return False


def _covers(built: tuple[int, int], capability: tuple[int, int]) -> bool:
    return built[0] == capability[0] and built[1] <= capability[1]


def set_precision(matmul: Any, dtype: str) -> None:
    """IEEE or TF32, by the setting that this torch has: using both of them raises."""
    if hasattr(matmul, "fp32_precision"):  # torch 2.9
        matmul.fp32_precision = "tf32" if dtype == "tf32" else "ieee"
    else:
        matmul.allow_tf32 = dtype == "tf32"
    # Sums stay in float32, also where a product is split along k.
    for name in ("float16", "bfloat16"):
        setting = f"allow_{name.replace('float', 'fp').replace('bfp', 'bf')}"
        setting += "_reduced_precision_reduction"
        if hasattr(matmul, setting):
            setattr(matmul, setting, False)


def choose_size(device: Any, run: Run) -> int:
    """The size asked for, or the largest whose product takes at most `PRODUCT_SECONDS`.

    Found by growing: each step predicts the next (eight times the work for twice the size), so that
    none takes long, also where a data type is emulated. Where other processes hold the cores up,
    small products take far longer than their work: their prediction is not more than a bound.
    Raises `RefusedError` where not one product of the size asked for would end within the run.
    """
    request = run.request
    most: int = request["size"] or request["largest"]
    chosen: int = min(device.smallest_size, most)
    n = larger = chosen
    seconds = 0.0
    while not run.halt.is_set() and seconds * (larger / n) ** 3 <= TRIAL_SECONDS:
        n, seconds = larger, _seconds_of_one(device, request["dtype"], larger)
        if seconds <= PRODUCT_SECONDS:
            chosen = n
        if n == most:
            break
        larger = min(2 * n, most)
    if request["size"] is None:
        return chosen
    if seconds * (most / n) ** 3 > 4 * request["seconds"]:
        raise _too_slow(request)
    return most


def _seconds_of_one(device: Any, dtype: str, n: int) -> float:
    product = Product(device.torch, dtype, n, device.place)
    product.fill()
    product.multiply()  # loads the kernels, wakes the threads
    best, began = float("inf"), time.monotonic()
    while best == float("inf") or time.monotonic() - began < PRODUCT_SECONDS / 2:
        best = min(best, device.measure(product, 1))
    return best


def prepare(device: Any, run: Run) -> tuple[Product, int]:
    """Operands, the exact check, the first product and a warm-up; then the plan is sent.

    Returns the product and how many of it make a batch.
    """
    request = run.request
    n = choose_size(device, run)
    need = n * n * request["bytes_per_element"] + request["fixed_bytes"]
    free = device.free_bytes()
    if free is not None and need - request["context_bytes"] > free:
        raise _out_of_memory(n, need - request["context_bytes"], free)
    product = Product(device.torch, request["dtype"], n, device.place)
    run.tally = Tally(2 * n**3)
    run.tally.wrong += product.exact()
    run.tally.checks += 1
    product.fill()
    product.keep_first()
    error = product.error()
    _check_precision(request["dtype"], error)
    warm_up, began, seconds = 2, time.monotonic(), 0.0
    while not run.halt.is_set():
        seconds = device.measure(product, 1)
        warm_up += 1
        if time.monotonic() - began > WARM_UP_SECONDS or warm_up >= WARM_UP_PRODUCTS:
            break
    batch = max(1, min(10000, int(BATCH_SECONDS / seconds))) if seconds else 1
    run.send("plan", **describe(device, product, batch, warm_up, error, need))
    run.send("verify", checks=run.tally.checks, wrong_elements=run.tally.wrong)
    return product, batch


def describe(
    device: Any, product: Product, batch: int, warm_up: int, error: float, need: int
) -> dict[str, Any]:
    """The plan: everything that a number has to be read with."""
    n, cuda = product.n, device.place == "cuda"
    accumulate = "float64" if product.dtype == "float64" else "float32"
    if not cuda and product.dtype in ("float16", "bfloat16"):
        accumulate = "as the CPU library does"
    layout = "A row-major, B column-major" if cuda else "A and B row-major"
    data = "random normal"
    threads = "" if cuda else f"; {device.torch.get_num_threads()} threads"
    method = (
        f"torch.mm {n} x {n} x {n} {product.dtype}, accumulated {accumulate}; {layout}; {data}; "
        f"2mnk FLOP; {device.timing}; batches of {batch}, {device.most_in_flight} in flight; "
        f"{warm_up} warm-up products{threads}"
    )
    return {
        "m": n,
        "n": n,
        "k": n,
        "dtype": product.dtype,
        "accumulate": accumulate,
        "layout": layout,
        "data": data,
        "warmup_products": warm_up,
        "products_per_batch": batch,
        "need_bytes": need,
        "relative_error": error,
        "method": method,
    }


def measure(device: Any, run: Run, product: Product, batch: int) -> None:
    """Batches until the time is up or the run is halted, with a sample per window."""
    tally, wanted = run.tally, run.request["seconds"]
    # Only for a product that is longer than what is left of the run; checks are not timed.
    run.deadline = time.monotonic() + 1.25 * wanted + 2.0
    previous = checked = time.perf_counter()
    window = Tally(tally.flop)
    while not run.halt.is_set():
        while device.in_flight < device.most_in_flight and tally.seconds < wanted:
            now = time.perf_counter()
            due = now - checked >= VERIFY_SECONDS
            checked = now if due else checked
            device.launch(product, batch, check=due)
        ended = device.poll()
        if ended is None:
            if device.in_flight == 0:
                break
            continue
        # On a GPU a batch was launched while the one before it ran.
        seconds = ended.ended - max(ended.began, previous)
        previous = ended.ended
        tally.add(ended.products, seconds, ended.device_seconds)
        window.add(ended.products, seconds, ended.device_seconds)
        if window.seconds >= WINDOW_SECONDS:
            _sample(run, window)
            window = Tally(tally.flop)
        if ended.wrong is not None:
            tally.checks += 1
            tally.wrong += ended.wrong
            run.send("verify", checks=tally.checks, wrong_elements=tally.wrong)


def _sample(run: Run, window: Tally) -> None:
    rate = window.rate(window.iterations, window.seconds)
    run.tally.peak = max(run.tally.peak, rate)
    device = window.device_seconds
    run.send(
        "sample",
        elapsed_seconds=run.tally.seconds,
        window_seconds=window.seconds,
        iterations=run.tally.iterations,
        tflops=rate,
        tflops_device=window.rate(window.iterations, device) if device else None,
    )


def _check_precision(dtype: str, error: float) -> None:
    low, high = TF32_ERROR
    if dtype == "float32" and error > low:
        raise RefusedError(
            "precision",
            "The float32 product was not made in float32",
            f"its relative error is {error:.1e}",
            "Unset the variables that allow reduced precision, such as those of oneDNN",
        )
    if dtype == "tf32" and not low < error < high:
        raise RefusedError(
            "precision",
            "The product was not made in TF32",
            f"its relative error is {error:.1e}",
            "Unset NVIDIA_TF32_OVERRIDE, or choose float32",
        )


def _too_slow(request: dict[str, Any]) -> RefusedError:
    return RefusedError(
        "too_slow",
        f"No {request['dtype']} product of size {request['size'] or 'auto'} ends in time",
        f"on this device one takes longer than the {request['seconds']:g} s of the run",
        "Choose a smaller --size, --size auto, or more --seconds",
    )


def _out_of_memory(n: int, need: int, free: int) -> RefusedError:
    smaller = int(n * (free / need) ** 0.5) // 64 * 64
    return RefusedError(
        "memory",
        f"Products of size {n} do not fit in the device's memory",
        f"they need {need / 2**30:.2f} GiB and {free / 2**30:.2f} GiB are free",
        f"Choose --size {smaller} or smaller" if smaller >= 64 else "End what holds the memory",
    )


def explain(error: BaseException, device: Any, run: Run) -> RefusedError:
    """Any failure as what a person can do about it."""
    if isinstance(error, RefusedError):
        return error
    text = first_line(error)
    memory = (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "DefaultCPUAllocator" in text
    )
    if memory:
        size = run.request["size"]
        return RefusedError(
            "memory",
            f"The memory does not hold products of size {size or 'auto'}",
            text or type(error).__name__,
            "Choose a smaller --size, or end what holds the memory",
        )
    return RefusedError(
        "device" if device is not None and device.place == "cuda" else "torch",
        "The stress test failed",
        f"{type(error).__name__}: {text}" if text else type(error).__name__,
        "Look for Xid errors in `dmesg`"
        if device is not None and device.place == "cuda"
        else "Try another torch with --python",
    )


def first_line(error: BaseException) -> str:
    """torch's messages have the error first, and advice for developers below it."""
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else ""


def own_channel() -> int:
    """A private descriptor for events; what torch prints goes to standard error from here on."""
    fd = os.dup(1)
    os.dup2(2, 1)
    return fd


def read_request() -> tuple[dict[str, Any], bytes]:
    """The first line of standard input, and what came behind it."""
    received = b""
    while b"\n" not in received:
        data = os.read(0, 65536)
        if not data:
            os._exit(1)
        received += data
    line, _, rest = received.partition(b"\n")
    request: dict[str, Any] = json.loads(line)
    return request, rest


def main() -> NoReturn:
    """Reads the request, does it, and ends the process."""
    fd = own_channel()
    here = Path(__file__).resolve().parent  # its other modules are not for this Python
    sys.path[:] = [entry for entry in sys.path if entry and Path(entry).resolve() != here]
    request, rest = read_request()
    run = Run(fd, request)
    threading.Thread(target=run.watch, args=(rest,), daemon=True).start()
    device = None
    try:
        import torch

        device = open_device(torch, run)
        cuda = device.place == "cuda"
        run.send(
            "hello",
            python=sys.version.split()[0],
            torch_version=str(torch.__version__),
            cuda_version=torch.version.cuda,
            device_name=torch.cuda.get_device_name(0) if cuda else request["name"],
            threads=torch.get_num_threads(),
            pid=os.getpid(),
        )
        product, batch = prepare(device, run)
        if not run.halt.is_set():
            measure(device, run, product, batch)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the parent is told in one line
        run.end("error", **explain(error, device, run).fields)
    run.finish()


if __name__ == "__main__":
    main()
