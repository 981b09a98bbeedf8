"""What several devices have in common, and copies from one GPU to another."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gputop.bench.plan import devices, request
from gputop.bench.plan.request import Request, Target
from gputop.bench.run import worker_launch
from gputop.bench.worker import copies
from tests.bench.machines import divided, seen
from tests.bench.workers import CPU, load_torch, needs_torch
from tests.streams import inventory, sample

if TYPE_CHECKING:
    from collections.abc import Sequence

GPUS = devices.targets(inventory(3), sample(3))[:3]
VOLTA = dataclasses.replace(GPUS[1], compute_capability="7.0")


@pytest.mark.parametrize(
    ("targets", "common", "without"),
    [
        (GPUS, "bfloat16", {"nothing"}),
        ((GPUS[0], VOLTA), "float16", {"bfloat16", "tf32"}),
        ((GPUS[0], CPU), "float32", {"tf32"}),
        ((CPU,), request.default_dtype(CPU), {"tf32"}),
    ],
)
def test_what_all_of_them_have(targets: Sequence[Target], common: str, without: set[str]) -> None:
    shared = devices.shared_dtypes(targets)
    assert devices.common_dtype(targets) == common
    assert common in shared
    assert not without & set(shared)


@pytest.mark.parametrize(
    ("targets", "named"),
    [
        (GPUS[:1], "GPU 0"),
        ((GPUS[0], GPUS[2]), "GPU 0, 2"),
        ((CPU, GPUS[1]), "GPU 1, CPU"),
        ((CPU,), "CPU"),
        (devices.targets(divided(), seen())[1:3], "GPU 3:0, 3:1"),
    ],
)
def test_they_are_named_in_short(targets: Sequence[Target], named: str) -> None:
    assert devices.short_labels(targets) == named


def asked(*targets: Target, kind: str = "copy") -> list[Request]:
    return [Request(target, "bfloat16", None, 1.0, kind=kind) for target in targets]


def peers(requests: list[Request]) -> list[str | None]:
    found = (each.peer for each in devices.with_peers(requests))
    return [peer.number if peer else None for peer in found]


def test_each_copies_to_the_next_one() -> None:
    assert peers(asked(*GPUS)) == ["1", "2", "0"]
    assert peers(asked(*GPUS[:2])) == ["1", "0"]
    assert peers(asked(GPUS[0], CPU, GPUS[2])) == ["2", None, "0"]


def test_who_has_no_peer() -> None:
    instances = [each for each in devices.targets(divided(), seen()) if each.parent_uuid]
    assert peers(asked(GPUS[0])) == [None]
    assert peers(asked(GPUS[0], CPU)) == [None, None]
    assert peers(asked(*GPUS, kind="soak")) == [None] * 3
    assert peers(asked(*instances)) == [None] * 3, "a process sees one instance alone"


def test_the_worker_sees_its_own_device_first_and_then_the_peer() -> None:
    first, *_ = devices.with_peers(asked(*GPUS))
    seen_by = worker_launch.worker_environment(first.target, first.peer)["CUDA_VISIBLE_DEVICES"]
    assert seen_by == f"{GPUS[0].uuid},{GPUS[1].uuid}"
    assert worker_launch.worker_request(first)["peer"] == "GPU 1"
    (alone,) = asked(GPUS[0])
    assert worker_launch.worker_environment(alone.target)["CUDA_VISIBLE_DEVICES"] == GPUS[0].uuid
    assert worker_launch.worker_request(alone)["peer"] is None


class Peers:
    """A torch with two devices, whose memories are the host's."""

    def __init__(self, torch: Any, *, direct: bool, full: bool = False) -> None:
        self._torch, self._full = torch, full
        self.cuda = SimpleNamespace(can_device_access_peer=lambda *_: direct)

    def empty_like(self, tensor: Any, device: str) -> Any:
        assert device == "cuda:1"
        if self._full:
            raise RuntimeError("CUDA out of memory\nand more")
        return self._torch.empty_like(tensor)


def ways(peer: str | None, **changes: Any) -> tuple[list[Any], list[str], Any]:
    """The ways to the peer, what is noted, and what is copied."""
    torch = load_torch()
    here = torch.arange(64)
    device = SimpleNamespace(torch=Peers(torch, **changes), timed=None)
    run = SimpleNamespace(request={"peer": peer}, notes=[])
    return list(copies._peer_way(device, here, run)), run.notes, here  # type: ignore[arg-type]


@needs_torch
@pytest.mark.parametrize(("direct", "how"), [(True, "peer access"), (False, "through the host")])
def test_which_way_a_copy_to_another_gpu_goes_is_said(*, direct: bool, how: str) -> None:
    (way,), notes, here = ways("GPU 1", direct=direct)
    assert way.series == f"device to GPU 1, {how}"
    assert way.counted == 1
    way.to.zero_()
    way.copy(2)
    assert (way.to == here).all()
    assert notes == []


@needs_torch
def test_a_peer_without_room_is_noted_and_the_rest_goes_on() -> None:
    found, notes, _ = ways("GPU 1", direct=True, full=True)
    assert found == []
    assert notes == ["to GPU 1: absent at 0.0004883 MiB, CUDA out of memory"]


@needs_torch
def test_without_a_peer_there_is_no_such_way() -> None:
    found, notes, _ = ways(None, direct=True)
    assert (found, notes) == ([], [])
