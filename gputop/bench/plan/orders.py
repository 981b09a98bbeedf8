"""A request as the worker takes it, its environment, and how long its preparation may take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputop.bench.plan import request as plan
from gputop.bench.plan.dtypes import DTYPES
from gputop.stream.launch import child_environment

if TYPE_CHECKING:
    from gputop.bench.plan.request import Request, Target

HELLO_SECONDS = 60.0
"""Importing torch from a network file system can take that long."""
PREPARE_SECONDS = 60.0
"""For memory, the choice of a size, checks and warm-up, on top of some products."""
PREPARE_PRODUCTS = 4
"""As many are made in preparation, where one is nearly as long as the run."""
MARGIN_SECONDS = 10.0
"""What the worker may be late by before it is ended."""

NOT_INHERITED = (
    "CUDA_LAUNCH_BLOCKING",
    "NVIDIA_TF32_OVERRIDE",
    "PYTORCH_TUNABLEOP_",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)
"""Begins of variables that change what is measured: for a user's own work, not for this."""


def environment(target: Target, peer: Target | None = None) -> dict[str, str]:
    """Of the worker: this one's, without what would change the figures, and that device alone.

    A `peer` is there as well, behind it.
    """
    found = {
        name: value
        for name, value in child_environment().items()
        if not name.startswith(NOT_INHERITED)
    }
    if target.kind == "cuda":
        found["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        seen = [target] if peer is None else [target, peer]
        found["CUDA_VISIBLE_DEVICES"] = ",".join(each.uuid or str(each.index) for each in seen)
    return found


def prepare_seconds(seconds: float) -> float:
    """Of a run of so many seconds, until its plan is there."""
    # A product that is nearly as long as the run is not refused.
    return PREPARE_SECONDS + PREPARE_PRODUCTS * seconds


def wait_seconds(seconds: float) -> float:
    """As long as others may take to be ready."""
    return HELLO_SECONDS + prepare_seconds(seconds) + MARGIN_SECONDS


def document(request: Request, wait_seconds: float = 0.0) -> dict[str, Any]:
    """The first line of the worker's input; `wait_seconds` is how long it waits for `go`."""
    target = request.target
    return {
        "kind": request.kind,
        "device": target.kind,
        "name": target.name,
        "peer": request.peer and f"GPU {request.peer.number}",
        "dtype": request.dtype,
        "dtypes": [_dtype(name, target) for name in request.dtypes],
        "size": request.size,
        "seconds": request.seconds,
        "wait_seconds": wait_seconds,
        "prepare_seconds": prepare_seconds(request.seconds),
        "free_bytes": target.memory_allowed_bytes,
        "bytes_per_row": plan.bytes_per_row(),
        "fixed_bytes": plan.fixed_bytes(target.kind),
        "context_bytes": plan.CONTEXT_BYTES if target.kind == "cuda" else 0,
    }


def _dtype(name: str, target: Target) -> dict[str, Any]:
    dtype = DTYPES[name]
    cuda = target.kind == "cuda"
    return {
        "name": name,
        "operand_bits": dtype.operand_bits,
        "result_bytes": dtype.result_bytes,
        "library_bytes": plan.library_bytes(name, target.kind),
        "largest": plan.auto_limit(target, name),
        "fitting": plan.fitting(target, name),
        "multiple": dtype.multiple if cuda else 1,
        "least": dtype.least if cuda else 1,
    }
