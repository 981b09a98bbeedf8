"""How fast a device is, and what follows: the size of batches, and when it is taken for hung."""

from __future__ import annotations

from typing import Any

BATCH_SECONDS = 0.05
"""What a batch aims at: half of what a stop may wait for, since a hot device gets slower."""
MOST_PRODUCTS = 10000
"""In a batch."""
LONG_SECONDS = 0.1
"""A product that takes longer is alone in flight: a second one would overrun the run's end."""
SLOWER = 20
"""A batch that takes as many times longer than expected is taken for hung."""


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


def fit(seconds: float, each: float) -> int:
    """How many that take `each` seconds are some `seconds` of work."""
    return max(1, min(MOST_PRODUCTS, int(seconds / each) if each > 0 else 1))


def patience(device: Any, expected: float) -> float:
    """Seconds without an end of work that takes `expected`, after which there is none to come."""
    return float(max(device.patience, SLOWER * expected))


class Pace:
    """How long a product and a check take on this device, and what follows from it."""

    def __init__(self, device: Any, product_seconds: float, check_seconds: float) -> None:
        self._device = device
        self.product_seconds, self.check_seconds = product_seconds, check_seconds
        self.patience = patience(device, self.batch * product_seconds + check_seconds)
        """Seconds without a batch that ends, after which there is none to come."""

    @property
    def batch(self) -> int:
        """Products in a batch."""
        return fit(BATCH_SECONDS, self.product_seconds)

    @property
    def most_in_flight(self) -> int:
        """Batches that may wait for the device at a time."""
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
