"""Colours by role, from the 256-colour palette on the terminal's own background.

Over SSH 256 colours are the common case, and an index costs half the bytes of a 24-bit colour.
This is the theme `dark`; `gputop.ui.drawing.look` maps roles to the colours of other themes.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.color import Color
from rich.style import Style


def ink(
    index: int,
    *,
    bold: bool = False,
    reverse: bool = False,
) -> Style:
    """Return a style in a colour of the 256-colour palette."""
    return Style(
        color=Color.from_ansi(index),
        bold=bold,
        reverse=reverse,
    )


# Do not use the null style: Textual's NO_COLOR filter crashes on segments
# without a style.
TEXT = Style(bold=False)
STRONG = Style(bold=True)
DIM = ink(244)
"""Labels, units and missing readings."""
TRACK = ink(240)
"""Empty part of a bar, and rules."""
BUSY = ink(71)
MEMORY = ink(68)
POWER = ink(173)
CPU = ink(37)
SM = ink(107)
TENSOR = ink(143)
TEMPERATURE = ink(167)
RECEIVED = ink(140)
SENT = ink(133)
ACCENT = ink(75, bold=True)
WARN = ink(178, bold=True)
FAULT = ink(167, bold=True)
GOOD = ink(71, bold=True)
BADGE = ink(178, bold=True, reverse=True)
TAB = Style(bold=True, reverse=True)
CURSOR = Style(reverse=True)
"""Selected row of the focused list. One style for all cells makes it look like one block."""
# Levels of the fleet map from low to high, in cool colours, because yellow and
# red mean faults.
LEVEL_0 = ink(239)
LEVEL_1 = ink(24)
LEVEL_2 = ink(31)
LEVEL_3 = ink(38)
LEVEL_4 = ink(80)
LEVELS = (LEVEL_0, LEVEL_1, LEVEL_2, LEVEL_3, LEVEL_4)
POINTER = ink(165, bold=True, reverse=True)
"""Cell under the cursor on the fleet map."""

ROLES: Mapping[str, Style] = {
    name: value
    for name, value in globals().items()
    if isinstance(value, Style) and value.color is not None
}
"""Roles that a theme must have a style for. All else uses the terminal's own colours."""
