"""Themes: every role, legible, told apart by all eyes; and which of them is shown."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.color import Color as Background
from textual.filter import NoColor

from gputop import settings as kept
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
    ascii_text,
    choose_look,
)
from gputop.ui.drawing.palette import ROLES
from gputop.ui.monitor.layout import Density
from gputop.ui.terminal_input import BackgroundAnswered
from tests.streams import inventory, sample
from tests.ui.pilots import app_with, settle

if TYPE_CHECKING:
    from gputop.ui.drawing.look import Theme


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


# --- Themes -----------------------------------------------------------------------------------


def test_settings_and_looks_have_the_same_themes() -> None:
    assert tuple(THEMES) == kept.THEMES


def test_settings_and_panels_have_the_same_densities() -> None:
    assert tuple(density.name.lower() for density in Density) == kept.DENSITIES


def test_roles_are_all_colours_of_the_palette() -> None:
    styles = {n: v for n, v in vars(palette).items() if isinstance(v, Style)}
    assert {n for n, style in styles.items() if style.color is not None} == set(ROLES)
    assert {*TEXT_ROLES, *BAR_ROLES, *LEVEL_ROLES, "TRACK", "POINTER"} == set(ROLES)


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


# --- The filter -------------------------------------------------------------------------------


def restyled(look: Look, style: Style) -> Style:
    (segment,) = look.apply([Segment("x", style)], BACKGROUND)
    assert segment.style is not None
    return segment.style


@pytest.mark.parametrize("theme", OF_256, ids=lambda t: t.name)
def test_a_role_is_drawn_in_its_colour(theme: Theme) -> None:
    """With what it had beside: bold, a background, where a click goes."""
    clicked = Style(bgcolor="default", meta={"@click": "x"})
    for role, extra in itertools.product(ROLES, (Style(), clicked, Style(underline=True))):
        before = ROLES[role] + extra
        after = restyled(Look(theme), before)
        assert after.color is not None
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
        ("TERM=xterm-256color LANG=ja_JP.eucJP", Terminal(256, ascii=True)),
        ("TERM=xterm-256color LANG=ja_JP.eucJP LC_ALL=C.UTF-8", Terminal(256)),
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
    for until, theme in ((float("inf"), LIGHT), (0.0, DARK)):
        app = app_with(inventory(1), sample(1))
        async with app.run_test() as pilot:
            app._ask_until = until
            app.post_message(BackgroundAnswered(is_light=True))
            await settle(pilot)
            assert app.look.theme is theme


# ASCII, cell for cell: nothing moves, and charts keep their heights.


ON_SCREEN = "░▒▓█▌━─╸┄│·–…°²³ᵀ×±→←↓↑✓•⏎▏▼▲›╭╮╰╯├┤┬┴┼═║⟨⟩␛µ"


@given(st.text())
def test_any_text_becomes_ascii_of_the_same_length(text: str) -> None:
    plain = ascii_text(text)
    assert plain.isascii()
    assert cell_len(plain) == cell_len(text)


@given(st.text(st.characters(max_codepoint=0x7F)))
def test_ascii_stays_as_it_is(text: str) -> None:
    assert ascii_text(text) == text


@pytest.mark.parametrize("character", sorted({*ON_SCREEN, *GLYPHS} - {"°", "␛"}))
def test_a_glyph_of_ours_has_one_of_its_own(character: str) -> None:
    assert ascii_text(character) not in ("", " ", "?")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("node07 · driver 580", "node07 | driver 580"),
        ("2·N³", "2*N3"),
        ("64°C", "64 C"),
        ("1024×1024", "1024x1024"),
        ("a long na…", "a long na~"),
        ("François Müller", "Francois Muller"),
        ("模型.py", "????.py"),
        ("Ω", "?"),
        ("╭─ Help ─╮", "+- Help -+"),
        ("│", "|"),
        ("┝┷╋╬", "++++"),
        ("▁▂▃▄▅▆▇█", "..::||##"),
        ("⠀⣀⣤⣶⣿⡇", " .:|#:"),
    ],
)
def test_what_it_becomes(text: str, plain: str) -> None:
    assert ascii_text(text) == plain
