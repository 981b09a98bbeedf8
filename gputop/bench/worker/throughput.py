"""Throughput of a run: batches and their size, windows, and the totals of the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from .events import Figures, Progress

BATCH_SECONDS = 0.05
"""Length of a batch. A hot device gets slower, so this is half of the time that a stop may take."""
MOST_PRODUCTS = 10000
LONG_SECONDS = 0.1
"""Length from which only one product is in flight, since a second one would overrun the run."""
SLOWER = 20
"""Multiple of its expected time that work may take on a busy host."""


class Mismatches(NamedTuple):
    """Findings of checksums: the number of wrong sums, and of products with wrong sums.

    `other_bits` counts products that are right although their bits differ from the first product.
    """

    elements: int = 0
    products: int = 0
    other_bits: int = 0


class EndedBatch(NamedTuple):
    """Products that have ended, with the start and end of the batch by `time.perf_counter`."""

    products: int
    began: float
    ended: float
    device_seconds: float | None = None
    wrong: int | None = None
    """Wrong elements after the batch, or None if it was not checked."""
    check_seconds: float | None = None
    mismatches: Mismatches = Mismatches()


def products_in(seconds: float, each: float) -> int:
    """Return the number of products of `each` seconds in `seconds`, at least 1."""
    if each <= 0:
        return 1
    return max(1, min(MOST_PRODUCTS, int(seconds / each)))


def threads_text(device: Any) -> str:
    """Return a CPU's number of threads for the description of the method, or "" for a GPU."""
    if device.place != "cpu":
        return ""
    threads = device.torch.get_num_threads()
    if threads == 1:
        return "; 1 thread"
    return f"; {threads} threads"


class Pace:
    """Measured length of a product and of a check, and the size of batches derived from it."""

    def __init__(
        self, device: Any, product_seconds: float, check_seconds: float
    ) -> None:
        self._device, self.batch_seconds = device, BATCH_SECONDS
        self.pause: Callable[[float], float] = lambda _: 0.0
        """Takes the seconds of the next work, and returns the seconds until it may begin."""
        self.product_seconds, self.check_seconds = (
            product_seconds,
            check_seconds,
        )
        self.has_spare = True
        """False if the next product would overwrite a product that is still being checked."""

    @property
    def batch(self) -> int:
        """Products in a batch."""
        return products_in(self.batch_seconds, self.product_seconds)

    def batch_at(self, elapsed: float) -> int:
        """Return the products of a batch after `elapsed` seconds. Early samples are short."""
        seconds = min(
            self.batch_seconds, max(self._device.first_window, elapsed)
        )
        return products_in(seconds, self.product_seconds)

    @property
    def expected(self) -> float:
        """Seconds of a batch."""
        return self.batch * self.product_seconds

    @property
    def most_in_flight(self) -> int:
        """Most batches that may wait for the device."""
        if self.product_seconds > LONG_SECONDS or not self.has_spare:
            return 1
        return int(self._device.most_in_flight)

    @property
    def check_interval(self) -> float:
        """Seconds from one check to the next."""
        interval = self.check_seconds / self._device.share_of_checks
        return float(max(self._device.least_interval, interval))

    def update(self, batch: EndedBatch) -> None:
        """Update the lengths by an ended batch. One batch changes them at most by a factor of 2."""
        if batch.products:
            seconds = batch.ended - batch.began
            if batch.device_seconds is not None:
                seconds = batch.device_seconds
            known = self.product_seconds
            self.product_seconds = min(
                max(seconds / batch.products, known / 2), 2 * known
            )
        if batch.check_seconds is not None:
            self.check_seconds = batch.check_seconds


WINDOW_SECONDS, FIRST_WINDOW_SECONDS = 0.2, 0.1
"""Length of a sample, and of a sample during the burst. The peak is the best sample."""
FIRST_SECONDS = 2.0
"""Length of the burst, from the first product on."""
COLD_WINDOW_SECONDS = 0.01
"""Length of the first sample by device events. Each further sample is as long as the run before it,
up to 0.1 s: 10, 10, 20, 40, 80 ms. A B200 makes a product of 8192 in 0.6 ms and leaves its highest
clock within 100 products, so a first sample of 0.1 s would mix two clocks. 10 ms are seven products
of an H100, and 20,000 ticks of its event timer."""

