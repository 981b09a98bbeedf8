"""The look of the whole screen: each screen in ASCII, in 16 colours, without any, in each theme."""

from __future__ import annotations

import dataclasses
import io
import itertools
import re
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from gputop.agent.device import DeviceState
from gputop.agent.process_limit import process_limit_problem
from gputop.agent.snapshot import Source
from gputop.bench.results import store
from gputop.bench.results.store import recent
from gputop.settings import Settings
from gputop.ui.drawing import palette
from gputop.ui.drawing.look import ANSI, COLOUR_BLIND, COLOUR_BLIND_LIGHT, DARK, LIGHT, Terminal
from gputop.ui.shell.app import GputopApp
from tests.streams import NO_DRIVER, PreparedStream, inventory, lost, process, readings, sample
from tests.ui.pilots import dashboard_of, lines, settle, settled, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from textual.strip import Strip

    from gputop.ui.drawing.look import Theme
    from tests.sessions import PreparedSession


def busy_stream() -> PreparedStream:
    """A stream with something of everything that the monitor draws."""
    devices = (
        readings(0),
        lost(1),
        lost(2, DeviceState.NOT_RESPONDING),
        lost(3, DeviceState.NEEDS_RESET),
    )
    foreign = process(78, 0, user="Zoë", command="python 训练.py --naïve → ░▒▓ 🚀")
    made = dataclasses.replace(sample(4, [foreign, process(79, 1)]), devices=devices)
    simulated = dataclasses.replace(  # nothing gets old while a slow machine draws
        inventory(4), source=Source.SIMULATED, interval_seconds=60.0
    )
    return PreparedStream(simulated, *[made] * 30)


SCREENS = (
    "",
    "c",
    "question_mark down",
    "escape ctrl+p",
    "escape 2",
    "tab enter",
    "escape tab tab",
    "1 b",
    "x",
)
"""Keys that lead from one screen to the next: the monitor, its rows, the help, the palette, the
benchmark, its open list, a field, a run and a note."""


async def drawn(**options: Any) -> list[Strip]:
    """Return the lines of each screen as they go to the terminal."""
    app = GputopApp(busy_stream(), **options)
    found: list[Strip] = []
    async with settled(app, (100, 34), notifications=True) as (_, pilot):
        for keys in SCREENS:
            await pilot.press(*keys.split())
            found += lines(app)
    return found


def coloured(strips: Sequence[Strip]) -> set[str]:
    colours = set()
    for segment in itertools.chain.from_iterable(strips):
        if segment.style is not None:
            colours.add(segment.style.bgcolor)
            if segment.text.strip():  # nothing of a blank is in its own colour
                colours.add(segment.style.color)
    return {colour.name for colour in colours if colour is not None and not colour.is_default}


async def test_in_ascii_all_is_ascii_cell_for_cell(session: type[PreparedSession]) -> None:
    plain = await drawn(settings=Settings(ascii=True))
    assert text_of(plain).isascii()
    assert {strip.cell_length for strip in plain} == {100}
    assert {sum(segment.cell_length for segment in strip) for strip in plain} == {100}


async def test_16_colours_are_all_that_ansi_sends(session: type[PreparedSession]) -> None:
    """By what Rich writes for a terminal that has 256 all the same."""
    strips = await drawn(settings=Settings(theme="ansi"))
    codes = written(strips, "256")
    assert codes <= {0, 1, 2, 4, 7, 39, 49, *range(30, 38), *range(40, 48), *range(90, 108)}
    assert written(strips, "standard") == codes


def written(strips: Sequence[Strip], system: Any) -> set[int]:
    """The parameters of all SGR sequences."""
    out = io.StringIO()
    console = Console(file=out, color_system=system, force_terminal=True, width=200)
    for strip in strips:
        out.write(strip.render(console))
    found = re.findall(r"\x1b\[([0-9;]*)m", out.getvalue())
    assert found
    return {int(code or 0) for codes in found for code in codes.split(";")}


