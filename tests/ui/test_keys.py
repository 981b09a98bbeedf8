"""Keys, clicks and notes: which act where, and in which order."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from textual import events
from textual.widgets import ContentSwitcher

from gputop.schema.snapshot import DriverState
from gputop.ui.monitor.devices import DevicesView
from gputop.ui.shell.actions import ACTIONS, key_names
from gputop.ui.shell.app import GputopApp
from gputop.ui.shell.command_palette import CommandList, Commands
from gputop.ui.shell.header import Header
from gputop.ui.shell.help import Help
from gputop.ui.shell.keys import KeysView
from gputop.ui.widgets.confirm import ConfirmScreen
from tests.streams import PreparedStream, inventory, no_driver, sample
from tests.ui.pilots import dashboard_of, settle, shown

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from tests.sessions import EndlessSession, PreparedSession


def app_with(*records: Any) -> GputopApp:
    return GputopApp(PreparedStream(*records))


async def type_at_once(pilot: Pilot[None], *keys: str) -> None:
    """Sends keys as one packet does: all are there before the first is handled."""
    for key in keys:
        character = key if len(key) == 1 else None
        pilot.app.post_message(events.Key(key, character))
    await settle(pilot)


async def test_b_starts_nothing_while_the_driver_is_still_starting(
    session: type[PreparedSession],
) -> None:
    stream = PreparedStream(inventory(driver_state=DriverState.STARTING), sample())
    app = GputopApp(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("b")
        await pilot.press("2", "b")
        await settle(pilot)
        assert session.requests == []
        (note,) = app._notifications
        assert "still starting" in note.message
        await pilot.click("#start")
        await settle(pilot)
        assert [request.target.kind for request in session.requests] == ["cpu"]


@pytest.mark.parametrize("width", [4, 7, 8, 10, 15, 20, 26, 33, 41, 49])
async def test_a_click_on_the_footer_does_what_is_drawn_there(width: int) -> None:
    app = app_with(inventory(1), sample(1, processes=[]))
    async with app.run_test(size=(width, 24)) as pilot:
        await settle(pilot)
        drawn = shown(pilot, KeysView)
        assert ("q Quit" in drawn) == (width >= len(" q Quit"))
        if len(drawn) + 1 < width:
            await pilot.click(KeysView, offset=(width - 1, 0))
            await settle(pilot)
            assert app.is_running
        if "? Help" in drawn:
            await pilot.click(KeysView, offset=(drawn.index("? Help"), 0))
            await settle(pilot)
            assert isinstance(app.screen, Help)


async def test_the_footer_s_quit_quits() -> None:
    app = app_with(inventory(1), sample(1))
    async with app.run_test(size=(20, 10)) as pilot:
        await settle(pilot)
        await pilot.click(KeysView, offset=(shown(pilot, KeysView).index("q Quit"), 0))
        await pilot.pause()
        assert not app.is_running


async def test_notes_take_each_other_s_place() -> None:
    app = app_with(no_driver(), sample())
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        for _ in range(10):
            await pilot.press("x")
        assert len(app._notifications) == 1


@pytest.mark.parametrize("key", ["ctrl+c", "f10"])
@pytest.mark.parametrize("before", [["question_mark"], ["b"], ["ctrl+p"], ["2", "tab"]])
async def test_these_keys_quit_everywhere(
    session: type[PreparedSession], before: list[str], key: str
) -> None:
    app = app_with(inventory(2), sample(2))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press(*before)
        assert before == ["2", "tab"] or isinstance(app.screen, (Help, ConfirmScreen, Commands))
        await pilot.press(key)
        await pilot.pause()
        assert not app.is_running


async def test_the_whole_help_fits_beside_its_frame_and_says_how_to_close_it() -> None:
    app = app_with(inventory(1), sample(1))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("question_mark")
        await settle(pilot)
        box = app.screen.query_one(".box")
        assert box.outer_size.width < 80
        assert "Esc closes" in (box.border_subtitle or "")
        text = str(app.screen.query_one("Static").visual)  # type: ignore[attr-defined]
        # As many rows as lines: none of them wraps.
        assert app.screen.query_one("Static").size.height == len(text.splitlines())


async def test_the_palette_has_what_keys_do_here_in_the_order_of_the_help() -> None:
    app = app_with(inventory(4), sample(4))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("ctrl+p")
        await settle(pilot)
        found = app.screen.query_one(CommandList).found
        assert [a.id for a in found] == [a.id for a in ACTIONS if a in found]
        assert all(a.works_on("monitor") for a in found)
        assert not {"tab.monitor", "bench.stop", "back", "commands"} & {a.id for a in found}
        rows = shown_palette(app)
        assert rows[1].split() == ["Benchmark:", "stress", "tests", "and", "results", "2"]
        assert len(found) > len(rows)  # the others come by typing
        for action, row in zip(found, rows[1:], strict=False):
            assert action.help in row
            assert row.endswith(key_names(action)[0])


def shown_palette(app: GputopApp) -> list[str]:
    return [row for row in app.screen.query_one(CommandList).text().splitlines() if row.strip()]


async def test_the_palette_runs_what_is_chosen_by_typing_by_arrows_and_by_mouse() -> None:
    app = app_with(inventory(4), sample(4))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        view = app.query_one(DevicesView)
        await type_at_once(pilot, "ctrl+p", *"next device", "enter")
        assert view.selected is not None
        assert view.selected.index == 1
        await type_at_once(pilot, "ctrl+p", "end", "up", *"prevx", "backspace", "enter")
        assert view.selected.index == 0
        await type_at_once(pilot, "ctrl+p", *"to the")
        at = next(n for n, row in enumerate(shown_palette(app)) if "To the last" in row)
        await pilot.click(CommandList, offset=(5, at))
        await settle(pilot)
        assert view.selected.index == 3
        assert not isinstance(app.screen, Commands)


@pytest.mark.parametrize("key", ["pagedown", "pageup", "end", "home", "up", "down", "enter"])
async def test_keys_right_behind_ctrl_p_do_no_harm(key: str) -> None:
    app = app_with(inventory(2), sample(2))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await type_at_once(pilot, "ctrl+p", key, key, *"nothing like it", key, "escape")
        assert app.is_running
        assert not isinstance(app.screen, Commands)


@pytest.mark.parametrize("keys", [["question_mark", "escape"], ["b", "n"], ["b", "y"]])
async def test_a_key_pressed_twice_closes_one_screen(
    endless: type[EndlessSession], keys: list[str]
) -> None:
    app = app_with(inventory(2), sample(2))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        opened, closed = keys
        await pilot.press(opened)
        await type_at_once(pilot, closed, closed, closed)
        assert app.is_running
        assert len(app.screen_stack) == 1
        assert len(endless.requests) == (closed == "y")


async def test_a_palette_without_a_match_says_so_and_enter_closes_it() -> None:
    app = app_with(inventory(2), sample(2))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await type_at_once(pilot, "ctrl+p", *"zzz")
        assert "No action matches" in shown_palette(app)[1]
        await pilot.press("enter")
        assert not isinstance(app.screen, Commands)
        assert app.query_one(ContentSwitcher).current == "monitor"


def fails(_: object) -> None:
    raise KeyError("gone")


async def test_a_record_that_cannot_be_shown_is_said_and_the_next_one_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = PreparedStream(inventory(1), sample(1))
    app = GputopApp(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        with monkeypatch.context() as broken:
            broken.setattr(dashboard_of(app).telemetry, "receive", fails)
            stream.send(sample(1))
            await settle(pilot)
        (note,) = app._notifications
        assert note.message == "KeyError: 'gone'"
        stream.send(dataclasses.replace(inventory(2), hostname="after"))
        stream.send(sample(2))
        await settle(pilot)
        assert "after" in shown(pilot, Header)


async def test_x_stops_a_run_that_was_started_from_a_field(endless: type[EndlessSession]) -> None:
    app = app_with(no_driver(), sample())
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("2", *["tab"] * 4)
        assert "Esc Leave the field" in shown(pilot, KeysView)
        await pilot.press("enter")
        await settle(pilot)
        assert len(endless.requests) == 1
        assert app.focused is None
        assert "Leave the field" not in shown(pilot, KeysView)
        await pilot.press("x")
        await settle(pilot)
        assert "x Stop" not in shown(pilot, KeysView)


@pytest.mark.parametrize("size", [(60, 24), (80, 24)])
async def test_a_narrow_footer_has_what_matters_most(size: tuple[int, int]) -> None:
    """The stress test, and on a device's page the way back."""
    app = app_with(inventory(1), sample(1))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        assert "b Stress test" in shown(pilot, KeysView)
        await pilot.press("enter")
        await settle(pilot)
        drawn = shown(pilot, KeysView)
        assert drawn.startswith(" Esc Back")
        assert drawn.endswith("? Help q Quit")
        await pilot.click(KeysView, offset=(1, 0))
        await settle(pilot)
        assert "Details" in shown(pilot, KeysView)
