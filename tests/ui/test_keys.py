import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.command import CommandList, CommandPalette
from textual.widgets import Footer, OptionList

from gputop import settings
from gputop.agent.snapshot import DriverState
from gputop.settings import THEMES, Settings
from gputop.ui.device.why_page import WhyPage
from gputop.ui.drawing.dialogs import ConfirmScreen
from gputop.ui.drawing.look import Terminal
from gputop.ui.monitor.device_list import DevicesView
from gputop.ui.processes.screen import ProcessesTab, ProcessesView
from gputop.ui.shell.actions import ACTIONS, OTHERS, key_name
from gputop.ui.shell.app import GputopApp
from gputop.ui.shell.header import Header
from gputop.ui.shell.help_and_settings import ABOUT, FIRST, Help, SettingsScreen
from tests.sessions import EndlessSession, PreparedSession
from tests.streams import PreparedStream, inventory, no_driver, sample
from tests.ui import scenes
from tests.ui.pilots import (
    app_with,
    dashboard_of,
    lines,
    noted,
    send,
    settled,
    shown,
    text_of,
    type_at_once,
    until,
)


def of_one(**options: Any) -> GputopApp:
    return app_with(inventory(1), sample(1), **options)


README = Path(__file__).parents[2] / "README.md"


async def test_b_starts_nothing_while_the_driver_is_still_starting(
    session: type[PreparedSession],
) -> None:
    stream = PreparedStream(inventory(driver_state=DriverState.STARTING), sample())
    async with settled(GputopApp(stream)) as (app, pilot):
        await pilot.press("b")
        await pilot.press("2", "b")
        assert session.requests == []
        assert "still starting" in noted(app)
        await pilot.click("#start")
        assert {request.target.kind for request in session.requests} == {"cpu"}


async def test_a_click_on_a_tab_opens_it_and_on_a_key_presses_it() -> None:
    async with settled(app_with(inventory(1), sample(1, [])), (59, 24)) as (app, pilot):
        assert shown(pilot, Header).startswith(" gputop  1 Monitor  2  3  ")
        await pilot.click(Header, offset=(" gputop  1 Monitor  2".index("2"), 0))
        assert shown(pilot, Header).startswith(" gputop  1  2 Benchmark  3  ")
        await pilot.press("1")
        await pilot.click(Header, offset=(" gputop  1".index("1"), 1))
        assert app.query_one(WhyPage).display, "the status leads to the findings"
        await pilot.press("1")
        assert "b Stress test" in shown(pilot, Footer)
        await pilot.press("enter")
        drawn = shown(pilot, Footer)
        assert drawn.startswith(" ? Help  q Quit  Esc Back")
        await pilot.click(Footer, offset=(drawn.index("Esc"), 0))
        assert "Details" in shown(pilot, Footer)
        await pilot.click(Footer, offset=(drawn.index("q Quit"), 0))
        await pilot.pause()
        assert not app.is_running


@pytest.mark.parametrize(
    ("before", "key"),
    [("question_mark", "ctrl+c"), ("b", "f10"), ("ctrl+p", "ctrl+c"), ("2 tab", "f10")],
)
async def test_these_keys_quit_everywhere(
    session: type[PreparedSession], before: str, key: str
) -> None:
    async with settled(app_with(inventory(2), sample(2)), (80, 24)) as (app, pilot):
        await pilot.press(*before.split())
        assert isinstance(app.screen, (Help, ConfirmScreen, CommandPalette)) == (before != "2 tab")
        await pilot.press(key)
        await pilot.pause()
        assert not app.is_running


def test_the_first_keys_of_the_help_are_those_of_the_readme() -> None:
    page = README.read_text().partition("## Keys")[2].partition("`Ctrl+P`")[0]
    table = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    wanted = {key for cell in table for key in re.findall("`([^`]+)`", cell)}
    first = [action for action in ACTIONS if action.id in FIRST and action.when != "replay"]
    assert {action.key_names[0] for action in first} == wanted


async def test_the_palette_has_what_keys_do_here_and_the_themes() -> None:
    async with settled(app_with(inventory(4), sample(4)), (80, 24)) as (app, _):
        listed = [each.title for each in app.get_system_commands(app.first)]
        assert "Benchmark: stress tests and results (2)" in listed
        assert "Show processes as a tree (t F5)" in listed
        themes = [title for title in listed if title.startswith("Theme: ")]
        assert themes == [f"Theme: {name}" for name in THEMES]
        others = [each for each in listed if each not in themes]
        names = {f"{a.help} ({' '.join(a.key_names)})": a for a in ACTIONS}
        assert all(names[each].works_on("monitor") for each in others)
        assert not {"next", "page.next", "right", "commands"} & {names[each].id for each in others}


