"""Themes and ASCII mode, as a filter over everything that is drawn.

Widgets draw in the colours of the palette and with any characters. The filter replaces the
palette's colours by the theme's. In ASCII mode it also replaces all other characters, including
text and borders from Textual. The theme `dark` with all characters needs no filter.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.color import Color, ColorSystem, ColorType
from rich.color_triplet import ColorTriplet
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual import constants
from textual.color import Color as Background
from textual.filter import LineFilter

from gputop.console import ascii_is_safer, without_colours
from gputop.settings import AUTO
from gputop.ui.drawing.palette import ROLES


class Theme(NamedTuple):
    """Styles by role, which replace the palette's."""

    name: str
    styles: Mapping[str, Style]
    colours: int = 256
    """Number of colours: 256, the terminal's own 16, or 0 for none."""


def _theme(name: str, colours: int = 256, **roles: int | str) -> Theme:
    styles = {}
    for role, each in roles.items():
        text = f"color({each})" if isinstance(each, int) else each
        styles[role] = Style.parse(text)
    return Theme(name, styles, colours)


DARK = Theme("dark", ROLES)
# fmt: off
LIGHT = _theme(
    "light", DIM=242, TRACK=246, BUSY=28, MEMORY=26, POWER=130, CPU=30,
    SM=64, TENSOR=100, TEMPERATURE=160, RECEIVED=97, SENT=127,
    ACCENT=25, WARN=94, FAULT=124, GOOD=22, BADGE=94,
    LEVEL_0=250, LEVEL_1=110, LEVEL_2=68, LEVEL_3=26, LEVEL_4=18, POINTER=126,
)
# After Okabe and Ito, with the largest distances that 256 colours allow for
# all three colour deficiencies.
COLOUR_BLIND = _theme(
    "colour-blind", DIM=244, TRACK=240, BUSY=42, MEMORY=32, POWER=214, CPU=96,
    SM=42, TENSOR=227, TEMPERATURE=202, RECEIVED=32, SENT=214,
    ACCENT=117, WARN=227, FAULT=202, GOOD=42, BADGE=227,
    LEVEL_0=239, LEVEL_1=24, LEVEL_2=31, LEVEL_3=38, LEVEL_4=80, POINTER=165,
)
COLOUR_BLIND_LIGHT = _theme(
    "colour-blind-light", DIM=242, TRACK=246, BUSY=29, MEMORY=33, POWER=202, CPU=53,
    SM=29, TENSOR=58, TEMPERATURE=202, RECEIVED=33, SENT=53,
    ACCENT=25, WARN=58, FAULT=52, GOOD=29, BADGE=58,
    LEVEL_0=250, LEVEL_1=110, LEVEL_2=68, LEVEL_3=26, LEVEL_4=18, POINTER=126,
)
# Some palettes use bright black for the background.
_FAINT, _OWN = "default dim", "default"
ANSI = _theme(
    "ansi", 16, DIM=_FAINT, TRACK=_FAINT, LEVEL_0=_FAINT, LEVEL_4=_OWN,
    # Plain blue is hard to see.
    BUSY="green", MEMORY="bright_blue", POWER="magenta", CPU="cyan",
    SM="green", TENSOR="yellow", TEMPERATURE="bright_red", RECEIVED="bright_blue", SENT="magenta",
    ACCENT="cyan", WARN="yellow", FAULT="bright_red", GOOD="green", BADGE="yellow",
    LEVEL_1="bright_blue", LEVEL_2="cyan", LEVEL_3="bright_cyan", POINTER="bright_magenta",
)
# fmt: on
MONOCHROME = Theme(
    "monochrome",
    dict.fromkeys(ROLES, Style.parse(_OWN))
    | {
        "DIM": Style.parse(_FAINT),
        "TRACK": Style.parse(_FAINT),
        "FAULT": Style.parse("default reverse"),
    },
    colours=0,
)
"""Theme for NO_COLOR: important text is bold, and faults are reversed."""

THEMES = {
    theme.name: theme
    for theme in (DARK, LIGHT, ANSI, COLOUR_BLIND, COLOUR_BLIND_LIGHT)
}


class Terminal(NamedTuple):
    """Capabilities of the terminal."""

    colours: int = 256
    """256, 16, or 0 if NO_COLOR is set."""
    ascii: bool = False
    """True if ASCII is the safer choice."""
    light: bool = False
    """True if its background is light."""

    @classmethod
    def detect(cls, environment: Mapping[str, str]) -> Terminal:
        """Detect the capabilities from the environment variables that Textual also reads."""
        return cls(_colours(environment), ascii_is_safer(environment))

    @property
    def themes(self) -> tuple[str, ...]:
        """Names of the themes that the terminal can show."""
        if self.colours == ANSI.colours:
            return (ANSI.name,)
        return tuple(THEMES) if self.colours else ()


def _colours(environment: Mapping[str, str]) -> int:
    if without_colours(environment):
        return 0
    console = Console(
        # Textual declares the constant as any string, and passes it on in the
        # same way.
        color_system=constants.COLOR_SYSTEM,  # type: ignore[arg-type]
        force_terminal=True,
        legacy_windows=False,
        _environ=environment,
    )
    return {"truecolor": 256, "256": 256, None: 0}.get(
        console.color_system,
        16,
    )


_Key = tuple[ColorTriplet | None, bool, bool]


