"""Themes: every role, legible, told apart by all eyes, and applied to all that is drawn."""

from __future__ import annotations

import dataclasses
import io
import itertools
import re
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.color import Color as Background
from textual.filter import NoColor
from textual.widgets import Select

from gputop import settings as kept
from gputop.settings import Settings
from gputop.telemetry.snapshot import DeviceState, Source
from gputop.ui import palette
from gputop.ui.app import GputopApp
from gputop.ui.look import (
    ANSI,
    COLOUR_BLIND,
    COLOUR_BLIND_LIGHT,
    DARK,
    LIGHT,
    MONOCHROME,
    THEMES,
    Look,
    Terminal,
    choose,
    following,
)
from gputop.ui.palette import ROLES
from gputop.ui.screens.question import Question
from gputop.ui.widgets.panel import Density
from tests.streams import (
    NO_DRIVER,
    PreparedStream,
    inventory,
    lost,
    no_driver,
    process,
    readings,
    sample,
)
from tests.ui.pilots import settle

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from textual.strip import Strip

    from gputop.ui.look import Theme
    from tests.sessions import PreparedSession

BACKGROUND = Background(0, 0, 0)
TEXT_ROLES = ("DIM", "ACCENT", "WARN", "FAULT", "GOOD", "BADGE")
SIDE_BY_SIDE = ("BUSY", "MEMORY", "POWER", "CPU")
BAR_ROLES = (*SIDE_BY_SIDE, "SM", "TENSOR", "TEMPERATURE", "RECEIVED", "SENT")
ON_WHITE = (LIGHT, COLOUR_BLIND_LIGHT)
OF_256 = (DARK, LIGHT, COLOUR_BLIND, COLOUR_BLIND_LIGHT)

# The terminal's own 16 colours as VGA, which Linux's console and many others follow, has them.
VGA = ["000", "a00", "0a0", "a50", "00a", "a0a", "0aa", "aaa"]
VGA += ["555", "f55", "5f5", "ff5", "55f", "f5f", "5ff", "fff"]


# --- How colours look -------------------------------------------------------------------------

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


def luminance(rgb: RGB) -> float:
    return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]


def contrast(style: Style, *, on_white: bool) -> float:
    """As WCAG 2 defines it, 1 to 21."""
    low, high = sorted((luminance(rgb_of(style)), 1.0 if on_white else 0.0))
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


def lab(style: Style, eyes: str) -> RGB:
    """CIELAB of what those eyes see."""
    seen = [
        min(1.0, max(0.0, sum(a * b for a, b in zip(row, rgb_of(style), strict=True))))
        for row in EYES[eyes]
    ]
    r, g, b = seen
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def difference(one: Style, other: Style, eyes: str) -> float:
    """CIE 1976: 2 is just visible, 10 is plain at a glance."""
    pairs = zip(lab(one, eyes), lab(other, eyes), strict=True)
    return float(sum((a - b) ** 2 for a, b in pairs) ** 0.5)


def test_the_simulation_of_eyes_finds_what_is_known() -> None:
    """Red and green of one brightness: plain to most, nearly one to a deuteranope."""
    green, brown = Style(color="#5faf5f"), Style(color="#d75f5f")
    assert difference(green, brown, "all cones") > 80
    assert difference(green, brown, "deuteranope") < 25
    assert contrast(Style(color="#767676"), on_white=True) == pytest.approx(4.54, abs=0.01)


# --- Themes -----------------------------------------------------------------------------------


def test_settings_and_looks_have_the_same_themes() -> None:
    assert tuple(THEMES) == kept.THEMES


def test_settings_and_panels_have_the_same_densities() -> None:
    assert tuple(density.name.lower() for density in Density) == kept.DENSITIES


def test_roles_are_all_colours_of_the_palette() -> None:
    styles = {n: v for n, v in vars(palette).items() if isinstance(v, Style)}
    assert {n for n, style in styles.items() if style.color is not None} == set(ROLES)
    assert {*TEXT_ROLES, *BAR_ROLES, "TRACK"} == set(ROLES)


