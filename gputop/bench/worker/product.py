"""A matrix product C = A·B, the memory that it needs, and its verification."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import RunError
from .formats import ROWS, TYPES, Plain, set_precision, try_product
from .needs import GIB, WORKSPACE_BYTES, fixed_bytes, product_bytes

if TYPE_CHECKING:
    from .request import WorkerDataType, WorkerRequest

Shape = tuple[int, int, int]


def dtype_facts(request: WorkerRequest, dtype: str) -> WorkerDataType:
    """Return the plan's figures for a data type: bytes, sizes, the largest that fits."""
    return next(each for each in request.dtypes if each.name == dtype)


def bytes_needed(
    request: WorkerRequest,
    dtype: str,
    shape: Shape,
) -> int:
    """Return the bytes that products of a shape need, without the fixed ones of a run."""
    each = dtype_facts(request, dtype)
    sizes = each.operand_bits, each.result_bytes, each.library_bytes
    return product_bytes(shape, *sizes)


def room_beside(
    needed: int,
    device: Any,
    request: WorkerRequest,
) -> int:
    """Return the bytes that a run may still allocate, besides `needed` and the fixed ones."""
    allowed, now = request.free_bytes, device.free_bytes()
    known = []
    if allowed is not None:
        known.append(allowed - fixed_bytes(device.place) - needed)
    # The free memory no longer includes `needed` and the context.
    if now is not None:
        known.append(now - WORKSPACE_BYTES)
    return int(min(known, default=0))


def fits(
    device: Any,
    request: WorkerRequest,
    dtype: str,
    shape: Shape,
) -> bool:
    """True if the device has room for such products now, or if its free memory is unknown."""
    free = device.free_bytes()
    return free is None or _needed_now(request, dtype, shape) <= free


def _needed_now(request: WorkerRequest, dtype: str, shape: Shape) -> int:
    """Return the bytes that products still need on a GPU that has a context."""
    return bytes_needed(request, dtype, shape) + WORKSPACE_BYTES


def out_of_memory(
    request: WorkerRequest,
    dtype: str,
    n: int,
    free: int,
) -> RunError:
    """Return the error for an N that does not fit."""
    taken = _needed_now(request, dtype, (n, n, n))
    what = f"Products of size {n} do not fit in the device's memory"
    why = f"they need {taken / GIB:.2f} GiB and {free / GIB:.2f} GiB are free"
    return RunError(
        "memory",
        what,
        why,
        "Choose a smaller --size, or end what holds the memory",
    )


GROSS_ERROR = 1e-2
"""Relative error above that of any data type. It means that the device computes wrong results."""
ANSWER = 16
"""Approximate number of terms left in an exact product after pairs have cancelled out."""


