"""Which devices can be put under stress, how one is named, and whom it would disturb."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from gputop.agent.device import Absence, Device, DeviceSample
from gputop.bench.plan import request, target_choice
from gputop.bench.plan.request import Request, Target
from tests.bench.machines import WHOLE, divided, instance, seen, undivided
from tests.streams import GIB, device, inventory, readings, sample

if TYPE_CHECKING:
    from gputop.agent.snapshot import Inventory

TWO = dataclasses.replace(
    inventory(), devices=(Device(0, "GPU-aa01", "one"), Device(1, "GPU-ab02", "another"))
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("cpu", "cpu"),
        ("CPU", "cpu"),
        ("0", "0"),
        ("cuda:07", "7"),
        ("3:1", "3:1"),
        ("gpu:03:01", "3:1"),
        ("GPU-4f2a", "GPU-4f2a"),
        ("mig-6F1c", "mig-6F1c"),
    ],
)
def test_a_device(text: str, name: str) -> None:
    assert target_choice.parse_device(text) == name


@pytest.mark.parametrize(
    "text",
    ["", "gpu", "-1", "cuda:", "cuda:x", "GPU-xyz", "0,1", "/dev/x", "3:", ":1", "3:1:0", "3:-1"],
)
def test_no_device(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a device: .*gputop status"):
        target_choice.parse_device(text)


@pytest.mark.parametrize(
    ("name", "uuid"),
    [
        (None, "GPU-aa01"),
        ("1", "GPU-ab02"),
        ("GPU-ab", "GPU-ab02"),
        ("gpu-AA01", "GPU-aa01"),
        ("cpu", None),
    ],
)
def test_choosing_a_device(name: str | None, uuid: str | None) -> None:
    assert target_choice.choose(TWO, None, name).uuid == uuid


@pytest.mark.parametrize(
    ("name", "why"),
    [("2", "no such device"), ("0:1", "no such device"), ("GPU-a", "2 devices match")],
)
def test_choosing_a_device_that_is_not_there(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        target_choice.choose(TWO, None, name)
    assert str(caught.value).endswith("There are: 0 (GPU-aa01), 1 (GPU-ab02), cpu.")


def test_targets_of_a_stream() -> None:
    h200 = Device(index=3, uuid="GPU-aa", name="NVIDIA H200", compute_capability="9.0")
    listed = dataclasses.replace(inventory(), devices=(h200,))
    said = DeviceSample("GPU-aa", memory_free_bytes=7 * GIB)
    first, last = target_choice.targets(listed, dataclasses.replace(sample(), devices=(said,)))
    assert first == Target("cuda", "GPU-aa", 3, "NVIDIA H200", "9.0", 7 * GIB)
    assert last.kind == "cpu"
    assert target_choice.targets(listed, None)[0].memory_free_bytes is None


def test_instances_are_offered_in_the_place_of_their_gpu() -> None:
    found = target_choice.targets(divided(), seen())
    assert [target.number for target in found] == ["0", "3:0", "3:1", "3:3", None]
    assert found[2] == Target(
        "cuda",
        instance(1).uuid,
        3,
        "NVIDIA A100-SXM4-40GB MIG 2g.10gb",
        "8.0",
        6 * GIB,
        WHOLE.uuid,
        1,
        pci_bus_id=WHOLE.pci_bus_id,
    )
    assert found[2].label == "GPU 3:1, NVIDIA A100-SXM4-40GB MIG 2g.10gb"


@pytest.mark.parametrize("name", ["3:1", "MIG-00000001", "mig-00000001-1111", instance(1).uuid])
def test_an_instance_by_its_names(name: str) -> None:
    target = target_choice.choose(divided(), seen(), target_choice.parse_device(name))
    assert (target.uuid, target.gpu_uuid) == (instance(1).uuid, WHOLE.uuid)


@pytest.mark.parametrize("name", ["3", "cuda:3", WHOLE.uuid, WHOLE.uuid[:14]])
def test_a_gpu_in_mig_mode_is_refused_with_its_instances(name: str) -> None:
    with pytest.raises(ValueError, match="MIG") as caught:
        target_choice.choose(divided(), seen(), target_choice.parse_device(name))
    assert str(caught.value) == (
        "GPU 3, NVIDIA A100-SXM4-40GB, cannot be stress-tested as a whole: "
        "MIG is on, and CUDA runs on its instances only. "
        "Choose one: 3:0 (MIG 3g.20gb), 3:1 (MIG 2g.10gb), 3:3 (MIG 1g.5gb)."
    )


def test_a_gpu_in_mig_mode_without_instances_says_how_to_have_one() -> None:
    (problem,) = target_choice.gpus_in_mig_mode(undivided()).values()
    assert problem.why == "MIG is on, and it has no instance"
    assert "nvidia-smi mig" in problem.remedy
    with pytest.raises(ValueError, match="it has no instance"):
        target_choice.choose(undivided(), seen(), "3")
    assert target_choice.choose(undivided(), seen(), None).kind == "cpu"


def shared(memory_is_shared: bool | None) -> Inventory:
    gb10 = device(0, name="NVIDIA GB10", memory_is_shared=memory_is_shared)
    return dataclasses.replace(inventory(), devices=(gb10,))


def test_a_device_without_memory_of_its_own_has_what_the_host_has_available(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request, "available_bytes", lambda: 90 * GIB)
    nothing = readings(
        0,
        memory_used_bytes=None,
        memory_total_bytes=None,
        memory_free_bytes=None,
        absent={"memory_free_bytes": Absence.NOT_SUPPORTED},
    )
    said = dataclasses.replace(sample(), devices=(nothing,))
    target = target_choice.choose(shared(True), said, "0")
    assert target.memory_free_bytes == 90 * GIB
    assert target.memory_share == 0.5, "other programs use the same memory"
    problem = request.check_request(Request(target, "float32", 1 << 17, 10.0))
    assert problem is not None
    assert "90.0 GiB are free" in problem.why
    assert target_choice.choose(shared(None), said, "0").memory_free_bytes is None
