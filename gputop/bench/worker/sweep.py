"""`sweep`: square products of every size, for each data type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import RunError, is_memory
from .product import bytes_needed, dtype_facts, fits, require
from .rows import LONG_SECONDS, Rows

if TYPE_CHECKING:
    from .main import Run

PARTS_FROM = 64
"""Size from which an octave has two sizes, 2^n and 1.5 · 2^n; below it has one."""
PRODUCTS = 4
"""Least products of a size: for the checks and the timing."""


def sizes(largest: int) -> list[int]:
    """Return log-spaced sizes from 1 to the largest, which is included."""
    found, n = [], 1
    while n <= largest:
        found.append(n)
        if n >= PARTS_FROM:
            found.append(n + n // 2)
        n *= 2
    return [*(n for n in found if n < largest), largest]


def sweep(device: Any, run: Run) -> None:
    """Measure each data type from its smallest size until products are too long or too large."""
    request = run.request
    names: list[str] = [each["name"] for each in request["dtypes"]]
    offered = [name for name in names if _has(device, run, name, alone=len(names) == 1)]
    if not offered:
        return
    rows = Rows(device, run, 0)
    planned = {name: _planned(rows, name) for name in offered}
    rows.to_come = sum(map(len, planned.values()))
    top = max(size for each in planned.values() for size in each)
    widest = max(offered, key=lambda name: bytes_needed(request, name, (top, top, top)))
    rows.wake(offered[0])
    rows.plan(
        ",".join(offered),
        (top, top, top),
        f"square products of {len(planned[widest])} sizes from {planned[widest][0]} to {top}, "
        f"{', '.join(offered)}; eager; {device.timing}; medians of blocks of some 10 ms; "
        "random normal data; 2mnk FLOP; each size verified",
        accumulate="by data type",
        layout="B column-major" if device.place == "cuda" else "A and B row-major",
        data="random normal",
    )
    for name in offered:
        _sweep(rows, name, planned[name])


def _planned(rows: Rows, name: str) -> list[int]:
    request = rows.run.request
    largest: int = request["size"] or dtype_facts(request, name)["fitting"]
    usable = (rows.usable(name, n) for n in sizes(largest))
    found = sorted({n for n in usable if n <= largest})
    if not found:
        least = rows.usable(name, 1)
        what = f"There are no {name} products of size {largest} or less"
        raise RunError("size", what, f"the smallest is {least}", f"Choose --size {least} or larger")
    return found


def _has(device: Any, run: Run, name: str, *, alone: bool) -> bool:
    try:
        require(device.torch, name, device.place)
    except RunError as refusal:
        if alone:
            raise
        run.notes.append(f"{name}: {refusal.fields['why']}")
        return False
    return True


def _sweep(rows: Rows, name: str, planned: list[int]) -> None:
    """Measure a data type in its share of the time, predicting each size from the one before.

    A prediction is a bound: where a product is short, launching is most of it.
    """
    request = rows.run.request
    others = rows.to_come - len(planned)
    keep = max(0.0, rows.left) * others / max(1, rows.to_come)
    last, seconds = planned[0], 0.0
    for at, n in enumerate(planned):
        predicted = seconds * (n / last) ** 3
        reason = None
        if rows.over or rows.left - keep < PRODUCTS * predicted:
            reason = "the time was up"
        elif request["size"] is None and predicted > LONG_SECONDS:
            reason = f"a product would take {predicted:.2g} s, more than {LONG_SECONDS:g} s"
        elif not fits(rows.device, request, name, (n, n, n)):
            reason = "it does not fit in what is free"
        if reason is not None:
            rows.to_come -= len(planned) - at
            if not rows.run.halt.is_set():
                rows.run.notes.append(f"{name}: no size from {n} on, {reason}")
            return
        try:
            product, each = rows.open(name, (n, n, n))
        except (MemoryError, RuntimeError) as error:
            if not is_memory(error):
                raise
            rows.run.notes.append(f"{name}: no size from {n} on, it does not fit after all")
            return
        timed = rows.time(product.multiply, rows.device.timed, each, flop=product.flop)
        if timed is None:
            return
        rows.run.known.update(rows.device.memories())
        rows.check(product)
        rows.send(name, n, timed, product)
        last, seconds = n, timed.seconds
        rows.to_come -= 1