async def test_no_color_sends_none_and_still_shows_a_fault_and_the_focus(
    monkeypatch: pytest.MonkeyPatch, session: type[PreparedSession]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    strips = await drawn(terminal=Terminal(0))
    assert coloured(strips) == set()
    for text in ("LOST: it no longer answers on its bus", "bfloat16"):
        styles = [s.style for strip in strips for s in strip if text in s.text and s.style]
        assert any(style.reverse and style.bold for style in styles), text


async def test_a_light_theme_has_no_colour_of_the_dark_one(session: type[PreparedSession]) -> None:
    strips = await drawn(settings=Settings(theme="light"))
    assert coloured(strips) <= names(LIGHT) | {f"color({n})" for n in range(16)} | {"default"}


def names(theme: Theme) -> set[str]:
    return {style.color.name for style in theme.styles.values() if style.color is not None}


async def test_a_theme_is_changed_while_it_runs() -> None:
    app = GputopApp(PreparedStream(inventory(2), sample(2)))
    async with settled(app, (80, 24)) as (_, pilot):
        text = text_of(lines(app))
        for theme in (LIGHT, ANSI, COLOUR_BLIND, COLOUR_BLIND_LIGHT, DARK):
            app.action_theme()
            await settle(pilot)
            assert app.settings.theme == theme.name
            assert names(theme) & coloured(lines(app)) - {"default"}
            assert text_of(lines(app)) == text
        accents = {s.style.color for s in lines(app)[0] if s.text == " gputop " and s.style}
        assert accents == {palette.ACCENT.color}


async def test_settings_of_the_command_line_are_not_kept(tmp_path: Path) -> None:
    """`gputop --readonly`, `T` and `S`: the next gputop may signal processes."""
    file = tmp_path / "new" / "config.toml"
    given = Settings(readonly=True, interval=5.0, density="row")
    app = GputopApp(PreparedStream(inventory(1), sample(1)), settings=given, config=file)
    async with app.run_test(notifications=True) as pilot:
        await dashboard_of(app).action_save()
        await settle(pilot)
        (note,) = app._notifications
        assert note.message == "Nothing to save: no setting was changed here"
        assert not file.exists()
        app.action_theme("light")
        await settle(pilot)
        await dashboard_of(app).action_save()
        await settle(pilot)
        (note,) = app._notifications
        assert note.message == f"Saved in {file}"
    assert file.read_text() == 'theme = "light"\n'


async def test_settings_that_cannot_be_kept_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    config = tmp_path / "file" / "config.toml"
    app = GputopApp(PreparedStream(inventory(1), sample(1)), config=config)
    async with app.run_test(notifications=True) as pilot:
        app.action_theme("light")
        await dashboard_of(app).action_save()
        await settle(pilot)
        (note,) = app._notifications
        assert "Not a directory" in note.message
        assert "\n" not in note.message


@pytest.mark.usefixtures("no_home")
async def test_without_a_home_folder_the_dashboard_opens_and_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "recent", recent)
    app = GputopApp(PreparedStream(inventory(1), sample(1)))
    async with settled(app, (100, 30), notifications=True) as (_, pilot):
        assert not app._notifications
        await dashboard_of(app).action_save()
        await settle(pilot)
        (note,) = app._notifications
        assert "HOME is not set" in note.message
        await pilot.press("2")
        app.clear_notifications()
        await settle(pilot)
        assert "HOME is not set" in text_of(lines(app))
        assert "No results yet" in text_of(lines(app))


async def test_settings_that_are_not_used_are_said() -> None:
    app = GputopApp(PreparedStream(inventory(1), sample(1)), problems=[NO_DRIVER, NO_DRIVER])
    async with app.run_test(notifications=True) as pilot:
        await settle(pilot)
        (note,) = app._notifications
        assert note.message == f"{NO_DRIVER}\n{NO_DRIVER}"


async def test_a_thread_that_cannot_be_started_is_no_fault_of_gputop() -> None:
    app = GputopApp(PreparedStream(inventory(1), sample(1)))
    async with app.run_test(notifications=True) as pilot:
        app.report(RuntimeError("can't start new thread"))
        await settle(pilot)
        (note,) = app._notifications
        assert note.message == str(process_limit_problem("Not done"))
        assert not note.title
