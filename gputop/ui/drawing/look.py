"""What the screen looks like: a theme, and ASCII, put over everything that is drawn.

All widgets draw in the colours of the palette and with whatever characters they like. A filter over
their lines puts the theme's colours in place of the palette's, and ASCII in place of the rest:
borders, lists and text of others included. The theme `dark` with all characters needs no filter.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from rich.color import Color, ColorSystem, ColorType
from rich.color_triplet import ColorTriplet
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual import constants
from textual.filter import LineFilter

from gputop.console import ascii_is_safer, without_colours
from gputop.frozen import dataclass
from gputop.settings import AUTO
from gputop.ui.drawing.glyphs import ascii_text
from gputop.ui.drawing.palette import ROLES

if TYPE_CHECKING:
    from textual.color import Color as Background


@dataclass(frozen=True, slots=True)
class Theme:
    """Styles by role, to be laid over the palette's."""

    name: str
    styles: Mapping[str, Style]
    colours: int = 256
    """How many there are; 16 are the terminal's own, and 0 is none."""


def _of_256(name: str, **roles: int) -> Theme:
    styles = {role: Style(color=Color.from_ansi(number)) for role, number in roles.items()}
    return Theme(name, styles)


def _of_16(name: str, **roles: str | Style) -> Theme:
    named = {
        role: Style(color=each) if isinstance(each, str) else each for role, each in roles.items()
    }
    return Theme(name, named, colours=16)


DARK = Theme("dark", ROLES)
# fmt: off
LIGHT = _of_256(
    "light", DIM=242, TRACK=246, BUSY=28, MEMORY=26, POWER=130, CPU=30,
    SM=64, TENSOR=100, TEMPERATURE=160, RECEIVED=97, SENT=127,
    ACCENT=25, WARN=94, FAULT=124, GOOD=22, BADGE=94,
    LEVEL_0=250, LEVEL_1=110, LEVEL_2=68, LEVEL_3=26, LEVEL_4=18, POINTER=126,
)
# After Okabe and Ito, moved as far apart as 256 colours have it for all three colour deficiencies.
COLOUR_BLIND = _of_256(
    "colour-blind", DIM=244, TRACK=240, BUSY=42, MEMORY=32, POWER=214, CPU=96,
    SM=42, TENSOR=227, TEMPERATURE=202, RECEIVED=32, SENT=214,
    ACCENT=117, WARN=227, FAULT=202, GOOD=42, BADGE=227,
    LEVEL_0=239, LEVEL_1=24, LEVEL_2=31, LEVEL_3=38, LEVEL_4=80, POINTER=165,
)
COLOUR_BLIND_LIGHT = _of_256(
    "colour-blind-light", DIM=242, TRACK=246, BUSY=29, MEMORY=33, POWER=202, CPU=53,
    SM=29, TENSOR=58, TEMPERATURE=202, RECEIVED=33, SENT=53,
    ACCENT=25, WARN=58, FAULT=52, GOOD=29, BADGE=58,
    LEVEL_0=250, LEVEL_1=110, LEVEL_2=68, LEVEL_3=26, LEVEL_4=18, POINTER=126,
)
_FAINT = Style(color="default", dim=True)  # bright black is the background itself on some palettes
_OWN = Style(color="default")
ANSI = _of_16(
    "ansi", DIM=_FAINT, TRACK=_FAINT, LEVEL_0=_FAINT, LEVEL_4=_OWN,
    BUSY="green", MEMORY="bright_blue", POWER="magenta", CPU="cyan",  # plain blue is hard to see
    SM="green", TENSOR="yellow", TEMPERATURE="bright_red", RECEIVED="bright_blue", SENT="magenta",
    ACCENT="cyan", WARN="yellow", FAULT="bright_red", GOOD="green", BADGE="yellow",
    LEVEL_1="bright_blue", LEVEL_2="cyan", LEVEL_3="bright_cyan", POINTER="bright_magenta",
)
# fmt: on
MONOCHROME = Theme(
    "monochrome",
    dict.fromkeys(ROLES, _OWN)
    | {"DIM": _FAINT, "TRACK": _FAINT, "FAULT": Style(color="default", reverse=True)},
    colours=0,
)
"""For NO_COLOR: bold is what matters, and a fault is reversed."""

