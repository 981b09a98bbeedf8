"""Kinds of run, the data types of their products, and the devices that support them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

BANDWIDTH = "bytes_per_second"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of run."""

    name: str
    description: str
    """Description of what the user learns."""
    over_time: bool = False
    """True if it has a rate over time, and no rows while it runs."""
    has_rows: bool = True
    """True if its result has rows, False if the result is about one shape."""
    measures: str = "tflops"
    """Name of its main value in `Point.values`. The name ends in the unit."""
    finds_shape: bool = False
    """True if each run may find a different shape."""
    counts: str = "products"
    """Noun for the count in `Result.iterations`."""
    has_dtype: bool = True
    several_dtypes: bool = False
    has_size: bool = True
    several_devices: bool = False
    minutes: int = 1
    """Usual duration."""
    unjudged: Mapping[str, str] = field(default_factory=dict)
    """Parts of the verdict that it cannot judge, with the reasons."""

    @property
    def moves_bytes(self) -> bool:
        """True if it is measured in bytes per second."""
        return self.measures == BANDWIDTH

    @property
    def is_simulated(self) -> bool:
        """True if simulated devices can run it."""
        return self.over_time and not self.moves_bytes

    @property
    def rate_unit(self) -> str:
        """Unit of `Progress.rate`."""
        return "GB/s" if self.moves_bytes else "TFLOP/s"


_Bytes = partial(Kind, measures=BANDWIDTH, has_dtype=False, has_size=False)
_Operations = partial(_Bytes, counts="operations")
_Shape = partial(Kind, over_time=True, has_rows=False)
_OVER_TIME = ("droop", "steadiness")
_PATTERNS = dict.fromkeys(_OVER_TIME, "patterns differ in speed")
_PATTERNS["datasheet"] = "patterns are slower than copies"
_PULSED = dict.fromkeys(("datasheet", *_OVER_TIME), "the load was pulsed")
_BESIDE = {"datasheet": "copies beside the products slow them down"}
_BLOCK = {"datasheet": "attention, norms and the optimizer are not products"}
_RANKS = {
    "datasheet": "it has no speed of collectives",
    "like devices": "all have the same rows",
}
_CHECK = "is this GPU all right?"
_SOAK = "sustained speed, and what lowers it"
_SWEEP = "speed by matrix size and data type"
_PEAK = "the fastest shape of a product"
_STEP = "tokens/s of training steps"
_COPY = "bandwidth of memory and links"
_MEMORY = "finds bad memory"
_PULSE = "strains the power supply"
_BURN = "most heat and power"
_COLLECTIVE = "speed of all-reduce and the like"

KINDS = {
    kind.name: kind
    for kind in (
        Kind("check", _CHECK, has_rows=False, has_size=False, minutes=2),
        _Shape("soak", _SOAK),
        Kind("sweep", _SWEEP, several_dtypes=True),
        Kind("peak", _PEAK, finds_shape=True),
        Kind("step", _STEP, counts="steps", has_size=False, unjudged=_BLOCK),
        _Bytes("copy", _COPY, counts="copies"),
        _Bytes(
            "memory",
            _MEMORY,
            counts="blocks",
            over_time=True,
            unjudged=_PATTERNS,
        ),
        _Shape("pulse", _PULSE, unjudged=_PULSED),
        _Shape("burn", _BURN, unjudged=_BESIDE),
        _Operations(
            "collective", _COLLECTIVE, several_devices=True, unjudged=_RANKS
        ),
    )
}
"""Kinds of run by name, in the order in which they are offered."""
DEFAULT_KIND = "soak"
CHECK = "check"
"""Kind that runs most of the others in turn."""
ALIASES = {"suite": CHECK}
"""Former names of kinds."""
FORMER = {"pairs": Kind("pairs", "", over_time=True)}
"""Kinds of stored results that cannot be run any more."""


def parse_kind(name: str) -> str:
    """Return the name of a kind of run. A former name becomes the current one."""
    return ALIASES.get(name, name)


def kind_of(name: str) -> Kind:
    """Return a kind by name. An unknown kind, of a newer version, counts as a table of products."""
    return KINDS.get(name) or FORMER.get(name) or Kind(name, "")


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
    """Feature that devices below that capability, and some CPUs, lack."""
    note: str = ""
    multiple: int = 1
    least: int = 1
    auto_size: int = 8192
    """Largest size that a soak chooses. Larger products are not faster."""
    cpu_library_bytes: int = 0
    """Measured bytes per element of a CPU library's copies in a wider type."""

    @property
    def why_missing(self) -> str:
        """Reason why a device does not support it."""
        since = ".".join(map(str, self.capability))
        return f"{self.hardware} exists on GPUs of compute capability {since} and later{self.note}"

    def library_bytes(self, device: DeviceKind) -> int:
        """Return the CPU library's bytes per element of N². A GPU's library has a workspace."""
        return self.cpu_library_bytes if device == "cpu" else 0


_FLOAT16_SUMS = "a choice of float16 sums, where float32 is usual,"
_EMULATED = "; before, it is emulated"
_ALWAYS = (0, 0)

# fmt: off
_TABLE = (
    #        name         bits of A and B, bytes of C, since, on a CPU, what others do not have
    DataType("float32",       32, 4, _ALWAYS, True),
    DataType("tf32",          32, 4, (8, 0),  False, "TF32"),
    DataType("float16",       16, 2, (5, 3),  True,  "float16 arithmetic"),
    DataType("float16_acc16", 16, 2, (7, 0),  False, _FLOAT16_SUMS),
    DataType("bfloat16",      16, 2, (8, 0),  True,  "bfloat16 arithmetic", _EMULATED),
    DataType("float64",       64, 8, _ALWAYS, True),
    DataType("float8_e4m3",   8,  2, (8, 9),  True,  "float8 arithmetic",    "", 16, 16, 16384, 20),
    # torch requires more than 16 rows, and multiples of 8.
    DataType("int8",          8,  4, (7, 5),  True,  "int8 on tensor cores", "", 8,  24),
)
# fmt: on
DTYPES = {dtype.name: dtype for dtype in _TABLE}
"""Data types by name, in the order in which they are shown.

`float16_acc16` is float16 summed in float16. Results of float8 are bfloat16, and of int8 int32.
"""


_TURING_WITH_TENSOR_CORES = r"\b(RTX|T4|T4G|T10|T40)\b"


def is_turing_without_tensor_cores(
    compute_capability: str | None, name: str | None
) -> bool:
    """Return True for a GPU such as the GTX 1660 or MX450. Only the name identifies these GPUs.

    On them, float16 products are five times slower than float32 products.
    """
    with_them = re.search(_TURING_WITH_TENSOR_CORES, name or "")
    return compute_capability == "7.5" and not with_them


def parse_dtypes(text: str) -> tuple[str, ...]:
    """Parse data types separated by commas; raise `ValueError` for an unknown one."""
    names = tuple(
        dict.fromkeys(name.strip().lower() for name in text.split(","))
    )
    for name in names:
        if name not in DTYPES:
            raise ValueError(
                f"{name!r} is not a data type. Choose from {', '.join(DTYPES)}."
            )
    return names
