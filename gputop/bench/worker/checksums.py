"""Verification of every product by sums of its columns, on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .formats import ROWS
from .needs import MIB
from .product import REPEATS, when_repeated
from .throughput import Mismatches

if TYPE_CHECKING:
    from .product import Product

COLUMNS = 512
"""Columns per sum. With more columns, the rounding of the others could hide a wrong element."""
RING_BYTES, MOST_AT_ONCE = 8 * MIB, 64
"""Most bytes of sums, and most products, per comparison. Each comparison launches several kernels,
so many products share one."""


class Checksums:
    """Sums of every 512 columns in each row of C, for products of the same A and B.

    Their main cost is reading C once more. The sums are float32 (float64 for float64), or int32 for
    int8, where they are exact modulo 2^32. Sums outside the band are wrong. Sums within the band
    should have the same bits as the sums of the first product. On a GPU they always do.

    The errors of the elements are independent, so the error of a sum grows with the square root of
    its columns. The band is the bound of `Product.unexplained`, summed in this way, plus the
    rounding of the sum.
    """

    def __init__(self, product: Product) -> None:
        self.product, torch, c = product, product.torch, product.c
        exact = not c.is_floating_point()
        wide = torch.float64 if c.dtype == torch.float64 else torch.float32
        self._kind = torch.int32 if exact else wide
        self.right, self.band = self._reference(exact)
        each = self.right.numel() * self.right.element_size()
        most = max(1, min(MOST_AT_ONCE, RING_BYTES // each))
        self._ring = torch.empty(
            (most, *self.right.shape), dtype=self._kind, device=product.place
        )
        self._counts = torch.zeros(3, dtype=torch.int64, device=product.place)
        product.c.copy_(product.first)
        self._first = torch.empty_like(self.right)
        self._sum(self._first)
        self._compare(self._first[None])

    def multiply(self, times: int = 1) -> None:
        """Make products, and verify each of them on the device without waiting for it."""
        for at in range(0, times, len(self._ring)):
            sums = self._ring[: min(len(self._ring), times - at)]
            for each in sums:
                self.product.multiply()
                self._sum(each)
            self._compare(sums)

    def take(self) -> Any:
        """Return the counts since the last call, as `Mismatches` in a tensor on the device."""
        found = self._counts.clone()
        self._counts.zero_()
        return found

    def repeat(self) -> str:
        """Repeat the product, and return the kind of the mismatch."""
        self.multiply(REPEATS)
        return when_repeated(Mismatches(*self.take().tolist()).products)

    def _sum(self, sums: Any) -> None:
        """Sum C, a few rows at a time if torch makes a wider copy (of 16-bit numbers on a CPU)."""
        c, whole = self.product.c, self.product.n // COLUMNS * COLUMNS
        cpu_copies = self.product.place == "cpu" and c.element_size() == 2
        step, at = (ROWS if cpu_copies else len(sums)), 0
        for view in (
            c[:, :whole].view(len(c), -1, COLUMNS),
            c[:, whole:].unsqueeze(1),
        ):
            if not view.numel():
                continue
            into = sums[:, at : at + view.shape[1]]
            for row in range(0, len(sums), step):
                rows = slice(row, row + step)
                self.product.torch.sum(
                    view[rows],
                    -1,
                    dtype=self._kind,
                    out=into[rows],
                )
            at += view.shape[1]

    def _compare(self, sums: Any) -> None:
        bits = self.product.bits
        if self.band is None:
            wrong = sums != self.right
        else:
            wrong = ~((sums - self.right).abs() <= self.band)  # NaN is wrong
        bad = wrong.flatten(1).any(1)
        other = (bits(sums) != bits(self._first)).flatten(1).any(1)
        for at, found in enumerate((wrong, bad, other & ~bad)):
            self._counts[at] += found.sum()

    def _reference(self, exact: bool) -> tuple[Any, Any]:
        """Return the right sums and the allowed error, or None if they have to be equal."""
        torch, product = self.product.torch, self.product
        of_b, lengths_of_b = self._sums_of_b()
        slack = product.slack() / product.k**0.5
        right, band = [], []
        for at in range(0, product.m, ROWS):
            rows = product.a[at : at + ROWS].double()
            first = product.first[at : at + ROWS].double()
            right.append(rows @ of_b)
            bound = torch.outer(rows.norm(dim=1) * slack, lengths_of_b)
            bound += (
                2 * product.epsilon * _blocks(torch, first.square()).sqrt()
            )
            if not exact:
                bound += (
                    8
                    * torch.finfo(self._kind).eps
                    * _blocks(torch, first.abs())
                )
            band.append(bound)
        sums = torch.cat(right)
        if exact:  # float64 is exact here, int32 keeps the last 32 bits
            return sums.to(torch.int64).to(torch.int32), None
        return sums.to(self._kind), torch.cat(band).to(self._kind)

    def _sums_of_b(self) -> tuple[Any, Any]:
        """Return the sums of B's columns (k x sums) and the norms of the blocks, in float64."""
        torch, product = self.product.torch, self.product
        count = -(-product.n // COLUMNS)
        sums = torch.zeros(
            (product.k, count), dtype=torch.float64, device=product.place
        )
        squares = torch.zeros(count, dtype=torch.float64, device=product.place)
        for at in range(0, len(product.stored_b), ROWS):
            part = product.stored_b[at : at + ROWS].double()
            if product.column_major:
                sums[:, at // COLUMNS] += part.sum(0)
                squares[at // COLUMNS] += part.square().sum()
            else:
                sums[at : at + ROWS] = _blocks(torch, part)
                squares += _blocks(torch, part.square()).sum(0)
        return sums, squares.sqrt()


def _blocks(torch: Any, matrix: Any) -> Any:
    """Return the sums of each block of 512 columns."""
    return torch.stack([part.sum(1) for part in matrix.split(COLUMNS, 1)], 1)
