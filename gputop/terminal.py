"""What the environment says of the terminal: for the dashboard, and for all that prints."""

from __future__ import annotations

import re
from collections.abc import Mapping


def locale_of(environment: Mapping[str, str]) -> str:
    """The locale of characters; empty where there is none."""
    names = (environment.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    return next((name for name in names if name), "")


def without_colours(environment: Mapping[str, str]) -> bool:
    """Whether the user wants none; an empty NO_COLOR is no wish: see https://no-color.org."""
    return bool(environment.get("NO_COLOR"))


def ascii_is_safer(environment: Mapping[str, str]) -> bool:
    """Whether the locale names an encoding that is not UTF-8, or the font has few glyphs.

    The locales C and POSIX, and none at all, say nothing of the terminal: they are what containers
    and bare servers have, seen through terminals that have long been UTF-8. Linux's own console
    has a font of 256 or 512 glyphs, none of them braille.
    """
    encoding = re.search(r"\.([^@]+)", locale_of(environment))
    foreign = encoding is not None and encoding[1].lower().replace("-", "") != "utf8"
    return foreign or environment.get("TERM") == "linux"


def terminfo_colours() -> int | None:
    """How many colours terminfo knows of the terminal; None where it does not know it."""
    try:
        import curses
    except ImportError:  # some Pythons are built without it
        return None
    try:
        curses.setupterm()
        return max(0, curses.tigetnum("colors"))
    except curses.error:  # terminfo does not know this terminal
        return None