class Product:
    """A product of m x k times k x n matrices. `place` is torch's name of the device.

    By default B is column-major on GPUs, because more kernels reach their maximum with it. Raise
    `RunError` if torch does not have the data type.
    """

    def __init__(
        self,
        torch: Any,
        dtype: str,
        shape: Shape,
        place: str,
        column_major: bool | None = None,
    ) -> None:
        self.torch, self.dtype, self.place = torch, dtype, place
        self.shape = self.m, self.n, self.k = m, n, k = shape
        if place == "cuda":
            set_precision(torch.backends.cuda.matmul, dtype)
        self.format = made = TYPES.get(dtype, Plain)(torch, dtype, place)
        wanted = place != "cpu" if column_major is None else column_major
        self.column_major = wanted or made.column_major_only
        stored = (n, k) if self.column_major else (k, n)
        self.a = torch.empty((m, k), dtype=made.operand, device=place)
        self.stored_b = torch.empty(stored, dtype=made.operand, device=place)
        self.b = self.stored_b.t() if self.column_major else self.stored_b
        self.c, self.first = (
            torch.empty((m, n), dtype=made.result, device=place)
            for _ in range(2)
        )
        self.c_bits, self.first_bits = self.bits(self.c), self.bits(self.first)
        self.scales: tuple[Any, Any] = (None, None)
        made.prepare(self)
        self.epsilon = made.epsilon
        self.relative_error = 0.0
        # Norms of B's columns, computed at the first use.
        self._columns: Any = None
        self.spare: Any = None
        """Second C, for devices that make the next product before a check has ended.

        Without memory for it no product may be launched during a check, as it would overwrite C.
        """
        self.sums: Any = None
        """`Checksums` that verify every product, or None if only some products are compared."""

    @property
    def flop(self) -> int:
        """FLOP of one product."""
        return 2 * self.m * self.n * self.k

    @property
    def layout(self) -> str:
        """Layout of A and B in words."""
        if self.column_major:
            return "A row-major, B column-major"
        return "A and B row-major"

    def bits(self, tensor: Any) -> Any:
        """Return the same memory as integers, so that NaN can be compared and -0 differs from 0."""
        words = {2: self.torch.int16, 4: self.torch.int32, 8: self.torch.int64}
        return tensor.view(words[tensor.element_size()])

    def multiply(self, times: int = 1) -> None:
        """Make products: enqueue them on a GPU, run them on a CPU."""
        self.format.multiply(self, times)

    def work(self, times: int = 1) -> None:
        """Make products, and verify each of them if requested."""
        (self.sums or self).multiply(times)

    def fill(self) -> None:
        """Fill A and B with random numbers."""
        self.format.fill(self.a)
        self.format.fill(self.stored_b)

    def exact(self) -> int:
        """Return the elements that differ from the known answer of a product of small integers.

        A = u·vᵀ and B = w·xᵀ with small integers, so that C = (v·w)·u·xᵀ. The products along k are
        ±1 (times up to 3), in pairs of opposite signs in random order, with a few single products
        between them. So the sum over any range of k stays below 60, and a sum of every second or
        fourth product is a random walk that reaches some hundreds. The method requires that partial
        sums have a format that represents integers up to 2048, such as float16 or any wider format.
        If k is small, all terms have the same sign.
        """
        torch, k = self.torch, self.k
        answer = ANSWER + k % 2 if k > ANSWER else k  # v·w is odd where k is
        pairs = (k - answer) // 2
        first_of_pair = torch.randint(0, 2, (pairs, 1)).float() * 2 - 1
        paired = torch.ones(k, dtype=torch.bool)
        paired[torch.linspace(0, k - 1, answer).long()] = False
        signs = torch.ones(k)
        signs[paired] = torch.cat((first_of_pair, -first_of_pair), 1).flatten()
        w, x = (
            torch.randint(0, 2, (size,)).float() * 2 - 1
            for size in (k, self.n)
        )
        u = torch.randint(1, 4, (self.m,)).float()
        u, v, w, x = (each.to(self.place) for each in (u, w * signs, w, x))
        self._put(self.a, u, v)
        self._put(self.stored_b, *((x, w) if self.column_major else (w, x)))
        # An element that the product does not write counts as wrong.
        self.c.fill_(float("nan") if self.c.is_floating_point() else -(2**31))
        self.multiply()
        wrong = 0
        for at in range(0, self.m, ROWS):
            right = torch.outer(u[at : at + ROWS] * answer, x).to(self.c.dtype)
            wrong += int((self.c[at : at + ROWS] != right).sum())
        return wrong

    def _put(
        self,
        operand: Any,
        rows: Any,
        columns: Any,
    ) -> None:
        for at in range(0, len(rows), ROWS):
            part = self.torch.outer(rows[at : at + ROWS], columns)
            operand[at : at + ROWS].copy_(part)

    def keep_first(self) -> None:
        """Make the reference product that all later products are compared with."""
        self.multiply()
        self.first.copy_(self.c)

    def judge(self) -> int:
        """Compare a corner of the first product with float64, and set `relative_error` (a norm).

        Return the number of wrong elements, with an error above that of any data type.
        """
        right = self.a[:ROWS].double() @ self.b[:, :ROWS].double()
        far = (self.first[:ROWS, :ROWS].double() - right).abs()
        error = float(far.norm() / right.norm())
        limit = max(GROSS_ERROR, self.errors()[1])
        if not far.any():  # a product of one rounded number may be zero
            self.relative_error = 0.0
            return 0
        if error <= limit:
            self.relative_error = error
            return 0
        # Count the elements whose error exceeds the allowed RMS error. There
        # is at least one.
        return int(
            (~(far <= limit * right.norm() / right.numel() ** 0.5)).sum()
        )

    def errors(self) -> tuple[float, float]:
        """Return the range of the expected relative error as (minimum, limit)."""
        return self.format.errors(*self.shape)

    def check_precision(self) -> str:
        """Raise `RunError` if the products are less exact than the data type.

        Return an explanation if they are more exact, or an empty text if they are as exact.
        """
        low, high = self.errors()
        if self.relative_error < low:
            return self.format.more_exact
        if self.relative_error < high:
            return ""
        raise self.not_its_type()

    def not_its_type(self) -> RunError:
        """Return the error for products that are not made in the data type."""
        what = f"The {self.dtype} product was not made in {self.dtype}"
        why = f"its relative error is {self.relative_error:.1e}"
        look = "Look for settings that change the precision, or try another torch or data type"
        return RunError("precision", what, why, look)

    def set_aside(self) -> Any:
        """Return C, and use the spare C (if any) for further products."""
        if self.spare is None:
            return self.c
        self.c, self.spare = self.spare, self.c
        self.c_bits = self.bits(self.c)
        return self.spare

    def explain(self, c: Any) -> tuple[int, str]:
        """Return the wrong elements of a C that differs from the first, and the kind of mismatch.

        A wrong product is repeated to find its kind.
        """
        wrong = self.unexplained(c)
        if not wrong:
            return 0, OTHER_BITS
        again = 0
        for _ in range(REPEATS):
            self.multiply()
            again += self.unexplained(self.c) > 0
        return wrong, when_repeated(again)

    def unexplained(self, c: Any) -> int:
        """Return the number of elements of C whose distance from the first product is not rounding.

        CPU libraries do not promise the same bits every time. The roundings of a sum of k products
        in float32 are a random walk: about 0.2·sqrt(k)·eps of the sum's own size, |a|·|b|/sqrt(k)
        for its row and column (Higham and Mary, A new approach to probabilistic rounding error
        analysis, 2019). The bound is twenty times that, plus eight times the measured error beyond
        the rounding of the result, plus that rounding. Sums of integers have to be equal.
        """
        torch = self.torch
        if not self.epsilon:
            return int((self.bits(c) != self.first_bits).sum())
        if self._columns is None:
            parts = (part.double() for part in self.stored_b.split(ROWS))
            if self.column_major:
                self._columns = torch.cat([part.norm(dim=1) for part in parts])
            else:
                squares = sum(part.square().sum(0) for part in parts)
                self._columns = torch.as_tensor(squares).sqrt()
        slack = self.slack() / self.k**0.5
        wrong = 0
        for at in range(0, self.m, ROWS):
            rows = slice(at, at + ROWS)
            lengths = self.a[rows].double().norm(dim=1) * slack
            first = self.first[rows].double()
            bound = (
                torch.outer(lengths, self._columns)
                + 2 * self.epsilon * first.abs()
            )
            far = ~((c[rows].double() - first).abs() <= bound)  # NaN is far
            wrong += int(
                (far & (self.bits(c[rows]) != self.first_bits[rows])).sum()
            )
        return wrong

    def slack(self) -> float:
        """Return the allowed error of a sum of products, relative to the sum's own size."""
        rounding = 4 * self.k**0.5 * min(self.epsilon, 2.0**-23)
        return float(
            rounding + 8 * max(0.0, self.relative_error - self.epsilon / 4)
        )


def require(
    torch: Any,
    dtype: str,
    place: str,
) -> None:
    """Raise `RunError` if torch does not have the data type on this device."""
    if dtype in TYPES or dtype == "float16_acc16":
        try_product(Product(torch, dtype, (ROWS, ROWS, ROWS), place))


REPEATS = 3
WRONG, NOT_REPEATABLE, UNEXPLAINED = "wrong", "not repeatable", "unexplained"
OTHER_BITS = "other bits"


def when_repeated(wrong: int) -> str:
    """Return the kind of a mismatch, given the number of wrong repetitions."""
    if 0 < wrong < REPEATS:
        return UNEXPLAINED
    return WRONG if wrong else NOT_REPEATABLE
