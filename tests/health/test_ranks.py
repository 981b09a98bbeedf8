from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from gputop.health.findings import Severity
from gputop.health.judge import NoFinding
from gputop.health.ranks import FALLEN, Job, compare, find_jobs, in_order
from tests.health.histories import (
    BUSY,
    IDLE,
    NO_GPM,
    SM,
    TENSOR,
    WATTS,
    WORKING,
    Machine,
    device,
    finding,
    lacking,
    saw,
    several,
    silent,
)
from tests.streams import GIB, process

JOB = "node01:29500"
READINGS = (BUSY, WATTS, FALLEN, SM, TENSOR)
Load = dict[str, float]


def load_of(*numbers: float | None) -> Load:
    pairs = zip(READINGS, numbers, strict=True)
    return {name: number for name, number in pairs if number is not None}


WORKS = load_of(97, 84, 96, 88, 52)
WAITS = load_of(100, 26, 30, 12, 0)
HALF = load_of(98, 55, 60, 50, 26)
"""Works half of the time, and waits in the other half."""
STARVES = load_of(55, 45, 50, 48, 30)
STOPPED = load_of(0, 11, 12, 0, 0)


def blind(load: Load) -> Load:
    return {name: number for name, number in load.items() if name not in (SM, TENSOR)}


def rank(number: int, of: int | None = 4, index: int | None = None, **changes: Any) -> Any:
    place = number if index is None else index
    changes = {"rank": number, "world_size": of, "job_id": JOB} | changes
    return process(4000 + number, place, **changes)


@pytest.mark.parametrize(
    ("loads", "held_up", "hangs"),
    [
        ([WORKS] * 4, None, False),
        ([WAITS] * 4, None, False),
        ([WORKS, WORKS, WAITS, WAITS], None, False),
        ([WAITS, WAITS, WAITS, STOPPED], 3, True),
        ([WAITS, WORKS, WAITS, WAITS], 1, True),
        ([WAITS, STOPPED], 1, True),
        ([blind(WAITS), blind(STOPPED), blind(WAITS)], 1, True),
        # A GPU whose limit is far above what it draws.
        ([blind(WAITS) | {WATTS: 45}] * 3 + [blind(WORKS)], 3, True),
        ([HALF, HALF, WORKS, HALF], 2, False),
        ([blind(HALF), blind(HALF), blind(WORKS), blind(HALF)], 2, False),
        ([WORKS, WORKS, WORKS, STARVES], 3, False),
        ([WORKS, STARVES], None, False),
        # Two that are out of line, or one that is only a little.
        ([WORKS, WORKS, WORKS, STARVES, STARVES], None, False),
        ([WORKS, WORKS, WORKS, WORKS | {BUSY: 90}], None, False),
        ([WORKS, WORKS, WORKS, WORKS | {TENSOR: 55, WATTS: 90}], None, False),
        # Ranks that differ from each other, as the stages of a pipeline do.
        ([WORKS | {WATTS: p, TENSOR: p / 2} for p in (40, 55, 70, 90)], None, False),
        # Almost waits, as all do: small kernels.
        ([WAITS, WAITS, WAITS | {SM: 33}], None, False),
        ([WORKS], None, False),
        ([WAITS], None, False),
        # Idle ranks wait for nobody.
        ([STOPPED, STOPPED, STOPPED, WORKS], None, False),
    ],
)
def test_the_rank_that_the_others_wait_for(
    loads: list[Load], held_up: int | None, hangs: bool
) -> None:
    state = compare(Job(JOB, {}, 0), dict(enumerate(loads)))
    if held_up is None:
        assert state.held_up is None
    else:
        assert state.held_up is not None
        assert (state.held_up.rank, state.held_up.hangs) == (held_up, hangs)


@pytest.mark.parametrize(
    ("last", "numbers"),
    [
        (lambda n: WORKS | {BUSY: 97 - n}, (9, 10, 6, 5)),
        (lambda n: WORKS | {WATTS: 84 + n}, (14, 15, 10, 9)),
        (lambda n: WORKS | {TENSOR: 52 + n}, (9, 10, 7, 6)),
    ],
)
def test_a_rank_is_named_from_one_limit_on_until_another(
    last: Callable[[float], Load], numbers: list[float]
) -> None:
    before, named = None, []
    for number in numbers:
        loads = [WORKS, WORKS, last(number)]
        before = compare(Job(JOB, {}, 0), dict(enumerate(loads)), before).held_up
        named.append(before is not None)
    assert named == [False, True, True, False]


@pytest.mark.parametrize(
    ("ranks", "of", "seen"),
    [
        ([0, 1, 2, 3], 4, "4 ranks"),
        ([0, 1, 2, 4, 6, 7], 8, "6 of 8 ranks seen: 3 and 5 are not on a GPU here"),
        ([0, 1, 2], 4, "3 of 4 ranks seen: 3 is not on a GPU here"),
        ([*range(8)], 64, "8 of 64 ranks seen: 8–63 are not on a GPU here"),
        ([0, 2, 4, 6, 8], 10, "5 of 10 ranks seen: the others are not on a GPU here"),
        ([5, 9], 10**15, f"2 of {10**15} ranks seen: 0–4, 6–8 and 10–{10**15 - 1} are not on"),
        ([0, 1], None, "2 ranks"),
        ([0, 3], None, "2 of 4 ranks seen: 1 and 2 are not on a GPU here"),
    ],
)
def test_the_ranks_that_are_seen(ranks: list[int], of: int | None, seen: str) -> None:
    (job,) = find_jobs([rank(n, of) for n in reversed(ranks)])
    assert [*job.ranks] == ranks
    assert job.seen.startswith(seen)


