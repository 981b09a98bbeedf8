"""The data types of the products: what each takes, and which devices have it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DataType:
    """A data type of the products."""

    name: str
    operand_bits: int
    """Of an element of A or B."""
    result_bytes: int
    """Of an element of C."""
    capability: tuple[int, int]
    """The CUDA compute capability from which it is worth a stress test."""
    on_cpu: bool
    missing: str = ""
    """Why it is not offered below that capability, or on a CPU."""
    multiple: int = 1
    """On a GPU every size is a multiple of it."""
    least: int = 1
    """The smallest size on a GPU."""
    auto_size: int = 8192
    """The largest size that a soak takes by itself: beyond it throughput does not grow."""
    cpu_library_bytes: int = 0
    """What the CPU's library takes beside each element, of copies in a wider format. Measured."""


def _since(capability: str, what: str) -> str:
    return f"{what} exists on GPUs of compute capability {capability} and later"


DTYPES: dict[str, DataType] = {
    dtype.name: dtype
    for dtype in (
        DataType("float32", 32, 4, (0, 0), True),
        DataType("tf32", 32, 4, (8, 0), False, _since("8.0", "TF32")),
        DataType("float16", 16, 2, (5, 3), True, _since("5.3", "float16 arithmetic")),
        DataType(
            "float16_acc16",
            16,
            2,
            (7, 0),
            False,
            _since("7.0", "a choice of float16 sums, where float32 is usual,"),
        ),
        DataType(
            "bfloat16",
            16,
            2,
            (8, 0),
            True,
            _since("8.0", "bfloat16 arithmetic") + "; before, it is emulated",
        ),
        DataType("float64", 64, 8, (0, 0), True),
        DataType(
            "float8_e4m3", 8, 2, (8, 9), True, _since("8.9", "float8 arithmetic"), 16, 16, 16384, 20
        ),
        DataType(
            "float8_mixed",
            8,
            2,
            (8, 9),
            True,
            _since("8.9", "float8 arithmetic"),
            16,
            16,
            16384,
            20,
        ),
        # torch wants more than 16 rows, and multiples of 8
        DataType("int8", 8, 4, (7, 5), True, _since("7.5", "int8 on tensor cores"), 8, 24),
        DataType(
            "float4", 4, 2, (10, 0), False, _since("10.0", "float4 arithmetic"), 32, 128, 16384
        ),
    )
}
"""By name, in the order in which they are shown.

`float16_acc16` is float16 summed in float16; `float8_mixed` is e5m2 times e4m3. Results of float8
and float4 are bfloat16, those of int8 are int32.
"""


def parse_dtypes(text: str) -> tuple[str, ...]:
    """Data types with commas between them; raises `ValueError` where one is none."""
    names = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",")))
    for name in names:
        if name not in DTYPES:
            raise ValueError(f"{name!r} is not a data type. Choose from {', '.join(DTYPES)}.")
    return names
