"""Memory that products need on a device, for the plan and for the worker."""

from __future__ import annotations

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CONTEXT_BYTES = 512 * MIB
"""A CUDA context with its modules: 416 MiB on an RTX 4090, 439 MiB on an H100, and a margin."""
WORKSPACE_BYTES = 64 * MIB
"""Up to 32 MiB for cuBLAS, and the rounding of torch's allocator."""
PROCESS_BYTES = 384 * MIB
"""Python with torch on the CPU, and the packed panels of the BLAS library."""
BYTES_PER_ROW = 64 * 8 * 8
"""Bytes per row of N: 64 rows are compared in float64 at a time, with at most 8 temporaries."""


def fixed_bytes(device: str) -> int:
    """Return the bytes that a run needs at any size: context and workspace, or the process."""
    if device == "cuda":
        return CONTEXT_BYTES + WORKSPACE_BYTES
    return PROCESS_BYTES


def product_bytes(
    shape: tuple[int, int, int],
    operand_bits: int,
    result_bytes: int,
    library_bytes: int,
) -> int:
    """Return the bytes of products of a shape m, n, k, without the fixed ones.

    These are A and B, C twice and a mask, the library's temporary memory, and rows in float64.
    """
    m, n, k = shape
    operands = (m * k + k * n) * operand_bits // 8
    results = m * n * (2 * result_bytes + 1)
    temporary = max(m * n, m * k, k * n) * library_bytes
    return operands + results + temporary + max(shape) * BYTES_PER_ROW