@pytest.mark.parametrize("theme", [*THEMES.values(), MONOCHROME], ids=lambda t: t.name)
def test_a_theme_has_a_style_for_every_role(theme: Theme) -> None:
    assert set(theme.styles) == set(ROLES)


@pytest.mark.parametrize("theme", OF_256, ids=lambda t: t.name)
def test_what_is_read_and_what_is_measured_stands_out(theme: Theme) -> None:
    on_white = theme in ON_WHITE
    for role in TEXT_ROLES:
        assert contrast(theme.styles[role], on_white=on_white) >= 4.5, role
    for role in BAR_ROLES:
        assert contrast(theme.styles[role], on_white=on_white) >= 3, role
    track = contrast(theme.styles["TRACK"], on_white=on_white)
    assert 2 < track < contrast(theme.styles["DIM"], on_white=on_white)


def test_16_colours_stand_out_on_the_console() -> None:
    faint = {"DIM", "TRACK"}  # by an attribute, in the terminal's own colour
    for role in set(ROLES) - faint:
        assert contrast(ANSI.styles[role], on_white=False) >= 3, role
    assert all(ANSI.styles[role].color.is_default for role in faint)  # type: ignore[union-attr]


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("theme", [COLOUR_BLIND, COLOUR_BLIND_LIGHT], ids=lambda t: t.name)
def test_colours_are_told_apart_by_all_eyes(theme: Theme, eyes: str) -> None:
    told_apart = (*SIDE_BY_SIDE, "ACCENT", "WARN", "FAULT")
    for one, other in itertools.combinations(told_apart, 2):
        assert difference(theme.styles[one], theme.styles[other], eyes) > 12, (one, other)


# --- The filter -------------------------------------------------------------------------------


def restyled(look: Look, style: Style) -> Style:
    (segment,) = look.apply([Segment("x", style)], BACKGROUND)
    assert segment.style is not None
    return segment.style


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("theme", OF_256, ids=lambda t: t.name)
def test_a_role_is_drawn_in_its_colour(theme: Theme, role: str) -> None:
    """With what it had beside: bold, a background, where a click goes."""
    for extra in (Style(), Style(bgcolor="default", meta={"@click": "x"}), Style(underline=True)):
        before = ROLES[role] + extra
        after = restyled(Look(theme), before)
        assert after.color is not None
        assert theme.styles[role].color is not None
        assert after.color == theme.styles[role].color
        assert (after.bold, after.reverse) == (before.bold, before.reverse)
        assert (after.bgcolor, after.meta) == (before.bgcolor, before.meta)
        assert after.underline == before.underline


def test_a_colour_that_textual_made_24_bits_of_is_known() -> None:
    red, green, blue = palette.ACCENT.color.get_truecolor()  # type: ignore[union-attr]
    after = restyled(Look(LIGHT), Style(color=f"rgb({red},{green},{blue})", bold=True))
    assert after.color == LIGHT.styles["ACCENT"].color


def test_what_has_no_role_is_left_alone_unless_there_are_16_colours() -> None:
    for style in (palette.TEXT, palette.STRONG, palette.TAB, Style(color="blue")):
        assert all(restyled(Look(theme), style) == style for theme in THEMES.values())
    foreign = Style(color="#123456", bgcolor="color(200)")
    assert restyled(Look(LIGHT), foreign) == foreign
    after = restyled(Look(ANSI), foreign)
    assert after.color is not None
    assert after.bgcolor is not None
    assert after.color.number is not None
    assert after.color.number < 16
    assert after.bgcolor.number is not None
    assert after.bgcolor.number < 16


