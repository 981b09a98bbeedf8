"""A request as the worker is told it: it knows nothing of the plan but this."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputop.bench import plan
from gputop.bench.dtypes import DTYPES

if TYPE_CHECKING:
    from gputop.bench.plan import Request, Target


def document(request: Request, prepare_seconds: float) -> dict[str, Any]:
    """The request as the first line that the worker reads."""
    target = request.target
    return {
        "kind": request.kind,
        "device": target.kind,
        "name": target.name,
        "dtype": request.dtype,
        "dtypes": [_dtype(name, target) for name in request.dtypes],
        "size": request.size,
        "seconds": request.seconds,
        "prepare_seconds": prepare_seconds,
        "free_bytes": target.memory_free_bytes,
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
