"""`latency`: small products, and the cost of launching, synchronising and fetching."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from .product import Product, require
from .rows import Rows
from .throughput import MOST_PRODUCTS

if TYPE_CHECKING:
    from .main import Run

SIZES = (5, 100, 1000)
IN_A_GRAPH = 100
"""Products in one CUDA graph."""
MEASURABLE = 1.02
"""Ratio below which two rows differ by noise only."""
QUEUED = 500
"""Launches at once without waiting. The queue holds about 1000, and then a launch waits."""
EAGER, LAUNCH, GRAPH = "eager", "launch alone", "CUDA graph"
SYNCHRONISED = "synchronised each time"
NORM_LAST, NORM_EACH = "norm fetched at the end", "norm fetched each step"


def latency(device: Any, run: Run) -> None:
    """Measure a row for each size and each way to run the same products."""
    dtype: str = run.request["dtype"]
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
        need_bytes=rows.need(dtype, shapes[-1]),
    )
    if not cuda:
        run.notes.append(f"{GRAPH}: absent, a CPU has none")
        run.notes.append(f"{SYNCHRONISED}: absent, a product has ended when a CPU's call returns")
    for shape in shapes:
        if rows.over:
            rows.note_time_up()
            break
        _size(rows, dtype, shape)
    run.known.update(device.memories())


class Variant(NamedTuple):
    """One way to make the same products. A call of `work` makes `products` of them."""

    series: str
    work: Callable[[int], None]
    clock: Callable[[Callable[[int], None], int], float]
    products: int = 1
    most: int = MOST_PRODUCTS
    waits: bool = True
    """False for a clock that stops before the products are made."""


def _size(rows: Rows, dtype: str, shape: tuple[int, int, int]) -> None:
    """Measure the rows of one size."""
    product, each = rows.open(dtype, shape)
    found: dict[str, float] = {}
    for way in _ways(rows.device, product):
        flop = product.flop * way.products * way.waits
        timed = rows.time(way.work, way.clock, each * way.products, flop=flop, most=way.most)
        if timed is None:
            return
        timed = timed.divided_by(way.products)
        found[way.series] = timed.seconds
        rows.check(product)
        if way.waits:
            rows.send(way.series, product.n, timed, product)
        else:
            rows.point(way.series, product.n, timed, {}, product.shape)
        rows.to_come -= 1
    rows.run.notes.extend(_words(product.n, found))


def _ways(device: Any, product: Product) -> list[Variant]:
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

    ways = [Variant(EAGER, product.multiply, device.wall)]
    if device.place == "cuda":
        replay = _replay(_graph(torch, product))
        ways += [
            Variant(LAUNCH, product.multiply, _launched(device), most=QUEUED, waits=False),
            Variant(GRAPH, replay, device.wall, products=IN_A_GRAPH),
            Variant(SYNCHRONISED, synchronised, device.wall),
        ]
    if c.is_floating_point():
        ways.append(Variant(NORM_LAST, fetched_last, device.wall))
        ways.append(Variant(NORM_EACH, fetched_each, device.wall))
    return ways


def _launched(device: Any) -> Callable[[Callable[[int], None], int], float]:
    """Return a clock that stops without waiting for the launched work."""

    def clock(work: Callable[[int], None], times: int) -> float:
        device.synchronize()
        began = time.perf_counter()
        work(times)
        seconds = time.perf_counter() - began
        device.synchronize()
        return seconds

    return clock


def _replay(graph: Any) -> Callable[[int], None]:
    def work(times: int) -> None:
        for _ in repeat(None, times):
            graph.replay()

    return work


def _graph(torch: Any, product: Product) -> Any:
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        product.multiply()  # what is made at the first call cannot be captured
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        product.multiply(IN_A_GRAPH)
    return graph


def _words(n: int, found: dict[str, float]) -> list[str]:
    """Return the findings of one size as a note."""
    if EAGER not in found:
        return []
    eager = found[EAGER]
    said = [f"{n} x {n}: a product takes {_micro(eager)}"]
    if GRAPH in found:
        in_graph = _micro(found[GRAPH])
        said.append(
            f"{in_graph} in a CUDA graph, so that launching costs {_added(found[GRAPH], eager)}"
        )
    if LAUNCH in found:
        said.append(
            f"launching alone returns after {_micro(found[LAUNCH])}, which is no running time"
        )
    if SYNCHRONISED in found:
        said.append(f"synchronising each time adds {_added(eager, found[SYNCHRONISED])}")
    if NORM_EACH in found and NORM_LAST in found:
        added = _added(found[NORM_LAST], found[NORM_EACH])
        said.append(f"fetching a norm each step, not once at the end, adds {added}")
    return ["; ".join(said)]


def _added(before: float, after: float) -> str:
    return _micro(after - before) if after > MEASURABLE * before else "nothing measurable"


def _micro(seconds: float) -> str:
    micro = abs(seconds) < 0.9995e-3  # 999.9 in three digits would be 1e+03
    return f"{seconds * 1e6:.3g} µs" if micro else f"{seconds * 1e3:.3g} ms"
