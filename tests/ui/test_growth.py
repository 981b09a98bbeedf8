"""Repeated actions leave no objects behind: they are counted, which is exact."""

from __future__ import annotations

import gc
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from textual.dom import DOMNode

from gputop.ui.benchmark import results, screen
from gputop.ui.benchmark.results import ResultsView
from gputop.ui.drawing.cells import Span
from gputop.ui.drawing.dialogs import ConfirmScreen
from gputop.ui.shell.app import GputopApp
from tests.streams import PreparedStream, inventory, sample
from tests.ui.pilots import dashboard_of, settle, until

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from tests.sessions import PreparedSession

ROUNDS = 6


def alive() -> Counter[str]:
    """Count the objects of our types and Textual's nodes, without garbage.

    Spans are not counted: there are more or fewer of them on the screen.
    """
    gc.collect()
    kinds = (type(each) for each in gc.get_objects() if not issubclass(type(each), Span))
    return Counter(
        f"{kind.__module__}.{kind.__qualname__}"
        for kind in kinds
        if kind.__module__.startswith("gputop.") or issubclass(kind, DOMNode)
    )


async def a_round(pilot: Pilot[None], session: type[PreparedSession]) -> None:
    """One stress test, and each thing that one looks at and closes."""
    before = len(session.requests)
    await pilot.press("1", "b")
    await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen))
    await pilot.press("y")
    await until(pilot, lambda: len(session.requests) > before)
    tab = pilot.app.query_one(screen.BenchmarkTab)
    await until(pilot, lambda: not tab.running)
    await pilot.press("1", "enter", "escape", "w", "escape", "3", "1")
    for opens in ("question_mark", "ctrl+p"):
        await pilot.press(opens)
        await until(pilot, lambda: pilot.app.screen.is_modal)
        await pilot.press("escape")
        await until(pilot, lambda: not pilot.app.screen.is_modal)
    await settle(pilot)


@pytest.mark.slow
async def test_stress_tests_and_screens_leave_nothing(
    session: type[PreparedSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "MOST_RESULTS", ROUNDS // 2)
    app = GputopApp(PreparedStream(inventory(2), sample(2)))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: bool(dashboard_of(app).telemetry.devices))
        counted = []
        for _ in range(2):
            for _ in range(ROUNDS):
                await a_round(pilot, session)
            await pilot.pause(0.5)  # what timers of a closed screen still hold
            assert len(session.requests) == ROUNDS
            session.requests.clear()
            counted.append(alive())
        once, twice = counted
        assert once["gputop.bench.run.run.Run"] == 1, "that of the last run"
        assert len(app.query_one(ResultsView).results) == ROUNDS // 2
        assert {kind: twice[kind] - many for kind, many in once.items() if twice[kind] > many} == {}
        assert set(twice) <= set(once)
