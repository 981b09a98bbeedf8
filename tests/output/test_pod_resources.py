"""Containers that hold GPUs: the kubelet's messages, and a kubelet that answers badly or never."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.agent.device import Device
from gputop.output.prometheus import state as module
from gputop.output.prometheus.state import (
    KEPT_SECONDS,
    MOST_BYTES,
    MOST_CONTAINERS,
    PodContainer,
    PodResources,
    holders_of,
    parse_answer,
)
from tests.kubelet import Hang, container, devices, kubelet, pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

BOUND = 60.0
MAIN = PodContainer("team", "train-0", "main")
ANSWER = pod("team", "train-0", container("main", devices("GPU-1", "GPU-2::1")))
KEPT = {"GPU-1": (MAIN,), "GPU-2": (MAIN,)}


def test_a_message_that_googles_library_wrote() -> None:
    """Two pods; one has GPUs, CPUs, memory and a NUMA node, and one a network device."""
    written = bytes.fromhex(
        "0a5b0a07747261696e2d3012047465616d1a4a0a046d61696e12270a0e6e76696469612e636f6d2f6770751205"
        "4750552d3112084750552d323a3a311a040a0208011a040001820122130a066d656d6f72791080808080802"
        "01a020a000a260a03776562120764656661756c741a160a016312110a0872646d612f68636112054750552d31"
    )
    assert parse_answer(written) == KEPT


@pytest.mark.parametrize(
    ("resource", "identifier", "device"),
    [
        ("nvidia.com/gpu", "GPU-4f2a", "GPU-4f2a"),
        ("nvidia.com/gpu", "GPU-4f2a::0", "GPU-4f2a"),
        ("nvidia.com/gpu.shared", "GPU-4f2a::11", "GPU-4f2a"),
        ("nvidia.com/mig-1g.10gb", "MIG-4f2a", "MIG-4f2a"),
        ("nvidia.com/mig-1g.10gb.shared", "MIG-4f2a::3", "MIG-4f2a"),
        ("nvidia.com/gpu", "nvidia0/vgpu1", "nvidia0"),
        ("nvidia.com/gpu", "nvidia0/gi3/vgpu1", "nvidia0/gi3"),
        ("rdma/hca_shared_devices_a", "GPU-4f2a", None),
    ],
)
def test_ids_of_device_plugins(resource: str, identifier: str, device: str | None) -> None:
    held = container("main", devices(identifier, resource=resource))
    assert parse_answer(pod("team", "train-0", held)) == ({device: (MAIN,)} if device else {})


def test_containers_that_share_a_device() -> None:
    several = [
        pod("b", "p", container("c", devices("GPU-1::1")), container("d", devices("GPU-1::2"))),
        pod("a", "p", container("c", devices("GPU-1::0", "GPU-1::3")), container("idle")),
    ]
    expected = tuple(map(PodContainer, "abb", "ppp", "ccd"))
    assert parse_answer(b"".join(several)) == {"GPU-1": expected}
    crowd = b"".join(pod("a", f"p{n}", container("c", devices("GPU-1"))) for n in range(100))
    assert len(parse_answer(crowd)["GPU-1"]) == MOST_CONTAINERS


def test_devices_under_the_names_of_gke() -> None:
    gpu = Device(3, "GPU-1", "H100", minor_number=2)
    instance = Device(3, "MIG-1", "1g", parent_uuid="GPU-1", mig_gpu_instance=5)
    assert holders_of(gpu, gpu, {"nvidia2": (MAIN,), "nvidia3": ()}) == (MAIN,)
    assert holders_of(instance, gpu, {"nvidia2/gi5": (MAIN,)}) == (MAIN,)
    assert holders_of(instance, gpu, {"nvidia2": (MAIN,), "GPU-1": (MAIN,)}) == ()
    assert holders_of(gpu, gpu, {}) == ()


@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_damaged(answer: bytes) -> None:
    with suppress(ValueError):
        parse_answer(answer)


@given(st.data())
def test_a_damaged_answer(data: st.DataObject) -> None:
    """Cut off, or with other bytes in it, it is never taken for more than what it could hold."""
    answer = bytearray(ANSWER)
    for at in data.draw(st.lists(st.integers(0, len(ANSWER) - 1), max_size=3)):
        answer[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(ANSWER)))
    try:
        found = parse_answer(bytes(answer[:cut]))
    except ValueError:
        return
    assert len(found) <= 2
    if answer == ANSWER:
        assert found == (KEPT if cut == len(ANSWER) else {})


@asynccontextmanager
async def following(resources: PodResources) -> AsyncIterator[None]:
    task = asyncio.create_task(resources.follow())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(there: Callable[[], object]) -> None:
    async with asyncio.timeout(BOUND):
        while not there():  # noqa: ASYNC110 - threads of the server make it true
            await asyncio.sleep(0.01)


class Followed:
    """A socket, what is known from it, and what was told."""

    def __init__(self, socket: Path) -> None:
        self.socket, self.told = socket, list[str]()
        self.resources = PodResources(str(socket), lambda problem: self.told.append(str(problem)))


@pytest.fixture
def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Followed:
    monkeypatch.setattr(module, "REFRESH_SECONDS", 0.01)
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    return Followed(tmp_path / "kubelet.sock")


async def test_a_kubelet_that_comes_goes_and_comes_again(followed: Followed) -> None:
    pods = followed.resources.pods
    async with following(followed.resources):
        await until(lambda: followed.told)
        with kubelet(followed.socket, lambda: ANSWER):
            await until(pods)
            assert pods() == KEPT
        await until(lambda: len(followed.told) == 2)
        assert pods() == KEPT  # the containers run on
        other = pod("team", "train-1", container("main", devices("GPU-1")))
        with kubelet(followed.socket, lambda: other):
            await until(lambda: pods() == {"GPU-1": (PodContainer("team", "train-1", "main"),)})
    assert followed.told[0] == (
        "The pods that hold the GPUs are not known: "
        f"{followed.socket}: No such file or directory. It is asked again every few seconds"
    )


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (ANSWER[:-3], "the answer is damaged"),
        (bytes(MOST_BYTES + 1), "RESOURCE_EXHAUSTED"),
        (b"\x0a\x03\xff\xff\xff", "the answer is damaged"),
    ],
    ids=["cut", "huge", "nonsense"],
)
async def test_a_bad_answer_is_told_once(followed: Followed, answer: bytes, why: str) -> None:
    asked: list[None] = []

    def respond() -> bytes:
        asked.append(None)
        return answer

    with kubelet(followed.socket, respond):
        async with following(followed.resources):
            await until(lambda: len(asked) > 3)
    (told,) = followed.told
    assert why in told
    assert followed.resources.pods() == {}


async def test_a_kubelet_that_hangs(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.2)
    hang = Hang()
    with kubelet(followed.socket, hang):
        try:
            async with following(followed.resources):
                await until(lambda: followed.told)
                assert "DEADLINE_EXCEEDED" in followed.told[0]
                hang.let_go.set()
                await until(lambda: followed.resources._read_at > 0)
        finally:
            hang.let_go.set()
    assert len(followed.told) == 1


async def test_an_old_answer_does_not_count(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kubelet(followed.socket, lambda: ANSWER):
        async with following(followed.resources):
            await until(followed.resources.pods)
    monkeypatch.setattr(followed.resources, "_read_at", followed.resources._read_at - KEPT_SECONDS)
    assert followed.resources.pods() == {}


async def test_without_a_socket_or_grpc(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, told = list[str](), list[object]()

    def check(socket: str) -> None:
        looks.append(socket)
        raise FileNotFoundError(socket)

    with monkeypatch.context() as patched:
        patched.setattr(module, "_check_socket", check)
        async with following(PodResources("missing", told.append, must_exist=False)):
            await until(lambda: len(looks) > 2)
    assert told == []
    monkeypatch.setitem(sys.modules, "grpc", None)
    followed.socket.touch()
    async with following(followed.resources):
        await until(lambda: followed.told)
    assert "grpc" in followed.told[0]
    assert followed.told[0].endswith("Type `pip install '.[kubernetes]'` in a checkout of gputop")


async def test_a_socket_of_root(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    followed.socket.touch()
    monkeypatch.setattr(os, "access", lambda *_: False)
    async with following(followed.resources):
        await until(lambda: followed.told)
    assert followed.told[0].endswith("Permission denied. Run the exporter as root")
