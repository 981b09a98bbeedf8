"""Rows of the kinds of run that are tables: timed, verified and sent."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .errors import death, hangs, in_words, is_memory, too_slow
from .events import Point
from .product import Product, Shape, dtype_facts
from .throughput import (
    MOST_PRODUCTS,
    TableTotals,
    patience,
    products_in,
    threads_text,
)

if TYPE_CHECKING:
    from .main import WorkerRun

Work = Callable[[int], None]
Clock = Callable[[Work, int], float]
"""Returns the seconds of some work done that many times."""

BLOCK_SECONDS = 0.01
"""Seconds timed in one go, unless one product takes longer."""
LEAST_BLOCKS, LEAST_SECONDS = 7, 0.2
"""Least blocks and seconds of a row that its time does not cut short."""
FEWEST_BLOCKS = 4
"""Least blocks that show a scatter."""
ROW_SECONDS = 1.0
"""Longest row: what is not steady by then does not get steadier."""
WARM_UP = 3
"""Untimed calls: the first of a kind is slow."""
REPEATABLE = 0.005
"""Relative standard error of the median at which a row is done: 2 % is four of them."""
LONG_SECONDS = 0.1
"""Longest product, unless its size was requested."""
COLD_SECONDS = 10.0
"""Time allowed for the first product of a shape: kernels are loaded on the way."""
SHORT_SECONDS = 1.0
"""Expected seconds of what takes only a moment, such as waiting for the device."""
WAKE_SECONDS = 0.3
"""Seconds until clocks are up and threads have started."""
MOST_NAMED = 16
"""Most rows that a note names."""


class Timed:
    """Seconds of one call: the median of blocks. `spread` is half of their interquartile range.

    It is relative, and None for fewer than four blocks, which do not show it.
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
        """The seconds, and their scatter in percent if it is known."""
        known = (
            {}
            if self.spread is None
            else {"spread_percent": 100 * self.spread}
        )
        return {"seconds": self.seconds, **known}


class Rows:
    """Rows of one run. `to_come` is the most rows still expected, which share the time left."""

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
        """True if the run is over. Note that rows are missing, unless it was stopped."""
        if self.left <= 0 and not self.run.halt.is_set():
            why = "the time was up before all rows were measured"
            self.run.notes.append(f"{why}: give more --seconds")
        return self.over

    @contextlib.contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """Measure the rows of that name; if this fails, note it, so that others are measured.

        Raise `RunError` if the device died: nothing can be measured any more.
        """
        try:
            yield
        except Exception as error:
            self.expect("waiting for the device", SHORT_SECONDS)
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
        """Note something about a row. Rows with the same text share a note that names them."""
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
        self, dtype: str, shape: Shape, method: str, **fields: Any
    ) -> None:
        """Send the plan. `shape` is the largest of the run; a row may take `silence` seconds."""
        request, silence = self.run.request, fields.pop("silence", 0.0)
        self.run.planned(
            shape,
            dtype=dtype,
            rows=self.to_come,
            expected_seconds=min(
                request.seconds, 2 * ROW_SECONDS * self.to_come
            ),
            patience_seconds=max(
                self.device.patience, request.seconds, silence
            ),
            method=method + threads_text(self.device),
            **fields,
        )
        self.until = (
            time.monotonic() + request.seconds
        )  # what came before was preparation

    def wake(self, dtype: str) -> None:
        """Make products for a moment: the first ones are slow, whatever their size."""
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
        """Return a filled and checked product, and about how long one takes.

        Raise `RunError` if it is not made in its data type.
        """
        device, run = self.device, self.run
        limit = max(self.left, COLD_SECONDS)
        run.expect(
            limit, too_slow(run.request, dtype, f"more than {limit:.3g}")
        )
        product = Product(
            device.torch, dtype, shape, device.place, column_major
        )
        wrong = product.exact()
        run.totals.wrong += wrong  # at once: what follows may fail
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
        """Compare the last product with the first."""
        self.expect("a check", COLD_SECONDS)
        self.run.verified(self.device.check(product)[0], 1)

    def expect(self, work: str, seconds: float) -> None:
        """Expect work of about that many seconds: many times that counts as a hang."""
        limit = patience(self.device, seconds)
        self.run.expect(limit, hangs(self.device.place, work, seconds, limit))

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
        """Time work of about `each` seconds a call, within its share of the time left.

        None where the run was halted before anything was timed. At most `most` calls in one go,
        and at most so many seconds. All limits are of wall time: a clock may count less of it.
        """
        began = time.monotonic()

        def block(times: int) -> tuple[float, float]:
            self.expect("work", times * each)
            before = time.monotonic()
            seconds = clock(work, times)
            return seconds / times, (time.monotonic() - before) / times

        share = min(at_most, max(0.0, self.left) / max(1, self.to_come))
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
            # Only blocks count here: a slow first call would keep them at one call each.
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

        It is kept if it is the fastest that counts so far. None where nothing was timed.
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
        """Send a row about products, by the edge of a cube of as many FLOP; return the TFLOP/s."""
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
        self.run.known.update(self.device.memories())
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
    """Return a note about these rows."""
    shown = ", ".join(names[:MOST_NAMED])
    if len(names) > MOST_NAMED:
        shown += f" and {len(names) - MOST_NAMED} more"
    return f"{shown}: {text}"
