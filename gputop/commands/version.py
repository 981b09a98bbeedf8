"""`gputop --version --verbose`: what a bug report needs of this machine."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from gputop import DISTRIBUTION
from gputop.console import terminal_size
from gputop.text import visible

DRIVER = Path("/proc/driver/nvidia/version")
VARIABLES = ("TERM", "COLORTERM", "TERM_PROGRAM", "LANG", "LC_ALL", "TMUX", "SSH_CONNECTION")
"""Variables that decide what a terminal shows."""


def facts() -> Iterator[tuple[str, str]]:
    """Yield names and values: the system, Python, the dependencies, the driver and the terminal."""
    yield "system", platform.platform()
    yield "Python", f"{platform.python_version()} {sys.executable}"
    yield from _dependencies()
    yield "driver", _driver()
    columns, rows = terminal_size()
    hidden = {"TMUX": "set", "SSH_CONNECTION": "set"}
    found = {name: hidden.get(name, os.environ[name]) for name in VARIABLES if name in os.environ}
    words = (f"{name}={visible(value, 40)}" for name, value in found.items())
    yield "terminal", " ".join((f"{columns}x{rows}", *words))


def _dependencies() -> Iterator[tuple[str, str]]:
    """Yield those that are always needed, and of the others those that are there."""
    try:
        needs = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        yield DISTRIBUTION, "is not installed"
        return
    for each in needs:
        name, _, condition = each.partition(";")
        name = re.split(r"[^\w.-]", name.strip())[0]
        try:
            if "dev" not in condition:
                yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            if not condition:
                yield name, "is not installed"


def _driver() -> str:
    try:
        first = DRIVER.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    except OSError as error:
        return f"none: {DRIVER}: {error.strerror}"
    return visible(" ".join(first.removeprefix("NVRM version:").split()), 200)
