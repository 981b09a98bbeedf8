"""`gputop doctor`: problems of driver, devices, torch and gputop, with remedies."""

from __future__ import annotations

import argparse
import sys

from gputop.bench.plan import request
from gputop.commands.arguments import Parser, fail, output_width, print_text
from gputop.console import FAULT, FINE, USAGE

WAITING = "Checking driver, devices and torch ..."


def add_arguments(parser: Parser) -> None:
    """Add the options of `gputop doctor`."""
    parser.flag("--json", "the findings as one JSON document")
    parser.value(
        "--python",
        "PATH",
        request.parse_python,
        "the interpreter whose torch is checked (default: the one that stress tests use)",
        argparse.SUPPRESS,  # or it would overwrite the one before the command
    )


def run(arguments: argparse.Namespace) -> int:
    """Print what the checks find. A problem is a fault; notes and warnings are not."""
    import asyncio
    import json
    import os

    from gputop.health.doctor import examine
    from gputop.health.doctor.facts import gather
    from gputop.health.findings import Severity
    from gputop.output.ansi import wanted
    from gputop.output.doctor import document, page

    if arguments.demo:
        fail("doctor checks this machine, not simulated devices. Leave out --demo.", USAGE)
    _print_progress(WAITING)
    try:
        facts = asyncio.run(gather(arguments.python))
    finally:
        _print_progress(" " * len(WAITING))
    findings = examine(facts)
    if arguments.json:
        print_text(json.dumps(document(findings, facts), indent=2))
    else:
        colour = wanted(os.environ, terminal=sys.stdout.isatty())
        print_text(page(findings, facts, output_width(), colour=colour))
    return FAULT if any(each.severity is Severity.FAULT for each in findings) else FINE


def _print_progress(text: str) -> None:
    """Print text on a terminal that is overwritten later: importing torch can take seconds."""
    if sys.stderr.isatty():
        print(text, end="\r", file=sys.stderr, flush=True)
