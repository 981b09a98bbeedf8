"""A page that is drawn again and again in its place, on a terminal."""

from __future__ import annotations

from gputop.text import ABSENT

HOME, ERASE_LINE, ERASE_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


def frame(page: str, rows: int, *, first: bool = False) -> str:
    """The page over the one before, to be written at once: nothing is blank in between.

    The cursor is hidden while it is drawn only, so that no end of the program can leave it so. What
    is on the screen at `first` is scrolled up, not overwritten. Of a page that is taller than the
    terminal the end is left out, and how much that is said.
    """
    lines = page.split("\n")
    room = max(1, rows - 1)  # the last is the cursor's
    if len(lines) > room > 1:
        lines[room - 1 :] = [f"{ABSENT} {len(lines) - room + 1} more lines"]
    body = "".join(f"{line}{ERASE_LINE}\r\n" for line in lines[:room])
    return f"{chr(10) * rows if first else ''}{HIDE}{HOME}{body}{ERASE_BELOW}{SHOW}"
