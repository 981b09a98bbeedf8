import dataclasses
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.color import Color as Background
from textual.color import Lab, rgb_to_lab
from textual.filter import NoColor
from textual.strip import Strip

from gputop import settings as kept
from gputop.agent.device import DeviceState
from gputop.agent.process_limit import process_limit_problem
from gputop.agent.snapshot import Source
from gputop.bench.results import store
from gputop.bench.results.store import recent
from gputop.settings import Settings
from gputop.ui.drawing import palette
from gputop.ui.drawing.look import (
    ANSI,
    COLOUR_BLIND,
    COLOUR_BLIND_LIGHT,
    DARK,
    GLYPHS,
    LIGHT,
    MONOCHROME,
    THEMES,
    Look,
    Terminal,
    Theme,
    ascii_text,
    choose_look,
)
from gputop.ui.drawing.palette import ROLES
from gputop.ui.monitor.layout import Density
from gputop.ui.shell.app import GputopApp
from gputop.ui.terminal_input import QUESTION, BackgroundAnswered
from tests.sessions import PreparedSession
from tests.streams import NO_DRIVER, PreparedStream, inventory, lost, process, readings, sample
from tests.ui.pilots import app_with, lines, noted, settle, settled, text_of

AWAY = (DeviceState.LOST, DeviceState.NOT_RESPONDING, DeviceState.NEEDS_RESET)


SCREENS = "|c|question_mark down|escape ctrl+p|escape 2|tab enter|escape tab tab|1 b|x"
"""Keys that lead from one screen to the next: the monitor, its rows, the help, the palette, the
benchmark, its open list, a field, a run and a note."""


async def drawn(**options: Any) -> list[Strip]:
    devices = (readings(0), *(lost(n, state) for n, state in enumerate(AWAY, 1)))
    foreign = process(78, 0, user="Zoë", command="python 训练.py --naïve → ░▒▓ 🚀")
    made = dataclasses.replace(sample(4, [foreign, process(79, 1)]), devices=devices)
    simulated = dataclasses.replace(  # nothing gets old while a slow machine draws
        inventory(4), source=Source.SIMULATED, interval_seconds=60.0
    )
    app = GputopApp(PreparedStream(simulated, *[made] * 30), **options)
    found: list[Strip] = []
    async with settled(app, (100, 34), notifications=True) as (_, pilot):
        for keys in SCREENS.split("|"):
            await pilot.press(*keys.split())
            found += lines(app)
    return found


def coloured(strips: Sequence[Strip]) -> set[Color]:
    colours = set()
    for segment in itertools.chain.from_iterable(strips):
        if segment.style is not None:
            colours.add(segment.style.bgcolor)
            if segment.text.strip():  # nothing of a blank is in its own colour
                colours.add(segment.style.color)
    return {colour for colour in colours if colour is not None and not colour.is_default}


async def test_in_ascii_all_is_ascii_cell_for_cell(session: type[PreparedSession]) -> None:
    plain = await drawn(settings=Settings(ascii=True))
    assert text_of(plain).isascii()
    assert {strip.cell_length for strip in plain} == {100}
    assert {sum(segment.cell_length for segment in strip) for strip in plain} == {100}


async def test_16_colours_are_all_that_ansi_sends(session: type[PreparedSession]) -> None:
    colours = coloured(await drawn(settings=Settings(theme="ansi")))
    assert len(colours) > 4
    assert all(colour.number is not None and colour.number < 16 for colour in colours)


