"""A device that gets too hot ends its stress test."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from gputop.bench import devices, plan, selection
from gputop.bench.limits import UNKNOWN_LIMIT_CELSIUS, reached, temperature_limit
from gputop.telemetry.snapshot import Absence, DeviceState, ProcessKind
from tests.bench.machines import WHOLE, divided, seen, undivided
from tests.streams import device, inventory, process, readings, sample

BOUND = 20.0
"""Seconds after which what is waited for does not come."""


def target(index: int) -> plan.Target:
    return devices.targets(inventory(2), sample(2))[index]


def heated(celsius: int | None) -> Any:
    return dataclasses.replace(sample(2), devices=(readings(0, temperature_celsius=celsius),))


@pytest.mark.parametrize(
    ("celsius", "words"),
    [
        (None, None),
        (40, None),
        (85, None),
        (86, "it reached 86°C, and its limit is 86°C"),
        (101, "it reached 101°C, and its limit is 86°C"),
    ],
)
def test_the_limit_is_three_degrees_under_the_slowdown(
    celsius: int | None, words: str | None
) -> None:
    assert reached(target(0), inventory(2), heated(celsius)) == words


def test_a_device_without_a_threshold_has_a_limit_all_the_same() -> None:
    assert temperature_limit(device(0, temperature_slowdown_celsius=None)) == UNKNOWN_LIMIT_CELSIUS


def test_nothing_is_said_of_a_cpu_or_of_what_is_not_known() -> None:
    assert reached(plan.cpu_target(), inventory(2), heated(100)) is None
    assert reached(target(1), inventory(2), heated(100)) is None
    assert reached(target(0), None, heated(100)) is None
    assert reached(target(0), inventory(2), None) is None
    assert reached(target(0), inventory(0), heated(100)) is None


@pytest.mark.parametrize(
    ("celsius", "words"),
    [
        (None, None),
        (85, None),
        (86, "GPU 3 reached 86°C, and its limit is 86°C"),
        (95, "GPU 3 reached 95°C, and its limit is 86°C"),
    ],
)
def test_an_instance_is_as_hot_as_the_gpu_that_it_is_a_part_of(
    celsius: int | None, words: str | None
) -> None:
    part = devices.choose(divided(), seen(), "3:1")
    assert reached(part, divided(), seen(celsius)) == words
    assert reached(devices.choose(divided(), seen(), "0"), divided(), seen(celsius)) is None


def test_an_instance_that_has_gone_leaves_its_gpu_watched() -> None:
    part = devices.choose(divided(), seen(), "3:1")
    alone = dataclasses.replace(
        seen(), devices=(readings(3, uuid=WHOLE.uuid, temperature_celsius=90),)
    )
    assert reached(part, undivided(), alone) is not None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, None),
        ({"state": DeviceState.LOST}, "its state is lost"),
        ({"state": DeviceState.NOT_RESPONDING}, "its state is not responding"),
        ({"state": DeviceState.NEEDS_RESET}, "its state is needs reset"),
        ({"age_seconds": None}, "it has not answered yet"),
    ],
)
def test_only_a_device_that_answers_is_put_under_stress(
    changes: dict[str, Any], why: str | None
) -> None:
    seen = dataclasses.replace(sample(1), devices=(readings(0, **changes),))
    problem = devices.unusable(seen, target(0))
    assert (problem and problem.why) == why
    if why is not None:
        with pytest.raises(selection.RefusedError, match=why):
            selection.look_at(target(0), seen, ignore_busy=True)


def test_a_device_without_readings_is_not_put_under_stress_and_a_cpu_always_may_be() -> None:
    assert devices.unusable(None, target(0)) is not None
    assert devices.unusable(sample(0), target(0)) is not None
    assert devices.unusable(None, plan.cpu_target()) is None


def test_who_uses_a_device_may_be_unknown() -> None:
    assert devices.holders(sample(2), plan.cpu_target()) == []
    assert devices.holders(None, target(0)) is None
    assert devices.holders(sample(2, processes=[]), target(0)) == []
    (holder,) = devices.holders(sample(2), target(1)) or []
    assert holder.pid == 4001
    silent = readings(0, absent={"processes": Absence.NO_PERMISSION})
    seen = dataclasses.replace(sample(2), devices=(silent,))
    assert devices.holders(seen, target(0)) is None
    with pytest.raises(selection.RefusedError, match="may be in use: the driver does not say"):
        selection.look_at(target(0), seen, ignore_busy=False)
    selection.look_at(target(0), seen, ignore_busy=True)


def test_who_only_draws_is_not_disturbed() -> None:
    drawing = process(7, 0, kind=ProcessKind.GRAPHICS)
    assert devices.holders(sample(1, [drawing]), target(0)) == []
