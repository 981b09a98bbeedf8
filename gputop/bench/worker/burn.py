"""`burn`: products with operands from all over the memory, and copies alongside, for most watts."""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING, Any

from .copies import READ_AND_WRITTEN, random_words
from .errors import explain
from .loads import measure, prepare
from .needs import GIB, MIB
from .product import Product, bytes_needed, room_beside

if TYPE_CHECKING:
    from .main import WorkerRun

COPIED_BYTES = {"cpu": 64 * MIB, "cuda": 512 * MIB}
"""Bytes of a copy, larger than any cache."""
COMPARED = 16
"""Copies per compared copy."""
FILL_SECONDS = 20.0
"""Longest time to fill the memory. A slow host fills less of it."""


class Ring(Product):
    """A product that takes its operands in turn from copies that fill the memory."""

    def __init__(self, product: Product, device: Any, run: WorkerRun) -> None:
        vars(self).update(vars(product))
        operands = product.a, product.stored_b
        each = sum(operand.nbytes for operand in operands)
        mine = bytes_needed(run.request, self.dtype, self.shape)
        mine += 0 if product.spare is None else product.spare.nbytes
        room = (
            room_beside(mine, device, run.request)
            - 2 * COPIED_BYTES[device.place]
        )
        copies, until = [operands], time.monotonic() + FILL_SECONDS
        while (
            len(copies) <= room // each
            and not run.halt.is_set()
            and time.monotonic() < until
        ):
            copies.append((product.a.clone(), product.stored_b.clone()))
        self._turns = itertools.cycle(copies)
        size = len(copies) * each / GIB
        run.notes.append(
            f"operands of {len(copies)} products in {size:.4g} GiB, taken in turn"
        )

    def multiply(self, times: int = 1) -> None:
        """Make products, each with the next copy of the operands."""
        for _ in range(times):
            self.a, self.stored_b = next(self._turns)
            self.b = self.stored_b.t() if self.column_major else self.stored_b
            self.format.multiply(self, 1)

    def exact(self) -> int:
        """Return the wrong elements of a product with a known answer, made in the last copy."""
        self._turns = itertools.cycle([(self.a, self.stored_b)])
        return super().exact()


class Traffic:
    """Copies within the device's memory, in a thread and a stream of their own."""

    def __init__(self, device: Any, run: WorkerRun) -> None:
        self.device, self.run, torch = device, run, device.torch
        size = COPIED_BYTES[device.place]
        self.source = random_words(torch, size, device.place)
        self.to = torch.empty_like(self.source)
        device.synchronize()  # the copies run in another stream
        self.copies, self.began = 0, time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._copy_on, daemon=True)
        self._thread.start()

    def _copy_on(self) -> None:
        torch, place = self.device.torch, self.device.place
        try:
            stream = torch.cuda.Stream() if place == "cuda" else None
            if stream is None:
                torch.set_num_threads(1)  # leaves the other cores to products
            with torch.cuda.stream(stream):
                while not (self.run.halt.is_set() or self._over.is_set()):
                    self.copy(compare=self.copies % COMPARED == 0)
                    if stream:
                        stream.synchronize()
        except BaseException as error:  # noqa: BLE001 - reported to the parent
            self.run.end(explain(error, self.device, self.run.request))

    def end(self) -> None:
        """End the copies, and compare one more, because a short run may have compared none."""
        self._over.set()
        self._thread.join()
        if not self.run.halt.is_set():
            self.copy(compare=True)

    def copy(self, *, compare: bool) -> None:
        """Copy once, and compare the copy if requested."""
        if compare:
            self.to.zero_()
        self.to.copy_(self.source)
        self.copies += 1
        if compare and (wrong := int((self.to != self.source).sum())):
            self.run.verified(wrong, 0)


def burn(device: Any, run: WorkerRun) -> None:
    """Fill the memory, then make products and copies until the time is up."""
    product, pace = prepare(
        device, run, lambda product: Ring(product, device, run)
    )
    traffic = Traffic(device, run)
    measure(device, run, product, pace)
    traffic.end()
    moved = READ_AND_WRITTEN * traffic.copies * COPIED_BYTES[device.place]
    rate = moved / (time.monotonic() - traffic.began) / 1e9
    run.notes.append(
        f"{rate:.4g} GB/s of copies at the same time, 1 in {COMPARED} compared"
    )