def test_a_rank_is_on_the_device_where_it_holds_most_memory() -> None:
    (job,) = find_jobs([rank(0), rank(1), rank(1, index=0, memory_used_bytes=GIB // 2)])
    assert [each.device_uuid for each in job.ranks.values()] == [device(0).uuid, device(1).uuid]


def test_jobs_of_several_hosts_and_processes_without_a_job() -> None:
    there = replace(rank(1), machine="node02")
    other = rank(0, 2, job_id="slurm 7.0"), rank(1, 2, job_id="slurm 7.0")
    alone = rank(0, 1, job_id="alone")
    found = find_jobs([rank(0), there, *other, alone, process(1, 0)])
    assert [(job.id, len(job.ranks)) for job in found] == [(JOB, 2), ("slurm 7.0", 2)]


def ranks(*readings: Mapping[str, Any], seconds: float = 40, **changes: Any) -> Machine:
    of: dict[str, Any] = {"world_size": len(readings), "job_id": JOB, **changes}
    return several(*readings, **of).watched(seconds)


SPINS: dict[str, Any] = {BUSY: 100, SM: 12.0, TENSOR: 0.0, WATTS: 180.0}
BLIND_SPINS = {**NO_GPM, BUSY: 100, WATTS: 180.0}
OTHER_RULES = ("straggler", "imbalance", "not_working")


@pytest.mark.parametrize("spins", [SPINS, BLIND_SPINS])
def test_a_rank_that_hangs_is_named_on_its_device_only(spins: dict[str, Any]) -> None:
    stopped = {**IDLE, **{name: None for name in NO_GPM if spins is BLIND_SPINS}}
    machine = ranks(spins, spins, spins, stopped)
    found = finding(machine, "held_up", 3)
    assert found.severity is Severity.WARNING
    assert found.line == (
        "all ranks but 3 wait in a collective for rank 3 (pid 4003): busy 0 %, the others 100 %"
    )
    assert found.remedy == "See where it is: `s` on pid 4003 in the dashboard (py-spy)"
    assert found.cost_percent == 100
    for index in range(3):
        silent(machine, "held_up", index)
    for index in range(4):
        for rule in OTHER_RULES:
            verdict = machine.verdict(rule, index)
            assert isinstance(verdict, NoFinding), verdict
    assert machine.last.jobs[JOB].waiting == {0, 1, 2}


def test_a_rank_that_hangs_is_named_within_30_seconds() -> None:
    steps = ranks({}, {}, {}, {}, seconds=300)
    steps.readings = ({**WORKING, **SPINS}, {**WORKING, **SPINS}, {**WORKING, **SPINS}, IDLE)
    steps.run(30)
    assert finding(steps, "held_up", 3).title.startswith("all ranks but 3")


def test_a_rank_whose_host_is_slow_is_named() -> None:
    half = {
        BUSY: saw(97, 100, 4, 2),
        SM: saw(88, 12, 4, 2),
        TENSOR: saw(52, 0, 4, 2),
        WATTS: saw(590, 180, 4, 2),
    }
    machine = ranks(half, half, {}, half)
    assert finding(machine, "held_up", 2).line == (
        "rank 2 (pid 4002) may hold up its job: power 84 % of the limit, the others 54 %"
    )
    assert finding(machine, "held_up", 2).cost_percent == 0  # power does not show a share
    less_busy = ranks({}, {}, {BUSY: 67})
    assert finding(less_busy, "held_up", 2).cost_percent == 30


def test_ranks_that_cannot_be_compared() -> None:
    assert lacking(ranks({}, {}, {}, seconds=5), "held_up") == {BUSY: None}
    machine = ranks({}, {BUSY: None}, {})
    silent(machine, "held_up", 0)
    assert machine.last.jobs[JOB].lacking == "not watched for long enough yet"
    assert machine.last.jobs[JOB].sentence().startswith("3 ranks. Not compared: ")
    few = ranks({}, {})
    assert few.last.jobs[JOB].lacking == "3 ranks are needed"


def test_ranks_that_share_a_device_are_not_compared() -> None:
    machine = Machine(
        devices=(device(0), device(1)),
        readings=(WORKING, IDLE),
        processes=tuple(rank(n, 3, n % 2) for n in range(3)),
    ).watched(40)
    assert machine.last.jobs[JOB].lacking == "ranks share a GPU"


def test_jobs_that_are_held_up_come_first() -> None:
    good = compare(Job("a", {}, 0), dict(enumerate([WORKS] * 3)))
    bad = compare(Job("b", {}, 0), dict(enumerate([WAITS, STOPPED])))
    assert [each.job.id for each in in_order([good, bad])] == ["b", "a"]
