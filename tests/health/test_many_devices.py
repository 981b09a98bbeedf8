"""Devices are judged every few seconds, and at once if a fault begins or ends."""

from collections.abc import Mapping
from typing import Any

import pytest

from gputop.agent.device import DeviceState
from gputop.agent.snapshot import Event
from gputop.health.judge import Judge
from tests.health.histories import WORKING, Machine, device, trainer
from tests.streams import NOW

MANY = 6
SICK: Mapping[str, Any] = {"sm_active_percent": 10.0, "clock_event_reasons": ("sw_thermal",)}


def machine(**changes: Any) -> Machine:
    """Devices of one job."""
    return Machine(
        devices=tuple(device(n) for n in range(MANY)),
        readings=({**WORKING, **changes},) * MANY,
        processes=tuple(trainer(n, slurm_job="7") for n in range(MANY)),
        judge=Judge(),
    )


def worse(made: Machine, index: int, **changes: Any) -> None:
    """That device goes on with other readings."""
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
