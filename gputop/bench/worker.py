"""The stress test's worker: matrix products on one device, in the interpreter that has torch.

Run as a file in a process of its own, with nothing but the standard library and torch (Python 3.9
and later). The request is the first line of standard input, as JSON; then `stop` ends the run, and
end of file means that the parent is gone. Events are JSON lines on what was standard output:
`hello, verify, plan, sample…, verify…` and at last one `done` or `error`.

Only products between launch and completion count as time. Every throughput is 2·m·n·k FLOP per
product over that time. C is compared with the first product as often as that costs next to nothing.
"""

from __future__ import annotations

import json
import os
import select
import statistics
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
COLD_SECONDS = 10.0
"""The first product may take as long, however short the run: kernels are loaded on the way."""
BATCH_SECONDS = 0.05
"""What a batch aims at: half of what a stop may wait for, since a hot device gets slower."""
MOST_PRODUCTS = 10000
"""In a batch."""
LONG_SECONDS = 0.1
"""A product that takes longer is alone in flight: a second one would overrun the run's end."""
POLL_SECONDS = 0.003
WATCH_SECONDS = 0.5
WINDOW_SECONDS = 0.2
"""A sample's share of the run; the peak is the best of them."""
MOST_MARKS = 4096
"""Ends of windows that are remembered; beyond, every second one is forgotten."""
WARM_UP_SECONDS, TIMED_SECONDS = 0.2, 0.005
"""All of the warm-up, and products that are timed in one go: fewer would be all jitter."""
STOP_SECONDS = 0.2
"""How long the product in hand may go on after a stop, until the process ends under it."""
SLOWER = 20
"""A batch that takes as many times longer than expected is taken for hung."""
DROOP_SECONDS = 10.0
"""A run shorter than this says nothing about droop."""
ROWS = 64
"""Rows that are looked at in float64 at a time."""
ERRORS = {
    "float32": (0.0, 2e-5),
    "tf32": (5e-5, 1.5e-3),
    "bfloat16": (5e-4, 4e-3),
    "float16": (5e-5, 6e-4),
    "float64": (0.0, 1e-12),
}
"""Relative error of a product against float64, which hardly depends on its size: from and below.

Measured: IEEE float32 up to 5e-6 at 65536, TF32 3e-4 (rounded) and 8e-4 (truncated), bfloat16
1.6e-3 to 2.4e-3, float16 2e-4, float64 1e-16.
"""
GROSS_ERROR = 1e-2
"""No setting of any data type makes a product as inexact: the device computes wrong results."""


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
        self.tally = Tally()
        self._ready_by = time.monotonic() + request["prepare_seconds"]
        self._fd = fd
        self._line = threading.Lock()
        self._ending = threading.Lock()
        self.preparing()

    def preparing(self) -> None:
        """Expects the end of the preparation."""
        left = self._ready_by - time.monotonic()
        self.expect(left, _not_ready(self.request["prepare_seconds"]))

    def expect(self, seconds: float, otherwise: RefusedError) -> None:
        """The run ends with that error, unless something else is expected within that time."""
        self._expected = time.monotonic() + seconds, otherwise  # one step for the other thread

    def send(self, event: str, **fields: Any) -> None:
        """Writes one event."""
        line = json.dumps({"event": event, **fields}, allow_nan=False).encode() + b"\n"
        with self._line:
            while line:
                line = line[os.write(self._fd, line) :]

    def verified(self, wrong: int, products: int) -> None:
        """Counts a check of so many products of the run, and says what it found."""
        self.tally.checks += 1
        self.tally.wrong += wrong
        self.tally.verified += products
        self.send("verify", checks=self.tally.checks, wrong_elements=self.tally.wrong)

    def end(self, event: str, **fields: Any) -> NoReturn:
        """Writes the last event, with what was measured, and ends the process at once."""
        self._ending.acquire()  # never released: who comes second waits for the end
        try:
            self.send(event, **fields, **self.tally.result())
        finally:
            # Not sys.exit: tearing torch down takes longer than a stop may.
            os._exit(0)

    def finish(self) -> NoReturn:
        """Ends with what was measured."""
        self.end("done", stopped=self.halted_by)

    def watch(self, received: bytes) -> None:
        """Waits for `stop`, what is overdue or the parent's end; the body of a thread."""
        overdue = None
        while not self.halt.is_set():
            if select.select([0], [], [], WATCH_SECONDS)[0]:
                data = os.read(0, 4096)
                if not data:
                    os._exit(1)  # the parent is gone, and nobody reads what could be said
                received += data
            if b"stop\n" in received:
                self.halted_by = "user"
                self.halt.set()
                break
            expected = self._expected
            # Overdue twice: where this process itself was held up, it needs the time between.
            if expected is overdue:
                self.end("error", **expected[1].fields)
            overdue = expected if time.monotonic() > expected[0] else None
        # The main thread ends by itself between two products; in a long one it cannot.
        threading.Event().wait(STOP_SECONDS)
        self.finish()


