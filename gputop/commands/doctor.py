"""`gputop doctor`: what is wrong with driver, devices, torch and gputop, and the remedy."""

from __future__ import annotations

import argparse

from gputop.bench import plan
from gputop.commands.arguments import argument, output_width, print_text
from gputop.exits import FAULT, FINE

HELP = "what is wrong with driver, devices and torch, and the remedy"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How it prints, and whose torch it looks at."""
    parser.add_argument("--json", action="store_true", help="the findings as one JSON document")
    parser.add_argument(
        "--python",
        type=argument(plan.parse_python),
        metavar="PATH",
        default=argparse.SUPPRESS,  # or it would overwrite the one before the command
        help="the interpreter whose torch is looked at (default: the one that stress tests use)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints what the checks find; a problem is a fault, notes and warnings are none."""
    import asyncio
    import json
    import os
    import sys

    from gputop.insight.doctor.checks import examine
    from gputop.insight.doctor.facts import gather
    from gputop.insight.doctor.finding import Status
    from gputop.output.doctor import document, page

    if sys.stderr.isatty():
        print("Looking at driver, devices and torch ...", end="\r", file=sys.stderr, flush=True)
    try:
        facts = asyncio.run(gather(arguments.python))
    finally:
        if sys.stderr.isatty():
            print(" " * 40, end="\r", file=sys.stderr, flush=True)
    findings = examine(facts)
    if arguments.json:
        print_text(json.dumps(document(findings, facts), indent=2))
    else:
        colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        print_text(page(findings, len(facts.gpus), output_width(), colour=colour))
    return FAULT if any(each.judgement.status is Status.PROBLEM for each in findings) else FINE
