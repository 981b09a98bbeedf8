"""`gputop status`: one snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.commands.arguments import add_demo, fail, output_width, print_text
from gputop.exits import COULD_NOT_RUN, FINE

if TYPE_CHECKING:
    import argparse

HELP = "one snapshot, as text or JSON"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What it prints, and of what."""
    parser.add_argument("--json", action="store_true", help="as one JSON document")
    add_demo(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints one snapshot as the arguments say."""
    return status(demo=arguments.demo, json=arguments.json)


def status(*, demo: bool, json: bool = False) -> int:
    """Prints one snapshot; the driver's problem, if there is one, goes to standard error."""
    import asyncio

    from gputop.output.page import document, page
    from gputop.telemetry.child import StreamError, one_snapshot

    try:
        inventory, sample = asyncio.run(one_snapshot(demo=demo))
    except StreamError as error:
        fail(str(error), COULD_NOT_RUN)
    if json:
        from json import dumps

        print_text(dumps(document(inventory, sample), indent=2))
    else:
        print_text(page(inventory, sample, output_width()))
    if inventory.problem is not None:
        fail(str(inventory.problem), COULD_NOT_RUN)
    return FINE