def test_what_is_no_text_stays() -> None:
    control = Segment("\x07", None, [])
    bare = Segment("–")
    segments = Look(LIGHT, ascii=True).apply([control._replace(control=[(1,)]), bare], BACKGROUND)  # type: ignore[list-item]
    assert segments == [control._replace(control=[(1,)]), Segment("-")]  # type: ignore[list-item]


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
        assert bool(after.reverse) == (role in ("FAULT", "BADGE"))
        assert bool(after.dim) == (role in ("DIM", "TRACK"))
        assert after.bold == style.bold


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({"TERM": "xterm-256color"}, Terminal(256)),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, Terminal(256)),
        ({"TERM": "xterm"}, Terminal(16)),
        ({"TERM": "screen", "LANG": "en_US.UTF-8"}, Terminal(16)),
        ({"TERM": "linux"}, Terminal(16, ascii=True)),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, Terminal(0)),
        ({"TERM": "xterm-256color", "LANG": "C"}, Terminal(256)),
        ({"TERM": "xterm-256color", "LANG": "C.UTF-8"}, Terminal(256)),
        ({"TERM": "xterm-256color", "LC_ALL": "de_DE.utf8@euro"}, Terminal(256)),
        ({"TERM": "xterm-256color", "LANG": "de_DE.ISO-8859-1"}, Terminal(256, ascii=True)),
        ({"TERM": "xterm-256color", "LANG": "ja_JP.eucJP"}, Terminal(256, ascii=True)),
        (
            {"TERM": "xterm-256color", "LANG": "ja_JP.eucJP", "LC_ALL": "C.UTF-8"},
            Terminal(256),
        ),
        (
            {"TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_CTYPE": "de_DE.ISO-8859-1"},
            Terminal(256, ascii=True),
        ),
    ],
)
def test_what_the_environment_says_of_the_terminal(
    environment: dict[str, str], wanted: Terminal
) -> None:
    assert Terminal.of(environment) == wanted


def test_what_is_asked_for_counts_as_far_as_the_terminal_can() -> None:
    assert choose("auto", None, Terminal()).theme is DARK
    assert not choose("auto", None, Terminal()).enabled
    assert choose("light", None, Terminal()).theme is LIGHT
    assert choose("light", None, Terminal(16)).theme is ANSI
    assert choose("light", None, Terminal(0)).theme is MONOCHROME
    assert choose("auto", None, Terminal(16, ascii=True)).ascii
    assert not choose("auto", False, Terminal(16, ascii=True)).ascii
    assert choose("auto", True, Terminal()).enabled


def test_the_next_theme_goes_round() -> None:
    terminal = Terminal()
    seen = []
    look = choose("auto", None, terminal)
    for _ in THEMES:
        seen.append(look.theme.name)
        look = choose(following(look, terminal), None, terminal)
    assert seen == list(THEMES)
    assert look.theme is DARK
    for few in (Terminal(16), Terminal(0)):
        look = choose("auto", None, few)
        assert choose(following(look, few), None, few).theme is look.theme


# --- The whole screen -------------------------------------------------------------------------


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
    simulated = dataclasses.replace(inventory(4), source=Source.SIMULATED)
    return PreparedStream(simulated, *[made] * 30)


SCREENS: dict[str, Sequence[str]] = {
    "monitor": (),
    "rows": ("c",),
    "help": ("question_mark", "down"),
    "palette": ("ctrl+p",),
    "benchmark": ("2",),
    "list": ("2", "tab", "enter"),
    "field": ("2", "tab", "tab", "tab", "1"),
    "run": ("b",),
    "note": ("x",),
}
every_screen = pytest.mark.parametrize("keys", SCREENS.values(), ids=SCREENS)


async def drawn(
    keys: Sequence[str],
    size: tuple[int, int] = (100, 34),
    stream: PreparedStream | None = None,
    **options: Any,
) -> list[Strip]:
    """The lines of the screen as they go to the terminal."""
    app = GputopApp(stream or busy_stream(), **options)
    async with app.run_test(size=size, notifications=True) as pilot:
        await settle(pilot)
        for key in keys:
            await pilot.press(key)
        await settle(pilot)
        return lines(app)


