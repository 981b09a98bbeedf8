"""`soak`: products of one shape for a duration."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .checksums import COLUMNS, OTHER_BITS, Checksums
from .errors import RunError, hangs, too_slow
from .product import Product, dtype_facts, fits, out_of_memory, require
from .rows import COLD_SECONDS
from .throughput import WINDOW_SECONDS, EndedBatch, Pace, SoakTotals, products_in

if TYPE_CHECKING:
    from .main import Run

PRODUCT_SECONDS = 0.05
"""Longest product of a size that `auto` chooses."""
TRIAL_SECONDS = 0.4
"""Longest predicted product while choosing a size."""
LEAST_TRIALS = 4
"""Trials of a size: on cores that others use, a single one says little."""
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
    Raise `RunError` if not one product of the size asked for would end within the run.
    """
    request = run.request
    most: int = request["size"] or dtype_facts(request, request["dtype"])["largest"]
    chosen: int = min(device.smallest_size, most)
    n = larger = chosen
    seconds = 0.0
    while not run.halt.is_set() and seconds * (larger / n) ** 3 <= TRIAL_SECONDS:
        n, seconds = larger, _seconds_of_one(device, request["dtype"], larger)
        if seconds <= PRODUCT_SECONDS / fineness(request):
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


def fineness(request: dict[str, Any]) -> float:
    """Return how much shorter products and batches are than usual, for pulses of the load."""
    return max(1.0, request["hertz"] or 0.0)


def _seconds_of_one(device: Any, dtype: str, n: int) -> float:
    product = Product(device.torch, dtype, (n, n, n), device.place)
    product.fill()
    product.multiply()  # loads the kernels, wakes the threads
    times: list[float] = []
    began = time.monotonic()
    while len(times) < LEAST_TRIALS or time.monotonic() - began < PRODUCT_SECONDS / 2:
        times.append(device.timed(product.multiply, 1))
    return min(times)


def prepare(
    device: Any, run: Run, arrange: Callable[[Product], Product] = lambda product: product
) -> tuple[Product, Pace]:
    """Make operands, check exact and first products, arrange them, warm up and send the plan."""
    request, dtype = run.request, run.request["dtype"]
    require(device.torch, dtype, device.place)
    n = choose_size(device, run)
    if not fits(device, request, dtype, (n, n, n)):
        raise out_of_memory(request, dtype, n, device.free_bytes())
    product = Product(device.torch, dtype, (n, n, n), device.place)
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
        why = "the first products are not what they have to be"
        remedy = "Do not train on it; run the test again to be sure"
        raise RunError("wrong", "The device computes wrong results", why, remedy)
    product.check_precision()
    product = arrange(product)
    if request["verify_all"]:
        product.sums = Checksums(product)
    product_seconds, products = warm_up(device, run, product)
    device.check(product)  # the first one is slower, and only the second one is counted
    wrong, check_seconds = device.check(product)
    pace = Pace(device, product_seconds, check_seconds)
    pace.batch_seconds /= fineness(request)
    run.known.update(device.memories())
    send_plan(device, run, product, pace, products)
    run.verified(wrong, 0)
    return product, pace


def warm_up(device: Any, run: Run, product: Product) -> tuple[float, int]:
    """Return the median seconds of a product and how many were made."""
    began, made, times = time.monotonic(), 0, []
    products = 1
    while not run.halt.is_set():
        seconds = device.timed(product.work, products) / products
        times.append(seconds)
        made += products
        if seconds > run.request["seconds"]:
            raise too_slow(run.request, product.dtype, f"{seconds:.3g}")
        if time.monotonic() - began > WARM_UP_SECONDS:
            break
        products = min(100, products_in(TIMED_SECONDS, seconds))
    return statistics.median(times) if times else 0.0, made


def send_plan(device: Any, run: Run, product: Product, pace: Pace, warmed_up: int) -> None:
    """Send the plan: everything needed to interpret the figures."""
    (m, n, k), hertz, form = product.shape, run.request["hertz"], product.format
    threads = f"; {device.torch.get_num_threads()} threads" if device.place == "cpu" else ""
    method = (
        f"{form.call} {m} x {n} x {k} {product.dtype}, accumulated {form.accumulate}; "
        f"{product.layout}; {form.data}; 2mnk FLOP; {device.timing}; "
        f"batches of about {pace.batch}, {pace.most_in_flight} in flight; "
        f"checks in at most {device.share_of_checks:.0%} of the time; "
        f"{f'each product verified by sums of {COLUMNS} columns; ' if product.sums else ''}"
        f"{warmed_up} warm-up products{threads}"
    )
    run.planned(
        product.shape,
        dtype=product.dtype,
        accumulate=form.accumulate,
        layout=product.layout,
        data=form.data + (f" in pulses of {hertz:g} Hz" if hertz else ""),
        expected_seconds=run.request["seconds"],
        relative_error=product.relative_error,
        method=method,
        patience_seconds=pace.patience,
    )


def measure(device: Any, run: Run, product: Product, pace: Pace) -> None:
    """Run batches until the time is up or the run is halted, and send a sample per window."""
    assert isinstance(run.totals, SoakTotals)
    totals, wanted = run.totals, run.request["seconds"]
    hang = hangs(device.place, "a batch", pace.expected, pace.patience)
    run.expect(pace.patience, hang)
    previous = checked = time.perf_counter()
    last_is_checked = False
    while not run.halt.is_set():
        while (
            device.in_flight < pace.most_in_flight
            and totals.seconds + device.in_flight * pace.expected < wanted
            and not pace.pause((device.in_flight + 1) * pace.expected)
        ):
            due = time.perf_counter() - checked >= pace.check_interval
            device.launch(product, pace.batch, check=due)
            checked = time.perf_counter() if due else checked
        ended = device.poll()
        if ended is None and device.in_flight == 0:
            if totals.seconds >= wanted:
                break
            ended = rest(run, pace.pause(pace.expected))
        if ended is None:
            continue
        run.expect(pace.patience, hang)
        # On a GPU a batch was launched while the one before it ran.
        seconds = ended.ended - (previous if totals.pulsed else max(ended.began, previous))
        previous = ended.ended
        sample = totals.add(ended.products, seconds, ended.device_seconds)
        pace.update(ended)
        if sample is not None:
            run.send("sample", **sample)
        last_is_checked = ended.wrong is not None or (last_is_checked and not ended.products)
        count_checks(run, product, ended)
    if totals.iterations and not last_is_checked:
        run.verified(device.check(product)[0], 0 if product.sums else 1)
    if not run.halt.is_set():  # once more with a known answer, now that the device is hot
        run.expect(pace.patience, hang)
        run.verified(product.exact(), 0)


def count_checks(run: Run, product: Product, ended: EndedBatch) -> None:
    """Count the verified products of a batch; repeat the product if its sums were wrong."""
    if ended.wrong is not None:
        run.verified(ended.wrong, 0 if product.sums else 1)
    if not product.sums:
        return
    found, known = ended.mismatches, run.totals.mismatches
    if found.products:
        kind = product.sums.repeat()
        known[kind] = known.get(kind, 0) + found.products
    if found.other_bits:
        known[OTHER_BITS] = known.get(OTHER_BITS, 0) + found.other_bits
    run.verified(found.elements, ended.products)


def rest(run: Run, seconds: float) -> EndedBatch:
    """Wait for so long, at most a part of a window, and return that as a batch of no products."""
    began = time.perf_counter()
    run.halt.wait(min(seconds, WINDOW_SECONDS / 4))
    return EndedBatch(0, began, time.perf_counter(), 0.0)
