"""`gputop doctor`: problems of driver, devices, torch and gputop, with remedies.

This module also gathers the versions for bug reports, for `gputop --version --verbose`.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from gputop import DISTRIBUTION
from gputop.commands.arguments import output_width, progress, show, wants_colour
from gputop.commands.options import add_python
from gputop.console import FAULT, FINE, terminal_size
from gputop.text import visible


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gputop doctor`."""
    parser.add_argument(
        "--json", action="store_true", help="the findings as one JSON document"
    )
    add_python(
        parser,
        "the interpreter whose torch is checked (default: the one that stress tests use)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the findings. Return `FAULT` for a problem, but not for notes and warnings."""
    import asyncio

    from gputop.health.doctor import examine
    from gputop.health.doctor.doctor_facts import gather
    from gputop.health.findings import Severity
    from gputop.output.doctor_page import document, page

    with progress("Checking driver, devices and torch ..."):
        facts = asyncio.run(gather(arguments.python))
    findings = examine(facts)
    show(
        arguments,
        lambda: document(findings, facts),
        lambda: page(findings, facts, output_width(), colour=wants_colour()),
    )
    return FAULT if any(each.severity is Severity.FAULT for each in findings) else FINE


DRIVER = Path("/proc/driver/nvidia/version")
VARIABLES = (
    "TERM",
    "COLORTERM",
    "TERM_PROGRAM",
    "LANG",
    "LC_ALL",
    "TMUX",
    "SSH_CONNECTION",
)
"""Environment variables that affect the display."""


def version_facts() -> Iterator[tuple[str, str]]:
    """Yield names and values: the system, Python, the dependencies, the driver and the terminal."""
    yield "system", platform.platform()
    yield "Python", f"{platform.python_version()} {sys.executable}"
    yield from _dependencies()
    yield "driver", _driver()
    columns, rows = terminal_size()
    hidden = {"TMUX": "set", "SSH_CONNECTION": "set"}
    found = {
        name: hidden.get(name, os.environ[name])
        for name in VARIABLES
        if name in os.environ
    }
    words = (f"{name}={visible(value, 40)}" for name, value in found.items())
    yield "terminal", " ".join((f"{columns}x{rows}", *words))


def _dependencies() -> Iterator[tuple[str, str]]:
    """Yield all required dependencies, and the optional ones that are installed."""
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
