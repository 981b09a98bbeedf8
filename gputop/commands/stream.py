"""`gputop stream`: snapshots until stopped."""

from __future__ import annotations

import argparse

from gputop.commands.arguments import add_source, count

HELP = "snapshots as JSON lines, until stopped"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How often, and how many."""
    add_source(parser)
    parser.add_argument("--count", type=count, metavar="N", help="stop after N samples")
    parser.add_argument("--control", action="store_true", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Streams as the arguments say; never returns where it could start."""
    from gputop.telemetry.stream import run as stream

    return stream(
        interval=1.0 if arguments.interval is None else arguments.interval,
        count=arguments.count,
        demo=arguments.demo,
        gpm=arguments.gpm is not False,
        control=arguments.control,
    )
