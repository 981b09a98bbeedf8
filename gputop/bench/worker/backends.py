"""Devices that run products: the CPU, and a GPU through CUDA."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .errors import RunError, no_context
from .host_memory import available_bytes
from .throughput import (
    COLD_WINDOW_SECONDS,
    FIRST_WINDOW_SECONDS,
    EndedBatch,
    Mismatches,
)

if TYPE_CHECKING:
    from .product import Product
    from .request import WorkerRequest


PARTS = 8
"""Parts of a batch on a CPU. A stop is noticed between them."""


class Backend:
    """Common base of all devices."""

    timed: Callable[..., float]
    compare: Callable[[Product], Any]
    synchronize: Callable[[], None]
    uses_host_memory: bool

    def __init__(self) -> None:
        self._queue: deque[Any] = deque()
        self.mismatches: Counter[str] = Counter()
        """Number of products that differ from the first one, by the outcome of repeating them."""

    @property
    def in_flight(self) -> int:
        """Batches that were launched and not polled yet."""
        return len(self._queue)

    def check(self, product: Product) -> tuple[int, float]:
        """Return the wrong elements of C and the seconds of the check; wait for the device."""
        found: list[Any] = []
        seconds = self.timed(lambda _: found.append(self.compare(product)), 1)
        return int(found[0]) and self.judge(product, product.c), seconds

    def judge(self, product: Product, c: Any) -> int:
        """Return the wrong elements of a C that differs from the first one, and count the C."""
        wrong, kind = product.explain(c)
        if not product.sums:  # checksums already count mismatches
            self.mismatches[kind] += 1
        return wrong

    def wall(self, work: Callable[[int], None], times: int) -> float:
        """Return the seconds from before the first launch until all work has ended."""
        self.synchronize()
        began = time.perf_counter()
        work(times)
        self.synchronize()
        return time.perf_counter() - began


class Cpu(Backend):
    """A CPU, which runs each batch before `launch` returns."""

    uses_host_memory = True

    most_in_flight = 1
    smallest_size = 64
    timing = "wall time"
    share_of_checks, least_interval = 0.1, 1.0
    first_window = FIRST_WINDOW_SECONDS
    rest_seconds = 0.0

    def __init__(self, torch: Any, halt: threading.Event) -> None:
        self.torch, self.place, self._halt = torch, "cpu", halt
        # This also stops MKL from changing its number of threads, and with it
        # the order of summation.
        torch.set_num_threads(torch.get_num_threads())
        super().__init__()

    def launch(
        self,
        product: Product,
        products: int,
        *,
        check: bool,
    ) -> None:
        """Make that many products, fewer if the run is halted, then check the last one."""
        done, began = 0, time.perf_counter()
        part = max(1, products // PARTS)
        while done < products and not self._halt.is_set():
            part = min(part, products - done)
            product.work(part)
            done += part
        ended = time.perf_counter()
        wrong = seconds = None
        if check and not self._halt.is_set():
            wrong, seconds = self.check(product)
        found = Mismatches()
        if product.sums:
            found = Mismatches(*product.sums.take().tolist())
        self._queue.append(
            EndedBatch(done, began, ended, None, wrong, seconds, found)
        )

    def poll(self) -> EndedBatch | None:
        """Return the oldest batch that was not polled yet."""
        return self._queue.popleft() if self._queue else None

    def compare(self, product: Product) -> int:
        """Return the number of wrong elements of C."""
        if self.torch.equal(product.c_bits, product.first_bits):
            return 0
        return product.unexplained(product.c)  # other bits are usual here

    timed = Backend.wall
    """Wall time, because a CPU has no device events."""

    def synchronize(self) -> None:
        """Do nothing: products have ended when their call returns."""

    def free_bytes(self) -> int | None:
        """Return None: the free memory is part of the request."""
        return None


class Cuda(Backend):
    """A GPU with two batches in flight on one stream, so that it never waits for Python."""

    most_in_flight = 2
    smallest_size = 1024
    timing = "wall time, and device events around batches"
    share_of_checks, least_interval = 0.01, 0.0
    first_window = COLD_WINDOW_SECONDS
    rest_seconds = 1.0
    """Pause after the warm-up, so that the run starts with a full burst.

    The device limits its mean power over at most one second, and the chip cools down in that time.
    """

    def __init__(self, torch: Any, halt: threading.Event) -> None:
        super().__init__()
        self.torch, self.place, self._halt = torch, "cuda", halt
        self.uses_host_memory = False
        with contextlib.suppress(Exception):  # not in every version of torch
            self.uses_host_memory = bool(
                torch.cuda.get_device_properties(0).is_integrated
            )
        self._differs: Any = None
        # One tensor per batch in flight. They are pinned, because a copy to
        # pageable memory blocks until the device is idle.
        self._counts = deque(
            torch.empty(4, dtype=torch.int64, pin_memory=True)
            for _ in range(self.most_in_flight)
        )

    def launch(
        self,
        product: Product,
        products: int,
        *,
        check: bool,
    ) -> None:
        """Enqueue that many products, and the check of the last one if asked for."""
        torch = self.torch
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began = time.perf_counter()
        first.record()
        product.work(products)
        last.record()
        count, ended, kept = self._counts[0].zero_(), last, None
        if check:
            count[0].copy_(self.compare(product), non_blocking=True)
            kept = product.set_aside()
        if product.sums:
            count[1:].copy_(product.sums.take(), non_blocking=True)
        if check or product.sums:
            self._counts.rotate()
            ended = torch.cuda.Event(enable_timing=True)
            ended.record()
        checked = (product, kept) if check else None
        self._queue.append(
            (products, began, first, last, ended, count, checked)
        )

    def poll(self) -> EndedBatch | None:
        """Return the oldest batch in flight if it has ended, or None after a short wait."""
        if not self._queue:
            return None
        products, began, first, last, ended, count, checked = self._queue[0]
        if not ended.query():
            self._halt.wait(0.003)
            return None
        now = time.perf_counter()
        self._queue.popleft()
        wrong, *found = count.tolist()
        if checked is None:
            wrong = None
        elif wrong:
            wrong = self.judge(*checked)
        seconds = first.elapsed_time(last) / 1000
        late = last.elapsed_time(ended) / 1000 if checked else None
        return EndedBatch(
            products, began, now, seconds, wrong, late, Mismatches(*found)
        )

    def compare(self, product: Product) -> Any:
        """Return the number of elements of C that differ from the first C, as a device tensor.

        The comparison is bit by bit, because cuBLAS nearly always returns the same bits on one
        stream of one device.
        """
        # Nothing is allocated while products run, as memory may be full.
        if (
            self._differs is None
            or self._differs.shape != product.c_bits.shape
        ):
            self._differs = self.torch.empty_like(
                product.c_bits, dtype=self.torch.bool
            )
        self.torch.ne(product.c_bits, product.first_bits, out=self._differs)
        return self._differs.sum()

    def timed(self, work: Callable[[int], None], times: int) -> float:
        """Return the seconds of that much work by device events."""
        first, last = (
            self.torch.cuda.Event(enable_timing=True) for _ in range(2)
        )
        first.record()
        work(times)
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) / 1000

    def synchronize(self) -> None:
        """Wait for everything that was launched."""
        self.torch.cuda.synchronize()

    def free_bytes(self) -> int | None:
        """Return the free memory after torch has given back its cache.

        On a GPU that uses host memory, CUDA does not count the page cache as free, although the
        kernel can reclaim it.
        """
        self.torch.cuda.empty_cache()
        available = available_bytes() if self.uses_host_memory else None
        if available is not None:
            return available
        return int(self.torch.cuda.mem_get_info()[0])


def open_cuda(
    torch: Any,
    halt: threading.Event,
    request: WorkerRequest,
) -> Cuda:
    """Return the GPU that this process sees, ready to use; raise `RunError` if there is none."""
    python = sys.executable
    remedy = f"Install a CUDA build of torch into {python}, or choose another with --python"
    if torch.version.cuda is None:
        why = f"torch {torch.__version__} of {python} is a build for CPUs"
        raise RunError(
            "no_cuda", "This torch has no CUDA support", why, remedy
        )
    try:
        capability = torch.cuda.get_device_capability(0)
    except Exception as error:
        raise no_context(error, request) from error
    archs = torch.cuda.get_arch_list()
    if not runs_on(archs, capability):
        what = f"This torch has no code for compute capability {capability[0]}.{capability[1]}"
        why = f"torch {torch.__version__} is built for {' '.join(archs)}"
        raise RunError("architecture", what, why, remedy)
    try:
        return Cuda(torch, halt)  # its first allocation creates the context
    except Exception as error:
        raise no_context(error, request) from error


def runs_on(archs: list[str], capability: tuple[int, int]) -> bool:
    """True if a build for these architectures has code for that compute capability.

    `sm_80` is machine code, for 8.0 and later minor versions of 8; `compute_80` is compiled by the
    driver for anything later; `sm_90a` is for exactly 9.0.
    """
    for kind, major, minor, exactly in re.findall(
        r"(sm|compute)_(\d+)(\d)(a?)", " ".join(archs)
    ):
        built = (int(major), int(minor))
        same_code = built[0] == capability[0] and not exactly
        if built == capability or (
            built < capability and (kind == "compute" or same_code)
        ):
            return True
    return False
