"""Before a stress test starts: who is left out, and the one question about all that is held."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from gputop.agent.device import Absence, DeviceState
from gputop.agent.snapshot import Sample
from gputop.bench.plan import target_choice
from gputop.bench.plan.request import Request
from gputop.bench.plan.target_choice import busy_question, usable_requests
from tests.bench.workers import CPU
from tests.streams import inventory, process, readings, sample

if TYPE_CHECKING:
    from gputop.agent.snapshot import Sample

GPUS = target_choice.targets(inventory(4), sample(4))[:4]


def test_nothing_is_asked_where_nobody_is_disturbed() -> None:
    assert busy_question(sample(4, []), [*GPUS, CPU]) is None


def test_the_processes_of_all_are_named_once() -> None:
    held = [process(72, 0), process(7, 1), process(72, 3), process(9, 2, command="other")]
    asked = busy_question(sample(4, held), [GPUS[0], GPUS[1], GPUS[3], CPU])
    assert asked is not None
    title, lines = asked
    assert title == "3 of 4 devices are in use. A stress test would slow down:"
    assert [line.split()[:4] for line in lines] == [
        ["GPU", "0,", "3", "72"],
        ["GPU", "1", "7", "ada"],
    ]
    assert len({line.index("ada") for line in lines}) == 1, "in columns"


def test_who_cannot_be_known_is_said_too() -> None:
    unknown = dataclasses.replace(readings(1), absent={"processes": Absence.NO_PERMISSION})
    seen = dataclasses.replace(sample(2, []), devices=(readings(0), unknown))
    asked = busy_question(seen, GPUS[:2])
    assert asked == (
        "1 of 2 devices may be in use:",
        ["GPU 1: The driver does not list its processes."],
    )


def asked_for(kind: str = "soak") -> list[Request]:
    return [Request(target, "bfloat16", None, 60.0, kind=kind) for target in GPUS[:3]]


def lost(*indices: int) -> Sample:
    states = {n: DeviceState.LOST if n in indices else DeviceState.OK for n in range(3)}
    made = tuple(readings(n, state=state) for n, state in states.items())
    return dataclasses.replace(sample(3, []), devices=made)


def test_of_all_those_that_do_not_answer_are_left_out() -> None:
    left, said = usable_requests(lost(1), asked_for(), of_all=True)
    assert [request.target.number for request in left] == ["0", "2"]
    assert said == "GPU 1, NVIDIA H100 80GB HBM3: its state is lost"
    assert usable_requests(lost(), asked_for(), of_all=True) == (asked_for(), "")


@pytest.mark.parametrize(
    ("missing", "kind", "of_all", "why"),
    [
        ((1,), "soak", False, "GPU 1, .* its state is lost"),
        ((0, 1, 2), "soak", True, "GPU 0, .* its state is lost"),
        ((0, 1), "pairs", True, "GPU 2, .* is the only device"),
    ],
)
def test_what_is_not_enough_is_refused(
    missing: tuple[int, ...], kind: str, why: str, *, of_all: bool
) -> None:
    with pytest.raises(ValueError, match=why):
        usable_requests(lost(*missing), asked_for(kind), of_all=of_all)