class Tally:
    """Counts of a run. The watching thread reads what the main thread writes.

    Wall time is for the mean. Windows are of the device's own time where it has any, since the
    moments at which a batch is seen to have ended are the host's.
    """

    def __init__(self, flop: int = 0) -> None:
        self.flop = flop
        self.checks = 0
        self.verified = 0
        self.wrong = 0
        self.peak = 0.0
        self.has_device_time = False
        self.now = self._window = (0.0, 0, 0.0)
        """Seconds, products and busy seconds: so far, and at the begin of the window."""
        self._marks, self._apart = [self.now], WINDOW_SECONDS

    @property
    def seconds(self) -> float:
        return self.now[0]

    @property
    def iterations(self) -> int:
        return self.now[1]

    def add(
        self, products: int, seconds: float, device_seconds: float | None
    ) -> dict[str, Any] | None:
        """Counts a batch that has ended; the sample, where that ends a window."""
        self.has_device_time = device_seconds is not None
        before, done, busy = self.now
        busy += seconds if device_seconds is None else device_seconds
        self.now = (before + seconds, done + products, busy)  # one step for the other thread
        window = self.seconds - self._window[0]
        if window < WINDOW_SECONDS:
            return None
        rate = self.since(self._window)
        self.peak = max(self.peak, rate)
        self._window = self.now
        if self.seconds - self._marks[-1][0] >= self._apart:
            self._marks = [*self._marks, self.now]
        if len(self._marks) > MOST_MARKS:
            self._marks, self._apart = self._marks[::2], 2 * self._apart
        return {
            "elapsed_seconds": self.seconds,
            "window_seconds": window,
            "iterations": self.iterations,
            "tflops": rate,
            "tflops_device": rate if self.has_device_time else None,
        }

    def rate(self, iterations: int, seconds: float) -> float:
        """TFLOP/s."""
        return self.flop * iterations / seconds / 1e12 if seconds > 0 else 0.0

    def since(self, mark: tuple[float, int, float]) -> float:
        """TFLOP/s from there on."""
        _, iterations, busy = self.now
        return self.rate(iterations - mark[1], busy - mark[2])

    def result(self) -> dict[str, Any]:
        """The numbers of the run as it is now."""
        seconds, iterations, busy = self.now
        mean = self.rate(iterations, seconds)
        peak = max(self.peak, mean, self.rate(iterations, busy))
        sustained = droop = None
        if seconds >= DROOP_SECONDS:
            sustained = self.since([each for each in self._marks if each[0] <= seconds / 2][-1])
            droop = 100 * (1 - sustained / peak)
        return {
            "seconds": seconds,
            "iterations": iterations,
            "tflops_mean": mean,
            "tflops_peak": peak,
            "tflops_sustained": sustained,
            "droop_percent": droop,
            "tflops_device": self.rate(iterations, busy) if self.has_device_time else None,
            "checks": self.checks,
            "verified_products": self.verified,
            "wrong_elements": self.wrong,
        }


