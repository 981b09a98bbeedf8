"""Products of many shapes: `sweep` squares of every size, `peak` the fastest shape and layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product as cross
from typing import TYPE_CHECKING, Any

from .errors import RunError, is_memory
from .formats import Plain, Scaled
from .product import Product, Shape, bytes_needed, dtype_facts, fits, require
from .rows import LONG_SECONDS, ROW_SECONDS, Rows, size_text

if TYPE_CHECKING:
    from .main import WorkerRun

PARTS_FROM = 64
"""Size from which an octave has two sizes, 2^n and 1.5 · 2^n. A smaller octave has one."""
PRODUCTS = 4
"""Least products of a size, for the checks and the timing."""


def sizes(largest: int) -> list[int]:
    """Return log-spaced sizes from 1 to `largest`, inclusive."""
    found, n = [], 1
    while n <= largest:
        found.append(n)
        if n >= PARTS_FROM:
            found.append(n + n // 2)
        n *= 2
    return [*(n for n in found if n < largest), largest]


def sweep(device: Any, run: WorkerRun) -> None:
    """Measure each data type from its smallest size until products are too long or too large."""
    request = run.request
    names: list[str] = [each.name for each in request.dtypes]
    refused: dict[str, RunError] = {}
    for name in names:
        try:
            require(device.torch, name, device.place)
        except RunError as refusal:
            refused[name] = refusal
    offered = [name for name in names if name not in refused]
    if not offered:
        raise refused[names[0]]
    run.notes += [
        f"{name}: {refusal.why}" for name, refusal in refused.items()
    ]
    rows = Rows(device, run, 0)
    planned = {name: _planned(rows, name) for name in offered}
    rows.to_come = sum(map(len, planned.values()))
    top = max(size for each in planned.values() for size in each)
    widest = max(
        offered, key=lambda name: bytes_needed(request, name, (top, top, top))
    )
    rows.wake(offered[0])
    rows.plan(
        ",".join(offered),
        f"square products of {len(planned[widest])} sizes from {planned[widest][0]} to {top}, "
        f"{', '.join(offered)}; eager; {device.timing}; medians of blocks of some 10 ms; "
        "random normal data; 2mnk FLOP; each size verified",
        (top, top, top),
        accumulate="by data type",
        layout="B column-major"
        if device.place == "cuda"
        else "A and B row-major",
        data="random normal",
    )
    for name in offered:
        _sweep(rows, name, planned[name])


def _planned(rows: Rows, name: str) -> list[int]:
    request = rows.run.request
    largest: int = request.size or dtype_facts(request, name).fitting
    usable = (rows.usable(name, n) for n in sizes(largest))
    found = sorted({n for n in usable if n <= largest})
    if not found:
        least = rows.usable(name, 1)
        what = f"There are no {name} products of size {largest} or less"
        raise RunError(
            "size",
            what,
            f"the smallest is {least}",
            f"Choose --size {least} or larger",
        )
    return found


def _sweep(
    rows: Rows,
    name: str,
    planned: list[int],
) -> None:
    """Measure a data type in its share of the time. Each size predicts the time of the next.

    The prediction is an upper bound, because launching takes most of the time of a short product.
    """
    request = rows.run.request
    others = max(0, rows.to_come - len(planned))
    keep = rows.left * others / (others + len(planned))
    last, seconds = planned[0], 0.0
    for at, n in enumerate(planned):
        predicted = seconds * (n / last) ** 3
        reason = None
        if rows.over or rows.left - keep < PRODUCTS * predicted:
            reason = "the time was up"
        elif request.size is None and predicted > LONG_SECONDS:
            reason = f"a product would take {predicted:.2g} s, more than {LONG_SECONDS:g} s"
        elif not fits(rows.device, request, name, (n, n, n)):
            reason = "it does not fit in the free memory"
        if reason is not None:
            rows.to_come -= len(planned) - at
            if not rows.run.halt.is_set():
                rows.run.notes.append(f"{name}: no size from {n} on, {reason}")
            return
        with rows.attempt(f"{name} {n}×{n}"):
            try:
                product, each = rows.open(name, (n, n, n))
            except (MemoryError, RuntimeError) as error:
                if not is_memory(error):
                    raise
                rows.run.notes.append(
                    f"{name}: no size from {n} on, it does not fit after all"
                )
                return
            tflops = rows.measure(name, product, each)
            if tflops is not None:
                last, seconds = n, product.flop / tflops / 1e12


SMALLEST = 256
PROBE_SECONDS = 0.25
"""Timed seconds of a candidate shape. The best candidates are timed again."""
PROBES = 200
"""Least number of probes. Short runs shorten each probe to reach it."""
CONFIRMED = 3
"""Shapes timed again at the end, because the best of many short measurements is partly luck."""
WAYS = 3
"""Most variants in which the best shape is timed."""
FINEST, COARSEST = 64, 256
"""Smallest and largest step in m, n and k around the best shape."""

Candidate = tuple[Shape, bool]
"""m, n, k and True if B is column-major."""


def peak(device: Any, run: WorkerRun) -> None:
    """Try squares, then rectangles, then smaller and smaller steps around the best shape."""
    request, dtype = run.request, run.request.dtype
    require(device.torch, dtype, device.place)
    rows = Rows(device, run, PROBES + CONFIRMED + WAYS)
    known = dtype_facts(request, dtype)
    largest = min(request.size or 2 * known.largest, known.fitting)
    largest = max(SMALLEST, largest // FINEST * FINEST)
    form = Product(device.torch, dtype, (FINEST,) * 3, device.place).format
    rows.wake(dtype)
    rows.plan(
        dtype,
        f"{form.call} {dtype}, accumulated {form.accumulate}; shapes to {largest}, both layouts, "
        f"multiples of {FINEST}; {form.data}; 2mnk FLOP; {device.timing}; medians; the best "
        f"{CONFIRMED} timed again, and the best of these also in variants; each shape verified",
        (largest, largest, largest),
        accumulate=form.accumulate,
        layout="B column-major" if form.column_major_only else "both",
        data=form.data,
    )
    search = Search(
        rows,
        dtype,
        largest,
        (True,) if form.column_major_only else (True, False),
    )
    for candidate in search.coarse():
        search.probe(candidate)
    search.climb()
    search.confirm()


class Search:
    """Search for the fastest shape: the candidates so far and their TFLOP/s."""

    def __init__(
        self, rows: Rows, dtype: str, largest: int, layouts: tuple[bool, ...]
    ) -> None:
        self.rows, self.dtype, self.largest, self.layouts = (
            rows,
            dtype,
            largest,
            layouts,
        )
        self.found: dict[Candidate, float] = {}
        self.tried: set[Candidate] = set()
        seconds = rows.run.request.seconds
        self._confirming = min(CONFIRMED * ROW_SECONDS, seconds / 4)
        self._probing = min(PROBE_SECONDS, seconds / PROBES)

    @property
    def over(self) -> bool:
        """True if only the time for the confirmation is left."""
        return self.rows.over or self.rows.left < self._confirming

    def best(self) -> Candidate | None:
        """Return the fastest candidate so far."""
        return (
            max(self.found, key=self.found.__getitem__) if self.found else None
        )

    def coarse(self) -> Iterator[Candidate]:
        """Yield squares of growing size, then rectangles near the best square."""
        n = SMALLEST
        while n <= self.largest:
            yield from cross([(n, n, n), (n + n // 2,) * 3], self.layouts)
            n *= 2
        best = self.best()
        if best is None:
            return
        (n, _, _), _ = best
        double, half = 2 * n, max(FINEST, n // 2)
        longer = (double, n, n), (n, double, n), (n, n, double)
        flatter = (n, n, half), (double, double, half), (half, half, double)
        yield from cross(longer + flatter, self.layouts)

    def climb(self) -> None:
        """Try the neighbours of the best shape. Halve the step when none of them is faster."""
        step = COARSEST
        while step >= FINEST and not self.over:
            before = self.best()
            if before is None:
                return
            shape, column_major = before
            for at in range(len(shape)):
                for change in (step, -step):
                    near = tuple(
                        side + change * (i == at)
                        for i, side in enumerate(shape)
                    )
                    self.probe(((near[0], near[1], near[2]), column_major))
            if self.best() == before:
                step //= 2

    def probe(self, candidate: Candidate) -> None:
        """Time a candidate briefly, unless it was tried before, does not fit or takes too long."""
        shape, _ = candidate
        if (
            min(shape) < FINEST
            or max(shape) > self.largest
            or candidate in self.tried
            or self.over
        ):
            return
        m, n, k = shape
        fastest = max(self.found.values(), default=0.0)
        is_long = fastest and 2 * m * n * k / fastest / 1e12 > LONG_SECONDS
        if not is_long and fits(
            self.rows.device, self.rows.run.request, self.dtype, shape
        ):
            self.tried.add(candidate)
            self._time(candidate, self._probing)

    def confirm(self) -> None:
        """Time the best shapes again, for longer. Only these measurements count."""
        rows, table = self.rows, self.rows.table
        ranked = sorted(self.found, key=self.found.__getitem__, reverse=True)[
            :CONFIRMED
        ]
        if rows.over or not ranked:
            return
        before = table.peak, table.shape
        table.peak, table.shape = 0.0, None
        rows.to_come = len(ranked) + WAYS
        for candidate in ranked:
            if rows.run.halt.is_set():
                break
            self._time(candidate, ROW_SECONDS, ", confirmed")
        if table.shape is None:  # all attempts failed
            table.peak, table.shape = before
        shape = "×".join(map(str, table.shape or ()))
        best = f"the best of {len(self.found)} shapes and layouts is {shape}"
        rows.run.notes.append(f"{best}: {table.peak:.4g} TFLOP/s")
        if not rows.run.halt.is_set():
            self._compare(max(ranked, key=self.found.__getitem__))

    def _compare(self, candidate: Candidate) -> None:
        """Time a shape with other libraries, sums and operands. These rows are not the result."""
        rows, (shape, column_major) = self.rows, candidate
        with rows.attempt(f"variants of {size_text(shape)}"):
            product, each = rows.open(self.dtype, shape, column_major)
            for way, change in other_ways(rows.device, product):
                with rows.attempt(f"{size_text(shape)} with {way}"):
                    change()
                    self._time_way(candidate, product, way, each)

    def _time_way(
        self, candidate: Candidate, product: Product, way: str, each: float
    ) -> None:
        run, (_, column_major) = self.rows.run, candidate
        product.keep_first()
        run.verified(product.judge(), 0)
        series = f"{_layout(column_major)}, {way}"
        tflops = self.rows.measure(
            series,
            product,
            each,
            counts=False,
        )
        if tflops is not None:
            change = 100 * (tflops / self.found[candidate] - 1)
            run.notes.append(
                f"that shape with {way}: {tflops:.4g} TFLOP/s, {change:+.1f} %"
            )

    def _time(
        self,
        candidate: Candidate,
        seconds: float,
        mark: str = "",
    ) -> None:
        rows, (shape, column_major) = self.rows, candidate
        with rows.attempt(f"{size_text(shape)}, {_layout(column_major)}"):
            product, each = rows.open(self.dtype, shape, column_major)
            tflops = rows.measure(
                f"{_layout(column_major)}{mark}", product, each, seconds
            )
            if tflops is not None:
                self.found[candidate] = tflops


def _layout(column_major: bool) -> str:
    return "B column-major" if column_major else "B row-major"


def other_ways(
    device: Any, product: Product
) -> list[tuple[str, Callable[[], None]]]:
    """Return variants of a product: the name of each, and a call that switches to it.

    On a GPU these are other libraries, or for float8 less exact sums. The last is a product of
    zeros, on every device.
    """
    cuda, form = device.place == "cuda", product.format
    ways: list[tuple[str, Callable[[], None]]] = []
    undo: Callable[[], object] = lambda: None  # noqa: E731
    if cuda and type(form) is Plain:
        choose = device.torch.backends.cuda.preferred_blas_library
        undo = partial(choose, choose())
        ways += [
            (name, partial(choose, name.lower()))
            for name in ("cuBLAS", "cuBLASLt")
        ]
    if cuda and type(form) is Scaled:
        undo = partial(setattr, form, "fast", False)
        ways.append(("fast accumulate", partial(setattr, form, "fast", True)))

    def zero() -> None:
        undo()
        for operand in (product.a, product.stored_b):
            operand.view(device.torch.uint8).zero_()

    return [*ways, ("zeros", zero)]
