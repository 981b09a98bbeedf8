"""Many devices while their tests run, and the line that says so."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from gputop.agent.problem import Problem
from gputop.bench.events import Done, Event, Failed, Hello, Progress, Verified
from gputop.bench.plan.request import Request, Target
from gputop.bench.run.device_run import RECENT_WINDOWS
from gputop.bench.run.progress import progress_text
from gputop.bench.run.run import Run
from tests.bench.workers import RESULT
from tests.sessions import PLANNED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GPUS = [
    Target("cuda", f"GPU-{n}", n, "NVIDIA H100", "9.0", None, host=f"node-{n // 2}")
    for n in range(6)
]
HELLO = Hello("3.11.0", "9.9.9", "NVIDIA H100", 1, 1)
READY = dataclasses.replace(PLANNED, expected_seconds=60.0)


def window(elapsed: float, rate: float) -> Progress:
    return Progress(elapsed, 0.2, 1, rate)


def group_of(targets: Sequence[Target], now: Callable[[], float]) -> Run:
    return Run([Request(each, "bfloat16", None, 60.0) for each in targets], now)


def after(*happened: tuple[int, Event]) -> Run:
    found = group_of(GPUS, lambda: 0.0)
    for at, event in happened:
        found.add_event(GPUS[at], event)
    return found


def running(*rates: float) -> list[tuple[int, Event]]:
    return [(at, event) for at, rate in enumerate(rates) for event in (READY, window(0.2, rate))]


def test_how_many_are_how_far_in_the_order_of_a_run() -> None:
    failed = Failed(Problem("W", "y", "R"), 1)
    found = after((5, Done(RESULT)), (1, HELLO), (2, READY), (3, window(0.2, 1.0)), (4, failed))
    assert list(found.states.items()) == [
        (state, 1) for state in ("starting", "preparing", "ready", "running", "done", "failed")
    ]
    assert not found.ended


def test_a_device_is_judged_by_its_last_windows() -> None:
    found = after(
        *running(700, 700, 700), *((0, window(1.0, 350.0)) for _ in range(RECENT_WINDOWS))
    )
    assert found.rates[GPUS[0]] == pytest.approx(350.0)
    assert found.slow_devices() == {GPUS[0]: pytest.approx(50.0)}
    assert found.distributions["NVIDIA H100"].median == 700


def test_who_failed_is_in_no_distribution() -> None:
    found = after(*running(700, 700, 10), (2, Failed(Problem("W", "y", "R"), 1)))
    assert found.slow_devices() == {}
    assert found.distributions["NVIDIA H100"].count == 2


def test_wrong_elements_are_known_at_once_and_at_the_end() -> None:
    found = after(*running(700, 700), (0, Verified(3, 2)), (1, Verified(3, 0)))
    assert [found.wrong_elements(gpu) for gpu in GPUS[:2]] == [2, 0]
    found.add_event(GPUS[1], Done(dataclasses.replace(RESULT, wrong_elements=4)))
    assert found.wrong_elements(GPUS[1]) == 4


@pytest.mark.parametrize("width", [40, 79, 119])
def test_the_line_fits_and_says_the_most_first(width: int) -> None:
    now = [0.0]
    found = group_of(GPUS, lambda: now[0])
    assert progress_text(found, width) == "6 starting ..."
    for at, event in (*running(700, 702, 698, 620, 700, 701), (2, Verified(2, 1))):
        found.add_event(GPUS[at], event)
    now[0] = 12.0
    line = progress_text(found, width)
    assert len(line) <= width
    assert "12 s, 48 s left" in line
    assert "700 (" in line
    if width > 100:
        assert "6 running  1 wrong  node-1 GPU 3 11 % behind" in line
