import dataclasses
from typing import Any

import pytest

from gputop.agent.device import Absence, Device, DeviceSample
from gputop.agent.snapshot import Host, Inventory, Process, ProcessKind, Sample
from gputop.health.idle_devices import Candidate, Requirements, candidates, parse_amount
from tests.streams import GIB, device, inventory, process, readings, sample

ANY = Requirements()


def look(index: int = 0, busy: int | None = 0, free: int = 79, **changes: Any) -> DeviceSample:
    values = {
        "gpu_utilization_percent": busy,
        "memory_free_bytes": free * GIB,
        "memory_used_bytes": (80 - free) * GIB,
    }
    return readings(index, **values | changes)


def taken(*looks: DeviceSample, processes: tuple[Process, ...] = (), **changes: Any) -> Sample:
    made = dataclasses.replace(sample(0), devices=looks, processes=processes)
    return dataclasses.replace(made, **changes)


def among(*devices: Device) -> Inventory:
    return dataclasses.replace(inventory(), devices=devices)


def seen(
    *samples: Sample, wanted: Requirements = ANY, devices: tuple[Device, ...] | None = None
) -> list[Candidate]:
    if devices is None:
        devices = tuple(device(n) for n in range(len(samples[-1].devices)))
    return candidates(among(*devices), samples, wanted, {each.uuid for each in devices})


def reason(*samples: Sample, wanted: Requirements = ANY, **changes: Any) -> str | None:
    (found,) = seen(*samples, wanted=wanted, devices=(device(0, **changes),))
    return found.reason


@pytest.mark.parametrize(
    ("looks", "order"),
    [
        ([(90, 79), (0, 79), (40, 79)], [1, 2, 0]),
        ([(0, 10), (0, 79), (0, 40)], [1, 2, 0]),
        ([(0, 20), (50, 79)], [1, 0]),  # it holds three quarters of its memory and waits
        ([(0, 78), (1, 79)], [1, 0]),
        ([(None, 40), (20, 79)], [1, 0]),
    ],
)
def test_the_idlest_is_first(looks: list[tuple[int | None, int]], order: list[int]) -> None:
    found = seen(taken(*(look(n, *each) for n, each in enumerate(looks))))
    assert [each.device.index for each in found] == order


def test_a_gap_in_the_work_does_not_make_a_device_idle() -> None:
    samples = [taken(look(busy=busy, free=free)) for busy, free in ((100, 20), (90, 10), (0, 70))]
    (found,) = seen(*samples)
    assert found.busy_percent == pytest.approx(63.3, abs=0.1)
    assert (found.memory_free_bytes, found.memory_usable_bytes) == (10 * GIB, 80 * GIB)
    assert reason(*samples, wanted=Requirements(max_busy_percent=50)) is not None


HELD = "its compute mode is exclusive, and process 7 of ada holds it"


@pytest.mark.parametrize(
    ("mode", "holder", "wanted"),
    [
        ("default", process(7, 0), None),
        ("prohibited", None, "its compute mode is prohibited"),
        ("exclusive_process", None, None),
        ("exclusive_process", process(7, 0), HELD),
        ("exclusive_thread", process(7, 0), HELD),
        ("exclusive_process", process(7, 1), None),
        ("exclusive_process", process(7, 0, kind=ProcessKind.GRAPHICS), None),
        ("exclusive_process", process(7, 0, kind=ProcessKind.MPS), None),
        ("exclusive_process", process(7, 0, command="/usr/bin/nvidia-cuda-mps-server"), None),
        ("exclusive_process", process(7, 0, user=None, command=None), HELD.replace(" of ada", "")),
        (None, process(7, 0), None),
    ],
)
def test_the_compute_mode(mode: str | None, holder: Process | None, wanted: str | None) -> None:
    processes = () if holder is None else (holder,)
    assert reason(taken(look(), processes=processes), compute_mode=mode) == wanted


