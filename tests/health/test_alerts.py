"""What counts as wrong, and how it is said."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.agent.device import DeviceSample, DeviceState
from gputop.agent.snapshot import Event, Host, Machine, MachineState
from gputop.health.conditions import find_alerts, machine_alerts
from gputop.health.findings import summarize
from gputop.health.thresholds import XID_SECONDS
from tests.streams import GIB, NOW, device, inventory, lost, readings, sample

UUID = device(0).uuid


def said(sample: DeviceSample, *events: Event, **changes: Any) -> list[str]:
    found = find_alerts([device(0, **changes)], {UUID: sample}, events, NOW)
    return [text for _, text in summarize(found)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, []),
        ({"clock_event_reasons": ("idle",)}, []),
        ({"clock_event_reasons": ("sw_power_cap",)}, []),  # normal at full load
        ({"clock_event_reasons": ("sw_thermal",)}, ["GPU 0: throttled by heat"]),
        (
            {"clock_event_reasons": ("sw_power_cap", "hw_slowdown", "hw_thermal")},
            ["GPU 0: throttled by heat (hardware)"],
        ),
        ({"clock_event_reasons": ("hw_slowdown",)}, ["GPU 0: slowed down by hardware"]),
        (
            {"clock_event_reasons": ("hw_slowdown", "hw_power_brake")},
            ["GPU 0: braked by its power supply"],
        ),
        ({"ecc_uncorrected": 0, "ecc_corrected": 9}, []),
        ({"ecc_uncorrected": 1}, ["GPU 0: 1 uncorrected ECC error"]),
        ({"ecc_uncorrected": 3}, ["GPU 0: 3 uncorrected ECC errors"]),
        ({"remap_pending": True}, ["GPU 0: a memory row to remap at the next reset"]),
        ({"remap_pending": True, "remap_failed": True}, ["GPU 0: no spare memory rows left"]),
        ({"recovery_action": "none"}, []),
        ({"recovery_action": "drain_and_reset"}, ["GPU 0: needs a reset, once its work has ended"]),
        ({"memory_used_bytes": 97 * GIB, "memory_free_bytes": 3 * GIB}, []),
        (
            {"memory_used_bytes": 98 * GIB, "memory_free_bytes": 2 * GIB},
            ["GPU 0: almost out of memory"],
        ),
        ({"memory_used_bytes": 0, "memory_free_bytes": 0}, []),
        ({"memory_used_bytes": 98 * GIB, "memory_free_bytes": None}, []),
    ],
)
def test_what_a_device_says(changes: dict[str, Any], words: list[str]) -> None:
    assert said(readings(0, **changes)) == words


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (DeviceState.LOST, "GPU 0: LOST"),
        (DeviceState.NEEDS_RESET, "GPU 0: NEEDS RESET"),
        (DeviceState.NOT_RESPONDING, "GPU 0: NOT RESPONDING"),
    ],
)
def test_a_device_that_does_not_answer(state: DeviceState, words: str) -> None:
    assert said(lost(0, state)) == [words]
    # Of an instance its GPU says so.
    assert said(lost(0, state), parent_uuid="GPU-1", mig_index=2) == []


def test_an_xid_is_an_alert_for_a_while_and_each_is_news() -> None:
    def xid(age: float, code: int | None = 79, uuid: str | None = UUID) -> Event:
        return Event(NOW - age, uuid, "xid", code)

    assert said(readings(0), xid(5), xid(4, 95)) == ["GPU 0: Xid 95"]
    assert said(readings(0), xid(5, None)) == ["GPU 0: Xid unknown"]
    assert said(readings(0), xid(XID_SECONDS)) == []
    assert said(readings(0), xid(5, uuid=None), xid(5, uuid="GPU-gone")) == []
    assert said(readings(0), Event(NOW, UUID, "something", 1)) == []
    kinds = [
        find_alerts([device(0)], {UUID: readings(0)}, [xid(age)], NOW)[0].since for age in (5, 5, 3)
    ]
    assert kinds[0] == kinds[1] != kinds[2]


@pytest.mark.parametrize(
    ("count", "changes", "words"),
    [
        (1, {"remap_pending": True}, "GPU 0: a memory row to remap at the next reset"),
        (2, {"ecc_uncorrected": 2}, "GPUs 0 and 1: 2 uncorrected ECC errors"),
        (3, {"remap_pending": True}, "GPUs 0–2: a memory row to remap at the next reset"),
        (4, {"clock_event_reasons": ("sw_thermal",)}, "GPUs 0–3: throttled by heat"),
        (2, {"recovery_action": "gpu_reset"}, "GPUs 0 and 1: needs a reset"),
        (2, {"state": DeviceState.NEEDS_RESET}, "GPUs 0 and 1: NEEDS RESET"),
    ],
)
def test_what_is_wrong_with_several_is_said_once(
    count: int, changes: dict[str, Any], words: str
) -> None:
    samples = {device(n).uuid: readings(n, **changes) for n in range(count)}
    assert [text for _, text in summarize(find_alerts(map(device, range(count)), samples))] == [
        words
    ]


@pytest.mark.parametrize(
    ("available", "words"),
    [(21 * GIB, []), (GIB // 4, ["GPU 0: almost out of memory"]), (None, [])],
)
def test_memory_that_is_the_hosts_is_judged_by_what_the_host_has(
    available: int | None, words: list[str]
) -> None:
    """The driver's own numbers are those of a part that was set aside."""
    used = None if available is None else 24 * GIB - available
    host = Host(memory_used_bytes=used, memory_available_bytes=available)
    sample = readings(0, memory_used_bytes=4 * GIB, memory_free_bytes=0)
    shared = device(0, memory_is_shared=True)
    found = find_alerts([shared], {UUID: sample}, (), NOW, lambda _: host)
    assert [text for _, text in summarize(found)] == words


MISSING = ("0000:27:00.0", "0000:37:00.0", "0000:47:00.0", "0000:57:00.0")


@pytest.mark.parametrize(
    ("addresses", "words"),
    [
        (MISSING[:1], "Host node07: a GPU that the driver does not list, 0000:27:00.0"),
        (
            MISSING[:2],
            "Host node07: 2 GPUs that the driver does not list, 0000:27:00.0, 0000:37:00.0",
        ),
    ],
)
def test_gpus_that_the_driver_does_not_list(addresses: tuple[str, ...], words: str) -> None:
    found = machine_alerts((), sample(1), inventory(1, unlisted_gpus=addresses))
    assert [text for _, text in summarize(found)] == [words]
    assert "dmesg" in found[0].remedy
    assert machine_alerts((), sample(1), inventory(1)) == []


def test_each_of_several_machines_has_its_own_gpus_that_are_not_listed() -> None:
    machines = (Machine("a", MachineState.OK), Machine("b", unlisted_gpus=MISSING[:1]))
    found = machine_alerts(machines, sample(1), inventory(1))
    assert [text for _, text in summarize(found)] == [
        "Host b: a GPU that the driver does not list, 0000:27:00.0"
    ]
