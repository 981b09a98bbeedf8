"""Throughput of a run: batches and their size, windows, and the totals of the result."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

BATCH_SECONDS = 0.05
"""Length of a batch: half of what a stop may wait for, since a hot device gets slower."""
MOST_PRODUCTS = 10000
"""Most products in a batch."""
LONG_SECONDS = 0.1
"""Length from which a product is alone in flight: a second would overrun the run's end."""
SLOWER = 20
"""Factor on the expected time after which a batch counts as hung."""


class EndedBatch(NamedTuple):
    """Products that have ended, with their begin and end by `time.perf_counter`."""

    products: int
    began: float
    ended: float
    device_seconds: Optional[float] = None  # noqa: UP045
    wrong: Optional[int] = None  # noqa: UP045
    """Wrong elements after the batch, or None if it was not checked."""
    check_seconds: Optional[float] = None  # noqa: UP045


def products_in(seconds: float, each: float) -> int:
    """Return how many products of `each` seconds are about `seconds` of work."""
    return max(1, min(MOST_PRODUCTS, int(seconds / each) if each > 0 else 1))


def patience(device: Any, expected: float) -> float:
    """Return the seconds after which work of `expected` seconds counts as hung."""
    return float(max(device.patience, SLOWER * expected))


class Pace:
    """Length of a product and of a check on this device, and what follows from it."""

    def __init__(self, device: Any, product_seconds: float, check_seconds: float) -> None:
        self._device = device
        self.product_seconds, self.check_seconds = product_seconds, check_seconds
        self.patience = patience(device, self.batch * product_seconds + check_seconds)
        """Seconds without the end of a batch after which the device counts as hung."""

    @property
    def batch(self) -> int:
        """Products in a batch."""
        return products_in(BATCH_SECONDS, self.product_seconds)

    @property
    def most_in_flight(self) -> int:
        """Most batches that may wait for the device."""
        return 1 if self.product_seconds > LONG_SECONDS else int(self._device.most_in_flight)

    @property
    def check_interval(self) -> float:
        """Seconds from one check to the next."""
        interval = self.check_seconds / self._device.share_of_checks
        return float(max(self._device.least_interval, interval))

    def update(self, batch: EndedBatch) -> None:
        """Learn from an ended batch, without trusting a single one."""
        if batch.products:
            seconds = batch.ended - batch.began
            if batch.device_seconds is not None:
                seconds = batch.device_seconds
            known = self.product_seconds
            self.product_seconds = min(max(seconds / batch.products, known / 2), 2 * known)
        if batch.check_seconds is not None:
            self.check_seconds = batch.check_seconds


WINDOW_SECONDS = 0.2
"""Length of a sample. The peak is the best of them."""
MOST_MARKS = 4096
"""Most window ends that are kept. Beyond it every second one is dropped."""
DROOP_SECONDS = 10.0
"""Shortest run with a droop."""
STEADY = 0.02
"""Largest relative distance from the sustained throughput of a steady device."""
STEADY_SECONDS = 1.0
"""Seconds whose mean decides about steadiness: a single window is too noisy."""

Mark = tuple[float, int, float]
"""Seconds, products and busy seconds of the run so far."""


class CheckCounts:
    """Checks so far, the products compared in them, and the wrong elements."""

    def __init__(self) -> None:
        self.checks = 0
        self.verified = 0
        self.wrong = 0

    def as_fields(self) -> dict[str, Any]:
        """Return the counts as fields of the result."""
        return {
            "checks": self.checks,
            "verified_products": self.verified,
            "wrong_elements": self.wrong,
        }