async def test_no_color_sends_none_and_still_shows_a_fault_and_the_focus(
    monkeypatch: pytest.MonkeyPatch, session: type[PreparedSession]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    strips = await drawn(terminal=Terminal(0))
    assert coloured(strips) == set()
    for text in ("LOST: it no longer answers on its bus", "bfloat16"):
        styles = [s.style for strip in strips for s in strip if text in s.text and s.style]
        assert any(style.reverse and style.bold for style in styles), text


async def test_a_theme_is_changed_while_it_runs() -> None:
    app = GputopApp(PreparedStream(inventory(2), sample(2)))
    async with settled(app, (80, 24)) as (_, pilot):
        text = text_of(lines(app))
        for theme in (LIGHT, ANSI, COLOUR_BLIND, COLOUR_BLIND_LIGHT, DARK):
            app.action_theme()
            await settle(pilot)
            assert app.settings.theme == theme.name
            assert {style.color for style in theme.styles.values()} & coloured(lines(app))
            assert text_of(lines(app)) == text
        accents = {s.style.color for s in lines(app)[0] if s.text == " gputop " and s.style}
        assert accents == {palette.ACCENT.color}


async def test_settings_of_the_command_line_are_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "new" / "config.toml"
    given = Settings(readonly=True, interval=5.0, density="row")
    app = GputopApp(PreparedStream(inventory(1), sample(1)), settings=given, config=file)
    async with settled(app) as (_, pilot):
        await pilot.press("S")
        assert noted(app) == "Nothing to save: no setting was changed here"
        assert not file.exists()
        app.action_theme("light")
        await pilot.press("S")
        assert noted(app) == f"Saved in {file}"
        assert file.read_text() == 'theme = "light"\n'
        file.unlink()
        file.mkdir()
        app.action_theme("dark")
        await pilot.press("S")
        assert "Is a directory" in noted(app)
        assert "\n" not in noted(app)


@pytest.mark.usefixtures("no_home")
async def test_without_a_home_folder_the_dashboard_opens_and_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "recent", recent)
    app = GputopApp(PreparedStream(inventory(1), sample(1)))
    async with settled(app, (100, 30), notifications=True) as (_, pilot):
        assert not app._notifications
        await pilot.press("S")
        assert "HOME is not set" in noted(app)
        await pilot.press("2")
        app.clear_notifications()
        await settle(pilot)
        assert "HOME is not set" in text_of(lines(app))
        assert "No results yet" in text_of(lines(app))


async def test_settings_that_are_not_used_are_said() -> None:
    app = GputopApp(PreparedStream(inventory(1), sample(1)), problems=[NO_DRIVER, NO_DRIVER])
    async with settled(app):
        assert noted(app) == f"{NO_DRIVER}\n{NO_DRIVER}"


async def fails() -> None:
    raise RuntimeError("can't start new thread")


async def test_a_thread_that_a_worker_cannot_start_is_no_fault_of_gputop() -> None:
    app = GputopApp(PreparedStream(inventory(1), sample(1)))
    async with settled(app) as (_, pilot):
        app.first.run_worker(fails(), exit_on_error=False)
        await settle(pilot)
        assert noted(app) == str(process_limit_problem("Not done"))


# Themes.


BACKGROUND = Background(0, 0, 0)
TEXT_ROLES = ("DIM", "ACCENT", "WARN", "FAULT", "GOOD", "BADGE")
SIDE_BY_SIDE = ("BUSY", "MEMORY", "POWER", "CPU")
BAR_ROLES = (*SIDE_BY_SIDE, "SM", "TENSOR", "TEMPERATURE", "RECEIVED", "SENT")
LEVEL_ROLES = tuple(f"LEVEL_{n}" for n in range(len(palette.LEVELS)))
"""Of the map of a fleet, from little to much."""
ON_WHITE = (LIGHT, COLOUR_BLIND_LIGHT)
OF_256 = (DARK, LIGHT, COLOUR_BLIND, COLOUR_BLIND_LIGHT)

# The terminal's own 16 colours as VGA, which Linux's console and many others follow, has them.
VGA = ["000", "a00", "0a0", "a50", "00a", "a0a", "0aa", "aaa"]
VGA += ["555", "f55", "5f5", "ff5", "55f", "f5f", "5ff", "fff"]


RGB = tuple[float, float, float]


def rgb_of(style: Style) -> RGB:
    colour = style.color
    assert colour is not None
    if colour.is_default:
        raise ValueError("the terminal's own")
    if colour.number is not None and colour.number < 16:
        red, green, blue = (int(digit, 16) * 17 for digit in VGA[colour.number])
    else:
        red, green, blue = colour.get_truecolor()
    return tuple(linear(value / 255) for value in (red, green, blue))  # type: ignore[return-value]


def linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def contrast(style: Style, *, on_white: bool) -> float:
    """As WCAG 2 defines it, 1 to 21."""
    red, green, blue = rgb_of(style)
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    low, high = sorted((luminance, 1.0 if on_white else 0.0))
    return (high + 0.05) / (low + 0.05)


# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
EYES = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanope": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranope": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanope": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def lab(style: Style, eyes: str) -> Lab:
    """CIELAB of what those eyes see."""
    seen = []
    for row in EYES[eyes]:
        value = sum(a * b for a, b in zip(row, rgb_of(style), strict=True))
        seen.append(round(255 * min(1.0, max(0.0, value)) ** (1 / 2.2)))
    return rgb_to_lab(Background(*seen))