def lines(app: GputopApp) -> list[Strip]:
    return app.screen._compositor.render_strips()


def text_of(strips: Sequence[Strip]) -> str:
    return "\n".join(strip.text for strip in strips)


def coloured(strips: Sequence[Strip]) -> set[str]:
    styles = {s.style for strip in strips for s in strip if s.style is not None}
    colours = {colour for style in styles for colour in (style.color, style.bgcolor)}
    return {colour.name for colour in colours if colour is not None and not colour.is_default}


@every_screen
async def test_in_ascii_all_is_ascii_cell_for_cell(
    session: type[PreparedSession], keys: Sequence[str]
) -> None:
    plain = await drawn(keys, settings=Settings(ascii=True))
    assert text_of(plain).isascii()
    assert {strip.cell_length for strip in plain} == {100}
    assert {sum(segment.cell_length for segment in strip) for strip in plain} == {100}


async def test_ascii_has_the_same_letters_in_the_same_places(
    session: type[PreparedSession],
) -> None:
    rich_strips = await drawn(("2", "tab", "enter"))
    plain = await drawn(("2", "tab", "enter"), settings=Settings(ascii=True))
    for before, after in zip(rich_strips, plain, strict=True):
        assert len(before.text) == len(after.text)
        for was, now in zip(before.text, after.text, strict=True):
            assert was == now or not was.isascii() or (was, now) == (" ", " ")


@every_screen
async def test_16_colours_are_all_that_ansi_sends(
    session: type[PreparedSession], keys: Sequence[str]
) -> None:
    """By what Rich writes for a terminal that has 256 all the same."""
    strips = await drawn(keys, settings=Settings(theme="ansi"))
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


