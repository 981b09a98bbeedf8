"""Kinds of run: what each does, and what options, form, screens and reports ask about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

BANDWIDTH = "bytes_per_second"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of run."""

    name: str
    description: str
    over_time: bool = False
    """True if it has a rate over time, and no rows while it runs."""
    has_rows: bool = True
    """True if its result has rows, False if it is of one shape."""
    measures: str = "tflops"
    """Name of the value that counts, which ends in its unit, as in `Point.values`."""
    finds_shape: bool = False
    """True if it may find another shape each time."""
    has_dtype: bool = True
    several_dtypes: bool = False
    has_size: bool = True
    several_devices: bool = False
    unjudged: Mapping[str, str] = field(default_factory=dict)
    """Reasons, by part of the verdict, why it says nothing about that part."""

    @property
    def moves_bytes(self) -> bool:
        """True if it is measured in bytes per second."""
        return self.measures == BANDWIDTH

    @property
    def rate_unit(self) -> str:
        """Unit of `Progress.rate`."""
        return "GB/s" if self.moves_bytes else "TFLOP/s"


_Bytes = partial(Kind, measures=BANDWIDTH, has_dtype=False, has_size=False)
_Shape = partial(Kind, over_time=True, has_rows=False)
_PATTERNS = {"datasheet": "patterns are slower than copies", "droop": "patterns differ in speed"}
_PULSED = dict.fromkeys(("datasheet", "droop"), "the load was pulsed")
_BESIDE = {"datasheet": "copies beside the products slow them down"}
_SMALL = {"datasheet": "it measures small products"}
_BLOCK = {"datasheet": "attention, norms and the optimizer are not products"}
_LATENCY = "small products, and what launching and waiting cost"
_STEP = "training steps of a transformer, eager and compiled"
_COLLECTIVES = "all-reduce, all-gather and reduce-scatter between devices"
_RANKS = {"datasheet": "it has no speed of collectives", "like devices": "all have the same rows"}
_PAIRS = "the same work on each device alone, and then on all at once"

KINDS = {
    kind.name: kind
    for kind in (
        _Shape("soak", "one shape for a duration"),
        Kind("sweep", "square products of every size", several_dtypes=True),
        Kind("latency", _LATENCY, measures="seconds", has_size=False, unjudged=_SMALL),
        Kind("peak", "search for the fastest shape", finds_shape=True),
        Kind("step", _STEP, has_size=False, unjudged=_BLOCK),
        _Bytes("copy", "bandwidth of memory"),
        _Bytes("memory", "patterns in nearly all free memory", over_time=True, unjudged=_PATTERNS),
        _Shape("pulse", "a square wave of products, for power supplies", unjudged=_PULSED),
        _Shape("burn", "products all over the memory, copies beside", unjudged=_BESIDE),
        Kind("pairs", _PAIRS, over_time=True, several_devices=True),
        _Bytes("collective", _COLLECTIVES, several_devices=True, unjudged=_RANKS),
    )
}
"""Kinds of run by name, in the order in which they are offered."""
DEFAULT_KIND = "soak"


def kind_of(name: str) -> Kind:
    """Return the kind of a result; one of a newer version counts as a table of products."""
    return KINDS.get(name) or Kind(name, "")
