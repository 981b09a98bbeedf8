"""Errors that end a run without a result, each with a cause and a remedy in one line."""

from __future__ import annotations

from typing import Any


class RunError(Exception):
    """A run that cannot be done: a word for programs; what, why and the remedy for people."""

    def __init__(self, kind: str, what: str, why: str, remedy: str) -> None:
        super().__init__(what)
        self.kind = kind
        self.fields = {"kind": kind, "what": what, "why": why, "remedy": remedy}


def computes_wrong() -> RunError:
    """Return the error for first or exact products that are wrong."""
    return RunError(
        "wrong",
        "The device computes wrong results",
        "the first products are not what they have to be",
        "Do not train on it; run the test again to be sure",
    )


def hangs(place: str, work: str, expected: float, patience: float) -> RunError:
    """Return the error for work that has not ended after many times its expected time."""
    return RunError(
        "hang",
        "The device hangs",
        f"{work} that takes {expected:.2g} s had not ended after {patience:.3g} s",
        "Look for Xid errors in `dmesg`"
        if place == "cuda"
        else "See what else uses the cores, and run the test again",
    )


def not_ready(seconds: float) -> RunError:
    """Return the error for a preparation that does not end."""
    return RunError(
        "not_ready",
        "The stress test did not get ready",
        f"torch, memory and the first products took more than {seconds:.0f} s",
        "See what else uses the device, or choose a smaller --size",
    )


def nobody_comes(seconds: float) -> RunError:
    """Return the error for other devices of the group that do not get ready."""
    return RunError(
        "not_ready",
        "The stress test was not begun",
        f"the other devices were not ready within {seconds:.0f} s",
        "Test the devices one at a time to see which one it is",
    )


def too_slow(request: dict[str, Any], dtype: str, taken: str) -> RunError:
    """Return the error for products so long that none would end within the run."""
    return RunError(
        "too_slow",
        f"No {dtype} product of size {request['size'] or 'auto'} ends in time",
        f"one takes {taken} s, and the run {request['seconds']:g} s",
        "Choose a smaller --size, --size auto, or more --seconds",
    )


def no_dtype(dtype: str, why: str) -> RunError:
    """Return the error for a data type that this torch or device does not have."""
    return RunError(
        "dtype",
        f"{dtype} cannot be run here",
        why,
        "Choose another --dtype, or a newer torch with --python",
    )


def explain(error: BaseException, place: str | None, request: dict[str, Any]) -> RunError:
    """Return any failure as an error with a remedy."""
    if isinstance(error, RunError):
        return error
    text = first_line(error)
    if is_memory(error):
        return RunError(
            "memory",
            f"The memory does not hold products of size {request['size'] or 'auto'}",
            text or type(error).__name__,
            "Choose a smaller --size, or end what holds the memory",
        )
    return RunError(
        "device" if place == "cuda" else "torch",
        "The stress test failed",
        f"{type(error).__name__}: {text}" if text else type(error).__name__,
        "Look for Xid errors in `dmesg`" if place == "cuda" else "Try another torch with --python",
    )


def is_memory(error: BaseException) -> bool:
    """True if the error means that host or device memory ran out."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "DefaultCPUAllocator" in first_line(error)
    )


def first_line(error: BaseException) -> str:
    """Return the first line of an error: torch adds advice for developers below it."""
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else ""
