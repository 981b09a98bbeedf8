"""The terminal, standard output and standard error, and the exit statuses of commands."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping
from types import ModuleType

from gputop.agent.problem import COULD_NOT_RUN as COULD_NOT_RUN  # noqa: PLC0414 - public here
from gputop.text import visible

COLUMNS, ROWS = 1000, 500
"""Largest size of a terminal, in cells."""
FINE = 0
FAULT = 1
"""A fault was found: a wrong result, a failed check."""
USAGE = 2
DEGRADED = 4
"""A device was throttled, ended early by a limit, or was below its baseline."""
INTERRUPTED = 130


def signal_name(status: int) -> str:
    """Return the name of the signal behind a negative exit status: `SIGKILL`."""
    known = {each.value: each.name for each in signal.Signals}
    return known.get(-status, f"signal {-status}")


TOO_MANY_FILES = "too many files are open. Raise the limit: `ulimit -n 1024`."
"""Message for the limit on open files. It is a constant, because imports fail at that limit."""

_IPYKERNEL = {"TERM": "xterm-color", "GIT_PAGER": "cat"}
"""Environment variables that ipykernel sets for its children. Jupyter adds JPY_PARENT_PID."""


def terminal_size(descriptor: int = 1) -> tuple[int, int]:
    """Return columns and rows of a terminal, at most `COLUMNS` and `ROWS`.

    The size in the environment may be outdated after a resize. It is used only if the terminal has
    no size, such as a serial line.
    """
    size = None
    with contextlib.suppress(OSError, ValueError):
        size = os.get_terminal_size(descriptor)
    if size is None or not all(size):
        size = shutil.get_terminal_size()
    return min(size.columns, COLUMNS), min(size.lines, ROWS)


def open_terminal() -> int:
    """Return a non-blocking descriptor of the terminal of standard output.

    The terminal is opened again, because the shell shares the flags of the open descriptor. If that
    is not permitted, as after `su`, open the controlling terminal, or else duplicate standard
    output, which may block.
    """
    for name_of in (os.ttyname, lambda _: os.ctermid()):
        with contextlib.suppress(OSError):
            return os.open(
                name_of(1), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK
            )
    return os.dup(1)


def locale_of(environment: Mapping[str, str]) -> str:
    """Return the locale for characters, or an empty string."""
    names = (environment.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    return next((name for name in names if name), "")


def without_colours(environment: Mapping[str, str]) -> bool:
    """Return True if NO_COLOR is set and not empty: see https://no-color.org."""
    return bool(environment.get("NO_COLOR"))


def ascii_is_safer(environment: Mapping[str, str]) -> bool:
    """Return True if the locale's encoding is not UTF-8, or the font has few glyphs.

    `LC_ALL=C` requests ASCII. Otherwise the locales C and POSIX, or no locale, do not count:
    containers and bare servers have them, but are viewed in UTF-8 terminals. The font of Linux's
    console has 256 or 512 glyphs and no braille.
    """
    if environment.get("LC_ALL") in ("C", "POSIX"):
        return True
    encoding = re.search(r"\.([^@]+)", locale_of(environment))
    foreign = (
        encoding is not None and encoding[1].lower().replace("-", "") != "utf8"
    )
    return foreign or environment.get("TERM") == "linux"


def in_notebook_cell(environment: Mapping[str, str]) -> bool:
    """Return True for the `!command` of a notebook, whose terminal gets no keys.

    A terminal that a kernel opened has the same variables. But its shell gives each command a
    separate process group.
    """
    from_kernel = (
        "JPY_PARENT_PID" in environment
        or environment.items() >= _IPYKERNEL.items()
    )
    return from_kernel and os.getpgrp() == os.getsid(0)


def terminfo() -> ModuleType | None:
    """Return the module `curses`, set up for this terminal, or None if that is not possible."""
    try:
        import curses
    # `curses` is optional in Python builds.
    except ImportError:
        return None
    try:
        curses.setupterm()
    # terminfo has no entry for this terminal.
    except curses.error:
        return None
    return curses


def terminfo_colours() -> int | None:
    """Return the terminal's number of colours in terminfo, or None if it is unknown."""
    curses = terminfo()
    return None if curses is None else max(0, curses.tigetnum("colors"))


def print_message(line: str) -> None:
    """Print a line on standard error, with control characters made visible."""
    with contextlib.suppress(OSError):
        print(
            f"gputop: {visible(line, len(line))}", file=sys.stderr, flush=True
        )


def print_output(text: str) -> None:
    """Print text on standard output, if any, with control characters made visible."""
    if not text:
        return
    text = "\n".join(visible(line, len(line)) for line in text.split("\n"))
    try:
        print(text, flush=True)
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            discard_output()


def discard_output() -> None:
    """Discard buffered output after a write error, so that Python's exit prints no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
