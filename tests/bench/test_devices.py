import dataclasses
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gputop.agent.device import Absence, Device, DeviceState
from gputop.agent.problem import ProblemError
from gputop.agent.snapshot import Inventory, Sample
from gputop.bench.plan import request, target_choice
from gputop.bench.plan.request import Request, Target
from gputop.bench.plan.target_choice import busy_question, usable_requests
from gputop.bench.worker import backends
from tests.bench.commands import ran
from tests.bench.machines import WHOLE, divided, instance, seen
from tests.bench.workers import CPU, fake_interpreter
from tests.driver import FakeDevice, FakeDriver, FakeInstance
from tests.streams import GIB, device, inventory, process, readings, sample

TWO = dataclasses.replace(
    inventory(), devices=(Device(0, "GPU-aa01", "one"), Device(1, "GPU-ab02", "another"))
)


def test_devices_are_named_as_those_of_id_and_cpu_and_all() -> None:
    named = target_choice.parse_devices("CPU, 3:1,all,GPU-4f2a,mig-6F1c,cpu")
    assert named == ("cpu", "3:1", "all", "GPU-4f2a", "mig-6F1c")
    for text in ("", "gpu", "cuda:1", "GPU-xyz", "0,,1", "3:1:0"):
        with pytest.raises(ValueError, match="gputop status -L` lists them"):
            target_choice.parse_devices(text)


@pytest.mark.parametrize(
    ("name", "uuid"),
    [
        (None, "GPU-aa01"),
        ("1", "GPU-ab02"),
        ("gpu-AA", "GPU-aa01"),
        ("cpu", None),
    ],
)
def test_choosing_a_device(name: str | None, uuid: str | None) -> None:
    assert target_choice.choose(TWO, None, name).uuid == uuid


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("2", "There is no GPU 2: this machine has GPU 0, 1"),
        ("0:1", "There is no MIG instance 0:1"),
        ("GPU-a", r"GPU-a is ambiguous: it matches GPU 0 \(GPU-aa01\), GPU 1 \(GPU-ab02\)"),
    ],
)
def test_choosing_a_device_that_is_not_there(name: str, says: str) -> None:
    with pytest.raises(ProblemError, match=says):
        target_choice.choose(TWO, None, name)


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
    assert target_choice.targets(divided(), None)[0].memory_free_bytes is None


@pytest.mark.parametrize("name", ["3:1", "mig-00000001-1111"])
def test_an_instance_by_its_names(name: str) -> None:
    target = target_choice.choose(divided(), seen(), name)
    assert (target.uuid, target.gpu_uuid) == (instance(1).uuid, WHOLE.uuid)


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


GPUS = target_choice.targets(inventory(4), sample(4))[:4]


def test_the_processes_of_all_are_named_once() -> None:
    assert busy_question(sample(4, []), [*GPUS, CPU]) is None
    held = [process(72, 0), process(7, 1), process(72, 3), process(9, 2, command="other")]
    title, lines = busy_question(sample(4, held), [GPUS[0], GPUS[1], GPUS[3], CPU]) or ("", [])
    assert title == "3 of 4 devices are in use. A stress test would slow down:"
    assert [line.split()[:4] for line in lines] == [
        ["GPU", "0,", "3", "72"],
        ["GPU", "1", "7", "ada"],
    ]
    assert len({line.index("ada") for line in lines}) == 1, "in columns"
    many = [process(pid, 0) for pid in range(10)]
    _, lines = busy_question(sample(1, many), GPUS[:1]) or ("", [])
    assert (len(lines), lines[-1].strip()) == (9, "and 2 more")
    unknown = dataclasses.replace(readings(1), absent={"processes": Absence.NO_PERMISSION})
    seen = dataclasses.replace(sample(2, []), devices=(readings(0), unknown))
    assert busy_question(seen, GPUS[:2]) == (
        "1 of 2 devices may be in use:",
        ["GPU 1: The driver does not list its processes."],
    )


def asked_for(kind: str = "soak") -> list[Request]:
    return [Request(target, "bfloat16", None, 60.0, kind=kind) for target in GPUS[:3]]


def lost(*indices: int) -> Sample:
    states = {n: DeviceState.LOST if n in indices else DeviceState.OK for n in range(3)}
    made = tuple(readings(n, state=state) for n, state in states.items())
    return dataclasses.replace(sample(3, []), devices=made)


def test_of_all_those_that_do_not_answer_are_left_out() -> None:
    left, said = usable_requests(lost(1), asked_for(), of_all=True)
    assert [request.target.number for request in left] == ["0", "2"]
    assert said == "GPU 1, NVIDIA H100 80GB HBM3: its state is lost"
    assert usable_requests(lost(), asked_for(), of_all=True) == (asked_for(), "")


@pytest.mark.parametrize(
    ("missing", "kind", "of_all", "why"),
    [
        ((1,), "soak", False, "GPU 1, .* its state is lost"),
        ((0, 1, 2), "soak", True, "GPU 0, .* its state is lost"),
        ((0, 1), "collective", True, "GPU 2, .* is the only device"),
    ],
)
def test_what_is_not_enough_is_refused(
    missing: tuple[int, ...], kind: str, why: str, *, of_all: bool
) -> None:
    with pytest.raises(ValueError, match=why):
        usable_requests(lost(*missing), asked_for(kind), of_all=of_all)
    alone = dataclasses.replace(asked_for()[0], size=1 << 20)
    with pytest.raises(ValueError, match="do not fit"):
        usable_requests(lost(), [alone], of_all=False)


TELLS = """
import json, os, sys
asked = json.loads(sys.stdin.readline())
what = f"{os.environ['CUDA_VISIBLE_DEVICES']} by {os.environ['CUDA_DEVICE_ORDER']}"
print(json.dumps(dict(event="error", kind="k", what=what, why="", remedy="")))
"""
"""A worker that says what it was given, and ends."""


@pytest.mark.driver
def test_the_worker_gets_the_instance_and_nothing_else(driver: FakeDriver, tmp_path: Path) -> None:
    driver.write(FakeDevice(mig_mode=1, instances=(None, FakeInstance())))
    python = fake_interpreter(tmp_path, TELLS)
    ended = ran("--python", python, "--device", "0:1", **driver.environment())
    assert ended.returncode == 3
    (line,) = ended.stderr.splitlines()
    assert "error: MIG-00000000-0001-5d7e-9a51-000000000001 by PCI_BUS_ID" in line


def fake_torch(*, integrated: bool) -> Any:
    """A torch whose device has 1 GiB free by CUDA's count, and a MiB less with torch's cache."""
    properties, kept = SimpleNamespace(is_integrated=integrated), [1 << 20]
    cuda = SimpleNamespace(
        get_device_properties=lambda _: properties,
        empty_cache=kept.clear,
        mem_get_info=lambda: ((1 << 30) - sum(kept), 4 << 30),
    )
    return SimpleNamespace(cuda=cuda, int64=None, empty=lambda *_, **__: None)


@pytest.mark.parametrize(("integrated", "free"), [(False, 1 << 30), (True, 7 << 30)])
def test_the_worker_measures_shared_memory_on_the_host(
    monkeypatch: pytest.MonkeyPatch, integrated: bool, free: int
) -> None:
    """CUDA's own count leaves out what the kernel gives up when asked."""
    monkeypatch.setattr(backends, "available_bytes", lambda: 7 << 30)
    device = backends.Cuda(fake_torch(integrated=integrated), threading.Event())
    assert device.uses_host_memory is integrated
    assert device.free_bytes() == free
