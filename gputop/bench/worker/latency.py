"""`latency`: small products, and the cost of launching, synchronising and fetching."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from .product import Product, require
from .rows import LEAST_SECONDS, SHORT_SECONDS, Clock, Rows, Work, size_text
from .throughput import MOST_PRODUCTS, products_in

if TYPE_CHECKING:
    from .main import WorkerRun

SIZES = (5, 100, 1000)
IN_A_GRAPH, GRAPH_SECONDS = 100, 0.05
"""Most products and most seconds of a graph. A running graph cannot be stopped."""
CALLS = 4
"""Least calls of a row."""
NO_TIME = "absent, the time was too short: give more --seconds"
MEASURABLE = 1.02
"""Ratio of two rows below which their difference is noise."""
QUEUED = 500
"""Launches without waiting. The queue holds about 1000, and a launch into a full queue blocks."""
EAGER, LAUNCH, GRAPH = "eager", "launch alone", "CUDA graph"
SYNCHRONISED = "synchronised each time"
NORM_LAST, NORM_EACH = "norm fetched at the end", "norm fetched each step"


def latency(device: Any, run: WorkerRun) -> None:
    """Measure a row per size and variant."""
    dtype: str = run.request.dtype
    require(device.torch, dtype, device.place)
    cuda = device.place == "cuda"
    rows = Rows(device, run, (6 if cuda else 3) * len(SIZES))
    shapes = [(n, n, n) for n in (rows.usable(dtype, size) for size in SIZES)]
    rows.wake(dtype)
    first = Product(device.torch, dtype, shapes[0], device.place)
    rows.plan(
        dtype,
        shapes[-1],
        f"{first.format.call} {dtype}, one after the other from Python; wall time from the first "
        "launch to the end of the last; medians of blocks of some 10 ms; random normal data",
        accumulate=first.format.accumulate,
        layout=first.layout,
        data=first.format.data,
    )
    if not cuda:
        ended = "a product has ended when a CPU's call returns"
        run.notes += [
            f"{GRAPH}: absent, a CPU has none",
            f"{SYNCHRONISED}: absent, {ended}",
        ]
    seconds = 0.0
    for before, shape in zip([shapes[0], *shapes], shapes):  # noqa: B905 - Python 3.9
        if rows.end_early():
            break
        # This is an upper bound: launching takes most of the time of a short
        # product.
        seconds *= (shape[0] / before[0]) ** 3
        if seconds > rows.left:
            rows.skip(size_text(shape), NO_TIME)
            break
        with rows.attempt(size_text(shape)):
            seconds = _size(rows, dtype, shape)


class Variant(NamedTuple):
    """One way to make the same products. Each call of the work makes `products` products."""

    series: str
    prepare: Callable[[], Work]
    """Returns the work. It may make a CUDA graph first."""
    clock: Clock
    products: int = 1
    most: int = MOST_PRODUCTS
    waits: bool = True
    """False if the clock stops before the products are finished."""


def _size(
    rows: Rows,
    dtype: str,
    shape: tuple[int, int, int],
) -> float:
    """Measure all variants of a size, and return the seconds of a product, or 0 if unknown."""
    product, each = rows.open(dtype, shape)
    found: dict[str, float] = {}
    for way in _ways(rows.device, product, each):
        if rows.run.halt.is_set():
            break
        name = f"{way.series} of {size_text(shape)}"
        one = found.get(EAGER, each)  # more accurate than the first product
        if CALLS * one * way.products > max(rows.left, LEAST_SECONDS):
            rows.skip(name, NO_TIME)
            continue
        with rows.attempt(name):
            _row(rows, product, way, each, found)
    rows.run.notes.extend(_words(product.n, found))
    return found.get(EAGER, 0.0)


def _row(
    rows: Rows,
    product: Product,
    way: Variant,
    each: float,
    found: dict[str, float],
) -> None:
    rows.expect("preparing a row", SHORT_SECONDS)
    work = way.prepare()
    flop = product.flop * way.products * way.waits
    timed = rows.time(
        work,
        way.clock,
        each * way.products,
        flop=flop,
        most=way.most,
    )
    if timed is None:
        return
    timed.seconds /= way.products
    found[way.series] = timed.seconds
    rows.check(product)
    # The rows have times only: TFLOP/s of small products say nothing.
    rows.add(way.series, product.n, timed.values, product.shape)


def _ways(
    device: Any,
    product: Product,
    each: float,
) -> list[Variant]:
    torch, norm = device.torch, device.torch.linalg.vector_norm
    once, c = product.format.single_product(product), product.c

    def synchronised(times: int) -> None:
        for _ in repeat(None, times):
            once()
            device.synchronize()

    def fetched_last(times: int) -> None:
        for _ in repeat(None, times):
            once()
            last = norm(c)
        last.item()

    def fetched_each(times: int) -> None:
        for _ in repeat(None, times):
            once()
            norm(c).item()

    ways = [Variant(EAGER, lambda: product.multiply, device.wall)]
    if device.place == "cuda":
        captured = max(2, min(IN_A_GRAPH, products_in(GRAPH_SECONDS, each)))
        replay = partial(_replay, torch, product, captured)
        launched = partial(_launched, device)
        ways += [
            Variant(
                LAUNCH,
                lambda: product.multiply,
                launched,
                most=QUEUED,
                waits=False,
            ),
            Variant(
                GRAPH,
                replay,
                device.wall,
                products=captured,
            ),
            Variant(SYNCHRONISED, lambda: synchronised, device.wall),
        ]
    if c.is_floating_point():
        ways.append(Variant(NORM_LAST, lambda: fetched_last, device.wall))
        ways.append(Variant(NORM_EACH, lambda: fetched_each, device.wall))
    return ways


def _launched(
    device: Any,
    work: Work,
    times: int,
) -> float:
    device.synchronize()
    began = time.perf_counter()
    work(times)
    seconds = time.perf_counter() - began
    device.synchronize()
    return seconds


def _replay(
    torch: Any,
    product: Product,
    captured: int,
) -> Work:
    """Capture a CUDA graph of `captured` products, and return the work that replays it."""
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        product.multiply()  # the first call allocates, so it can't be captured
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        product.multiply(captured)

    def work(times: int) -> None:
        for _ in repeat(None, times):
            graph.replay()

    return work


def _words(n: int, found: dict[str, float]) -> list[str]:
    if EAGER not in found:
        return []
    eager = found[EAGER]
    said = [f"{n}×{n}: a product takes {_micro(eager)}"]
    if graph := found.get(GRAPH):
        cost = _added(graph, eager)
        said.append(
            f"{_micro(graph)} in a CUDA graph, so that launching costs {cost}"
        )
    if launch := found.get(LAUNCH):
        said.append(
            f"launching alone returns after {_micro(launch)}, which is not its running time"
        )
    if SYNCHRONISED in found:
        said.append(
            f"synchronising each time adds {_added(eager, found[SYNCHRONISED])}"
        )
    if NORM_EACH in found and NORM_LAST in found:
        added = _added(found[NORM_LAST], found[NORM_EACH])
        said.append(
            f"fetching a norm each step, not once at the end, adds {added}"
        )
    return ["; ".join(said)]


def _added(before: float, after: float) -> str:
    if after <= MEASURABLE * before:
        return "nothing measurable"
    return _micro(after - before)


def _micro(seconds: float) -> str:
    if abs(seconds) < 0.9995e-3:  # 999.9 in three digits would be 1e+03
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1e3:.3g} ms"
