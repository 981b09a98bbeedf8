"""The same work for several devices: what all of them have, and who copies to whom."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.bench import plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputop.bench.plan import Request, Target

KINDS = {**plan.KINDS, "pairs": "the same work on each device alone, and then on all at once"}
"""What devices can be asked for; pairs are of two or more."""


def shared_dtypes(targets: Sequence[Target]) -> tuple[str, ...]:
    """The data types that every one of them has, in the order in which they are offered."""
    first, *others = (
        [offer.dtype for offer in plan.offered(target) if offer.available] for target in targets
    )
    return tuple(dtype for dtype in first if all(dtype in other for other in others))


def common_dtype(targets: Sequence[Target]) -> str:
    """What one of them trains with and all of them have; with a CPU among them, its own."""
    shared = shared_dtypes(targets)
    with_cpu = any(target.kind == "cpu" for target in targets)
    wanted = [] if with_cpu else [plan.default_dtype(target) for target in targets]
    return next((dtype for dtype in wanted if dtype in shared), "float32")


def with_peers(requests: Sequence[Request]) -> list[Request]:
    """Copies between GPUs: each also copies to the next one, and the last one to the first.

    A process sees one MIG instance and nothing beside it: those have no peer.
    """
    ring = [each.target for each in requests if _has_peers(each)]
    if len(ring) < 2:
        return list(requests)
    peers = dict(zip(ring, [*ring[1:], ring[0]], strict=True))
    return [replace(each, peer=peers.get(each.target)) for each in requests]


def _has_peers(request: Request) -> bool:
    target = request.target
    return request.kind == "copy" and target.kind == "cuda" and target.parent_uuid is None


def numbers(targets: Sequence[Target]) -> str:
    """Which devices, in short: `GPU 0, 2`, `GPU 1, CPU`."""
    known = [target.number for target in targets if target.number is not None]
    gpus = [f"GPU {', '.join(known)}"] if known else []
    return ", ".join([*gpus, *("CPU" for target in targets if target.number is None)])