async def test_the_palette_runs_what_is_typed_and_early_keys_do_no_harm() -> None:
    async with settled(app_with(inventory(2), sample(2)), (80, 24)) as (app, pilot):
        table = app.screen.query_one(ProcessesView).state
        await pilot.press("ctrl+p", *"processes as a tree")
        await until(pilot, lambda: app.screen.query_one(CommandList).option_count > 0)
        await pilot.press("enter")
        await until(pilot, lambda: table.tree)
        for key in ("pagedown", "pageup", "end", "home", "up", "down", "enter"):
            await type_at_once(pilot, "ctrl+p", key, key, *"nothing like it", key, "escape")
            assert app.is_running, key
            assert app.screen is app.first, key


@pytest.mark.parametrize("keys", [["question_mark", "escape"], ["b", "n"], ["b", "y"]])
async def test_a_key_pressed_twice_closes_one_screen(
    endless: type[EndlessSession], keys: list[str]
) -> None:
    async with settled(app_with(inventory(2), sample(2)), (80, 24)) as (app, pilot):
        opened, closed = keys
        await pilot.press(opened)
        await type_at_once(pilot, closed, closed, closed)
        assert app.is_running
        assert len(app.screen_stack) == 1
        assert len(endless.requests) == (closed == "y")


# Keys of htop, nvtop and nvitop.


async def test_letters_of_htop_sort_without_reversing_and_four_keys_filter() -> None:
    async with settled(app_with(inventory(2), sample(2))) as (app, pilot):
        table = app.screen.query_one(ProcessesView).state
        for key, title in (("M", "GPU MEM"), ("P", "CPU%"), ("N", "PID")):
            for _ in range(2):
                await pilot.press("I", key)
                assert table.sorted_by.title == title
                assert table.descending is table.sorted_by.largest_first
        for key in ("f3", "f4", "slash", "backslash"):
            await pilot.press(key, "x")
            assert app.screen.query_one(ProcessesView).typed == "x", key
            await pilot.press("escape")


async def test_what_a_key_does_is_drawn_at_once() -> None:
    tabs = {
        "1": "c down full_stop I t P u u home",
        "3": "full_stop I t right down U",
        "1 enter": "a z n",
    }
    async with settled(app_with(*scenes.job(2, 30)), (120, 40)) as (app, pilot):
        for opens, keys in tabs.items():
            await pilot.press(*opens.split())
            for key in keys.split():
                before = text_of(lines(app)[2:-1])
                await pilot.press(key)
                assert text_of(lines(app)[2:-1]) != before, (opens, key)


def test_keys_of_others_do_nothing_only_where_their_table_has_a_dash() -> None:
    page = (README.parent / "docs" / "reference.md").read_text().partition("## Keys of htop")[2]
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    bound = {name for action in ACTIONS for name in action.key_names}
    named = [{*re.findall("`([^`]+)`", row[0])} for row in rows]
    assert len(rows) > 40
    for keys, row in zip(named, rows, strict=True):
        assert bool(keys & bound) is not row[2].startswith("– "), row
    assert {key_name(key) for key in OTHERS} <= set().union(*named)


async def test_plus_samples_more_often_and_minus_less() -> None:
    stream = PreparedStream(inventory(1), sample(1))
    async with settled(GputopApp(stream), (80, 24)) as (app, pilot):
        longer = [("minus", seconds) for seconds in (0.5, 1, 2, 5, 10, 30, 60)]
        for key, seconds in (("plus", 0.5), ("equals_sign", 0.25), *longer):
            await pilot.press(key)
            assert stream.asked["interval"] == seconds
            assert noted(app) == f"A sample every {seconds:g} s"


async def test_u_lists_what_the_user_of_the_selected_process_runs() -> None:
    async with settled(app_with(*scenes.job(2, 2), search="pretrain")) as (app, pilot):
        await pilot.press("3")
        table = app.screen.query_one(ProcessesTab).processes.state
        assert len(table.lines) == 2, "the filter of the start"
        await pilot.press("escape", "u")
        assert table.selected
        user = table.selected.process.user
        assert {line.process.user for line in table.lines} == {user}
        assert len(table.lines) < table.total
        await pilot.press("u")
        assert len(table.lines) == table.total


