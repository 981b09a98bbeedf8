"""`gputop stream`: snapshots until stopped."""

from __future__ import annotations

import argparse

from gputop.commands.arguments import add_hosts, add_source, count, hosts_of

HELP = "snapshots as JSON lines, until stopped"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How often, and how many."""
    add_source(parser)
    add_hosts(parser)
    parser.add_argument("--count", type=count, metavar="N", help="stop after N samples")
    parser.add_argument("--control", action="store_true", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Streams as the arguments say; never returns where it could start."""
    from gputop.telemetry.stream import run as stream
    from gputop.telemetry.stream import run_several

    interval = 1.0 if arguments.interval is None else arguments.interval
    if hosts := hosts_of(arguments):
        return run_several(
            hosts,
            arguments.remote_command,
            interval=interval,
            count=arguments.count,
            gpm=arguments.gpm is not False,
        )
    return stream(
        interval=interval,
        count=arguments.count,
        demo=arguments.demo,
        gpm=arguments.gpm is not False,
        control=arguments.control,
    )
