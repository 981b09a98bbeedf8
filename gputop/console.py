"""What the environment says of the terminal: for the dashboard, and for all that prints."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping

from gputop.bounds import COLUMNS, ROWS
from gputop.text import visible

FINE = 0
FAULT = 1
"""A fault was found: a wrong result, a failed check."""
USAGE = 2
COULD_NOT_RUN = 3
"""No device, no torch, not enough memory."""
DEGRADED = 4
"""Throttled, ended early by a limit, or below its baseline."""
INTERRUPTED = 130


def signal_name(status: int) -> str:
    """The signal behind the negative status of a process that one ended: `SIGKILL`."""
    known = {each.value: each.name for each in signal.Signals}
    return known.get(-status, f"signal {-status}")


TOO_MANY_FILES = "too many files are open. Raise the limit: `ulimit -n 1024`."
"""Said where the limit on descriptors ends a command: by then nothing more can be imported."""


_IPYKERNEL = {"TERM": "xterm-color", "GIT_PAGER": "cat"}
"""Variables that ipykernel sets for its children; Jupyter adds JPY_PARENT_PID."""


def terminal_size(descriptor: int = 1) -> tuple[int, int]:
    """Return columns and rows of a terminal, at most `COLUMNS` and `ROWS`.

    The environment may say another size than the terminal has since it was resized, so it counts
    only where the terminal knows none, such as a serial line.
    """
    try:
        columns, rows = os.get_terminal_size(descriptor)
    except (OSError, ValueError):
        columns = rows = 0
    if not (columns and rows):
        columns, rows = shutil.get_terminal_size((80, 24))
    return min(columns, COLUMNS), min(rows, ROWS)


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


def in_notebook_cell(environment: Mapping[str, str]) -> bool:
    """True if this is the `!command` of a notebook, which has a pty that nobody types into.

    A terminal that was opened from a kernel has the kernel's variables, too, but its shell gives
    each command a process group of its own.
    """
    from_kernel = "JPY_PARENT_PID" in environment or environment.items() >= _IPYKERNEL.items()
    return from_kernel and os.getpgrp() == os.getsid(0)


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


def say(line: str) -> None:
    """One line on standard error, inert."""
    with contextlib.suppress(OSError):
        print(f"gputop: {visible(line, len(line))}", file=sys.stderr, flush=True)


def print_out(text: str) -> None:
    """Text on standard output, if there is any; what others called things is made inert."""
    if not text:
        return
    text = "\n".join(visible(line, len(line)) for line in text.split("\n"))
    try:
        print(text, flush=True)
    except OSError:
        # Nobody reads it; without this the interpreter complains at its end.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
