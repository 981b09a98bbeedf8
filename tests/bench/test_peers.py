import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from gputop.bench.plan import request, target_choice
from gputop.bench.plan.request import Request, Target
from gputop.bench.run import worker_launch
from gputop.bench.run.worker_order import worker_request
from gputop.bench.worker import environment
from tests.bench.machines import divided, seen
from tests.bench.workers import CPU
from tests.streams import inventory, sample

GPUS = target_choice.targets(inventory(3), sample(3))[:3]
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
    shared = target_choice.shared_dtypes(targets)
    assert target_choice.common_dtype(targets) == common
    assert common in shared
    assert not without & set(shared)


@pytest.mark.parametrize(
    ("targets", "named"),
    [
        ((GPUS[0], GPUS[2]), "GPU 0, 2"),
        ((CPU, GPUS[1]), "GPU 1, CPU"),
        ((CPU,), "CPU"),
        (target_choice.targets(divided(), seen())[1:3], "GPU 3:0, 3:1"),
    ],
)
def test_they_are_named_in_short(targets: Sequence[Target], named: str) -> None:
    assert request.short_labels(targets) == named


def asked(*targets: Target, kind: str = "copy") -> list[Request]:
    return [Request(target, "bfloat16", None, 1.0, kind=kind) for target in targets]


def peers(requests: list[Request]) -> list[list[str | None]]:
    return [[peer.number for peer in each.peers] for each in target_choice.with_peers(requests)]


def test_each_copies_to_all_others_from_the_next_one_on() -> None:
    assert peers(asked(*GPUS)) == [["1", "2"], ["2", "0"], ["0", "1"]]
    assert peers(asked(GPUS[0], CPU, GPUS[2])) == [["2"], [], ["0"]]
    assert peers(asked(*GPUS, kind="collective")) == [["1", "2"], ["2", "0"], ["0", "1"]]


def test_who_has_no_peer() -> None:
    instances = [each for each in target_choice.targets(divided(), seen()) if each.parent_uuid]
    assert peers(asked(GPUS[0], CPU)) == [[], []]
    assert peers(asked(*GPUS, kind="soak")) == [[]] * 3
    assert peers(asked(*instances)) == [[]] * 3, "a process sees one instance alone"
    afar = [dataclasses.replace(each, host="node-1") for each in GPUS]
    assert peers(asked(*afar)) == [[]] * 3, "a process sees the one GPU that Ray has lent"


def test_a_gpu_in_an_exclusive_mode_is_no_peer_and_has_peers() -> None:
    exclusive = dataclasses.replace(GPUS[1], compute_mode="exclusive_process")
    requests = target_choice.with_peers(asked(GPUS[0], exclusive, GPUS[2]))
    assert [[peer.number for peer in each.peers] for each in requests] == [["2"], ["2", "0"], ["0"]]
    first, second, _ = map(worker_request, requests)
    assert (second.rank, second.ranks, second.turns) == (1, 0, 3)
    soak = worker_request(asked(exclusive, kind="soak")[0])
    assert (soak.rank, soak.ranks, soak.turns, soak.hertz) == (0, 0, 0, 0.0)
    assert first.exclusive_peers == {"GPU 1": "exclusive_process"}
    assert (second.exclusive_peers, second.compute_mode) == ({}, "exclusive_process")
    seen_by = worker_launch.worker_environment(requests[0].target, *requests[0].peers)
    assert seen_by["CUDA_VISIBLE_DEVICES"].split(",") == [GPUS[n].uuid for n in (0, 2)]
    ranks = target_choice.with_peers(asked(GPUS[0], exclusive, kind="collective"))
    assert [len(each.peers) for each in ranks] == [1, 1], "each rank computes on its own GPU only"


def test_eight_gpus_share_the_host_s_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "available_bytes", lambda: 40 << 30)
    gpus = target_choice.targets(inventory(8), sample(8))[:8]
    shared = target_choice.with_peers(asked(*gpus))
    assert [each.host_bytes for each in shared] == [int(0.9 * (40 << 30)) // 8] * 8
    assert all(request.check_request(each) is None for each in shared)
    (alone,) = target_choice.with_peers(asked(gpus[0]))
    assert alone.host_bytes == int(0.9 * (40 << 30))
    assert target_choice.with_peers(asked(CPU, gpus[0]))[0].host_bytes is None
    assert target_choice.with_peers(asked(*gpus, kind="soak"))[0].host_bytes is None
    monkeypatch.setattr(request, "available_bytes", lambda: 3 << 30)
    problem = request.check_request(target_choice.with_peers(asked(*gpus))[0])
    assert str(problem) == (
        "The copies do not fit in the host's memory: a GPU needs 388 MiB of it, and 346 MiB are "
        "left for each. End processes that use the memory, or test fewer GPUs at a time"
    )


@pytest.mark.parametrize(
    ("number", "processors", "allowed", "bound"),
    [
        (1, "0-3,8", {0, 2, 3, 5, 8}, {0, 2, 3, 8}),
        (0, "0-3", {1, 2}, {1, 2}),  # within it already: it stays as narrow
        (0, "4-7", {0, 1}, None),  # the user chose others
        (-1, "0-7", {0, 1}, None),
        (0, "", {0, 1}, None),
    ],
)
def test_a_worker_is_bound_to_the_processors_near_its_gpu(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    processors: str,
    allowed: set[int],
    bound: set[int] | None,
) -> None:
    folder = tmp_path / "0000:1a:00.0"
    folder.mkdir()
    (folder / "numa_node").write_text(f"{number}\n")
    (folder / "local_cpulist").write_text(f"{processors}\n")
    chosen: list[set[int]] = []
    monkeypatch.setattr(environment, "SYSFS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: allowed)
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, wanted: chosen.append(wanted))
    said = environment.bind_near("00000000:1A:00.0")  # as NVML has it
    assert chosen == ([] if bound is None else [bound])
    assert said == (bound and f"NUMA node {number}, processors: {len(bound)}")
    assert environment.bind_near("00000000:FF:00.0") is None
    assert environment.bind_near("nonsense") is None
