"""The worker's request, made from the request of a run."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.bench.plan import request as plan
from gputop.bench.plan.kinds import DTYPES
from gputop.bench.plan.request import Request
from gputop.bench.worker.needs import PROCESS_BYTES
from gputop.bench.worker.request import WorkerDataType, WorkerRequest

VERIFIED_LARGER = 4
"""Factor by which `auto` may be larger if each product is verified, which costs 1/N of the time."""


def worker_request(
    request: Request,
    agent_folders: Sequence[str] | None = None,
    *,
    waits: bool = False,
) -> WorkerRequest:
    """Return the request for the worker. With `waits` it waits for `go` after the plan.

    Without `agent_folders` the worker has no guard.
    """
    target = request.target
    is_instance = target.parent_uuid is not None
    copies = request.kind == "copy"
    return WorkerRequest(
        kind=request.kind,
        device=target.kind,
        name=target.name,
        label=target.place,
        dtype=request.dtype,
        dtypes=tuple(_data_type(request, name) for name in request.dtypes),
        size=request.size,
        seconds=request.seconds,
        verify_all=request.verify_all,
        waits=waits,
        free_bytes=target.memory_allowed_bytes,
        host_bytes=request.host_bytes and request.host_bytes - PROCESS_BYTES,
        peers=tuple(peer.place for peer in request.peers),
        exclusive_peers={
            peer.place: peer.compute_mode or ""
            for peer in request.exclusive_peers
        },
        compute_mode=target.compute_mode,
        pci_bus_id=target.pci_bus_id,
        hertz=request.hertz if request.kind == "pulse" else 0.0,
        rank=request.ranks.index(target) if request.ranks else 0,
        ranks=0 if copies else len(request.ranks),
        turns=len(request.ranks) if copies else 0,
        rendezvous=request.rendezvous or "",
        agent_folders=None if agent_folders is None else tuple(agent_folders),
        gpu_uuid=target.gpu_uuid,
        part_of=f"GPU {target.index}" if is_instance else "",
    )


def _data_type(request: Request, name: str) -> WorkerDataType:
    target, dtype = request.target, DTYPES[name]
    cuda = target.kind == "cuda"
    larger = VERIFIED_LARGER if request.verify_all else 1
    return WorkerDataType(
        name=name,
        operand_bits=dtype.operand_bits,
        result_bytes=dtype.result_bytes,
        library_bytes=dtype.library_bytes(target.kind),
        largest=plan.auto_limit(target, name, larger),
        fitting=plan.largest_fitting_size(target, name),
        multiple=dtype.multiple if cuda else 1,
        least=dtype.least if cuda else 1,
    )
