"""Errors that end a run without a result, each with a cause and a remedy in one line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .cuda_errors import cause_in_nccl, cause_of_start

if TYPE_CHECKING:
    from .request import WorkerRequest


class RunError(Exception):
    """A run that failed: a kind for programs, and what, why and remedy as text."""

    def __init__(
        self,
        kind: str,
        what: str,
        why: str,
        remedy: str,
    ) -> None:
        super().__init__(what)
        self.kind, self.what, self.why, self.remedy = kind, what, why, remedy


SIZED = ("soak", "sweep", "peak", "pulse", "burn")
"""Kinds of run that take `--size`; `--memory-share` is for all."""


def less(kind: str) -> str:
    """Return the options that reduce the memory of a run of this kind."""
    if kind in SIZED:
        return "a smaller --size or --memory-share"
    return "a smaller --memory-share"


def hangs(request: WorkerRequest) -> RunError:
    """Return the error for work that does not end."""
    why = "none of its work ended for more than a minute"
    remedy = "See what else uses the cores, and run the test again"
    if request.device == "cuda":
        remedy = "Look for Xid errors in `dmesg`"
    return RunError("hang", "The device hangs", why, remedy)


def not_ready(request: WorkerRequest) -> RunError:
    """Return the error for a preparation that does not end."""
    why = "torch, memory or the first products took more than two minutes"
    remedy = f"See what else uses the device, or choose {less(request.kind)}"
    return RunError(
        "not_ready", "The stress test did not get ready", why, remedy
    )


def too_slow(
    request: WorkerRequest,
    dtype: str,
    taken: str,
) -> RunError:
    """Return the error for a product that takes longer than the run."""
    what = f"No {dtype} product of size {request.size or 'auto'} ends in time"
    why = f"one takes {taken} s, and the run {request.seconds:g} s"
    remedy = "Give more --seconds"
    if request.kind in SIZED:
        remedy = "Choose a smaller --size, or more --seconds"
    return RunError("too_slow", what, why, remedy)


def no_dtype(dtype: str, why: str) -> RunError:
    """Return the error for a data type that this torch or device does not have."""
    remedy = "Choose another --dtype, or a newer torch with --python"
    return RunError("dtype", f"{dtype} cannot be run here", why, remedy)


def explain(
    error: BaseException,
    device: Any,
    request: WorkerRequest,
) -> RunError:
    """Return any failure as an error with a remedy. `device` is None before it was opened."""
    dead = death(error, device)
    if dead is not None:
        return dead
    if isinstance(error, RunError):
        return error
    if cause := cause_in_nccl(str(error), request):
        return RunError(*cause)
    if is_memory(error):
        what = f"The memory does not hold products of size {request.size or 'auto'}"
        if request.kind == "memory":
            what = "The memory to test cannot be allocated"
        remedy = f"Choose {less(request.kind)}, or end what holds the memory"
        return RunError(
            "memory", what, first_line(error) or type(error).__name__, remedy
        )
    what = "An error of gputop or of torch ended the test"
    remedy = "Try another torch with --python, or report it"
    return RunError("torch", what, in_words(error), remedy)


def in_words(error: BaseException) -> str:
    """Return what happened in one line: `TypeError: unsupported operand`."""
    if isinstance(error, RunError):
        return f"{error.what}: {error.why}"
    text = first_line(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


DEATH = re.compile(
    r"illegal (?:memory access|instruction)|misaligned address|invalid program counter"
    r"|address space|launch failure|launch timed out|hardware (?:stack )?error|uncorrectable"
    r"|device-side assert|unknown error"
)
"""Parts of CUDA error texts (`cudaGetErrorString`) after which all calls in the process fail.

Errors of CUDA's libraries are not included: CUBLAS_STATUS_EXECUTION_FAILED has many causes.
"""


def is_death(error: BaseException) -> bool:
    """True if the error text means that the device died."""
    text = first_line(error)
    return "CUDA error" in text and DEATH.search(text) is not None


def death(error: BaseException, device: Any) -> RunError | None:
    """Return the error for a device that died, or None if it did not.

    Every call fails on a dead device, so this makes a call that otherwise never fails. Its error
    also gives the cause of a library's error.
    """
    died = is_death(error)
    if device is not None:
        try:
            device.synchronize()
        except RuntimeError as found:
            if not is_memory(found):
                error, died = found, True
    if not died:
        return None
    return RunError(
        "died",
        "The device died",
        in_words(error),
        "Look for Xid errors in `dmesg`",
    )


def is_memory(error: BaseException) -> bool:
    """True if the error means that host or device memory ran out."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "DefaultCPUAllocator" in first_line(error)
        or "CUDA error: out of memory" in first_line(error)
    )


def first_line(error: BaseException) -> str:
    """Return the first line of an error. torch adds advice for developers below it."""
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else ""


def no_context(error: BaseException, request: WorkerRequest) -> RunError:
    """Return the error for a GPU on which this process cannot compute."""
    if cause := cause_of_start(str(error), request):
        return RunError(*cause)
    look = "Run `nvidia-smi` to see whether the driver works, and look for Xid errors in `dmesg`"
    why = first_line(error) or type(error).__name__
    return RunError("no_device", "torch cannot use the GPU", why, look)
