import os
import random

import pytest

from gputop.health.findings import Finding, Severity
from gputop.text import moment
from gputop.training import members
from gputop.training.findings import find_slowdown, step_sentence
from gputop.training.members import descends_from
from gputop.training.progress import Point

START = 1_700_000_000.0


def steps(*parts: tuple[float, float], noise: float = 0.0) -> list[Point]:
    random.seed(1)
    points, now, done = [], START, 0
    for length, rate in parts:
        end = now + length
        while now < end:
            now += random.uniform(1 - noise, 1 + noise) / rate  # noqa: S311
            done += 1
            points.append(Point(now, done))
    return points


@pytest.mark.parametrize(
    ("parts", "noise", "percent", "near"),
    [
        (((300, 10), (60, 8.2)), 0.1, 18, 25),
        (((300, 10), (300, 5)), 0.5, 50, 25),
        (((3000, 0.5), (600, 0.25)), 0.1, 50, 25),
        (((300, 10), (40, 5)), 0, 50, 1),
        (((31, 10), (30, 5)), 0, 50, 1),
        (((1000, 0.1), (600, 0.08)), 0, 20, 6),
        (((1800, 10), (1780, 5)), 0, 50, 11),
    ],
)
def test_slower_steps_are_found_with_their_time(
    parts: tuple[tuple[float, float], ...], noise: float, percent: float, near: float
) -> None:
    points = steps(*parts, noise=noise)
    found = find_slowdown(points, points[-1].time)
    assert found is not None
    assert found.percent == pytest.approx(percent, abs=3)
    assert found.since == pytest.approx(START + parts[0][0], abs=near)


@pytest.mark.parametrize(
    "parts",
    [
        ((300, 10), (20, 5)),  # for too short a time
        ((300, 10), (300, 9.5)),  # hardly slower
        ((300, 5), (300, 10)),  # faster
        ((20, 10),),
        ((29, 10), (30, 5)),
        ((300, 10), (1800, 5)),  # for longer than anybody remembers
        ((300, 10), (60, 5), (10, 8), (60, 5)),  # fast at times
        ((300, 10), (60, 5), (300, 10)),  # as fast as before again
    ],
)
def test_a_training_that_is_as_fast_as_before_has_no_finding(
    parts: tuple[tuple[float, float], ...],
) -> None:
    points = steps(*parts, noise=0.1)
    assert find_slowdown(points, points[-1].time) is None
    assert find_slowdown([], START) is None


@pytest.mark.parametrize(("rate", "percent"), [(7.5, None), (6.5, 35)])
def test_a_drop_counts_from_three_usual_deviations_on(rate: float, percent: float | None) -> None:
    before = [(10, 10 + noise) for noise in (1, -1) * 10]
    after = [(10, rate + noise) for noise in (1, -1) * 6]
    points = steps(*before, *after)
    found = find_slowdown(points, points[-1].time)
    assert (found and round(found.percent)) == percent


def test_the_cause_is_the_finding_that_began_at_that_time() -> None:
    points = steps((300, 10), (60, 8.2))
    found = find_slowdown(points, points[-1].time)
    assert found is not None
    hot = Finding(Severity.WARNING, "slowed by heat", rule="thermal", since=found.since + 20)
    old = Finding(Severity.WARNING, "slowed by heat", rule="thermal", since=found.since - 61)
    other = Finding(Severity.WARNING, "almost full", rule="almost_full", since=found.since)
    begin = f"Steps are 18 % slower since {moment(found.since)[:5]}"
    assert found.sentence() == begin
    assert found.sentence([("GPU 3", old), ("GPU 3", other)]) == begin
    assert found.sentence([("GPU 3", hot)]) == f"{begin}, when GPU 3 began to be slowed by heat"
    title = "rank 3 (pid 7) may hold up its job"
    behind = Finding(Severity.WARNING, title, rule="held_up", since=found.since)
    assert found.sentence([("GPU 3", behind)]) == f"{begin}; GPU 3: {title}"
    low = Finding(Severity.WARNING, "clocks are low", rule="clocks_low", since=found.since)
    for order in (1, -1):  # the likeliest is told
        both = [("GPU 3", behind), ("GPU 1", low)][::order]
        assert found.sentence(both) == f"{begin}; GPU 1: clocks are low"


@pytest.mark.parametrize(
    ("rate", "busy", "sentence"),
    [
        (1.25, [37.5], "A step takes 0.80 s, of which the GPU works 0.30 s"),
        (20.0, [40, 60], "A step takes 50.0 ms, of which the GPU works 25.0 ms"),
        (1.25, [79, None], "A step takes 0.80 s, of which the GPU works 0.63 s"),
        (1.25, [80], ""),
        (1.25, [None], ""),
        (None, [40], ""),
    ],
)
def test_the_part_of_a_step_in_which_the_gpu_works(
    rate: float | None, busy: list[float | None], sentence: str
) -> None:
    assert step_sentence(rate, busy) == sentence


def test_a_process_descends_from_its_parents() -> None:
    assert descends_from(os.getpid(), os.getpid())
    assert descends_from(os.getpid(), os.getppid())
    assert not descends_from(os.getppid(), os.getpid())
    assert not descends_from(2**22 + 1, os.getpid())


def test_all_processes_of_a_container_descend_from_its_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(members, "parent_of", {9: 5, 5: 1, 1: 0}.get)
    assert members.members([9, 5, 1, 7], 1) == {9, 5, 1}
