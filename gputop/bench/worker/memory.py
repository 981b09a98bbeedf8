"""Memory needed against memory free, before anything is taken."""

from __future__ import annotations

from typing import Any

from .errors import RefusedError

STEP = 64

Shape = tuple[int, int, int]


def facts(request: dict[str, Any], dtype: str) -> dict[str, Any]:
    """What the plan knows of a data type: bytes, sizes, the largest that fits."""
    found: dict[str, Any] = next(each for each in request["dtypes"] if each["name"] == dtype)
    return found


def needed(request: dict[str, Any], dtype: str, shape: Shape) -> int:
    """Bytes that such products take, with what the process takes in any case.

    A and B, C twice and a mask, what the library takes on the way, and rows in float64.
    """
    m, n, k = shape
    each = facts(request, dtype)
    operands = (m * k + k * n) * each["operand_bits"] // 8
    results = m * n * (2 * each["result_bytes"] + 1)
    on_the_way = max(m * n, m * k, k * n) * each["library_bytes"]
    rows = max(shape) * request["bytes_per_row"]
    return int(operands + results + on_the_way + rows + request["fixed_bytes"])


def fits(device: Any, request: dict[str, Any], dtype: str, shape: Shape) -> bool:
    """Whether the device has room for such products now; True where that is not known."""
    free = device.free_bytes()
    return free is None or needed(request, dtype, shape) - request["context_bytes"] <= free


def out_of_memory(request: dict[str, Any], dtype: str, n: int, free: int) -> RefusedError:
    """N does not fit: the need, what is free, and the largest N that does."""
    room = free + request["context_bytes"]

    def need(size: int) -> int:
        return needed(request, dtype, (size, size, size))

    low, high = 0, STEP
    while need(high) <= room:
        low, high = high, 2 * high
    while high - low > STEP:
        middle = (low + high) // 2 // STEP * STEP
        low, high = (middle, high) if need(middle) <= room else (low, middle)
    taken = need(n) - request["context_bytes"]
    return RefusedError(
        "memory",
        f"Products of size {n} do not fit in the device's memory",
        f"they need {taken / 2**30:.2f} GiB and {free / 2**30:.2f} GiB are free",
        f"Choose --size {low} or smaller" if low else "End what holds the memory",
    )
