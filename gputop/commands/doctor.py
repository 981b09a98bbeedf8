"""`gputop doctor`: problems of driver, devices, torch and gputop, with remedies."""

from __future__ import annotations

import argparse

from gputop.commands.arguments import (
    output_width,
    progress,
    show,
    wants_colour,
)
from gputop.commands.options import add_python
from gputop.console import FAULT, FINE


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
        lambda: page(
            findings,
            facts,
            output_width(),
            colour=wants_colour(),
        ),
    )
    return (
        FAULT
        if any(each.severity is Severity.FAULT for each in findings)
        else FINE
    )