def difference(one: Style, other: Style, eyes: str) -> float:
    """CIE 1976: 2 is just visible, 10 is plain at a glance."""
    first, second = lab(one, eyes), lab(other, eyes)
    return math.dist((first.L, first.a, first.b), (second.L, second.a, second.b))


def test_settings_have_the_themes_of_looks_and_the_densities_of_panels() -> None:
    assert tuple(THEMES) == kept.THEMES
    assert tuple(density.name.lower() for density in Density) == kept.DENSITIES


def test_roles_are_all_colours_of_the_palette() -> None:
    assert {*TEXT_ROLES, *BAR_ROLES, *LEVEL_ROLES, "TRACK", "POINTER"} == set(ROLES)
    assert all(set(theme.styles) == set(ROLES) for theme in (*THEMES.values(), MONOCHROME))


@pytest.mark.parametrize("theme", OF_256, ids=lambda t: t.name)
def test_what_is_read_and_what_is_measured_stands_out(theme: Theme) -> None:
    on_white = theme in ON_WHITE
    for role in TEXT_ROLES:
        assert contrast(theme.styles[role], on_white=on_white) >= 4.5, role
    for role in BAR_ROLES:
        assert contrast(theme.styles[role], on_white=on_white) >= 3, role
    levels = [contrast(theme.styles[role], on_white=on_white) for role in LEVEL_ROLES]
    assert min(b / a for a, b in itertools.pairwise(levels)) > 1.15
    assert contrast(theme.styles["POINTER"], on_white=on_white) > 5
    track = contrast(theme.styles["TRACK"], on_white=on_white)
    assert 2 < track < contrast(theme.styles["DIM"], on_white=on_white)


def test_16_colours_stand_out_on_the_console() -> None:
    own = {"DIM", "TRACK", "LEVEL_0", "LEVEL_4"}  # the terminal's own colour, by an attribute
    for role in set(ROLES) - own:
        assert contrast(ANSI.styles[role], on_white=False) >= 3, role
    assert all(ANSI.styles[role].color.is_default for role in own)  # type: ignore[union-attr]


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("theme", [COLOUR_BLIND, COLOUR_BLIND_LIGHT], ids=lambda t: t.name)
def test_colours_are_told_apart_by_all_eyes(theme: Theme, eyes: str) -> None:
    told_apart = (*SIDE_BY_SIDE, "ACCENT", "WARN", "FAULT")
    for one, other in itertools.combinations(told_apart, 2):
        assert difference(theme.styles[one], theme.styles[other], eyes) > 12, (one, other)


def restyled(look: Look, style: Style) -> Style:
    (segment,) = look.apply([Segment("x", style)], BACKGROUND)
    assert segment.style is not None
    return segment.style


@pytest.mark.parametrize("theme", OF_256, ids=lambda t: t.name)
def test_a_role_is_drawn_in_its_colour(theme: Theme) -> None:
    clicked = Style(bgcolor="default", meta={"@click": "x"})
    for role, extra in itertools.product(ROLES, (Style(), clicked, Style(underline=True))):
        before = ROLES[role] + extra
        after = restyled(Look(theme), before)
        assert after.color is not None
        assert after.color == theme.styles[role].color
        assert (after.bold, after.reverse) == (before.bold, before.reverse)
        assert (after.bgcolor, after.meta) == (before.bgcolor, before.meta)
        assert after.underline == before.underline


def test_what_has_no_role_is_left_alone_unless_there_are_16_colours() -> None:
    for style in (palette.TEXT, palette.STRONG, palette.TAB, Style(color="blue")):
        assert all(restyled(Look(theme), style) == style for theme in THEMES.values())
    foreign = Style(color="#123456", bgcolor="color(200)")
    assert restyled(Look(LIGHT), foreign) == foreign
    after = restyled(Look(ANSI), foreign)
    for colour in (after.color, after.bgcolor):
        assert colour is not None
        assert colour.number is not None
        assert colour.number < 16
    red, green, blue = palette.ACCENT.color.get_truecolor()  # type: ignore[union-attr]
    made_by_textual = restyled(Look(LIGHT), Style(color=f"rgb({red},{green},{blue})", bold=True))
    assert made_by_textual.color == LIGHT.styles["ACCENT"].color


