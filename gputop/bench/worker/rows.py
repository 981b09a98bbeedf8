"""Rows of tables: time, verify and send them."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .errors import death, in_words, is_memory
from .events import NO_SHAPE, Point
from .product import Product, Shape, dtype_facts
from .throughput import (
    MOST_PRODUCTS,
    SLOWER,
    TableTotals,
    products_in,
    threads_text,
)

if TYPE_CHECKING:
    from .main import WorkerRun

Work = Callable[[int], None]
Clock = Callable[[Work, int], float]
"""Calls the work with a number of repetitions, and returns the seconds that all of them took."""

BLOCK_SECONDS = 0.01
"""Seconds of a block of calls that are timed together. A longer call is a block of its own."""
LEAST_BLOCKS, LEAST_SECONDS = 7, 0.2
"""Least blocks and seconds of a row, unless its share of the time ends first."""
FEWEST_BLOCKS = 4
"""Least blocks from which a spread can be computed."""
ROW_SECONDS = 1.0
"""Longest row. Longer measurements do not get steadier."""
WARM_UP = 3
"""Untimed calls before a row, because the first calls are slow."""
REPEATABLE = 0.005
"""Relative standard error of the median at which a row ends. 2 % is four standard errors."""
LONG_SECONDS = 0.1
"""Longest product, unless its size was requested."""
WAKE_SECONDS = 0.3
"""Seconds until clocks are up and threads have started."""
MOST_NAMED = 16
"""Most rows that a note names."""


class Timed:
    """Seconds of one call: the median of blocks.

    `spread` is half of the blocks' interquartile range, relative to the median, or None for fewer
    than four blocks.
    """

    def __init__(self, blocks: list[float]) -> None:
        self.seconds = statistics.median(blocks)
        self.spread: float | None = None
        self.error = 0.0
        """Relative standard error of the median, for normal scatter."""
        if len(blocks) >= FEWEST_BLOCKS and self.seconds:
            quarters = statistics.quantiles(blocks, n=4)
            self.spread = (quarters[2] - quarters[0]) / 2 / self.seconds
            self.error = 1.86 * self.spread / math.sqrt(len(blocks))

    @property
    def values(self) -> dict[str, float]:
        """Seconds, and their spread in percent if it is known."""
        known = (
            {}
            if self.spread is None
            else {"spread_percent": 100 * self.spread}
        )
        return {"seconds": self.seconds, **known}


class Rows:
    """Rows of one run. Up to `to_come` further rows share the time left."""

    def __init__(
        self,
        device: Any,
        run: WorkerRun,
        to_come: int,
    ) -> None:
        self.device, self.run, self.to_come = device, run, to_come
        self.table = run.totals = TableTotals()
        device.mismatches = self.table.mismatches
        self.until = time.monotonic() + run.request.seconds
        self._noted: dict[str, list[str]] = {}
        """Names of the rows by the text of their common note."""

    @property
    def left(self) -> float:
        """Seconds left of the run."""
        return float(self.until - time.monotonic())

    @property
    def over(self) -> bool:
        """True if the run is halted or its time is up."""
        return self.run.halt.is_set() or self.left <= 0

    def end_early(self) -> bool:
        """Return True if the run is over. Note the missing rows if its time was up."""
        if self.left <= 0 and not self.run.halt.is_set():
            why = "the time was up before all rows were measured"
            self.run.notes.append(f"{why}: give more --seconds")
        return self.over

    @contextlib.contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """Note an error in the body under this name, so that the run goes on with other rows.

        Raise `RunError` if the device died, because it can measure no further rows.
        """
        try:
            yield
        except Exception as error:
            dead = death(error, self.device)
            if dead is not None:
                raise dead from error
            self.run.failure = self.run.failure or error
            why = in_words(error)
            if is_memory(error):
                why = "it does not fit in the memory"
            self.skip(name, f"not measured, {why}")

    def skip(self, name: str, why: str) -> None:
        """Note a row that is left out."""
        self.to_come -= 1
        self.note(name, why)

    def note(self, name: str, text: str) -> None:
        """Add a note about a row. Rows with the same text share a note with all their names."""
        names, notes = self._noted.setdefault(text, []), self.run.notes
        if name in names:
            return
        before = _named(names, text)
        names.append(name)
        if before in notes:
            notes[notes.index(before)] = _named(names, text)
        else:
            notes.append(_named(names, text))

    def plan(
        self,
        dtype: str,
        method: str,
        shape: Shape = NO_SHAPE,
        **fields: Any,
    ) -> None:
        """Send the plan. `shape` is the largest of the run."""
        request = self.run.request
        self.run.planned(
            shape,
            dtype=dtype,
            rows=self.to_come,
            expected_seconds=min(
                request.seconds, 2 * ROW_SECONDS * self.to_come
            ),
            method=method + threads_text(self.device),
            **fields,
        )
        self.until = (
            time.monotonic() + request.seconds
        )  # the time of the rows starts after the preparation

    def wake(self, dtype: str) -> None:
        """Make small products for a short time, because the first products of a run are slow."""
        n = self.device.smallest_size
        with self.attempt(f"{dtype} {n}×{n} to wake the device"):
            product = Product(
                self.device.torch, dtype, (n, n, n), self.device.place
            )
            product.fill()
            began = time.monotonic()
            while (
                time.monotonic() - began < WAKE_SECONDS
                and not self.run.halt.is_set()
            ):
                self.device.timed(product.multiply, 1)

    def open(
        self, dtype: str, shape: Shape, column_major: bool | None = None
    ) -> tuple[Product, float]:
        """Return a filled and checked product, and the approximate seconds of one.

        Raise `RunError` if the product is not made in its data type.
        """
        device, run = self.device, self.run
        run.working(max(0.0, self.left))
        product = Product(
            device.torch, dtype, shape, device.place, column_major
        )
        wrong = product.exact()
        run.totals.wrong += wrong  # count it now, since later steps may fail
        product.fill()
        seconds = device.wall(lambda _: product.keep_first(), 1)
        inexact = product.judge()
        run.verified(inexact, 0)
        if not (wrong or inexact):
            label = product.check_precision()
            if label:
                self.note(size_text(shape), label)
        return product, seconds

    def check(self, product: Product) -> None:
        """Compare the last product with the first one, and send the result."""
        self.run.verified(self.device.check(product)[0], 1)

    def time(
        self,
        work: Work,
        clock: Clock,
        each: float,
        *,
        flop: float = 0.0,
        most: int = MOST_PRODUCTS,
        at_most: float = ROW_SECONDS,
    ) -> Timed | None:
        """Time work of about `each` seconds per call, within the row's share of the time left.

        `most` limits the calls per block, `at_most` the seconds of the row. All limits are wall
        time, which may be longer than the clock's time. Return None if the run was halted before
        the first block.
        """
        began = time.monotonic()

        def block(times: int) -> tuple[float, float]:
            self.run.working(SLOWER * times * each)
            before = time.monotonic()
            seconds = clock(work, times)
            return seconds / times, (time.monotonic() - before) / times

        share = min(at_most, self.left / max(1, self.to_come))
        blocks: list[float] = []
        timed = None
        for _ in range(WARM_UP if each < LONG_SECONDS else 0):
            each = min(each, block(1)[1])
        while not self.run.halt.is_set():
            times = min(most, products_in(BLOCK_SECONDS, each))
            seconds, wall = block(times)
            blocks.append(seconds)
            self.table.add(times, seconds * times, flop)
            timed = Timed(blocks)
            # Take `each` from blocks only. With the time of a slow first call,
            # each block would have one call.
            each = wall if len(blocks) == 1 else min(each, wall)
            total = time.monotonic() - began
            enough = len(blocks) >= LEAST_BLOCKS and total >= min(
                LEAST_SECONDS, share
            )
            if total >= share or (enough and timed.error <= REPEATABLE):
                break
        return timed

    def measure(
        self,
        series: str,
        product: Product,
        each: float,
        at_most: float = ROW_SECONDS,
        *,
        counts: bool = True,
    ) -> float | None:
        """Time, check and send a product of about `each` seconds; return the TFLOP/s.

        If `counts`, the product can become the best of the table. Return None if it was not timed.
        """
        work, flop = product.multiply, product.flop
        timed = self.time(
            work,
            self.device.timed,
            each,
            flop=flop,
            at_most=at_most,
        )
        if timed is None:
            return None
        self.check(product)
        return self.send(
            series,
            timed,
            product,
            counts=counts,
        )

    def send(
        self,
        series: str,
        timed: Timed,
        product: Product,
        *,
        counts: bool = True,
    ) -> float:
        """Send a row about a product, and return the TFLOP/s.

        Its x is the edge of a cube with the same number of FLOP.
        """
        tflops, (m, n, k) = product.flop / timed.seconds / 1e12, product.shape
        if counts:
            self.table.best(tflops, product.shape)
        edge = float(round((m * n * k) ** (1 / 3), 1))
        self.add(
            series, edge, {"tflops": tflops, **timed.values}, product.shape
        )
        return tflops

    def add(
        self, series: str, x: float, values: dict[str, float], shape: Any = ()
    ) -> None:
        """Send a row, and count it."""
        self.run.send(Point(series, x, values, tuple(shape)))
        self.table.rows += 1
        self.to_come -= 1

    def usable(self, dtype: str, n: int) -> int:
        """Return the smallest size from N on that the data type supports on this device."""
        each = dtype_facts(self.run.request, dtype)
        multiple: int = each.multiple
        return max(int(each.least), -(-n // multiple) * multiple)


def size_text(shape: Shape) -> str:
    """Return the size of a product: `8×8` for square matrices, or `m×n×k`."""
    square = len(set(shape)) == 1
    return "×".join(map(str, shape[:2] if square else shape))


def _named(names: list[str], text: str) -> str:
    """Return the text of a note about these rows."""
    shown = ", ".join(names[:MOST_NAMED])
    if len(names) > MOST_NAMED:
        shown += f" and {len(names) - MOST_NAMED} more"
    return f"{shown}: {text}"