class Pace:
    """How long a product and a check take on this device, and what follows from it."""

    def __init__(self, device: Any, product_seconds: float, check_seconds: float) -> None:
        self._device = device
        self.product_seconds, self.check_seconds = product_seconds, check_seconds
        expected = self.batch * product_seconds + check_seconds
        self.patience = max(device.patience, SLOWER * expected)
        """Seconds without a batch that ends, after which there is none to come."""

    @property
    def batch(self) -> int:
        """Products in a batch."""
        fit = int(BATCH_SECONDS / self.product_seconds) if self.product_seconds > 0 else 1
        return max(1, min(MOST_PRODUCTS, fit))

    @property
    def most_in_flight(self) -> int:
        return 1 if self.product_seconds > LONG_SECONDS else int(self._device.most_in_flight)

    @property
    def check_interval(self) -> float:
        """Seconds from one check to the next."""
        interval = self.check_seconds / self._device.share_of_checks
        return float(max(self._device.least_interval, interval))

    def saw(self, batch: Batch) -> None:
        """Learns from a batch that has ended, without believing a single one."""
        if batch.products:
            seconds = batch.ended - batch.began
            if batch.device_seconds is not None:
                seconds = batch.device_seconds
            known = self.product_seconds
            self.product_seconds = min(max(seconds / batch.products, known / 2), 2 * known)
        if batch.check_seconds is not None:
            self.check_seconds = batch.check_seconds


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
        self.epsilon: float = torch.finfo(kind).eps
        self.relative_error = 0.0
        self._columns: Any = None

    def multiply(self) -> None:
        """One product, enqueued on a GPU, done on a CPU."""
        self.torch.mm(self.a, self.b, out=self.c)

    def fill(self) -> None:
        """Random normal numbers, made in place: no wider copy is taken to cast from."""
        self.a.normal_()
        self.b.normal_()

    def exact(self) -> int:
        """Elements that differ from the known answer of a product of small integers.

        A = u·vᵀ and B = w·xᵀ with small integers, so that C = (v·w)·u·xᵀ. The products along k are
        ±1 (times up to 3), in pairs of opposite signs whose order is random, with a few single ones
        between: the sum of any stretch of k stays below 60, and one of every second or fourth
        product is a random walk, of some hundreds. Relied upon is that partial sums are kept in
        a format that holds integers to 2048: float16 does, and so does all that is wider.
        """
        torch, n = self.torch, self.n
        answer = 16 + n % 2  # v·w is odd where n is
        pairs = (n - answer) // 2
        first_of_pair = torch.randint(0, 2, (pairs, 1)).float() * 2 - 1
        paired = torch.ones(n, dtype=torch.bool)
        paired[torch.linspace(0, n - 1, answer).long()] = False
        signs = torch.ones(n)
        signs[paired] = torch.cat((first_of_pair, -first_of_pair), 1).flatten()
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

    def judge(self) -> int:
        """Compares a corner of the first product with float64: `relative_error`, as a norm.

        Returns the elements that are wrong by any measure, which is not the same as inexact.
        """
        right = self.a[:ROWS].double() @ self.b[:, :ROWS].double()
        far = (self.first[:ROWS, :ROWS].double() - right).abs()
        error = float(far.norm() / right.norm())
        limit = max(GROSS_ERROR, self.errors()[1])
        if error <= limit:
            self.relative_error = error
            return 0
        # Those that are farther off than the mean square may be, of which there is one at least.
        return int((~(far <= limit * right.norm() / right.numel() ** 0.5)).sum())

    def errors(self) -> tuple[float, float]:
        """The relative error that is to be expected: from and below."""
        low, high = ERRORS[self.dtype]
        if self.place == "cpu" and self.epsilon > 2.0**-20:
            # Some CPU libraries sum float16 and bfloat16 without a wider format: a random walk.
            high += 0.5 * self.epsilon * self.n**0.5
        return low, high

    def unexplained(self) -> int:
        """Elements of C that differ from the first product by more than the order of summation can.

        CPU libraries do not promise the same bits every time. The roundings of a sum of n products
        in float32 are a random walk: some 0.2·sqrt(n)·eps of the sum's own size, |a|·|b|/sqrt(n) of
        its row and column (Higham and Mary, A new approach to probabilistic rounding error
        analysis, 2019). Twenty times that is allowed, or eight times what was measured beyond the
        rounding of the result, and then that rounding.
        """
        torch, n = self.torch, self.n
        blocks = range(0, n, ROWS)
        if self._columns is None:
            squares = sum(self.b[at : at + ROWS].double().square().sum(0) for at in blocks)
            self._columns = torch.as_tensor(squares).sqrt()
        slack = 4 * n**0.5 * min(self.epsilon, 2.0**-23)
        slack += 8 * max(0.0, self.relative_error - self.epsilon / 2)
        wrong = 0
        for at in blocks:
            rows = slice(at, at + ROWS)
            lengths = self.a[rows].double().norm(dim=1) * (slack / n**0.5)
            first = self.first[rows].double()
            bound = torch.outer(lengths, self._columns) + 2 * self.epsilon * first.abs()
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
        check_seconds: float | None = None,
    ) -> None:
        self.products, self.began, self.ended = products, began, ended
        self.device_seconds = device_seconds
        self.wrong, self.check_seconds = wrong, check_seconds
        """Wrong elements after the batch, None where it was not checked."""