Mark = tuple[float, int, float]
"""Seconds and iterations of the run so far, and a third sum that depends on the kind of totals."""


class RunTotals:
    """Totals of a run, written by the main thread and read by the watching thread."""

    def __init__(self) -> None:
        self.checks = 0
        self.verified = 0
        """Products compared in the checks."""
        self.wrong = 0
        self.mismatches: Counter[str] = Counter()
        """Number of products that differ from the first one, by the outcome of repeating them."""
        self.now: Mark = (0.0, 0, 0.0)
        self.peak = 0.0

    @property
    def seconds(self) -> float:
        """Timed seconds so far."""
        return self.now[0]

    @property
    def iterations(self) -> int:
        """Products or calls so far."""
        return self.now[1]

    def counts(self, now: Mark) -> Figures:
        """Return the counts at the moment `now`."""
        return Figures(
            now[0],
            now[1],
            self.checks,
            self.verified,
            self.wrong,
            dict(self.mismatches),
        )


class SoakTotals(RunTotals):
    """Totals of a run of one shape. The third sum of `now` is the device's busy seconds.

    The mean is over wall time. Windows use the device's own time if it has one, because the host
    notices the end of a batch too late.
    """

    def __init__(self, flop: int = 0) -> None:
        super().__init__()
        self.flop = flop
        self.has_device_time = False
        self.pulsed = False
        """True if windows use wall time, including the pauses of the load."""
        self._window = self.now

    def add(
        self, products: int, seconds: float, device_seconds: float | None
    ) -> Progress | None:
        """Count an ended batch, and return the sample if it ends a window."""
        if products:
            self.has_device_time = device_seconds is not None
        before, done, busy = self.now
        busy += seconds if device_seconds is None else device_seconds
        self.now = (
            before + seconds,
            done + products,
            busy,
        )  # a single assignment, because another thread reads it
        window = self.seconds - self._window[0]
        if window < self._window_length(before):
            return None
        mark, spent = self._window, 0 if self.pulsed else 2
        rate = self.rate(
            self.iterations - mark[1], self.now[spent] - mark[spent]
        )
        self.peak = max(self.peak, rate)
        self._window = self.now
        return Progress(
            elapsed_seconds=self.seconds,
            window_seconds=window,
            iterations=self.iterations,
            tflops=rate,
            tflops_device=rate if self.has_device_time else None,
        )

    def _window_length(self, before: float) -> float:
        """Return the least seconds of the current window after `before` seconds of the run."""
        if before >= FIRST_SECONDS:
            return WINDOW_SECONDS
        if (
            self.pulsed or not self.has_device_time
        ):  # wall time is too noisy for a shorter window
            return FIRST_WINDOW_SECONDS
        return min(
            FIRST_WINDOW_SECONDS, max(COLD_WINDOW_SECONDS, self._window[0])
        )

    def rate(self, iterations: int, seconds: float) -> float:
        """Return TFLOP/s."""
        return self.flop * iterations / seconds / 1e12 if seconds > 0 else 0.0

    def figures(self) -> Figures:
        """Return the figures so far."""
        now = seconds, iterations, busy = self.now
        mean, device = (
            self.rate(iterations, seconds),
            self.rate(iterations, busy),
        )
        return replace(
            self.counts(now),
            tflops_mean=mean,
            tflops_peak=max(self.peak, mean, device),
            tflops_device=device if self.has_device_time else None,
        )


class TableTotals(RunTotals):
    """Totals of a table. Its rows have different shapes, or no products.

    The third sum of `now` is the FLOP of all calls.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rows = 0
        self.shape: tuple[int, int, int] | None = None

    def add(
        self,
        calls: int,
        seconds: float,
        flop: float = 0.0,
    ) -> None:
        """Count timed calls of `flop` FLOP each."""
        before, done, work = self.now
        self.now = (before + seconds, done + calls, work + calls * flop)

    def best(
        self,
        tflops: float,
        shape: tuple[int, int, int] | None = None,
    ) -> None:
        """Keep the shape if it is the fastest so far."""
        if tflops > self.peak:
            self.peak, self.shape = tflops, shape

    def figures(self) -> Figures:
        """Return the figures so far."""
        now = seconds, _, work = self.now
        return replace(
            self.counts(now),
            tflops_mean=work / seconds / 1e12 if work else None,
            tflops_peak=self.peak or None,
            shape=self.shape,
        )
