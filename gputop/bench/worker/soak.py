"""`soak`: products of one shape for a duration."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from .errors import computes_wrong, hangs, too_slow
from .product import Product, bytes_needed, dtype_facts, fits, out_of_memory, require
from .throughput import Pace, SoakTotals

if TYPE_CHECKING:
    from .main import Run

PRODUCT_SECONDS = 0.05
"""Longest product of a size that `auto` chooses."""
TRIAL_SECONDS = 0.4
"""Longest predicted product while choosing a size."""
LEAST_TRIALS = 4
"""Trials of a size: on cores that others use, a single one says little."""
COLD_SECONDS = 10.0
"""Time allowed for the first product in short runs too: kernels are loaded on the way."""
WARM_UP_SECONDS, TIMED_SECONDS = 0.2, 0.005
"""Seconds of the whole warm-up, and of products timed in one go: fewer are all jitter."""


def soak(device: Any, run: Run) -> None:
    """Prepare, then make products until the time is up."""
    product, pace = prepare(device, run)
    if not run.halt.is_set():
        measure(device, run, product, pace)


def choose_size(device: Any, run: Run) -> int:
    """Return the requested size, or the largest whose product takes at most `PRODUCT_SECONDS`.

    Found by growing: each step predicts the next (eight times the work for twice the size), so that
    none takes long, also where a data type is emulated. Where other processes hold the cores up,
    small products take far longer than their work: their prediction is not more than a bound.
    Raises `RefusedError` where not one product of the size asked for would end within the run.
    """
    request = run.request
    most: int = request["size"] or dtype_facts(request, request["dtype"])["largest"]
    chosen: int = min(device.smallest_size, most)
    n = larger = chosen
    seconds = 0.0
    while not run.halt.is_set() and seconds * (larger / n) ** 3 <= TRIAL_SECONDS:
        n, seconds = larger, _seconds_of_one(device, request["dtype"], larger)
        if seconds <= PRODUCT_SECONDS:
            chosen = n
        if n == most:
            break
        larger = min(2 * n, most)
    if request["size"] is None:
        return chosen
    expected = seconds * (most / n) ** 3
    if expected > request["seconds"]:
        raise too_slow(request, request["dtype"], f"about {expected:.3g}")
    return most


def _seconds_of_one(device: Any, dtype: str, n: int) -> float:
    product = Product(device.torch, dtype, (n, n, n), device.place)
    product.fill()
    product.multiply()  # loads the kernels, wakes the threads
    times: list[float] = []
    began = time.monotonic()
    while len(times) < LEAST_TRIALS or time.monotonic() - began < PRODUCT_SECONDS / 2:
        times.append(device.timed(product.multiply, 1))
    return min(times)


def prepare(device: Any, run: Run) -> tuple[Product, Pace]:
    """Make operands, check exact and first products, warm up and send the plan."""
    request, dtype = run.request, run.request["dtype"]
    require(device.torch, dtype, device.place)
    n = choose_size(device, run)
    shape = (n, n, n)
    if not fits(device, request, dtype, shape):
        raise out_of_memory(request, dtype, n, device.free_bytes())
    product = Product(device.torch, dtype, shape, device.place)
    run.totals = SoakTotals(product.flop)
    limit = max(request["seconds"], COLD_SECONDS)
    run.expect(limit, too_slow(request, dtype, f"more than {limit:g}"))
    run.totals.wrong += product.exact()
    run.preparing()
    run.totals.checks += 1
    product.fill()
    product.keep_first()
    run.totals.wrong += product.judge()
    if run.totals.wrong:
        raise computes_wrong()
    product.check_precision()
    product_seconds, products = warm_up(device, run, product)
    device.check(product)  # the first one is slower, and only the second one is counted
    wrong, check_seconds = device.check(product)
    pace = Pace(device, product_seconds, check_seconds)
    need = bytes_needed(request, dtype, shape)
    run.known.update(device.memories())
    run.planned(**describe(device, run.request, product, pace, products, need))
    run.verified(wrong, 0)
    return product, pace


def warm_up(device: Any, run: Run, product: Product) -> tuple[float, int]:
    """Return the median seconds of a product and how many were made."""
    began, made, times = time.monotonic(), 0, []
    products = 1
    while not run.halt.is_set():
        seconds = device.timed(product.multiply, products) / products
        times.append(seconds)
        made += products
        if seconds > run.request["seconds"]:
            raise too_slow(run.request, product.dtype, f"{seconds:.3g}")
        if time.monotonic() - began > WARM_UP_SECONDS:
            break
        products = max(1, min(100, int(TIMED_SECONDS / seconds))) if seconds > 0 else 1
    return statistics.median(times) if times else 0.0, made


def describe(
    device: Any, request: dict[str, Any], product: Product, pace: Pace, warmed_up: int, need: int
) -> dict[str, Any]:
    """Return the plan: everything needed to interpret the figures."""
    m, n, k = product.shape
    form = product.format
    threads = f"; {device.torch.get_num_threads()} threads" if device.place == "cpu" else ""
    method = (
        f"{form.call} {m} x {n} x {k} {product.dtype}, accumulated {form.accumulate}; "
        f"{product.layout}; {form.data}; 2mnk FLOP; {device.timing}; "
        f"batches of about {pace.batch}, {pace.most_in_flight} in flight; "
        f"checks in at most {device.share_of_checks:.0%} of the time; "
        f"{warmed_up} warm-up products{threads}"
    )
    return {
        "m": m,
        "n": n,
        "k": k,
        "dtype": product.dtype,
        "accumulate": form.accumulate,
        "layout": product.layout,
        "data": form.data,
        "warmup_products": warmed_up,
        "products_per_batch": pace.batch,
        "need_bytes": need,
        "largest_size": dtype_facts(request, product.dtype)["fitting"],
        "expected_seconds": request["seconds"],
        "relative_error": product.relative_error,
        "method": method,
        "product_seconds": pace.product_seconds,
        "patience_seconds": pace.patience,
    }


def measure(device: Any, run: Run, product: Product, pace: Pace) -> None:
    """Run batches until the time is up or the run is halted, and send a sample per window."""
    assert isinstance(run.totals, SoakTotals)
    totals, wanted = run.totals, run.request["seconds"]
    expected = pace.batch * pace.product_seconds
    hang = hangs(device.place, "a batch", expected, pace.patience)
    run.expect(pace.patience, hang)
    previous = checked = time.perf_counter()
    last_is_checked = False
    while not run.halt.is_set():
        while (
            device.in_flight < pace.most_in_flight
            and totals.seconds + device.in_flight * pace.batch * pace.product_seconds < wanted
        ):
            due = time.perf_counter() - checked >= pace.check_interval
            device.launch(product, pace.batch, check=due)
            checked = time.perf_counter() if due else checked
        ended = device.poll()
        if ended is None:
            if device.in_flight == 0:
                break
            continue
        run.expect(pace.patience, hang)
        # On a GPU a batch was launched while the one before it ran.
        seconds = ended.ended - max(ended.began, previous)
        previous = ended.ended
        sample = totals.add(ended.products, seconds, ended.device_seconds)
        pace.update(ended)
        if sample is not None:
            run.send("sample", **sample)
        last_is_checked = ended.wrong is not None
        if ended.wrong is not None:
            run.verified(ended.wrong, 1)
    if totals.iterations and not last_is_checked:
        run.verified(device.check(product)[0], 1)
    if not run.halt.is_set():  # once more with a known answer, now that the device is hot
        run.expect(pace.patience, hang)
        run.verified(product.exact(), 0)