THEMES = {theme.name: theme for theme in (DARK, LIGHT, ANSI, COLOUR_BLIND, COLOUR_BLIND_LIGHT)}
"""Those that the user can name."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """What the terminal can show."""

    colours: int = 256
    """256, 16, or 0 where NO_COLOR is set."""
    ascii: bool = False
    """Whether it is safer to draw in ASCII."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Terminal:
        """What the environment says of it; Textual reads the same variables."""
        return cls(_colours(environment), ascii_is_safer(environment))

    @property
    def themes(self) -> tuple[str, ...]:
        """The themes that it can show."""
        return tuple(THEMES) if self.colours > 16 else (ANSI.name,) if self.colours else ()


def _colours(environment: Mapping[str, str]) -> int:
    if without_colours(environment):
        return 0
    console = Console(
        # As Textual types it, any string; it hands it on in the same way.
        color_system=constants.COLOR_SYSTEM,  # type: ignore[arg-type]
        force_terminal=True,
        legacy_windows=False,
        _environ=environment,
    )
    return {"truecolor": 256, "256": 256, None: 0}.get(console.color_system, 16)


_Key = tuple[ColorTriplet | None, bool, bool]


class Look(LineFilter):
    """A theme and a set of characters, as a filter over all lines."""

    def __init__(self, theme: Theme = DARK, *, ascii: bool = False) -> None:  # noqa: A002
        self.theme, self.ascii = theme, ascii
        # Textual leaves out filters that are not enabled.
        super().__init__(enabled=ascii or theme is not DARK)
        self._exact: dict[_Key, Style] = {}
        self._by_colour: dict[object, Style] = {}
        for role, style in ROLES.items():
            self._exact.setdefault(_key(style), theme.styles[role])
            self._by_colour.setdefault(_key(style)[0], theme.styles[role])
        self._restyled = lru_cache(1024)(self._restyle)

    def apply(self, segments: list[Segment], background: Background) -> list[Segment]:  # noqa: ARG002
        """The segments in the theme's styles, cell for cell."""
        text = ascii_text if self.ascii else str
        return [
            segment
            if segment.control
            else Segment(text(segment.text), segment.style and self._restyled(segment.style))
            for segment in segments
        ]

    def _restyle(self, style: Style) -> Style:
        key = _key(style)
        found = self._exact.get(key) or self._by_colour.get(key[0])
        if found is not None:
            style += found
        behind = self._by_colour.get(_key(Style(color=style.bgcolor))[0]) if style.bgcolor else None
        if behind is not None and behind.color is not None:
            style += Style(bgcolor=behind.color)
        if self.theme.colours <= 16:  # what has no role too
            style += Style.from_color(_downgraded(style.color), _downgraded(style.bgcolor))
        return style


def _key(style: Style) -> _Key:
    """By what a style of the palette is known; Textual makes 24 bits of some of its colours."""
    colour = style.color
    triplet = None if colour is None else colour.triplet
    if colour is not None and colour.type is ColorType.EIGHT_BIT:
        triplet = colour.get_truecolor()
    return triplet, bool(style.bold), bool(style.reverse)


def _downgraded(colour: Color | None) -> Color | None:
    return None if colour is None else colour.downgrade(ColorSystem.STANDARD)


def choose(theme: str, ascii: bool | None, terminal: Terminal) -> Look:  # noqa: A002
    """The look that is asked for, as far as the terminal can show it.

    A theme of 256 colours on a terminal of 16 would be what is nearest, legible or not: there it is
    `ansi`. `auto`, or None for ASCII, is what suits the terminal.
    """
    if terminal.colours == 0:
        chosen = MONOCHROME
    elif terminal.colours <= 16:
        chosen = ANSI
    else:
        chosen = DARK if theme == AUTO else THEMES[theme]
    return Look(chosen, ascii=terminal.ascii if ascii is None else ascii)


def following(look: Look, terminal: Terminal) -> str:
    """The theme after this one, round and round; the same where there is no other."""
    names = terminal.themes
    if look.theme.name not in names:
        return look.theme.name
    return names[(names.index(look.theme.name) + 1) % len(names)]
