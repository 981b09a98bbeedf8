import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from gputop.agent.device import DeviceState
from gputop.agent.snapshot import Event
from gputop.health.findings import Severity
from gputop.health.judge import RULES, Judge, judge_snapshot
from tests.health.histories import IDLE, WORKING, Machine, device, noise, one, saw, several, trainer
from tests.streams import GIB, NOW

STEADY = {"pcie_generation", "pcie_width", "performance_state", "pcie_replays", "ecc_corrected"}
STEADY |= {"ecc_uncorrected", "remapped_rows", "memory_total_bytes", "power_limit_watts"}
STEADY |= {"memory_unattributed_bytes"}
"""What has no noise in it, or is a counter."""


@pytest.mark.parametrize("of", [WORKING, IDLE])
def test_a_healthy_machine_has_no_findings(of: dict[str, Any]) -> None:
    changes = {
        name: noise(value, 0.02 * value, seed)
        for seed, (name, value) in enumerate(of.items())
        if type(value) in (int, float) and name not in STEADY
    }
    machine = Machine(
        devices=tuple(device(n) for n in range(3)),
        readings=({**of, **changes},) * 3,
        processes=tuple(trainer(n, slurm_job="7") for n in range(3)) if of is WORKING else (),
    ).run(620)
    assert [said.findings for said in machine.said if said.findings] == []


def test_the_gravest_first_then_what_to_look_at_first() -> None:
    machine = one(
        {
            "gpu_utilization_percent": saw(95, 0, 8, 3),
            "ecc_corrected": lambda tick: tick // 40,
            "remap_failed": True,
            "memory_unattributed_bytes": 9 * GIB,
        },
        process=trainer(cpu_percent=99.0),
    )
    found = machine.last.findings
    assert [f.rule for f in found] == ["remap", "input_bound", "unattributed", "ecc"]
    assert found[-1].severity is Severity.INFORMATION
    assert {each.device_uuid for each in found} == {device().uuid}


SNAPSHOT_RULES = {rule.name for rule in RULES if not rule.needs_history}
STEADILY: tuple[dict[str, Any], ...] = (
    {},
    {"ecc_uncorrected": 3},
    {"memory_used_bytes": 79.5 * GIB, "memory_free_bytes": 0.5 * GIB},
    {"clock_event_reasons": ("hw_thermal", "hw_slowdown")},
    {"clock_event_reasons": ("hw_power_brake", "sw_power_cap")},
    {"pcie_width": 8, "performance_state": 8},
    {"pcie_width": 8, "gpu_utilization_percent": 20},
    {"memory_unattributed_bytes": 9 * GIB},
)


@pytest.mark.parametrize("changes", STEADILY, ids=str)
@pytest.mark.parametrize("of", [WORKING, IDLE])
def test_one_snapshot_tells_what_a_minute_of_the_same_would(
    changes: dict[str, Any], of: dict[str, Any]
) -> None:
    machine = one(changes, of=of)
    inventory = dataclasses.replace(machine.inventory, devices=tuple(machine.devices))
    at_once = judge_snapshot(inventory, machine.sample())
    assert [verdict.rule for verdict in at_once.verdicts] == [
        rule.name for rule in RULES if not rule.needs_history
    ]
    assert {f.rule: f.severity for f in at_once.findings} == {
        f.rule: f.severity for f in machine.last.findings if f.rule in SNAPSHOT_RULES
    }
    assert not any("of the time" in found.line for found in at_once.findings)


MANY = 6
SICK: Mapping[str, Any] = {"sm_active_percent": 10.0, "clock_event_reasons": ("sw_thermal",)}


def machine(**changes: Any) -> Machine:
    return dataclasses.replace(several(*[changes] * MANY, slurm_job="7"), judge=Judge())


def worse(made: Machine, index: int, **changes: Any) -> None:
    made.readings = tuple(
        {**each, **changes} if n == index else each for n, each in enumerate(made.readings)
    )


SUDDEN = (
    {"ecc_uncorrected": 1},
    {"remap_pending": True},
    {"remap_failed": True},
    {"recovery_action": "gpu_reset"},
)


@pytest.mark.parametrize("changes", SUDDEN, ids=str)
def test_a_fault_is_judged_at_its_tick_and_when_it_is_over(changes: dict[str, Any]) -> None:
    made = machine().run(22)
    worse(made, 5, **changes)
    assert [f.device_uuid for f in made.run(1).last.findings] == [device(5).uuid]
    worse(made, 5, **WORKING)
    assert made.run(1).last.findings == ()


def test_an_xid_is_judged_at_its_tick() -> None:
    made = machine().run(22)
    for code in (79, 48):
        now = NOW + made.ticks
        made.events = (*made.events, Event(now, device(3).uuid, "xid", code))
        (found,) = made.run(1).last.findings
        assert found.line.startswith(f"Xid {code}")
        assert (found.device_uuid, found.since) == (device(3).uuid, now)


def test_devices_that_stop_to_answer_are_judged_at_their_tick() -> None:
    made = machine(**SICK).run(42)
    assert made.last.findings
    made.state = DeviceState.LOST
    assert made.run(1).last.findings == ()
