"""What the kinds of run that are tables share: rows that are timed in time, verified, and sent."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .errors import hangs, too_slow
from .product import Product, Shape, bytes_needed, dtype_facts
from .throughput import MOST_PRODUCTS, TableTotals, patience, products_in

if TYPE_CHECKING:
    from .run import Run

BLOCK_SECONDS = 0.01
"""What is timed in one go, where it is not one product alone."""
LEAST_BLOCKS, LEAST_SECONDS = 7, 0.2
"""Fewer say nothing about their own scatter."""
ROW_SECONDS = 1.0
"""No row takes more: what is not steady by then does not get steadier."""
WARM_UP = 3
"""Calls before any is timed: the first of a kind is slow."""
REPEATABLE = 0.005
"""The standard error of the median at which a row is done; two of them on both sides are 2 %."""
LONG_SECONDS = 0.1
"""No product that is not asked for by its size takes longer."""
COLD_SECONDS = 10.0
"""The first product of a shape may take as long: kernels are loaded on the way."""
WAKE_SECONDS = 0.3
"""Until clocks are up and threads are there."""


class Timed:
    """How long one call takes: the median of blocks, and half of what the middle half spans."""

    def __init__(self, blocks: list[float], calls: int, total: float) -> None:
        self.seconds = statistics.median(blocks)
        self.calls, self.total = calls, total
        quarters = statistics.quantiles(blocks, n=4) if len(blocks) > 2 else [self.seconds] * 3
        self.spread = (quarters[2] - quarters[0]) / 2

    def divided_by(self, products: int) -> Timed:
        """Of one of as many products that a call has."""
        self.seconds, self.spread = self.seconds / products, self.spread / products
        self.calls *= products
        return self

    def error(self, blocks: int) -> float:
        """The standard error of the median, as a share of it; of normal scatter."""
        return 1.86 * self.spread / blocks**0.5 / self.seconds if self.seconds else 0.0


class Rows:
    """The rows of one run; `to_come` is how many there will be at most, for their shares of it."""

    def __init__(self, device: Any, run: Run, to_come: int) -> None:
        self.device, self.run, self.to_come = device, run, to_come
        self.table = run.totals = TableTotals()
        self._until = time.monotonic() + run.request["seconds"]

    @property
    def left(self) -> float:
        """Seconds of the run."""
        return float(self._until - time.monotonic())

    @property
    def over(self) -> bool:
        """Whether the run is halted, or its time is up."""
        return self.run.halt.is_set() or self.left <= 0

    def note_time_up(self) -> None:
        """Says that rows are missing, unless somebody wanted it so."""
        if not self.run.halt.is_set():
            self.run.notes.append("the time was up before all rows were there: give more --seconds")

    def plan(self, dtype: str, shape: Shape, method: str, **fields: Any) -> None:
        """Says what will be run; `shape` is the largest."""
        request = self.run.request
        threads = self.device.torch.get_num_threads()
        where = f"; {threads} threads" if self.device.place == "cpu" else ""
        m, n, k = shape
        self.run.planned(
            m=m,
            n=n,
            k=k,
            dtype=dtype,
            warmup_products=0,
            products_per_batch=0,
            relative_error=0.0,
            rows=self.to_come,
            expected_seconds=min(request["seconds"], 2 * ROW_SECONDS * self.to_come),
            patience_seconds=max(self.device.patience, request["seconds"]),
            method=method + where,
            **fields,
        )
        self._until = time.monotonic() + request["seconds"]  # what came before was preparation

    def wake(self, dtype: str) -> None:
        """Products for a moment: the first ones are slow, whatever their size."""
        n = self.device.smallest_size
        product = Product(self.device.torch, dtype, (n, n, n), self.device.place)
        product.fill()
        began = time.monotonic()
        while time.monotonic() - began < WAKE_SECONDS and not self.run.halt.is_set():
            self.device.timed(product.multiply, 1)

    def open(
        self, dtype: str, shape: Shape, column_major: bool | None = None
    ) -> tuple[Product, float]:
        """A product that is filled and checked, and about how long one takes.

        Raises `RefusedError` where it is not made in its data type.
        """
        device, run = self.device, self.run
        limit = max(self.left, COLD_SECONDS)
        run.expect(limit, too_slow(run.request, dtype, f"more than {limit:.3g}"))
        product = Product(device.torch, dtype, shape, device.place, column_major)
        wrong = product.exact()
        product.fill()
        seconds = device.wall(lambda _: product.keep_first(), 1)
        wrong += product.judge()
        run.verified(wrong, 0)
        if not wrong:
            product.check_precision()
        return product, seconds

    def check(self, product: Product) -> None:
        """Compares the last product with the first."""
        self.expect("a check", COLD_SECONDS)
        self.run.verified(self.device.check(product)[0], 1)

    def expect(self, work: str, seconds: float) -> None:
        """What takes about as long is taken for hung after many times that."""
        limit = patience(self.device, seconds)
        self.run.expect(limit, hangs(self.device.place, work, seconds, limit))

    def time(
        self,
        work: Callable[[int], None],
        clock: Callable[[Callable[[int], None], int], float],
        each: float,
        *,
        flop: float = 0.0,
        most: int = MOST_PRODUCTS,
        at_most: float = ROW_SECONDS,
    ) -> Timed | None:
        """Times work that takes about `each` seconds a call, in its share of what is left.

        None where the run was halted before anything was timed. At most `most` calls in one go,
        and at most so many seconds.
        """
        share = min(at_most, max(0.0, self.left) / max(1, self.to_come))
        blocks: list[float] = []
        calls, total = 0, 0.0
        for _ in range(WARM_UP if each < LONG_SECONDS else 0):
            each = min(each, self._block(work, clock, each, 1))
        while not self.run.halt.is_set():
            times = min(most, products_in(BLOCK_SECONDS, each))
            took = self._block(work, clock, each, times)
            blocks.append(took / times)
            calls, total = calls + times, total + took
            self.table.add(times, took, flop)
            timed = Timed(blocks, calls, total)
            each = min(blocks)  # held up by others, one call at a time would stay slow
            enough = len(blocks) >= LEAST_BLOCKS and total >= min(LEAST_SECONDS, share)
            if total >= share or (enough and timed.error(len(blocks)) <= REPEATABLE):
                break
        return Timed(blocks, calls, total) if blocks else None

    def _block(
        self,
        work: Callable[[int], None],
        clock: Callable[[Callable[[int], None], int], float],
        each: float,
        times: int,
    ) -> float:
        self.expect("work", times * each)
        return clock(work, times)

    def send(self, series: str, x: float, timed: Timed, product: Product) -> float:
        """A row about products, whose TFLOP/s are returned; the best one is remembered."""
        tflops = product.flop / timed.seconds / 1e12
        self.table.best(tflops, product.shape)
        self.point(series, x, timed, {"tflops": tflops}, product.shape)
        return tflops

    def point(
        self, series: str, x: float, timed: Timed, values: dict[str, float], shape: Any = ()
    ) -> None:
        """A row: what was asked for, the seconds of a call, and how far they scatter."""
        spread = 100 * timed.spread / timed.seconds if timed.seconds else 0.0
        values = {**values, "seconds": timed.seconds, "spread_percent": spread}
        self.run.send("point", series=series, x=x, values=values, shape=list(shape))
        self.table.rows += 1

    def need(self, dtype: str, shape: Shape) -> int:
        """Bytes that such products take."""
        return bytes_needed(self.run.request, dtype, shape)

    def usable(self, dtype: str, n: int) -> int:
        """The size from N on that the data type can be multiplied in on this device."""
        each = dtype_facts(self.run.request, dtype)
        multiple: int = each["multiple"]
        return max(int(each["least"]), -(-n // multiple) * multiple)
