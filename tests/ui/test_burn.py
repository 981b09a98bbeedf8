"""Many devices of a cluster on the whole terminal: what is drawn, and how one leaves."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.bench.events import Done, Event, Failed, Planned, Progress, Verified
from gputop.bench.plan import devices
from gputop.bench.plan.request import Request, Target
from gputop.bench.run.group_state import GroupState
from gputop.problem import Problem
from gputop.ui.shell.app import GputopApp
from gputop.ui.shell.cluster_screen import BurnScreen, BurnView, histogram
from tests.sessions import PLANNED, RESULT
from tests.streams import inventory, sample

LOST = Failed(Problem("The stress test on node-1 was lost", "its node is gone", "R"), 1)
READY = dataclasses.replace(PLANNED, expected_seconds=60.0)


def targets(count: int, name: str = "NVIDIA H100 80GB HBM3") -> list[Target]:
    return [
        Target("cuda", f"GPU-{n:04}", n % 8, name, "9.0", None, host=f"node-{n // 8}")
        for n in range(count)
    ]


def group_of(targets: list[Target]) -> GroupState:
    return GroupState([Request(target, "bfloat16", None, 60.0) for target in targets])


def running(count: int) -> GroupState:
    """All run, the third is slow, the fifth computes wrongly, and the last is lost."""
    found = group_of(targets(count))
    every = list(found.runs)
    for n, target in enumerate(every):
        found.add_event(target, READY)
        found.add_event(target, Progress(12.0, 0.2, 1, 600.0 if n == 2 else 700.0 + n % 7))
    found.add_event(every[4], Verified(3, 2))
    found.add_event(every[-1], LOST)
    return found


class Stopped:
    """What the app calls to stop the runs: they end with it."""

    def __init__(self, group: GroupState) -> None:
        self.group, self.times = group, 0
        self.screen: BurnScreen | None = None

    async def __call__(self) -> None:
        self.times += 1
        assert self.screen is not None
        for target in self.group.runs:
            self.group.add_event(target, Done(dataclasses.replace(RESULT, stopped="user")))
        self.screen.ended()


def app_of(group: GroupState) -> tuple[GputopApp, Stopped]:
    stop = Stopped(group)
    stop.screen = BurnScreen(group, stop)
    return GputopApp(first=stop.screen, handles_signals=False), stop


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_distribution_counts_and_who_is_odd(size: tuple[int, int]) -> None:
    app, _ = app_of(running(16))
    async with app.run_test(size=size):
        view = app.query_one(BurnView)
        view.redraw()
        text = view.text()
    lines = text.splitlines()
    assert lines[0] == "Running bfloat16 on 16 devices of 2 hosts"
    assert lines[1].startswith("15 running   1 failed")
    assert "15 × H100 80GB HBM3  TFLOP/s: median 703  p5 670" in text
    assert "max 706" in text
    assert "3 outliers, gravest first" in text
    uuid = ", GPU-0004" if size[0] >= 100 else ""
    assert f" node-0, GPU 4{uuid}: computed wrong results: 2 elements" in text
    assert "its node is gone" in text
    assert text.index("GPU 4") < text.index("GPU 2")
    assert lines[-1].startswith(" q stop and quit  x stop")


async def test_the_heat_limits_that_hold_are_named() -> None:
    group = group_of([*devices.targets(inventory(2), sample(2))[:2]])
    app, _ = app_of(group)
    async with app.run_test(size=(80, 24)):
        view = app.query_one(BurnView)
        assert "heat limit" not in view.text()
        for trace in group.traces:
            trace.add_sample(inventory(2), sample(2))
        view.redraw()
        head = view.text().splitlines()[0]
    assert head.endswith("on 2 devices of 1 host · heat limit: 86°C")


async def test_a_thousand_devices_fit_and_what_does_not_is_counted() -> None:
    found = running(1000)
    for target in list(found.runs)[100:160]:
        found.add_event(target, LOST)
    app, _ = app_of(found)
    async with app.run_test(size=(80, 24)):
        view = app.query_one(BurnView)
        view.redraw()
        text = view.text()
    assert len(text.splitlines()) == 24
    assert "939 running   61 failed" in text
    assert "63 outliers, gravest first" in text
    shown = text.count("its node is gone") + text.count("computed wrong")
    assert f" and {63 - shown} more" in text


async def test_before_there_is_anything_to_see() -> None:
    app, _ = app_of(group_of(targets(3)))
    async with app.run_test(size=(80, 24)):
        view = app.query_one(BurnView)
        view.redraw()
        text = view.text()
    assert text.startswith("Preparing bfloat16 on 3 devices of 1 host\n3 starting")
    assert "No outliers so far" in text


async def test_q_stops_and_leaves_once_all_have_ended() -> None:
    app, stop = app_of(running(8))
    async with app.run_test() as pilot:
        await pilot.press("q")
        await asyncio.wait_for(asyncio.shield(_gone(app)), 10)
    assert stop.times == 1


async def test_x_stops_and_q_then_leaves() -> None:
    app, stop = app_of(running(8))
    async with app.run_test() as pilot:
        await pilot.press("x")
        await pilot.press("x")
        await pilot.pause()
        view = app.query_one(BurnView)
        view.redraw()
        assert stop.times == 1
        assert view.text().startswith("Stopped bfloat16")
        assert " q quit, and print the page" in view.text()
        assert app.is_running
        await pilot.press("q")
        await asyncio.wait_for(asyncio.shield(_gone(app)), 10)


async def _gone(app: GputopApp) -> None:
    while app.is_running and not app._exit:  # noqa: ASYNC110 - Textual has no event for it
        await asyncio.sleep(0.01)


async def test_escape_sequences_of_hosts_are_shown() -> None:
    bad = dataclasses.replace(targets(1)[0], host="a\x1b[2Jb", name="x\x1by")
    found = group_of([bad, *targets(2)])
    event: Event
    for event in (Planned(*dataclasses.astuple(READY)), LOST):
        found.add_event(bad, event)
    app, _ = app_of(found)
    async with app.run_test(size=(80, 24)):
        view = app.query_one(BurnView)
        view.redraw()
        assert "a␛[2Jb, GPU 0" in view.text()


@given(st.lists(st.floats(1e-3, 1e4), min_size=1, max_size=200), st.integers(1, 12))
def test_every_value_is_in_one_bin(values: list[float], bins: int) -> None:
    found = histogram(values, bins)
    assert sum(many for _, _, many in found) == len(values)
    assert found[0][0] == min(values)
    assert found[-1][1] == pytest.approx(max(values))
    assert len(found) in (1, bins)
