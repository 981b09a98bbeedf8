"""The dashboard's first frame, written before anything that takes long to load is imported.

It is the first frame that the app draws: title, tabs, time, what is waited for, and keys. Until the
app takes over, whoever ends the program leaves the alternate screen first, so that messages can be
read. Standard modules alone are imported here, and few of them.
"""

from __future__ import annotations

import os
import select
import signal
import termios
import time

from gputop.agent.times import LONGEST_INTERVAL, SHORTEST_INTERVAL
from gputop.bounds import COLUMNS, ROWS

TYPE_CHECKING = False  # `typing` takes longer to load than all of this
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType
    from typing import Any

FLAGS = ("ascii", "bell", "gpm", "mouse", "readonly")
"""Options of the plain dashboard, each with a `--no-` form, that change nothing in this frame."""
COLOURS = {
    "dark": ("1;38;5;75", "38;5;244", "1;38;5;178"),
    "light": ("1;38;5;25", "38;5;242", "1;38;5;94"),
    "colour-blind": ("1;38;5;117", "38;5;244", "1;38;5;227"),
    "colour-blind-light": ("1;38;5;25", "38;5;242", "1;38;5;58"),
    "ansi": ("1;36", "2;39", "1;33"),
}
"""Accent, dim and warning of each theme, as parameters of SGR."""
MONOCHROME = ("1;39", "2;39", "1;39")
"""Those for NO_COLOR."""
TABS = ((" 1 Monitor ", True), (" 2 Benchmark ", False), (" 3 Processes ", False))
WAITING = " Waiting for the NVIDIA driver"
KEYS = (
    (" b", " Stress test "),
    (" Space", " Pause "),
    (" ?", " Help "),
    (" q", " Quit "),
)
"""Keys that do something before there is a device."""
FEWEST_COLUMNS, FEWEST_ROWS = 60, 12
SETTINGS_BYTES = 1 << 16

ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[J"
"""Alternate screen, no cursor, no wrap; cleared, as a terminal may have no alternate screen."""
LEAVE = b"\x1b[0m\x1b[?7h\x1b[?1049l\x1b[?25h"
PATIENCE_SECONDS = 0.3
"""Most seconds that `LEAVE` waits for a terminal that takes no output."""
INTERRUPTED = 130


class Skeleton:
    """The frame on the terminal, from `show` to `take_over` or `hide`."""

    def __init__(self) -> None:
        self.modes: list[Any] | None = None
        """Modes of the terminal before the frame; None if there was none."""
        self._restore = b""
        """Sequence that restores the terminal; empty if there is nothing to restore."""
        self._pid = 0

    def show(
        self, words: Sequence[str], environment: Mapping[str, str] = os.environ
    ) -> None:
        """Write the frame if these words are those of a dashboard that this terminal can draw."""
        try:
            colours = colours_of(words, environment)
            if (
                colours is None
                or os.tcgetpgrp(0) != os.getpgrp()
                or not _takes_output(0)
            ):
                return
            columns, rows = os.get_terminal_size(1)
            if columns < FEWEST_COLUMNS or rows < FEWEST_ROWS:
                return
            self.modes, self._restore, self._pid = (
                termios.tcgetattr(0),
                LEAVE,
                os.getpid(),
            )
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                    signal.signal(number, self._end)
            termios.tcsetattr(0, termios.TCSANOW, silent(self.modes))
            first = frame(min(columns, COLUMNS), min(rows, ROWS), colours)
            os.write(1, (ENTER + first).encode())
        except (OSError, ValueError, termios.error):
            self.hide()

    def hide(self) -> None:
        """Restore the terminal, unless the app has it."""
        if self._restore == LEAVE:
            self._leave()
            self.modes = None

    def take_over(self, restore: bytes) -> list[Any] | None:
        """Leave the terminal to the app; return its modes from before, or None without a frame.

        From now on a signal writes `restore`, until the app has handlers of its own.
        """
        if self._restore != LEAVE:
            return None
        self._restore = restore
        return self.modes

    def _leave(self) -> None:
        if (
            not self._restore or os.getpid() != self._pid
        ):  # or in a child that was forked
            return
        try:
            if _takes_output(PATIENCE_SECONDS):
                os.write(1, self._restore)
            termios.tcsetattr(0, termios.TCSANOW, self.modes or [])
        except (OSError, termios.error):  # the terminal is gone
            pass
        self._restore = b""  # not before: a signal may come in the middle

    def _end(self, number: int, stack: FrameType | None) -> None:  # noqa: ARG002 - as Python calls it
        self._leave()
        os._exit(INTERRUPTED)


SKELETON = Skeleton()


def colours_of(
    words: Sequence[str], environment: Mapping[str, str]
) -> Sequence[str] | None:
    """Return the colours of the frame, or None if there is to be none.

    That is where the words may be wrong or ask for something else, and where a person may not be
    sitting at the terminal. A wrong guess at the settings shows in colours alone.
    """
    terminal = environment.get("TERM", "").strip().lower()
    if terminal in ("", "dumb", "unknown") or not (os.isatty(0) and os.isatty(1)):
        return None
    if "JPY_PARENT_PID" in environment or environment.get("GIT_PAGER") == "cat":
        return None  # perhaps a notebook
    asked = _options(words)
    system = environment.get("TEXTUAL_COLOR_SYSTEM", "auto")
    if asked is None or system not in ("auto", "standard", "256", "truecolor"):
        return None
    if environment.get("NO_COLOR"):
        return MONOCHROME
    if not _has_palette(system, terminal, environment):
        return COLOURS["ansi"]
    theme = asked.get("theme") or environment.get("GPUTOP_THEME")
    theme = theme or _kept_theme(asked.get("config"), environment)
    return COLOURS.get(theme, COLOURS["dark"])


def _options(words: Sequence[str]) -> dict[str, str] | None:
    """Return the values of options, or None if one is not of the plain dashboard, or is wrong."""
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        name = name.removeprefix("--") if name.startswith("--") else ""
        if name in ("theme", "interval", "config"):
            if not equals and not rest:
                return None
            found[name] = value if equals else rest.pop(0)
            if found[name].startswith("-"):
                return None
        elif equals or (name != "demo" and name.removeprefix("no-") not in FLAGS):
            return None
    try:
        seconds = float(found.get("interval", 1))
    except ValueError:
        return None
    known = found.get("theme", "auto") in ("auto", *COLOURS)
    return found if known and SHORTEST_INTERVAL <= seconds <= LONGEST_INTERVAL else None


def _has_palette(system: str, terminal: str, environment: Mapping[str, str]) -> bool:
    """Return True if there are 256 colours, as the app finds out by rich and terminfo."""
    if system != "auto":
        return system != "standard"
    colours = environment.get("COLORTERM", "")
    if colours.strip().lower() in ("truecolor", "24bit"):
        return True
    if terminal.rpartition("-")[2] in ("256color", "kitty"):
        return True
    if colours or "TEXTUAL_COLOR_SYSTEM" in environment:
        return False
    from gputop.console import terminfo_colours  # takes longer than all of this

    return (terminfo_colours() or 0) >= 256


def _kept_theme(file: str | None, environment: Mapping[str, str]) -> str:
    """Return the theme of the settings file, whose lines are simple in all but odd cases."""
    file = file or environment.get("GPUTOP_CONFIG")
    if not file:
        folder = environment.get("XDG_CONFIG_HOME", "").strip() or "~/.config"
        file = f"{folder}/gputop/config.toml"
    file = os.path.expanduser(file)  # noqa: PTH111 - pathlib takes longer than all of this
    try:
        if not os.path.isfile(file):  # noqa: PTH113
            return ""
        with open(file, "rb") as opened:  # noqa: PTH123
            lines = opened.read(SETTINGS_BYTES).decode(errors="replace").splitlines()
    except (OSError, ValueError):
        return ""
    values = (line.partition("=") for line in lines)
    found = (value for name, _, value in values if name.strip(" \t\"'") == "theme")
    return next(found, "").partition("#")[0].strip(" \t\"'")


def frame(columns: int, rows: int, colours: Sequence[str]) -> str:
    """Return what to write for the first frame of the app."""
    accent, dim, warning = colours
    clock = time.strftime("%H:%M:%S ")
    title = [
        (" gputop ", accent),
        *((label, "1;7" if chosen else dim) for label, chosen in TABS),
    ]
    title.append((clock.rjust(columns - sum(len(text) for text, _ in title)), dim))
    keys = [part for key, label in KEYS for part in ((key, accent), (label, dim))]
    lines = ((1, title), (2, [(WAITING, warning)]), (rows, keys))
    return "".join(
        f"\x1b[{row};1H"
        + "".join(f"\x1b[{colour}m{text}\x1b[0m" for text, colour in line)
        for row, line in lines
    )


def _takes_output(seconds: float) -> bool:
    return bool(select.select([], [1], [], seconds)[1])


def silent(modes: list[Any]) -> list[Any]:
    """Return the modes with keys kept for the app, and not shown. Ctrl+C is still a signal."""
    changed = [*modes[:6], [*modes[6]]]
    changed[0] &= ~(
        termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR
    )
    changed[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
    for key in (termios.VSUSP, termios.VQUIT):
        changed[6][key] = b"\0"
    changed[6][termios.VMIN] = 1
    return changed
