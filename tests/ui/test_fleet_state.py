"""What the fleet screen knows: filter, groups, levels that hold still, and one cursor for all."""

from __future__ import annotations

import dataclasses
from statistics import median
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.fleet.distributions import (
    AGE,
    BUSY,
    POWER,
    TEMPERATURE,
    UNKNOWN,
    MapMetric,
    distribution,
    shares,
)
from gputop.fleet.model import Fleet, Gpu
from gputop.fleet.parse import natural_key
from gputop.health.findings import Severity
from gputop.ui.fleet.fleet_state import FleetState
from gputop.ui.fleet.grouping import GpuFilter, choices, group_gpus
from tests.fleets import AWAY, LABELS, fleet

if TYPE_CHECKING:
    from gputop.fleet.model import Fleet, Gpu

SOME = fleet(512)


def gpu(number: int = 0, **changes: object) -> Gpu:
    return dataclasses.replace(SOME.gpus[number], **changes)  # type: ignore[arg-type]


class Clock:
    """A clock that stands until it is told otherwise."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def state_of(shown: Fleet = SOME, *, space: tuple[int, int] = (120, 20)) -> FleetState:
    state = FleetState(clock=Clock())
    state.update(shown)
    state.fit(*space)
    return state


# The filter.


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("", True),
        ("rack=r000", True),
        ("rack=r00", False),
        ("rack=r00*", True),
        ("rack!=r000", False),
        ("rack!=r001", True),
        ("rack~00", True),
        ("job~TRAIN", True),
        ("job!~train", False),
        ("cluster=a job~llm host=node0000", True),
        ("cluster=a job~chat", False),
        ("gpu=0", True),
        ("model~h100", True),
        ("LLM", True),
        ("h100", True),
        ("node0000", True),
        ("nobody", False),
        ("rack=", True),
    ],
)
def test_words_of_a_filter(text: str, passes: bool) -> None:
    made = GpuFilter(text, LABELS)
    assert not made.refused
    assert made.passing([gpu()]) == ([0] if passes else [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rak=r3", "No label rak: did you mean rack?"),
        ("=r3", "=r3 names no label. Try rack=r3"),
        ("zzzz=1", "No label zzzz: there are cluster, job, pod, rack, host"),
        ("rack==r3=", ""),
        ("!r3", "!r3 is not a filter. Try rack=r3"),
    ],
)
def test_a_bad_word_is_said_and_the_others_count(text: str, said: str) -> None:
    made = GpuFilter(f"{text} rack=r001", LABELS)
    assert made.refused.startswith(said)
    assert made.passing([gpu(), gpu(64)]) == ([1] if said else [])


def test_a_name_that_is_being_typed_leaves_nobody_out() -> None:
    state = state_of()
    seen = []
    for end in range(1, 10):
        state.type("rack=r001"[:end], unfinished=True)
        seen.append(len(state.view.numbers))
    assert seen == [512] * 5 + [0] * 3 + [64]
    state.type("rack")
    assert state.view.numbers == []


@given(st.text(max_size=60))
def test_whatever_is_typed_is_no_fault(text: str) -> None:
    state = state_of()
    state.type(text)
    assert set(state.view.numbers) <= set(range(512))


# Groups.


def test_names_are_in_natural_order() -> None:
    names = ["node10", "node2", "a", "", "node2b", "10", "9"]
    assert sorted(names, key=natural_key) == ["", "9", "10", "a", "node2", "node2b", "node10"]


@pytest.mark.parametrize("by", choices(SOME))
def test_each_gpu_is_in_one_group(by: str) -> None:
    groups = group_gpus(SOME.gpus, range(512), by)
    assert sorted(n for group in groups for n in group.members) == [*range(512)]
    assert len({group.name for group in groups}) == len(groups)


def test_who_does_not_say_comes_last() -> None:
    assert [group.name for group in group_gpus(SOME.gpus, range(512), "job")][-1] == ""


@pytest.mark.parametrize(
    ("count", "space", "by"),
    [
        (8, (80, 11), "host"),
        (512, (200, 42), "host"),
        (512, (80, 12), "rack"),
        (512, (80, 5), "cluster"),
        (10_000, (200, 42), "model"),
        (10_000, (80, 11), "model"),
    ],
)
def test_the_smallest_unit_of_which_all_fit(count: int, space: tuple[int, int], by: str) -> None:
    state = state_of(fleet(count), space=space)
    assert state.by == by


def test_what_was_chosen_by_hand_stays() -> None:
    state = state_of()
    state.next_group(1)
    assert state.by == choices(SOME)[choices(SOME).index("host") + 1]
    state.update(fleet(8))
    state.fit(200, 50)
    assert state.by == "cluster"


# Levels.


@given(st.sampled_from([BUSY, TEMPERATURE, POWER, AGE]), st.floats(0, 2000))
def test_a_level_is_the_number_of_edges_up_to_the_value(metric: MapMetric, value: float) -> None:
    names = ("gpu_utilization_percent", "temperature_celsius", "power_watts", "age_seconds")
    (level,) = metric.levels([gpu(0, **dict.fromkeys(names, value))])
    assert level == sum(edge <= value for edge in metric.edges)


def test_nothing_read_is_no_level() -> None:
    assert BUSY.levels([gpu(gpu_utilization_percent=None)]) == [UNKNOWN]


# Distributions.


@given(st.lists(st.one_of(st.none(), st.floats(0, 100)), max_size=50))
def test_percentiles_are_of_the_values_that_are_known(values: list[float | None]) -> None:
    found = distribution([gpu(gpu_utilization_percent=value) for value in values], BUSY)
    known = sorted(value for value in values if value is not None)
    if not known:
        assert found == (None, None, None, "     ", [])
        return
    assert found.p5 is not None
    assert found.median is not None
    assert found.p95 is not None
    assert known[0] <= found.p5 <= found.median <= found.p95 <= known[-1]
    assert found.known == known
    assert found.median == pytest.approx(median(known))


def test_bars_are_as_high_as_levels_are_common() -> None:
    assert shares([8, 0, 4, 0, 0, 1]) == "█ ▅  ▂"
    some = [gpu(gpu_utilization_percent=value) for value in (0, 4.9, 5, 64, 65, 95, 100, None)]
    assert distribution(some, BUSY).bars == "█▅▅▅█"


# The cursor.


def test_it_begins_at_the_worst() -> None:
    state = state_of()
    assert state.selected is not None
    assert state.selected.key == SOME.findings[0].device_uuid
    assert state.row == 0


def test_it_stays_on_its_gpu_whatever_comes() -> None:
    state = state_of()
    state.move_to(3, 2)
    chosen = state.selected
    assert chosen is not None
    state.update(dataclasses.replace(SOME, gpus=SOME.gpus[5:], findings=SOME.findings[1:]))
    assert state.selected is not None
    assert state.selected.key == chosen.key
    state.next_group(1)
    assert state.selected.key == chosen.key


def test_a_row_of_the_list_is_a_gpu_of_the_map() -> None:
    state = state_of()
    for row, wrong in enumerate(SOME.findings):
        state.move_to_row(row)
        assert state.row == row
        group, member = state.place
        assert SOME.gpus[state.grouping.groups[group].members[member]].key == wrong.device_uuid


def test_two_things_wrong_with_one_gpu_are_two_rows() -> None:
    first = SOME.findings[0]
    second = dataclasses.replace(first, rule="other", severity=Severity.WARNING)
    state = state_of(dataclasses.replace(SOME, findings=(first, second)))
    state.move_to_row(1)
    assert state.row == 1
    assert [*state.view.health.values()] == [first.severity]


# Time.


def test_what_is_late_is_old() -> None:
    clock = Clock()
    state = FleetState(clock=clock)
    seen = [state.age_seconds, state.is_old]
    state.update(SOME)
    for clock.seconds in (30, 31):
        seen += [state.age_seconds, state.is_old]
    assert seen == [None, False, 30, False, 31, True]
    state.update(fleet(512, tick=1))
    assert (state.age_seconds, state.is_old) == (0, False)
    clock.seconds = 36
    state.update(fleet(512, tick=2, fresh=False, problems=(AWAY,)))
    assert (state.is_old, state.age_seconds) == (True, 5)