class Cpu:
    """Runs batches at once."""

    most_in_flight = 1
    smallest_size = 64
    timing = "wall time"
    patience = 20.0
    """Where other processes hold the cores up, that is no fault."""
    share_of_checks, least_interval = 0.1, 1.0

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
        wrong = seconds = None
        if check and not self._halt.is_set():
            wrong, seconds = self.check(product)
        self._ended.append(Batch(done, began, ended, None, wrong, seconds))

    def poll(self) -> Batch | None:
        """The oldest batch that has ended and was not asked for yet."""
        return self._ended.popleft() if self._ended else None

    def check(self, product: Product) -> tuple[int, float]:
        """Wrong elements of C, and the seconds that it took to know."""
        began = time.perf_counter()
        return self.compare(product), time.perf_counter() - began

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
    patience = 5.0
    share_of_checks, least_interval = 0.01, 0.0

    def __init__(self, torch: Any, halt: threading.Event) -> None:
        self.torch, self.place, self._halt = torch, "cuda", halt
        self._queue: deque[tuple[int, float, Any, Any, Any, Any]] = deque()
        self._differs: Any = None
        # One for each batch in flight; pinned, or the copy would wait for the device.
        self._counts = deque(
            torch.empty((), dtype=torch.int64, pin_memory=True) for _ in range(self.most_in_flight)
        )

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
            count = self._counts[0]
            self._counts.rotate()
            count.copy_(self.compare(product), non_blocking=True)
            ended = torch.cuda.Event(enable_timing=True)
            ended.record()
        self._queue.append((products, began, first, last, ended, count))

    def poll(self) -> Batch | None:
        """The oldest batch in flight, once it has ended; otherwise None, after a short wait."""
        if not self._queue:
            return None
        products, began, first, last, ended, count = self._queue[0]
        if not ended.query():
            self._halt.wait(POLL_SECONDS)
            return None
        now = time.perf_counter()
        self._queue.popleft()
        wrong = check_seconds = None
        if count is not None:
            wrong, check_seconds = int(count), last.elapsed_time(ended) / 1000
        device_seconds = first.elapsed_time(last) / 1000
        return Batch(products, began, now, device_seconds, wrong, check_seconds)

    def check(self, product: Product) -> tuple[int, float]:
        """Wrong elements of C, and the seconds that it took to know; waits for the device."""
        first, last = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        count = self.compare(product)
        last.record()
        wrong = int(count)
        last.synchronize()
        return wrong, first.elapsed_time(last) / 1000

    def compare(self, product: Product) -> Any:
        """Wrong elements of C, as a number on the device.

        Bit for bit: cuBLAS gives the same bits every time on one stream of one device.
        """
        if self._differs is None:
            self._differs = self.torch.empty_like(product.c_bits, dtype=self.torch.bool)
        self.torch.ne(product.c_bits, product.first_bits, out=self._differs)
        return self._differs.sum()

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
    expected = seconds * (most / n) ** 3
    if expected > request["seconds"]:
        raise _too_slow(request, f"about {expected:.3g}")
    return most


