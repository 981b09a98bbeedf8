import math
from collections.abc import Callable
from typing import Any

import pytest

from gputop.health.findings import Finding
from tests.health.histories import BUSY, Machine, finding, one, saw, trainer

FULL_CORE = trainer(cpu_percent=99.0)
STEP = 1 / 6
SAMPLES = "gpu_utilization_samples_percent"
SECONDS = "gpu_utilization_samples_seconds"
Samples = Callable[[int], tuple[int, ...] | None]


def wave(period: int, high: int) -> dict[str, Any]:
    def samples(tick: int) -> tuple[int, ...]:
        return tuple(95 if (6 * tick + n) % period < high else 2 for n in range(6))

    return {BUSY: lambda tick: round(sum(samples(tick)) / 6), SAMPLES: samples, SECONDS: STEP}


def brought(changes: dict[str, Any]) -> Machine:
    return one(changes, process=FULL_CORE)


def said(changes: dict[str, Any]) -> Finding:
    return finding(brought(changes), "input_bound")


@pytest.mark.parametrize(("period", "high"), [(4, 2), (5, 2), (8, 3), (30, 20)])
def test_a_wave_is_found_with_its_period(period: int, high: int) -> None:
    found = said(wave(period, high))
    idle, between, *_ = found.evidence
    assert idle.label == "idle, from 6 samples a second"
    assert idle.value == pytest.approx(98 - 93 * high / period, abs=3)
    assert between.label == "gaps every"
    assert between.value == pytest.approx(period / 6, rel=0.08)
    assert f", every {between.text}" in found.line


@pytest.mark.parametrize("period", [2, 3])
def test_what_is_too_fast_for_the_samples_has_no_period(period: int) -> None:
    found = said(wave(period, 1))
    assert "every" not in found.line
    assert found.evidence[0].value == pytest.approx(98 - 93 / period, abs=2)


@pytest.mark.parametrize(
    ("samples", "seconds"),
    [
        (lambda _: None, STEP),
        (lambda _: (50,) * 6, None),
        (lambda tick: (50,) * 6 if tick < 60 else (), STEP),  # they stop
        (lambda tick: (95,) * 6 if tick % 8 < 3 else (), STEP),  # none while it is idle
        (lambda _: (50,) * 7, STEP),  # one in six twice
        (lambda tick: (50,) * (5 if tick % 5 else 6), STEP),  # one in eight is missing
        (lambda _: (50, 101, 50, 50, 50, 50), STEP),
        (lambda _: (50,) * 6, -STEP),
        (lambda _: (50,) * 6, math.nan),
        (lambda _: (50,), 1.0),  # no finer than the ticks
    ],
)
def test_samples_that_do_not_make_up_the_time_are_left_out(
    samples: Samples, seconds: float | None
) -> None:
    ticks = {BUSY: saw(95, 0, 8, 3)}
    with_samples = brought({**ticks, SAMPLES: samples, SECONDS: seconds})
    assert with_samples.verdict("input_bound") == said(ticks)