class SoakTotals(CheckCounts):
    """Totals of a run of one shape, written by the main thread and read by the watching thread.

    Wall time is for the mean. Windows are of the device's own time where it has any, since the
    moments at which a batch is seen to have ended are the host's.
    """

    def __init__(self, flop: int = 0) -> None:
        super().__init__()
        self.flop = flop
        self.peak = 0.0
        self.has_device_time = False
        self.now: Mark = (0.0, 0, 0.0)
        self._window = self.now
        """Begin of the current window."""
        self._marks, self._apart = [self.now], WINDOW_SECONDS

    @property
    def seconds(self) -> float:
        """Timed seconds so far."""
        return self.now[0]

    @property
    def iterations(self) -> int:
        """Products so far."""
        return self.now[1]

    def add(
        self, products: int, seconds: float, device_seconds: float | None
    ) -> dict[str, Any] | None:
        """Count an ended batch, and return the sample if it ends a window."""
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
        """Return TFLOP/s."""
        return self.flop * iterations / seconds / 1e12 if seconds > 0 else 0.0

    def since(self, mark: Mark, until: Mark | None = None) -> float:
        """Return TFLOP/s from one mark to another, or to now."""
        _, iterations, busy = until or self.now
        return self.rate(iterations - mark[1], busy - mark[2])

    def time_to_steady(self, sustained: float) -> float | None:
        """Return the seconds until the throughput stayed near `sustained`, or None.

        What comes first is what a cold device does; one that still leaves in the last half is
        not steady.
        """
        steady_from, before = self._marks[0], self._marks[0]
        for mark in self._marks[1:]:
            if mark[0] - before[0] < STEADY_SECONDS:
                continue
            if abs(self.since(before, mark) - sustained) > STEADY * sustained:
                steady_from = mark
            before = mark
        return steady_from[0] if steady_from[0] <= self.seconds / 2 else None

    def result(self) -> dict[str, Any]:
        """Return the figures of the run as it is now."""
        seconds, iterations, busy = self.now
        mean = self.rate(iterations, seconds)
        peak = max(self.peak, mean, self.rate(iterations, busy))
        sustained = droop = steady = None
        if seconds >= DROOP_SECONDS:
            sustained = self.since([each for each in self._marks if each[0] <= seconds / 2][-1])
            droop = 100 * (1 - sustained / peak)
            steady = self.time_to_steady(sustained)
        return {
            "seconds": seconds,
            "iterations": iterations,
            "tflops_mean": mean,
            "tflops_peak": peak,
            "tflops_sustained": sustained,
            "droop_percent": droop,
            "time_to_steady_seconds": steady,
            "tflops_device": self.rate(iterations, busy) if self.has_device_time else None,
            **self.as_fields(),
        }


class TableTotals(CheckCounts):
    """Totals of a table, whose rows have shapes of their own or no product at all."""

    def __init__(self) -> None:
        super().__init__()
        self.now: Mark = (0.0, 0, 0.0)
        """Seconds, calls timed in them, and FLOP."""
        self.rows = 0
        """Rows that were sent."""
        self.peak = 0.0
        self.shape: tuple[int, int, int] | None = None
        """m, n, k of the best row."""

    @property
    def iterations(self) -> int:
        """Calls so far."""
        return self.now[1]

    def add(self, calls: int, seconds: float, flop: float = 0.0) -> None:
        """Count timed calls. `flop` is that of one call."""
        before, done, work = self.now
        self.now = (before + seconds, done + calls, work + calls * flop)

    def best(self, tflops: float, shape: tuple[int, int, int]) -> None:
        """Keep the shape if it is the fastest so far."""
        if tflops > self.peak:
            self.peak, self.shape = tflops, shape

    def result(self) -> dict[str, Any]:
        """Return the figures of the run as it is now."""
        seconds, calls, work = self.now
        m, n, k = self.shape or (None, None, None)
        shape = {"m": m, "n": n, "k": k} if self.shape else {}
        return {
            "seconds": seconds,
            "iterations": calls,
            "tflops_mean": work / seconds / 1e12 if work else None,
            "tflops_peak": self.peak or None,
            "tflops_sustained": None,
            "droop_percent": None,
            "tflops_device": None,
            **shape,
            **self.as_fields(),
        }