def test_without_colours_a_fault_is_reversed_and_labels_are_faint() -> None:
    def shown(style: Style) -> Style:
        look = Look(MONOCHROME).apply([Segment("x", style)], BACKGROUND)
        (segment,) = NoColor().apply(look, BACKGROUND)
        assert segment.style is not None
        return segment.style

    for role, style in ROLES.items():
        after = shown(style)
        assert after.color is not None
        assert after.color.is_default
        assert bool(after.reverse) == (role in ("FAULT", "BADGE", "POINTER"))
        assert bool(after.dim) == (role in ("DIM", "TRACK"))
        assert after.bold == style.bold


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ("TERM=xterm-256color", Terminal(256)),
        ("TERM=xterm COLORTERM=truecolor", Terminal(256)),
        ("TERM=xterm", Terminal(16)),
        ("TERM=linux", Terminal(16, ascii=True)),
        ("TERM=xterm-256color NO_COLOR=1", Terminal(0)),
        ("TERM=xterm-256color NO_COLOR=", Terminal(256)),
        ("TERM=xterm-256color LC_ALL=C LANG=C.UTF-8", Terminal(256, ascii=True)),
        ("TERM=xterm-256color LC_ALL=de_DE.utf8@euro", Terminal(256)),
        ("TERM=xterm-256color LANG=C.UTF-8 LC_CTYPE=de_DE.ISO-8859-1", Terminal(256, ascii=True)),
    ],
)
def test_what_the_environment_says_of_the_terminal(environment: str, wanted: Terminal) -> None:
    variables = dict(each.split("=") for each in environment.split())
    assert Terminal.detect(variables) == wanted


def test_what_is_asked_for_counts_as_far_as_the_terminal_can() -> None:
    assert choose_look("auto", None, Terminal()).theme is DARK
    assert not choose_look("auto", None, Terminal()).enabled
    assert choose_look("auto", None, Terminal(light=True)).theme is LIGHT
    assert choose_look("dark", None, Terminal(light=True)).theme is DARK
    assert choose_look("light", None, Terminal()).theme is LIGHT
    assert choose_look("light", None, Terminal(16)).theme is ANSI
    assert choose_look("light", None, Terminal(0)).theme is MONOCHROME
    assert choose_look("auto", None, Terminal(16, ascii=True)).ascii
    assert not choose_look("auto", False, Terminal(16, ascii=True)).ascii
    assert choose_look("auto", True, Terminal()).enabled


async def test_the_theme_goes_by_the_background_that_the_terminal_has_in_time() -> None:
    async with settled(app_with(inventory(1), sample(1))) as (app, pilot):
        for until, is_light, theme in ((float("inf"), True, LIGHT), (0.0, False, LIGHT)):
            app._ask_until = until
            app.post_message(BackgroundAnswered(is_light=is_light))
            await settle(pilot)
            assert app.look.theme is theme


@pytest.mark.parametrize(("colours", "asked"), [(17, True), (16, False)])
async def test_a_terminal_of_more_than_16_colours_is_asked_for_its_background(
    monkeypatch: pytest.MonkeyPatch, *, colours: int, asked: bool
) -> None:
    written: list[str] = []
    app = app_with(inventory(1), sample(1), terminal=Terminal(colours))
    painted = SimpleNamespace(write=written.append, repaint=lambda: written.append("all"))
    monkeypatch.setattr(app, "terminal", painted)
    async with settled(app):
        assert (QUESTION in written) == (app._ask_until > 0) == asked
        assert "all" in written


# ASCII, cell for cell: nothing moves, and charts keep their heights.


ON_SCREEN = "░▒▓█▌━─╸┄│·–…°²³ᵀ×±→←↓↑✓•⏎▏▼▲›╭╮╰╯├┤┬┴┼═║⟨⟩␛µ"


@given(st.text())
def test_any_text_becomes_ascii_of_the_same_length(text: str) -> None:
    plain = ascii_text(text)
    assert plain.isascii()
    assert cell_len(plain) == cell_len(text)
    assert ascii_text(plain) == plain


@pytest.mark.parametrize("character", sorted({*ON_SCREEN, *GLYPHS} - {"°", "␛"}))
def test_a_glyph_of_ours_has_one_of_its_own(character: str) -> None:
    assert ascii_text(character) not in ("", " ", "?")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("node07 · driver 580", "node07 | driver 580"),
        ("François Müller", "Francois Muller"),
        ("模型あ.py", "??????.py"),
        ("╭─ Help ─╮", "+- Help -+"),
        ("▁▂▃▄▅▆▇█", "..::||##"),
        ("⠀⣀⣤⣶⣿⡇", " .:|#:"),
    ],
)
def test_what_it_becomes(text: str, plain: str) -> None:
    assert ascii_text(text) == plain