# Settings.


def setting(app: GputopApp, name: str) -> list[str]:
    assert isinstance(app.screen, SettingsScreen)
    rows = [choice.text.split() for choice in app.screen.choices]
    return next(words for words in rows if words[0] == name)


async def test_settings_change_what_is_shown_and_s_saves_them(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    stream = PreparedStream(inventory(2), sample(2))
    async with settled(GputopApp(stream, config=config)) as (app, pilot):
        table = app.screen.query_one(ProcessesView).state
        await type_at_once(pilot, "N", "f2", "right", "right")
        assert setting(app, "theme")[1] == "light"
        assert app.look.theme.name == "light"
        assert setting(app, "sort")[1] == "PID"
        assert setting(app, "interval")[1:3] == ["1", "s"]
        await type_at_once(pilot, *["down"] * [*ABOUT].index("interval"), "enter")
        assert stream.asked["interval"] == 2.0
        keys = (*["down"] * 3, "left", "down", "right", "down", "space")
        await type_at_once(pilot, *keys)
        assert dashboard_of(app).query_one(DevicesView).density == "full"
        assert table.sorted_by.title == "USER"
        assert table.reversed
        await type_at_once(pilot, "S", "q")
        assert app.screen is app.first
        await until(pilot, config.exists)
    assert settings.load(config, {})[0] == Settings(
        theme="light", interval=2.0, density="full", sort="USER", reverse=True
    )


async def test_every_setting_has_a_line() -> None:
    assert {*ABOUT, "on_event"} == {*settings.KEYS}
    async with settled(app_with(inventory(2), sample(2)), (120, 60)) as (app, pilot):
        before = app.settings
        await type_at_once(pilot, "f2")
        for name in ABOUT:
            await type_at_once(pilot, "right")
            assert before != app.settings, name
            before = app.settings
            await type_at_once(pilot, *(["left"] if name == "readonly" else []), "down")
        assert setting(app, "readonly")[1] == "on", "only a restart turns it off"
        await pilot.click(OptionList, offset=(5, 3))
        assert not app.settings.bell
        await pilot.press("f2")
        assert app.screen is app.first


# A key that does nothing says what would.


WOULD = [
    ("1", "i", "Nothing on i here · ? lists the keys"),
    ("1", "v", "v works on a process's page (Enter): Show or mask secrets"),
    ("1", "ö", "Nothing on ö here · ? lists the keys"),
    ("2", "space", "Space works in the monitor (1): Freeze the display; new samples are kept"),
    ("3", "c", "c works in the monitor (1): Density: one row, three, full"),
    ("1", "8", "1 2 3 are the tabs · ↓ ↑ select a GPU"),
    ("1", "f7", "gputop cannot change priorities: use renice"),
    ("1", "f12", "S saves the settings"),
]


async def test_a_key_that_does_nothing_says_what_would() -> None:
    async with settled(app_with(inventory(2), sample(2))) as (app, pilot):
        for tab, key, said in WOULD:
            await pilot.press(tab, key)
            assert noted(app) == said
        await pilot.press("1", "left", "ctrl+x")  # these are of fields and of the terminal
        assert noted(app) == said


@pytest.mark.parametrize(
    ("app", "key", "said"),
    [
        (lambda: app_with(no_driver(), sample()), "t", "There is no device yet"),
        (lambda: of_one(settings=Settings(readonly=True)), "f9", "No signals: gputop is readonly"),
        (lambda: of_one(terminal=Terminal(16)), "T", "This terminal's colours allow only one"),
    ],
)
async def test_a_key_that_is_not_on_offer_says_why(
    app: Callable[[], GputopApp], key: str, said: str
) -> None:
    async with settled(app()) as (made, pilot):
        await pilot.press(key)
        assert noted(made).startswith(said)


async def test_a_record_that_cannot_be_shown_is_said_and_the_next_one_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = PreparedStream(inventory(1), sample(1))
    async with settled(GputopApp(stream)) as (app, pilot):
        with monkeypatch.context() as broken:
            broken.setattr(dashboard_of(app).telemetry, "receive", lambda _: float("gone"))
            await send(pilot, stream, sample(1))
        assert noted(app) == "ValueError: could not convert string to float: 'gone'"
        await send(pilot, stream, dataclasses.replace(inventory(2), hostname="after"), sample(2))
        assert "after" in shown(pilot, Header)
