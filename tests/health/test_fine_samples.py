"""Waves faster than the ticks: the driver's own samples, and what is not to be made of them."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gputop.health.findings import Finding
from tests.health.histories import Machine, finding, one, saw, trainer

FULL_CORE = trainer(cpu_percent=99.0)
STEP = 1 / 6
SAMPLES = "gpu_utilization_samples_percent"
SECONDS = "gpu_utilization_samples_seconds"
BUSY = "gpu_utilization_percent"


def share(begin: float, end: float, period: float, high: float) -> float:
    """Of that time, the part in which a wave is high: at the first `high` of each period."""

    def until(time: float) -> float:
        waves, rest = divmod(time, period)
        return waves * high * period + min(rest, high * period)

    return (until(end) - until(begin)) / (end - begin)


def sampled(
    period: float, high: float = 0.5, step: float = STEP, top: float = 95, low: float = 2
) -> Callable[[int], tuple[int, ...]]:
    """What the driver samples of such a wave between two ticks of a second."""

    def at(tick: int) -> tuple[int, ...]:
        first, end = (math.ceil((tick + n) / step - 1e-9) for n in (0, 1))
        shares = (share(n * step, (n + 1) * step, period, high) for n in range(first, end))
        return tuple(round(low + (top - low) * each) for each in shares)

    return at


def wave(period: float, high: float = 0.5, **how: Any) -> dict[str, Any]:
    """A device that is busy in such waves, by the reading of a second and by the samples."""
    samples = sampled(period, high, **how)

    def mean(tick: int) -> int:
        return round(sum(samples(tick)) / len(samples(tick)))

    return {BUSY: mean, SAMPLES: samples, SECONDS: round(how.get("step", STEP), 3)}


def without_samples(changes: Mapping[str, Any]) -> dict[str, Any]:
    return {BUSY: changes[BUSY]}


def machine(changes: Mapping[str, Any], **more: Any) -> Machine:
    return one(changes, process=FULL_CORE, **more)


def said(changes: Mapping[str, Any], **more: Any) -> Finding:
    return finding(machine(changes, **more), "input_bound")


@pytest.mark.parametrize(("period", "high"), [(0.7, 0.3), (0.9, 0.7), (1.3, 0.3), (5.0, 0.7)])
def test_a_wave_is_found_with_its_period(period: float, high: float) -> None:
    found = said(wave(period, high))
    idle, between, *_ = found.evidence
    assert idle.label == "idle, from 6 samples a second"
    assert idle.value == pytest.approx(98 - 93 * high, abs=3)
    assert between.label == "gaps every"
    assert between.value == pytest.approx(period, rel=0.08)
    assert f", every {between.text}" in found.line


def test_of_the_ticks_alone_it_is_not_claimed() -> None:
    changes = wave(0.8)
    assert "every 80" in said(changes).line
    found = said(without_samples(changes))
    assert "every" not in found.line
    assert "a CPU core is full: idle 51 %" in found.line
    assert [each.label for each in found.evidence][:2] == ["idle", "CPU of its busiest process"]


@pytest.mark.parametrize("period", [0.17, 0.34, 0.55])
def test_what_is_too_fast_for_the_samples_has_no_period(period: float) -> None:
    found = said(wave(period))
    assert "every" not in found.line
    assert found.evidence[0].value == pytest.approx(52, abs=2)


SLOW: Mapping[str, Any] = {BUSY: saw(95, 0, 8, 3)}
"""What the ticks show, and what is said of them alone."""


def brought(samples: Callable[[int], tuple[int, ...] | None], seconds: Any = STEP) -> Machine:
    return machine({**SLOW, SAMPLES: samples, SECONDS: seconds})


@pytest.mark.parametrize(
    ("samples", "seconds"),
    [
        (lambda _: None, STEP),
        (lambda _: (50,) * 6, None),
        (lambda tick: (50,) * 6 if tick < 60 else (), STEP),  # they stop
        (lambda tick: (95,) * 6 if tick % 8 < 3 else (), STEP),  # none while it is idle
        (lambda _: (50,) * 12, STEP),  # each one twice
        (lambda _: (50, 101, 50, 50, 50, 50), STEP),
        (lambda _: (50,) * 6, -STEP),
        (lambda _: (50,) * 6, math.nan),
        (lambda _: (50,), 1.0),  # no finer than the ticks
    ],
)
def test_samples_that_do_not_make_up_the_time_are_left_out(
    samples: Callable[[int], tuple[int, ...] | None], seconds: float | None
) -> None:
    assert brought(samples, seconds).verdict("input_bound") == said(SLOW)
