"""Data types of the products, and the devices that have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DeviceKind = Literal["cpu", "cuda"]


@dataclass(frozen=True, slots=True)
class DataType:
    """A data type of the products."""

    name: str
    operand_bits: int
    """Bits of an element of A or B."""
    result_bytes: int
    """Bytes of an element of C."""
    capability: tuple[int, int]
    """CUDA compute capability from which a stress test makes sense."""
    on_cpu: bool
    hardware: str = ""
    """What devices below that capability, and some CPUs, do not have."""
    note: str = ""
    multiple: int = 1
    least: int = 1
    auto_size: int = 8192
    """Largest size that a soak chooses: beyond it throughput does not grow."""
    cpu_library_bytes: int = 0
    """Measured bytes per element that a CPU library needs for wider copies."""

    @property
    def why_missing(self) -> str:
        """Reason why a device does not have it."""
        since = ".".join(map(str, self.capability))
        return f"{self.hardware} exists on GPUs of compute capability {since} and later{self.note}"

    @property
    def bytes_per_element(self) -> int:
        """Bytes per element of N²: A, B, C, the first product, and a mask."""
        return 2 * self.operand_bits // 8 + 2 * self.result_bytes + 1

    def library_bytes(self, device: DeviceKind) -> int:
        """Return the CPU library's bytes per element of N². A GPU's library has a workspace."""
        return self.cpu_library_bytes if device == "cpu" else 0


_FLOAT16_SUMS = "a choice of float16 sums, where float32 is usual,"
_EMULATED = "; before, it is emulated"

# fmt: off
_TABLE = (
    #        name         bits of A and B, bytes of C, since, on a CPU, what others do not have
    DataType("float32",       32, 4, (0, 0),  True),
    DataType("tf32",          32, 4, (8, 0),  False, "TF32"),
    DataType("float16",       16, 2, (5, 3),  True,  "float16 arithmetic"),
    DataType("float16_acc16", 16, 2, (7, 0),  False, _FLOAT16_SUMS),
    DataType("bfloat16",      16, 2, (8, 0),  True,  "bfloat16 arithmetic", _EMULATED),
    DataType("float64",       64, 8, (0, 0),  True),
    DataType("float8_e4m3",   8,  2, (8, 9),  True,  "float8 arithmetic",    "", 16, 16, 16384, 20),
    DataType("float8_mixed",  8,  2, (8, 9),  True,  "float8 arithmetic",    "", 16, 16, 16384, 20),
    # torch wants more than 16 rows, and multiples of 8
    DataType("int8",          8,  4, (7, 5),  True,  "int8 on tensor cores", "", 8,  24),
    DataType("float4",        4,  2, (10, 0), False, "float4 arithmetic",    "", 32, 128, 16384),
)
# fmt: on
DTYPES = {dtype.name: dtype for dtype in _TABLE}
"""Data types by name, in the order in which they are shown.

`float16_acc16` is float16 summed in float16; `float8_mixed` is e5m2 times e4m3. Results of float8
and float4 are bfloat16, those of int8 are int32.
"""


def parse_dtypes(text: str) -> tuple[str, ...]:
    """Parse data types separated by commas; raise `ValueError` for an unknown one."""
    names = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",")))
    for name in names:
        if name not in DTYPES:
            raise ValueError(f"{name!r} is not a data type. Choose from {', '.join(DTYPES)}.")
    return names
