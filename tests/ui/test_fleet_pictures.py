"""What the fleet screen looks like. After a wanted change: `pytest --snapshot-update`, and look."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from gputop.settings import Settings
from gputop.ui.drawing.look import Terminal
from gputop.ui.fleet.fleet_state import FleetState
from gputop.ui.shell.app import GputopApp
from tests.fleets import AWAY, fleet
from tests.ui.pilots import fleet_screen, lines, settle, text_of
from tests.ui.test_snapshots import named, styled

if TYPE_CHECKING:
    from textual.pilot import Pilot
    from textual.strip import Strip

    from gputop.fleet.model import Fleet

USUAL, LARGE = (80, 24), (200, 60)
every_size = pytest.mark.parametrize("size", [USUAL, LARGE], ids=named)
every_count = pytest.mark.parametrize("count", [8, 512, 10_000])


def app_of(shown: Fleet | None, **looks: Any) -> GputopApp:
    """At a clock that stands: no picture is older than another."""
    state = FleetState(clock=lambda: 0.0)
    if shown is not None:
        state.update(shown)
    return GputopApp(first=fleet_screen(state, "http://prom:9090"), **looks)


def after(*keys: str) -> Any:
    async def run_before(pilot: Pilot[None]) -> None:
        await settle(pilot)
        for key in keys:
            await pilot.press(key)
        await settle(pilot)

    return run_before


async def screen_of(app: GputopApp, size: tuple[int, int]) -> list[Strip]:
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        return lines(app)


@every_size
@every_count
def test_fleet(snap_compare: Any, count: int, size: tuple[int, int]) -> None:
    assert snap_compare(app_of(fleet(count)), terminal_size=size, run_before=after())


@pytest.mark.daily(3)
@pytest.mark.parametrize(
    "keys",
    [
        ("m", "m"),  # temperature
        ("m", "m", "m", "m"),  # health
        ("g", "tab", "down"),
        ("slash", *"rack=r01* job~train", "enter"),
        ("slash", *"rak=r01"),
        ("question_mark",),
    ],
    ids=["temperature", "health", "list", "filter", "refused", "help"],
)
def test_looked_at_otherwise(snap_compare: Any, keys: tuple[str, ...]) -> None:
    app = app_of(fleet(2048))
    assert snap_compare(app, terminal_size=(120, 40), run_before=after(*keys))


def test_racks_folded(snap_compare: Any) -> None:
    app = app_of(fleet(10_000))
    assert snap_compare(app, terminal_size=(120, 40), run_before=after("G", "G", "G"))


def test_the_server_is_away(snap_compare: Any) -> None:
    shown = dataclasses.replace(fleet(2048), fresh=False, problems=(AWAY,), simulated=True)
    assert snap_compare(app_of(shown), terminal_size=(120, 40), run_before=after())


@pytest.mark.parametrize("shown", [None, fleet(0)], ids=["no answer", "no GPUs"])
def test_nothing(snap_compare: Any, shown: Fleet | None) -> None:
    assert snap_compare(app_of(shown), terminal_size=USUAL, run_before=after())


def test_light_theme(snap_compare: Any) -> None:
    """A picture has a dark background whatever the theme."""
    app = app_of(fleet(2048), settings=Settings(theme="light"))
    assert snap_compare(app, terminal_size=(120, 30), run_before=after())


def test_in_16_colours(snapshot: Any) -> None:
    app = app_of(fleet(512), terminal=Terminal(colours=16))
    assert styled(asyncio.run(screen_of(app, USUAL))) == snapshot


def test_in_ascii(snapshot: Any) -> None:
    looks = {"settings": Settings(ascii=True), "terminal": Terminal(colours=16)}
    text = text_of(asyncio.run(screen_of(app_of(fleet(512), **looks), USUAL)))
    assert text.isascii()
    assert "\n".join(line.rstrip() for line in text.splitlines()) == snapshot