@every_screen
async def test_no_color_sends_none(
    monkeypatch: pytest.MonkeyPatch, session: type[PreparedSession], keys: Sequence[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    strips = await drawn(keys, terminal=Terminal(0))
    assert coloured(strips) == set()
    assert {7, 1} & written(strips, "256")  # what is chosen is bold or reversed


async def test_no_color_still_shows_what_is_wrong_and_what_has_the_focus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    for keys, text in (((), "LOST: it no longer"), (("2", "tab", "tab", "tab"), "auto")):
        strips = await drawn(keys, terminal=Terminal(0))
        (style,) = [s.style for strip in strips for s in strip if text in s.text]
        assert style is not None
        assert style.reverse
        assert style.bold


@every_screen
async def test_a_light_theme_has_no_colour_of_the_dark_one(
    session: type[PreparedSession], keys: Sequence[str]
) -> None:
    strips = await drawn(keys, settings=Settings(theme="light"))
    assert coloured(strips) <= names(LIGHT) | {f"color({n})" for n in range(16)} | {"default"}


def names(theme: Theme) -> set[str]:
    return {style.color.name for style in theme.styles.values() if style.color is not None}


async def test_the_default_look_costs_nothing() -> None:
    app = GputopApp(PreparedStream(inventory(1), sample(1)))
    async with app.run_test() as pilot:
        await settle(pilot)
        assert app.get_line_filters() == []


async def test_a_theme_is_changed_while_it_runs() -> None:
    app = GputopApp(PreparedStream(inventory(2), sample(2)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        text = text_of(lines(app))
        for theme in (LIGHT, ANSI, COLOUR_BLIND, COLOUR_BLIND_LIGHT, DARK):
            app.action_theme()
            await settle(pilot)
            assert app._settings.theme == theme.name
            assert names(theme) & coloured(lines(app)) - {"default"}
            assert text_of(lines(app)) == text
        accents = {s.style.color for s in lines(app)[0] if s.text == " gputop " and s.style}
        assert accents == {palette.ACCENT.color}


async def test_a_changed_theme_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line goes to the terminal again, in the new colours."""
    app = GputopApp(PreparedStream(inventory(2), sample(2)))
    console = Console(color_system="256", force_terminal=True, width=80)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        sent: list[str] = []
        compositor = app.screen._compositor
        real = compositor.render_update

        def recorded(*arguments: Any, **options: Any) -> Any:
            update = real(*arguments, **options)
            sent.append(update.render_segments(console))  # type: ignore[union-attr]
            return update

        monkeypatch.setattr(compositor, "render_update", recorded)
        app.set_theme("light")
        await settle(pilot)
        colours = set(re.findall(r"38;5;(\d+)", sent[0]))
        assert {"25", "242", "28"} <= colours
        assert not {"75", "244", "71"} & colours


async def test_the_settings_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "new" / "config.toml"
    app = GputopApp(PreparedStream(inventory(1), sample(1)), config=file)
    async with app.run_test(notifications=True) as pilot:
        app.set_theme("light")
        await app.action_keep()
        await settle(pilot)
        (note,) = app._notifications
        assert note.message == f"Kept in {file}"
    assert file.read_text() == 'theme = "light"\n'


async def test_settings_that_cannot_be_kept_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    config = tmp_path / "file" / "config.toml"
    app = GputopApp(PreparedStream(inventory(1), sample(1)), config=config)
    async with app.run_test(notifications=True) as pilot:
        app.set_theme("light")
        await app.action_keep()
        await settle(pilot)
        (note,) = app._notifications
        assert "Not a directory" in note.message
        assert "\n" not in note.message


async def test_settings_that_are_not_used_are_said() -> None:
    app = GputopApp(PreparedStream(inventory(1), sample(1)), problems=[NO_DRIVER, NO_DRIVER])
    async with app.run_test(notifications=True) as pilot:
        await settle(pilot)
        (note,) = app._notifications
        assert note.message == f"{NO_DRIVER}\n{NO_DRIVER}"


# --- 60 columns -------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 79, 80, 120])
async def test_the_form_is_whole(width: int) -> None:
    """No field is cut or empty, and the device's name is there in full."""
    app = GputopApp(PreparedStream(inventory(2), sample(2)))
    async with app.run_test(size=(width, 24)) as pilot:
        await settle(pilot)
        await pilot.press("2")
        await settle(pilot)
        for widget in app.query("#form Label, #form Select, #form Input, #form Button"):
            region = widget.region
            assert region.width >= 4
            assert region.right <= width
            assert app.screen.find_widget(widget).visible_region == region
        text = text_of(lines(app)[2:4])
        fields = ("Device", "0 H100 80GB HBM3", "Type", "bfloat16", "Size", "auto", "60", "Start")
        assert all(field in text for field in fields)


async def test_an_open_list_at_60_columns_is_on_screen() -> None:
    app = GputopApp(PreparedStream(inventory(2), sample(2)))
    async with app.run_test(size=(60, 24)) as pilot:
        await settle(pilot)
        await pilot.press("2", "tab", "tab", "enter")
        await settle(pilot)
        assert app.query_one("#dtype", Select).expanded
        text = text_of(lines(app))
        assert "float8" in text or "float64" in text


@pytest.mark.parametrize("width", [60, 80, 140])
async def test_a_question_is_whole(width: int) -> None:
    title = "GPU 0, NVIDIA GeForce RTX 4090 Laptop GPU is in use. A stress test slows down:"
    long = "   4000  ada        " + "python train.py " * 20
    app = GputopApp(PreparedStream(no_driver(), sample()))
    async with app.run_test(size=(width, 24)) as pilot:
        await settle(pilot)
        app.push_screen(Question(title, [long, long], "Start all the same"))
        await settle(pilot)
        rows = [row.strip(" │") for row in text_of(lines(app)).splitlines()]
        text = " ".join(row for row in rows if row)
        assert title in text
        assert text.count("4000  ada") == 2
        assert "…" in text
        assert "y Start all the same   n Leave it" in text


async def test_the_header_survives_each_look() -> None:
    for theme in THEMES:
        strips = await drawn((), settings=Settings(theme=theme, ascii=True))
        assert " gputop  1 Monitor " in strips[0].text
