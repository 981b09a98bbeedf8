"""The two streams of a command, whose readers may have gone already."""

from __future__ import annotations

import contextlib
import os
import sys

from gputop.text import visible


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
