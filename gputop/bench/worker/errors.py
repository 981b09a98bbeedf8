"""Errors that end a run without a result, each with a cause and a remedy in one line."""

from __future__ import annotations

import re
from typing import Any


class RunError(Exception):
    """A run that cannot be done: a word for programs; what, why and the remedy for people."""

    def __init__(self, kind: str, what: str, why: str, remedy: str) -> None:
        super().__init__(what)
        self.kind = kind
        self.fields = {"kind": kind, "what": what, "why": why, "remedy": remedy}


SIZED = ("soak", "sweep", "peak", "pulse", "burn", "pairs")
"""Kinds of run that take `--size`; `--memory-share` is for all."""


def less(kind: str) -> str:
    """Return the options by which a run of that kind takes less memory."""
    return "a smaller --size or --memory-share" if kind in SIZED else "a smaller --memory-share"


def hangs(place: str, work: str, expected: float, patience: float) -> RunError:
    """Return the error for work that has not ended after many times its expected time."""
    why = f"{work} that takes {expected:.2g} s had not ended after {patience:.3g} s"
    on_cpu = "See what else uses the cores, and run the test again"
    remedy = "Look for Xid errors in `dmesg`" if place == "cuda" else on_cpu
    return RunError("hang", "The device hangs", why, remedy)


def too_slow(request: dict[str, Any], dtype: str, taken: str) -> RunError:
    """Return the error for products so long that none would end within the run."""
    what = f"No {dtype} product of size {request['size'] or 'auto'} ends in time"
    why = f"one takes {taken} s, and the run {request['seconds']:g} s"
    remedy = "Give more --seconds"
    if request["kind"] in SIZED:
        remedy = "Choose a smaller --size, --size auto, or more --seconds"
    return RunError("too_slow", what, why, remedy)


def no_dtype(dtype: str, why: str) -> RunError:
    """Return the error for a data type that this torch or device does not have."""
    remedy = "Choose another --dtype, or a newer torch with --python"
    return RunError("dtype", f"{dtype} cannot be run here", why, remedy)


def explain(error: BaseException, place: str | None, request: dict[str, Any]) -> RunError:
    """Return any failure as an error with a remedy."""
    if isinstance(error, RunError):
        return error
    text = first_line(error)
    if is_memory(error):
        what = f"The memory does not hold products of size {request['size'] or 'auto'}"
        if request["kind"] == "memory":
            what = "The memory to test cannot be had"
        remedy = f"Choose {less(request['kind'])}, or end what holds the memory"
        return RunError("memory", what, text or type(error).__name__, remedy)
    kind, what, remedy = "torch", "The stress test failed", "Try another torch with --python"
    if place == "cuda":
        kind, remedy = "device", "Look for Xid errors in `dmesg`"
        if is_death(error):
            kind, what = "died", "The device died"
    why = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return RunError(kind, what, why, remedy)


NOT_DEATH = re.compile(
    r"kernel image|invalid (?:device f|arg|conf)|not supported|unsupported|insufficient|unavailable"
    r"|_(?:ALLOC_FAILED|NOT_SUPPORTED|NOT_INITIALIZED|ARCH_MISMATCH|INVALID_VALUE|LICENSE_ERROR)"
)
"""Parts of CUDA errors after which the device works: something was asked that it does not have."""


def is_death(error: BaseException) -> bool:
    """True if the error is CUDA's, and means that the device failed in what it does."""
    text = first_line(error)
    return "CUDA error" in text and not is_memory(error) and not NOT_DEATH.search(text)


def is_memory(error: BaseException) -> bool:
    """True if the error means that host or device memory ran out."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "DefaultCPUAllocator" in first_line(error)
        or "CUDA error: out of memory" in first_line(error)
    )


def first_line(error: BaseException) -> str:
    """Return the first line of an error: torch adds advice for developers below it."""
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else ""
