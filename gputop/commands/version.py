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
VARIABLES = ("TERM", "COLORTERM", "TERM_PROGRAM", "TMUX", "SSH_CONNECTION", "LANG", "LC_ALL")
"""Variables that decide what a terminal shows."""


def facts() -> Iterator[tuple[str, str]]:
    """Yield names and values: the system, Python, the dependencies, the driver and the terminal."""
    yield "system", platform.platform()
    yield "Python", f"{platform.python_version()} {sys.executable}"
    for name in (*_dependencies(), "torch"):
        yield name, _version(name)
    yield "driver", _driver()
    columns, rows = terminal_size()
    yield "terminal", f"{columns}x{rows} {_environment()}"


def _dependencies() -> list[str]:
    try:
        needs = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return []
    needs = [each for each in needs if "extra ==" not in each]
    return [match[0] for each in needs if (match := re.match(r"[\w.-]+", each))]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "is not installed"


def _driver() -> str:
    try:
        first = DRIVER.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    except OSError as error:
        return f"none: {DRIVER}: {error.strerror}"
    return visible(" ".join(first.removeprefix("NVRM version:").split()), 200)


def _environment() -> str:
    hidden = ("TMUX", "SSH_CONNECTION")
    found = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    return " ".join(
        f"{name}={'set' if name in hidden else visible(value, 40)}" for name, value in found.items()
    )