def _seconds_of_one(device: Any, dtype: str, n: int) -> float:
    product = Product(device.torch, dtype, n, device.place)
    product.fill()
    product.multiply()  # loads the kernels, wakes the threads
    best, began = float("inf"), time.monotonic()
    while best == float("inf") or time.monotonic() - began < PRODUCT_SECONDS / 2:
        best = min(best, device.measure(product, 1))
    return best


def prepare(device: Any, run: Run) -> tuple[Product, Pace]:
    """Operands, the exact check, the first product and a warm-up; then the plan is sent."""
    request = run.request
    n = choose_size(device, run)
    need, free = needed(request, n), device.free_bytes()
    if free is not None and need - request["context_bytes"] > free:
        raise _out_of_memory(request, n, free)
    product = Product(device.torch, request["dtype"], n, device.place)
    run.tally = Tally(2 * n**3)
    limit = max(request["seconds"], COLD_SECONDS)
    run.expect(limit, _too_slow(request, f"more than {limit:g}"))
    run.tally.wrong += product.exact()
    run.preparing()
    run.tally.checks += 1
    product.fill()
    product.keep_first()
    run.tally.wrong += product.judge()
    if run.tally.wrong:
        raise _computes_wrong()
    _check_precision(product)
    product_seconds, products = warm_up(device, run, product)
    device.check(product)  # the first one is slower, and only the second one is counted
    wrong, check_seconds = device.check(product)
    pace = Pace(device, product_seconds, check_seconds)
    run.send("plan", **describe(device, product, pace, products, need))
    run.verified(wrong, 0)
    return product, pace


def warm_up(device: Any, run: Run, product: Product) -> tuple[float, int]:
    """Seconds of a product, the median of some, and how many were made."""
    began, made, times = time.monotonic(), 0, []
    products = 1
    while not run.halt.is_set():
        seconds = device.measure(product, products)
        times.append(seconds)
        made += products
        if seconds > run.request["seconds"]:
            raise _too_slow(run.request, f"{seconds:.3g}")
        if time.monotonic() - began > WARM_UP_SECONDS:
            break
        products = max(1, min(100, int(TIMED_SECONDS / seconds))) if seconds > 0 else 1
    return statistics.median(times) if times else 0.0, made


def needed(request: dict[str, Any], n: int) -> int:
    """Bytes that products of that size take, with what the process takes in any case."""
    by_size = n * n * request["bytes_per_element"] + n * request["bytes_per_row"]
    return int(by_size + request["fixed_bytes"])


def describe(
    device: Any, product: Product, pace: Pace, warmed_up: int, need: int
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
        f"2mnk FLOP; {device.timing}; "
        f"batches of about {pace.batch}, {pace.most_in_flight} in flight; "
        f"checks in at most {device.share_of_checks:.0%} of the time; "
        f"{warmed_up} warm-up products{threads}"
    )
    return {
        "m": n,
        "n": n,
        "k": n,
        "dtype": product.dtype,
        "accumulate": accumulate,
        "layout": layout,
        "data": data,
        "warmup_products": warmed_up,
        "products_per_batch": pace.batch,
        "need_bytes": need,
        "relative_error": product.relative_error,
        "method": method,
        "product_seconds": pace.product_seconds,
        "patience_seconds": pace.patience,
    }


