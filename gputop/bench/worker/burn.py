"""`burn`: products whose operands fill the memory, and copies beside them, for most watts."""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING, Any

from .copies import READ_AND_WRITTEN
from .errors import explain
from .product import Product, bytes_needed, room_beside
from .soak import measure, prepare

if TYPE_CHECKING:
    from .main import Run

COPIED_BYTES = {"cpu": 1 << 26, "cuda": 1 << 29}
"""Bytes of a copy: more than any cache holds."""
COMPARED = 16
"""One copy of so many is compared."""
FILL_SECONDS = 20.0
"""Longest time to fill the memory: a slow host is left with less."""


class Ring(Product):
    """A product with copies of its operands all over the memory, which it takes in turn."""

    def __init__(self, product: Product, device: Any, run: Run) -> None:
        vars(self).update(vars(product))
        operands = product.a, product.stored_b
        each = sum(operand.nbytes for operand in operands)
        mine = bytes_needed(run.request, self.dtype, self.shape) - run.request["fixed_bytes"]
        room = room_beside(mine, device, run.request) - 2 * COPIED_BYTES[device.place]
        copies, until = [operands], time.monotonic() + FILL_SECONDS
        while len(copies) <= room // each and not run.halt.is_set() and time.monotonic() < until:
            copies.append((product.a.clone(), product.stored_b.clone()))
        self._turns = itertools.cycle(copies)
        size = len(copies) * each / 2**30
        run.notes.append(f"operands of {len(copies)} products in {size:.4g} GiB, taken in turn")

    def multiply(self, times: int = 1) -> None:
        """Make products of the next operands each."""
        for _ in range(times):
            self.a, self.stored_b = next(self._turns)
            self.b = self.stored_b.t() if self.column_major else self.stored_b
            self.format.multiply(self, 1)

    def exact(self) -> int:
        """Return the wrong elements of a product with a known answer, of the last operands."""
        self._turns = itertools.cycle([(self.a, self.stored_b)])
        return super().exact()


class Traffic:
    """Copies within the device's memory, in a thread and a stream of their own."""

    def __init__(self, device: Any, run: Run) -> None:
        self.device, self.run, torch = device, run, device.torch
        size = COPIED_BYTES[device.place]
        self.source = torch.randint(-(2**62), 2**62, (size // 8,), device=device.place)
        self.to = torch.empty_like(self.source)
        device.synchronize()  # another stream reads it
        self.copies, self.began = 0, time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._copy_on, daemon=True)
        self._thread.start()

    def _copy_on(self) -> None:
        torch, place = self.device.torch, self.device.place
        try:
            stream = torch.cuda.Stream() if place == "cuda" else None
            if stream is None:
                torch.set_num_threads(1)  # of this thread: the others multiply
            with torch.cuda.stream(stream):
                while not (self.run.halt.is_set() or self._over.is_set()):
                    self.copy(compare=self.copies % COMPARED == 0)
                    if stream:
                        stream.synchronize()
        except BaseException as error:  # noqa: BLE001 - the parent is told in one line
            self.run.end("error", **explain(error, place, self.run.request).fields)

    def end(self) -> None:
        """End the copies, and compare a last one: a short run may have compared none."""
        self._over.set()
        self._thread.join()
        if not self.run.halt.is_set():
            self.copy(compare=True)

    def copy(self, *, compare: bool) -> None:
        """Copy once, and compare that if asked for."""
        if compare:
            self.to.zero_()
        self.to.copy_(self.source)
        self.copies += 1
        if compare and (wrong := int((self.to != self.source).sum())):
            self.run.verified(wrong, 0)


def burn(device: Any, run: Run) -> None:
    """Fill the memory, then make products and copies until the time is up."""
    product, pace = prepare(device, run, lambda product: Ring(product, device, run))
    traffic = Traffic(device, run)
    measure(device, run, product, pace)
    traffic.end()
    moved = READ_AND_WRITTEN * traffic.copies * COPIED_BYTES[device.place]
    rate = moved / (time.monotonic() - traffic.began) / 1e9
    run.notes.append(f"beside them {rate:.4g} GB/s of copies, 1 in {COMPARED} compared")
