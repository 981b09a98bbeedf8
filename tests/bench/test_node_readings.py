"""What nodes say of their GPUs by nvidia-smi: old drivers, MIG instances and broken ones, too."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from gputop.bench.cluster import node_actor
from gputop.bench.cluster.node_readings import node_facts
from gputop.bench.plan.memory_limit import available_bytes
from tests.bench import heat

GPU = {
    "index": "3",
    "uuid": "GPU-4f2a",
    "name": "NVIDIA H100 80GB HBM3",
    "pci.bus_id": "00000000:1B:00.0",
    "pci.device_id": "0x233010DE",
    "driver_version": "570.86.15",
    "memory.total": "81559",
    "memory.used": "4",
    "memory.free": "81000",
    "clocks.max.sm": "1980",
    "power.limit": "700.00",
    "compute_cap": "9.0",
}
SAID: dict[str, Any] = {
    "node": "abc",
    "host": "node-1",
    "gpus": ["3"],
    "python": "/py",
    "torch": "2.13.0",
    "pid": 1,
}
LISTED = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-0000)
  MIG 3g.20gb     Device  0: (UUID: MIG-1111)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-0001)
  MIG 1g.5gb      Device  0: (UUID: MIG-2222)
  MIG 2g.10gb     Device  1: (UUID: MIG-3333)
"""


def said(**changes: Any) -> dict[str, Any]:
    return {**SAID, "gpu": {**GPU, **changes.pop("gpu", {})}, **changes}


def test_tests_of_one_cpu_share_its_memory() -> None:
    target = node_facts({**SAID, "cpu": "EPYC", "free_bytes": 8 << 30}, "node-1", 4).target
    assert (target.place, target.memory_free_bytes, target.torch) == ("CPU 3", 2 << 30, "2.13.0")


def test_a_gpu_is_known_by_host_and_uuid() -> None:
    found = node_facts(said(), "node-1")
    target = found.target
    assert (target.host, target.uuid, target.place) == ("node-1", "GPU-4f2a", "GPU 3")
    assert target.label == "node-1, GPU 3, NVIDIA H100 80GB HBM3"
    assert target.memory_free_bytes == 81000 << 20
    (device,) = found.inventory.devices
    assert (device.pci_device_id, device.compute_capability) == ("2330", "9.0")
    assert found.held is None


def test_an_old_driver_says_less() -> None:
    old = {key: value for key, value in GPU.items() if key != "compute_cap"}
    old |= {"clocks.max.sm": "[N/A]", "memory.free": "[Not Supported]"}
    found = node_facts({**SAID, "gpu": old}, "node-1")
    assert found.target.compute_capability is None
    assert found.target.memory_free_bytes is None


def test_an_instance_is_a_device_with_the_readings_of_its_gpu() -> None:
    parent, instance = node_actor._parent("MIG-3333", LISTED)
    assert (parent, instance) == ("GPU-0001", "1 2g.10gb")
    gpu = {"uuid": parent, "index": "1", "name": "NVIDIA A100-SXM4-40GB"}
    found = node_facts(said(gpu=gpu, instance=instance, gpus=["MIG-3333"]), "node-1")
    assert found.target.place == "GPU 1:1"
    assert (found.target.uuid, found.target.gpu_uuid) == ("MIG-3333", "GPU-0001")
    assert found.target.name == "NVIDIA A100-SXM4-40GB MIG 2g.10gb"
    assert {each.uuid for each in found.inventory.devices} == {"GPU-0001", "MIG-3333"}


@pytest.mark.parametrize(
    ("changes", "held"),
    [
        ({}, None),
        ({"apps": "4242, /opt/python, 30000"}, "in use by process 4242 (/opt/python)"),
        ({"apps": "1, a, 1\n2, b, 1\n3, c, 1\n4, d, 1"}, "1 (a), 2 (b), 3 (c) and 1 more"),
        ({"apps": "7, \x1b[2J, 1"}, "7 (␛[2J)"),
        ({"gpu": {"memory.used": "70000"}}, "68.4 GiB of its memory are held"),
        ({"gpu": {"memory.used": "600"}}, None),
        ({"gpu": {"memory.used": "[N/A]"}}, None),
    ],
)
def test_who_holds_it_is_named(changes: dict[str, Any], held: str | None) -> None:
    found = node_facts(said(**changes), "node-1").held
    assert found is None if held is None else held in (found or "")


def test_why_there_is_no_gpu_is_said() -> None:
    with pytest.raises(ValueError, match="nvidia-smi: not found"):
        node_facts({**SAID, "why": "nvidia-smi: not found"}, "node-1")


@pytest.mark.parametrize(
    ("text", "celsius", "margins"),
    [
        (heat.H100, (None, None, None), (-2, -8, 0, 0)),
        (heat.H200, (None, None, None), (-2, -8, 0, 0)),
        (heat.L40S, (None, None, None), (-2, -5, 0, None)),
        (heat.RTX_2080_SUPER, (97, 100, None), (None,) * 4),
        (heat.RTX_4080_SUPER, (96, 101, None), (None,) * 4),
        (heat.A100, (89, 92, 95), (None,) * 4),
        ("", (None, None, None), (None,) * 4),
        ("GPU Slowdown Temp :\n: 3 C\nGPU Slowdown Temp", (None, None, None), (None,) * 4),
    ],
    ids=["H100", "H200", "L40S", "RTX 2080 Super", "RTX 4080 Super", "A100", "nothing", "broken"],
)
def test_thresholds_are_those_that_nvidia_smi_lists(
    text: str, celsius: tuple[int | None, ...], margins: tuple[int | None, ...]
) -> None:
    gpu = node_facts(said(heat=text), "n").inventory.devices[0]
    assert (
        gpu.temperature_slowdown_celsius,
        gpu.temperature_shutdown_celsius,
        gpu.memory_temperature_max_celsius,
    ) == celsius
    assert (
        gpu.temperature_slowdown_margin_celsius,
        gpu.temperature_shutdown_margin_celsius,
        gpu.temperature_max_margin_celsius,
        gpu.memory_temperature_max_margin_celsius,
    ) == margins


def test_a_post_says_why_nvidia_smi_did_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: str) -> str:
        raise FileNotFoundError(2, "No such file or directory", "nvidia-smi")

    monkeypatch.setattr(node_actor, "_smi", missing)
    found = node_actor.NodeActor(b"", None, cpu=False).facts(
        lambda: ("abc", "", [0]), available_bytes
    )
    assert found["why"] == "there is no nvidia-smi on its PATH"

    def broken(*_: str) -> str:
        raise subprocess.CalledProcessError(9, "nvidia-smi", "NVIDIA-SMI has failed because\nit")

    monkeypatch.setattr(node_actor, "_smi", broken)
    found = node_actor.NodeActor(b"", None, cpu=False).facts(
        lambda: ("abc", "", [0]), available_bytes
    )
    assert found["why"] == "nvidia-smi: NVIDIA-SMI has failed because it"
    assert (
        "2 GPUs"
        in node_actor.NodeActor(b"", None, cpu=False).facts(
            lambda: ("abc", "", [0, 1]), available_bytes
        )["why"]
    )