def measure(device: Any, run: Run, product: Product, pace: Pace) -> None:
    """Batches until the time is up or the run is halted, with a sample per window."""
    tally, wanted = run.tally, run.request["seconds"]
    hang = _hang(device, pace)
    run.expect(pace.patience, hang)
    previous = checked = time.perf_counter()
    last_is_checked = False
    while not run.halt.is_set():
        while (
            device.in_flight < pace.most_in_flight
            and tally.seconds + device.in_flight * pace.batch * pace.product_seconds < wanted
        ):
            due = time.perf_counter() - checked >= pace.check_interval
            device.launch(product, pace.batch, check=due)
            checked = time.perf_counter() if due else checked
        ended = device.poll()
        if ended is None:
            if device.in_flight == 0:
                break
            continue
        run.expect(pace.patience, hang)
        # On a GPU a batch was launched while the one before it ran.
        seconds = ended.ended - max(ended.began, previous)
        previous = ended.ended
        sample = tally.add(ended.products, seconds, ended.device_seconds)
        pace.saw(ended)
        if sample is not None:
            run.send("sample", **sample)
        last_is_checked = ended.wrong is not None
        if ended.wrong is not None:
            run.verified(ended.wrong, 1)
    if tally.iterations and not last_is_checked:
        run.verified(device.check(product)[0], 1)
    if not run.halt.is_set():  # once more with a known answer, now that the device is hot
        run.expect(pace.patience, hang)
        run.verified(product.exact(), 0)


def _check_precision(product: Product) -> None:
    dtype, error = product.dtype, product.relative_error
    low, high = product.errors()
    if low <= error < high:
        return
    variable = "ONEDNN_DEFAULT_FPMATH_MODE" if product.place == "cpu" else "NVIDIA_TF32_OVERRIDE"
    raise RefusedError(
        "precision",
        f"The {dtype} product was not made in {dtype}",
        f"its relative error is {error:.1e}",
        f"Unset {variable} and what else changes the precision, or choose another data type",
    )


def _computes_wrong() -> RefusedError:
    return RefusedError(
        "wrong",
        "The device computes wrong results",
        "the first products are not what they have to be",
        "Do not train on it; run the test again to be sure",
    )


def _hang(device: Any, pace: Pace) -> RefusedError:
    expected = pace.batch * pace.product_seconds
    return RefusedError(
        "hang",
        "The device hangs",
        f"a batch that takes {expected:.2g} s had not ended after {pace.patience:.3g} s",
        "Look for Xid errors in `dmesg`"
        if device.place == "cuda"
        else "See what else uses the cores, and run the test again",
    )


def _not_ready(seconds: float) -> RefusedError:
    return RefusedError(
        "not_ready",
        "The stress test did not get ready",
        f"torch, memory and the first products took more than {seconds:.0f} s",
        "See what else uses the device, or choose a smaller --size",
    )


def _too_slow(request: dict[str, Any], taken: str) -> RefusedError:
    return RefusedError(
        "too_slow",
        f"No {request['dtype']} product of size {request['size'] or 'auto'} ends in time",
        f"one takes {taken} s, and the run {request['seconds']:g} s",
        "Choose a smaller --size, --size auto, or more --seconds",
    )


def _out_of_memory(request: dict[str, Any], n: int, free: int) -> RefusedError:
    room = free + request["context_bytes"]
    smaller = max(0, room - request["fixed_bytes"]) / request["bytes_per_element"]
    smaller = int(smaller**0.5) // 64 * 64
    while smaller > 0 and needed(request, smaller) > room:
        smaller -= 64
    need = needed(request, n) - request["context_bytes"]
    return RefusedError(
        "memory",
        f"Products of size {n} do not fit in the device's memory",
        f"they need {need / 2**30:.2f} GiB and {free / 2**30:.2f} GiB are free",
        f"Choose --size {smaller} or smaller" if smaller > 0 else "End what holds the memory",
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
        product, pace = prepare(device, run)
        if not run.halt.is_set():
            measure(device, run, product, pace)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the parent is told in one line
        run.end("error", **explain(error, device, run).fields)
    run.finish()


if __name__ == "__main__":
    main()
