"""Devices take turns before the rules: nobody waits long, and nothing sudden waits at all."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import pytest

from gputop.agent.snapshot import Event
from gputop.health.judge import AT_A_TIME, ROUND_SECONDS, Judge
from tests.health.histories import WORKING, Machine, device, trainer
from tests.streams import NOW

if TYPE_CHECKING:
    from collections.abc import Mapping

ALL = 1000
"""More than there are."""
EIGHT = 8
SICK: Mapping[str, Any] = {"sm_active_percent": 10.0, "clock_event_reasons": ("sw_thermal",)}


def machine(count: int = EIGHT, at_a_time: int = AT_A_TIME, **changes: Any) -> Machine:
    """Devices of one job."""
    return Machine(
        devices=tuple(device(n) for n in range(count)),
        readings=({**WORKING, **changes},) * count,
        processes=tuple(trainer(n, slurm_job="7") for n in range(count)),
        judge=Judge(at_a_time),
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
    """Of any device, whoever's turn it is."""
    for index in range(EIGHT):
        made = machine().run(20)
        worse(made, index, **changes)
        assert [f.device_uuid for f in made.run(1).last.findings] == [device(index).uuid]
        worse(made, index, **WORKING)
        assert made.run(1).last.findings == ()


@pytest.mark.parametrize("index", range(EIGHT))
def test_an_xid_is_judged_at_its_tick(index: int) -> None:
    made = machine().run(20)
    for code in (79, 48):
        now = NOW + made.ticks
        made.events = (*made.events, Event(now, device(index).uuid, "xid", code))
        (found,) = made.run(1).last.findings
        assert found.line.startswith(f"Xid {code}")
        assert (found.device_uuid, found.since) == (device(index).uuid, now)


@pytest.mark.parametrize("count", [1, 3, 8, pytest.param(64, marks=pytest.mark.slow)])
def test_a_finding_comes_and_goes_a_round_later_at_most(count: int) -> None:
    """Than where all are judged at each tick."""
    ticks = {}
    for at_a_time in (AT_A_TIME, ALL):
        made = machine(count, at_a_time).run(70)
        worse(made, count // 2, **SICK)
        made.run(80)
        worse(made, count // 2, **WORKING)
        made.run(80)
        ticks[at_a_time] = {
            rule: [n for n, said in enumerate(made.said) if rule in {f.rule for f in said.findings}]
            for rule in ("thermal", "not_working")
        }
    most = min(ceil(count / AT_A_TIME), ROUND_SECONDS)
    for rule, taken in ticks[AT_A_TIME].items():
        at_once = ticks[ALL][rule]
        assert 0 <= taken[0] - at_once[0] < most
        assert 0 <= taken[-1] - at_once[-1] < most
        assert len(taken) == taken[-1] - taken[0] + 1
