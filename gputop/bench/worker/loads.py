"""Loads over time: `soak` makes products of one shape, `pulse` makes them in a square wave."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from .checksums import COLUMNS, Checksums
from .errors import RunError, too_slow
from .product import (
    OTHER_BITS,
    Product,
    bytes_needed,
    dtype_facts,
    fits,
    out_of_memory,
    require,
    room_beside,
)
from .throughput import (
    SLOWER,
    WINDOW_SECONDS,
    EndedBatch,
    Pace,
    SoakTotals,
    products_in,
    threads_text,
)

if TYPE_CHECKING:
    from .main import WorkerRun
    from .request import WorkerRequest

PRODUCT_SECONDS = 0.05
"""Longest product of a size that `auto` chooses."""
TRIAL_SECONDS = 0.4
"""Longest predicted product while choosing a size."""
LEAST_TRIALS = 4
"""Trials per size. A single trial is not reliable on a busy CPU."""
ITS_TYPE_FROM = 1024
"""Size from which every library computes in the data type. Smaller products may be more exact."""
WARM_UP_SECONDS, TIMED_SECONDS = 0.2, 0.005
"""Seconds of the whole warm-up, and of the products timed together to average out jitter."""


def soak(device: Any, run: WorkerRun) -> None:
    """Prepare, then make products until the time is up."""
    product, pace = prepare(device, run)
    if not run.halt.is_set():
        measure(device, run, product, pace)


def choose_size(device: Any, run: WorkerRun) -> int:
    """Return the requested size, or the largest whose product takes at most `PRODUCT_SECONDS`.

    The size grows in steps. Each step predicts the next one (eight times the work for twice the
    size), so that no step takes long, even with an emulated data type. The prediction is only an
    upper bound, because launching or other processes may slow small products down. Raise
    `RunError` if a product of the requested size would take longer than the run.
    """
    request = run.request
    most: int = request.size or dtype_facts(request, request.dtype).largest
    chosen: int = min(device.smallest_size, most)
    n = larger = chosen
    seconds = 0.0
    while (
        not run.halt.is_set() and seconds * (larger / n) ** 3 <= TRIAL_SECONDS
    ):
        n, seconds = larger, _seconds_of_one(device, request.dtype, larger)
        if seconds <= PRODUCT_SECONDS / fineness(request):
            chosen = n
        if n == most:
            break
        larger = min(2 * n, most)
    if request.size is None:
        return chosen
    expected = seconds * (most / n) ** 3
    if expected > request.seconds:
        raise too_slow(request, request.dtype, f"about {expected:.3g}")
    return most


def fineness(request: WorkerRequest) -> float:
    """Return the factor by which pulses need shorter products and batches."""
    return max(1.0, request.hertz)


def _seconds_of_one(
    device: Any,
    dtype: str,
    n: int,
) -> float:
    product = Product(device.torch, dtype, (n, n, n), device.place)
    product.fill()
    product.multiply()  # loads the kernels, wakes the threads
    times: list[float] = []
    began = time.monotonic()
    while (
        len(times) < LEAST_TRIALS
        or time.monotonic() - began < PRODUCT_SECONDS / 2
    ):
        times.append(device.timed(product.multiply, 1))
    return min(times)


def prepare(
    device: Any,
    run: WorkerRun,
    arrange: Callable[[Product], Product] = lambda product: product,
) -> tuple[Product, Pace]:
    """Make and check the first products, arrange the operands, warm up and send the plan."""
    request, dtype = run.request, run.request.dtype
    require(device.torch, dtype, device.place)
    n = choose_size(device, run)
    if not fits(device, request, dtype, (n, n, n)):
        raise out_of_memory(request, dtype, n, device.free_bytes())
    product = Product(device.torch, dtype, (n, n, n), device.place)
    run.totals = SoakTotals(product.flop)
    run.totals.wrong += product.exact()
    run.working()
    run.totals.checks += 1
    product.fill()
    product.keep_first()
    run.working()
    run.totals.wrong += product.judge()
    if run.totals.wrong:
        why = "the first products differ from the expected results"
        remedy = "Do not train on it; run the test again to be sure"
        raise RunError(
            "wrong", "The device computes wrong results", why, remedy
        )
    label = product.check_precision()
    if label and n >= ITS_TYPE_FROM:
        raise product.not_its_type()
    if label:
        run.notes.append(f"products of this size are {label}")
    needed = bytes_needed(request, dtype, product.shape)
    if (
        device.most_in_flight > 1
        and room_beside(needed, device, request) > product.c.nbytes
    ):
        # The spare C holds a product from the start, because after a stop it
        # may be compared before it is written.
        product.spare = product.c.clone()
    product = arrange(product)
    if request.verify_all:
        product.sums = Checksums(product)
    product_seconds, products = warm_up(device, run, product)
    # The first check is slower, so only the second check is timed.
    device.check(product)
    wrong, check_seconds = device.check(product)
    pace = Pace(device, product_seconds, check_seconds)
    pace.batch_seconds /= fineness(request)
    pace.has_spare = product.spare is not None
    run.halt.wait(device.rest_seconds)
    send_plan(device, run, product, pace, products)
    run.verified(wrong, 0)
    return product, pace


def warm_up(
    device: Any,
    run: WorkerRun,
    product: Product,
) -> tuple[float, int]:
    """Return the median seconds of a product and how many were made."""
    began, made, times = time.monotonic(), 0, []
    products = 1
    while not run.halt.is_set():
        seconds = device.timed(product.work, products) / products
        run.working()
        times.append(seconds)
        made += products
        if seconds > run.request.seconds:
            raise too_slow(run.request, product.dtype, f"{seconds:.3g}")
        if time.monotonic() - began > WARM_UP_SECONDS:
            break
        products = min(100, products_in(TIMED_SECONDS, seconds))
    return statistics.median(times) if times else 0.0, made


def send_plan(
    device: Any, run: WorkerRun, product: Product, pace: Pace, warmed_up: int
) -> None:
    """Send the plan: everything needed to interpret the figures."""
    (m, n, k), hertz, form = product.shape, run.request.hertz, product.format
    method = (
        f"{form.call} {m}×{n}×{k} {product.dtype}, accumulated {form.accumulate}; "
        f"{product.layout}; {form.data}; 2mnk FLOP; {device.timing}; "
        f"batches of about {pace.batch}, {pace.most_in_flight} in flight; "
        f"checks in at most {device.share_of_checks:.0%} of the time; "
        f"{f'each product verified by sums of {COLUMNS} columns; ' if product.sums else ''}"
        f"{warmed_up} warm-up products{threads_text(device)}"
    )
    run.planned(
        product.shape,
        dtype=product.dtype,
        accumulate=form.accumulate,
        layout=product.layout,
        data=form.data + (f" in pulses of {hertz:g} Hz" if hertz else ""),
        relative_error=product.relative_error,
        method=method,
    )


def measure(
    device: Any,
    run: WorkerRun,
    product: Product,
    pace: Pace,
) -> None:
    """Run batches until the time is up or the run is halted, and send a sample per window."""
    assert isinstance(run.totals, SoakTotals)
    totals, wanted = run.totals, run.request.seconds
    device.mismatches = totals.mismatches
    run.working(SLOWER * (pace.expected + pace.check_seconds))
    previous = checked = time.perf_counter()
    last_is_checked = False
    while not run.halt.is_set():
        while (
            device.in_flight < pace.most_in_flight
            and totals.seconds + device.in_flight * pace.expected < wanted
            and not pace.pause((device.in_flight + 1) * pace.expected)
        ):
            due = time.perf_counter() - checked >= pace.check_interval
            device.launch(product, pace.batch_at(totals.seconds), check=due)
            checked = time.perf_counter() if due else checked
        ended = device.poll()
        if ended is None and device.in_flight == 0:
            if totals.seconds >= wanted:
                break
            ended = rest(run, pace.pause(pace.expected))
        if ended is None:
            continue
        if not totals.pulsed:
            # A GPU batch starts when the batch before it ends, which may be
            # after its launch.
            previous = max(ended.began, previous)
        seconds = ended.ended - previous
        previous = ended.ended
        sample = totals.add(ended.products, seconds, ended.device_seconds)
        pace.update(ended)
        if sample is not None:
            run.send(sample)
        last_is_checked = ended.wrong is not None or (
            last_is_checked and not ended.products
        )
        count_checks(run, product, ended)
    if totals.iterations and not last_is_checked:
        run.verified(device.check(product)[0], 0 if product.sums else 1)
    if not run.halt.is_set():  # check the known answer again on the hot device
        run.verified(product.exact(), 0)


def count_checks(
    run: WorkerRun,
    product: Product,
    ended: EndedBatch,
) -> None:
    """Count the verified products of a batch; repeat the product if its sums were wrong."""
    if ended.wrong is not None:
        run.verified(ended.wrong, 0 if product.sums else 1)
    if not product.sums:
        return
    found, known = ended.mismatches, run.totals.mismatches
    if found.products:
        kind = product.sums.repeat()
        known[kind] += found.products
    if found.other_bits:
        known[OTHER_BITS] += found.other_bits
    run.verified(found.elements, ended.products)


def rest(run: WorkerRun, seconds: float) -> EndedBatch:
    """Wait for `seconds`, at most a part of a window, and return a batch without products."""
    began = time.perf_counter()
    run.halt.wait(min(seconds, WINDOW_SECONDS / 4))
    return EndedBatch(0, began, time.perf_counter(), 0.0)


def pause(hertz: float, work: float) -> float:
    """Return the seconds until work of `work` seconds may begin and end within the load phase.

    The load phase is the first half of each period of the system clock. So all devices of a host
    are in phase, and also hosts with synchronised clocks. Work that is longer than the load phase
    begins with it.
    """
    phase = time.time() * hertz % 1.0
    return (
        0.0
        if 0.5 - phase >= min(work * hertz, 0.45)
        else (1.0 - phase) / hertz
    )


def pulse(device: Any, run: WorkerRun) -> None:
    """Prepare, then make products in the first half of each period until the time is up."""
    hertz = run.request.hertz
    product, pace = prepare(device, run)
    if pace.product_seconds * hertz > 0.25:  # half of the load phase
        why = f"a product takes {pace.product_seconds:.3g} s, and the load {0.5 / hertz:.3g} s"
        what, remedy = (
            "The products are too long for these pulses",
            "Choose a smaller --size",
        )
        raise RunError(
            "too_slow", what, why, f"{remedy}, or a lower --frequency"
        )
    if device.place == "cuda":
        run.notes.append(
            "power is read once a second, and most GPUs since Ampere report its mean over 1 s "
            "(not A100 and A30): pulses faster than 0.5 Hz look flat in it"
        )
    totals = run.totals
    assert isinstance(totals, SoakTotals)
    totals.pulsed = True
    pace.pause = partial(pause, hertz)
    measure(device, run, product, pace)
    seconds, products, busy = totals.now
    if products:
        loaded = f"loaded for {100 * busy / seconds:.3g} % of the time, at {hertz:g} Hz"
        run.notes.append(
            f"{loaded}, with {totals.rate(products, busy):.4g} TFLOP/s while loaded"
        )