def test_an_exclusive_device_whose_processes_are_not_known_is_left_out() -> None:
    unknown = taken(look(absent={"processes": Absence.NO_PERMISSION}))
    assert "its processes are not visible" in (
        reason(unknown, compute_mode="exclusive_process") or ""
    )


@pytest.mark.parametrize(
    ("min_free", "words"),
    [
        ("40GiB", None),
        ("50%", None),
        ("41GiB", "40.0 GiB of 80.0 GiB free, 41.0 GiB wanted"),
        ("51%", "40.0 GiB of 80.0 GiB free, 40.8 GiB wanted"),
    ],
)
def test_free_memory(min_free: str, words: str | None) -> None:
    assert reason(taken(look(free=40)), wanted=Requirements(parse_amount(min_free))) == words


def test_a_device_with_the_hosts_memory() -> None:
    host = Host(memory_available_bytes=30 * GIB, memory_total_bytes=120 * GIB)
    shared = taken(look(memory_free_bytes=None, memory_used_bytes=None), host=host)
    (found,) = seen(shared, devices=(device(0, memory_is_shared=True),))
    assert (found.memory_free_bytes, found.taken_percent) == (30 * GIB, 75)


def test_a_device_that_is_not_visible() -> None:
    (found,) = candidates(among(device(0)), [taken(look())], ANY, ())
    assert found.reason == "not in CUDA_VISIBLE_DEVICES"


GPU = device(0, mig_mode="enabled", compute_mode="default")
PARTS = tuple(
    device(0, uuid=f"MIG-{n}", parent_uuid=GPU.uuid, mig_index=n, compute_mode=None)
    for n in range(2)
)


def test_instances_are_picked_and_not_their_gpu() -> None:
    looks = (
        look(),
        look(uuid="MIG-0", busy=None, sm_active_percent=80.0),
        look(uuid="MIG-1", busy=None, sm_active_percent=5.0),
    )
    found = seen(taken(*looks), devices=(GPU, *PARTS))
    assert [each.device.uuid for each in found] == ["MIG-1", "MIG-0", GPU.uuid]
    assert found[-1].reason == "MIG is on: its instances are considered instead"
    found = seen(taken(*looks), devices=(GPU, *PARTS), wanted=Requirements(by_index=True))
    assert all(each.reason for each in found)


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"busy": 9, "free": 40}, None),
        ({"busy": 10, "free": 80}, "is 10 % busy, 80.0 GiB of 80.0 GiB free: no process is"),
        ({"busy": 0, "free": 4}, "is 0 % busy, 4.00 GiB of 80.0 GiB free: no process is"),
        ({"busy": None, "free": 2}, "is of unknown load, 2.00 GiB of 80.0 GiB free: no process is"),
    ],
)
def test_a_warning_says_how_busy_and_full_it_is(
    changes: dict[str, Any], warning: str | None
) -> None:
    (found,) = seen(taken(look(**changes)))
    expected = None if warning is None else f"GPU 0 (H100 80GB HBM3) {warning} listed"
    assert found.warning == expected
    (used,) = seen(taken(look(busy=99), processes=(process(7, 0, command="/opt/a/train.py x"),)))
    assert (used.warning or "").endswith("used by ada (train.py, pid 7)")


@pytest.mark.parametrize(
    ("text", "of_80_gib"),
    [
        ("20GiB", 20 * GIB),
        ("20G", 20 * GIB),
        ("20GB", 20_000_000_000),
        ("1.5k", 1536),
        ("1T", 1 << 40),
        ("80%", 64 * GIB),
        ("0.000001%", 859),
    ],
)
def test_an_amount(text: str, of_80_gib: int) -> None:
    assert parse_amount(text).bytes_of(80 * GIB) == of_80_gib


@pytest.mark.parametrize(
    "text",
    ["", "20", "GiB", "-1G", "1e3G", "20iB", "101%", "20 PiB", "1_0G", "٢G", "nan%", "1G 2G"],
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an amount of memory: .* such as 20GiB"):
        parse_amount(text)