class Look(LineFilter):
    """Line filter that applies a theme and a set of characters."""

    def __init__(self, theme: Theme = DARK, *, ascii: bool = False) -> None:  # noqa: A002
        self.theme, self.ascii = theme, ascii
        # Textual skips disabled filters.
        super().__init__(enabled=ascii or theme is not DARK)
        self._exact: dict[_Key, Style] = {}
        self._by_colour: dict[object, Style] = {}
        for role, style in ROLES.items():
            self._exact.setdefault(_key(style), theme.styles[role])
            self._by_colour.setdefault(_key(style)[0], theme.styles[role])
        self._restyled = lru_cache(1024)(self._restyle)

    def apply(
        self,
        segments: list[Segment],
        background: Background,  # noqa: ARG002
    ) -> list[Segment]:
        """Return the segments in the theme's styles, cell for cell."""
        text = ascii_text if self.ascii else str
        return [
            segment
            if segment.control
            else Segment(
                text(segment.text),
                segment.style and self._restyled(segment.style),
            )
            for segment in segments
        ]

    def _restyle(self, style: Style) -> Style:
        key = _key(style)
        found = self._exact.get(key) or self._by_colour.get(key[0])
        if found is not None:
            style += found
        # This includes colours without a role.
        if self.theme.colours <= ANSI.colours:
            style += Style.from_color(
                _downgraded(style.color),
                _downgraded(style.bgcolor),
            )
        return style


def _key(style: Style) -> _Key:
    """Return the lookup key of a style. Textual converts some palette colours to 24 bits."""
    colour = style.color
    triplet = None if colour is None else colour.triplet
    if colour is not None and colour.type is ColorType.EIGHT_BIT:
        triplet = colour.get_truecolor()
    return triplet, bool(style.bold), bool(style.reverse)


def _downgraded(colour: Color | None) -> Color | None:
    return None if colour is None else colour.downgrade(ColorSystem.STANDARD)


def choose_look(theme: str, ascii: bool | None, terminal: Terminal) -> Look:  # noqa: A002
    """Return the requested look, as far as the terminal supports it.

    With 16 colours, the theme is always `ansi`, because the nearest colours of other themes may be
    illegible.
    """
    if terminal.colours == 0:
        chosen = MONOCHROME
    elif terminal.colours <= ANSI.colours:
        chosen = ANSI
    else:
        if theme == AUTO:
            theme = "light" if terminal.light else "dark"
        chosen = THEMES[theme]
    return Look(chosen, ascii=terminal.ascii if ascii is None else ascii)


UNKNOWN = "?"
FILLS = " ..::||##"
"""A cell with 0 to 8 dots."""

GLYPHS = {
    # Bars: full, half, empty, unknown.
    "━": "#", "╸": "=", "─": "-", "┄": ".",
    "▌": "|", "▐": "|", "▔": "-", "▀": '"', "░": ":", "▒": ":", "▓": "#", "■": "#", "□": "o",
    "▁": ".", "▂": ".", "▃": ":", "▄": ":", "▅": "|", "▆": "|", "▇": "#", "█": "#", "▮": "#",
    "▉": "#", "▊": "#", "▋": "#", "▍": "|", "▎": "|", "▏": "|",
    "·": "*", "–": "-", "—": "-", "…": "~", "°": " ", "×": "x", "÷": "/", "±": "+", "−": "-",
    "≥": ">", "≤": "<", "≈": "~", "≠": "!", "µ": "u", "Δ": "d", "√": "v", "∞": "8", "∑": "S",
    "←": "<", "→": ">", "↑": "^", "↓": "v", "↕": "|", "↔": "-", "⇅": "|", "↵": "<", "⏎": "<",
    "›": ">", "‹": "<", "»": ">", "«": "<", "⟨": "<", "⟩": ">", "▸": ">", "▾": "v", "▴": "^",
    "▶": ">", "◀": "<", "▲": "^", "▼": "v", "►": ">", "◄": "<", "△": "^", "▽": "v", "▷": ">",
    "•": "*", "●": "*", "○": "o", "◉": "*", "◆": "*", "◇": "o", "★": "*", "⚠": "!",
    "✓": "+", "✔": "+", "✗": "x", "✘": "x", "‘": "'", "’": "'", "“": '"', "”": '"', "ß": "s",
    "ø": "o", "Ø": "O", "æ": "a", "Æ": "A", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ı": "i",
}  # fmt: skip
SEPARATOR, ASCII_SEPARATOR = " · ", " | "
TABLE = str.maketrans(
    # Frames, then charts.
    dict.fromkeys(map(chr, range(0x2500, 0x2580)), "+")
    | dict.fromkeys("─┅┈┉╌╍═╴╶╺╼╾", "-")
    | dict.fromkeys("│┃┆┇┊┋╎╏║╵╷╹╻╽╿", "|")
    | {chr(0x2800 + dots): FILLS[dots.bit_count()] for dots in range(256)}
    | GLYPHS,
)
"""ASCII for each character that takes one cell and is not a letter."""


@lru_cache(4096)
def ascii_text(text: str) -> str:
    """Return the text in ASCII, in the same number of cells.

    Each character becomes as many characters as it has cells, so that nothing moves. Charts keep
    their heights: a fuller cell becomes a heavier character.
    """
    if text.isascii():
        return text
    plain = text.replace(SEPARATOR, ASCII_SEPARATOR).translate(TABLE)
    plain = "".join(map(_letters, plain))
    # Joined characters have a different width than separate ones.
    return set_cell_size(plain, cell_len(text))


def _letters(character: str) -> str:
    """Return `é` as `e`, and characters without such letters as question marks."""
    if character.isascii():
        return character
    width, base = cell_len(character), ""
    for each in unicodedata.normalize("NFKD", character):
        if each.isascii() and each.isprintable():
            base += each
    return base if len(base) == width else UNKNOWN * width
