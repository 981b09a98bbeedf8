"""The CPU as a device."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .pace import Batch

if TYPE_CHECKING:
    from .product import Product

PARTS = 8
"""Of a batch, between which a stop is seen."""


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
        """Batches that were not asked for yet."""
        return len(self._ended)

    def launch(self, product: Product, products: int, *, check: bool) -> None:
        """Makes that many products, fewer where the run is halted, then checks the last."""
        done, began = 0, time.perf_counter()
        part = max(1, products // PARTS)
        while done < products and not self._halt.is_set():
            part = min(part, products - done)
            product.multiply(part)
            done += part
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

    def timed(self, work: Callable[[int], None], times: int) -> float:
        """Seconds of that much work."""
        began = time.perf_counter()
        work(times)
        return time.perf_counter() - began

    wall = timed
    """From the first to the end of the last: here there is no other time."""

    def synchronize(self) -> None:
        """Products have ended when they return."""

    def free_bytes(self) -> int | None:
        """Unknown: what the plan knew is all there is."""
        return None

    def memories(self) -> dict[str, int | None]:
        """A CPU has one memory, which nobody divides."""
        return {}
