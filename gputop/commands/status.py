"""`gputop status`: the devices on one page, once or again and again."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from gputop.commands.arguments import (
    add_demo,
    add_fleet,
    add_hosts,
    add_replay,
    argument,
    fail,
    hosts_of,
    interval,
    output_width,
    print_again,
    print_text,
    snapshots,
)
from gputop.exits import COULD_NOT_RUN, FINE, USAGE
from gputop.text import visible

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from gputop.output.page import Processes, View
    from gputop.stream.child import Interruption, Snapshot

    Found = Snapshot | Interruption

FIRST_SECONDS = 0.5
"""Between the first snapshot and a second one, where that is needed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What it prints, of what, and how often."""
    parser.add_argument(
        "--json", action="store_true", help="as one JSON document; with --watch one on each line"
    )
    parser.add_argument(
        "--watch",
        nargs="?",
        type=interval,
        const=1.0,
        metavar="S",
        help="every S seconds (default 1), in place on a terminal; Ctrl+C ends it",
    )
    parser.add_argument(
        "--columns",
        type=argument("gputop.output.table:parse_columns"),
        metavar="NAME,...",
        help="these columns, such as GPU,busy,memory,power,sm-active,pcie-rx: any reading, by its "
        "name on a device's page or in the JSON (a wrong one lists them all)",
    )
    parser.add_argument(
        "--processes",
        action=argparse.BooleanOptionalAction,
        help="each process on a line of its own, with its command, or none (default: on the line "
        "of its device, as user:command/pid(memory))",
    )
    parser.add_argument(
        "--color",
        action=argparse.BooleanOptionalAction,
        help="in colour, or not (default: on a terminal, unless NO_COLOR is set)",
    )
    add_demo(parser)
    add_hosts(parser)
    add_replay(parser)
    add_fleet(parser)


def bare(arguments: argparse.Namespace) -> int:
    """The same without options of its own: what `gputop` does where there is no terminal."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args([], arguments))


def run(arguments: argparse.Namespace) -> int:
    """Prints what the arguments ask for; a problem of the driver goes to standard error."""
    try:
        return _status(arguments)
    except KeyboardInterrupt:
        if arguments.watch is None:
            raise
        if sys.stdout.isatty():
            print()  # after the terminal's "^C"
        return FINE  # as of watch: there is no other way to end it


def _status(arguments: argparse.Namespace) -> int:
    if arguments.json and (arguments.columns or arguments.processes is not None):
        fail("--json has every reading. Leave out --columns and --processes.", USAGE)
    every = arguments.watch
    if every is not None and arguments.replay is not None:
        fail(
            "--watch is not for a recording. Leave it out, or play it with gputop --replay.", USAGE
        )
    if arguments.prometheus is not None:
        return _fleet(arguments)
    gpm = arguments.json or any(column.needs_gpm for column in arguments.columns or ())
    if hosts := hosts_of(arguments):
        return _hosts(arguments, hosts, gpm=gpm)
    found = snapshots(arguments, interval=every or FIRST_SECONDS, gpm=gpm)
    import asyncio

    import gputop.output.page  # noqa: F401 - here, where it has to wait for the sampler anyway
    from gputop.stream.child import StreamError

    shown = _once if every is None else _watch
    try:
        return asyncio.run(shown(arguments, found))
    except StreamError as error:
        fail(str(error), COULD_NOT_RUN)


def _fleet(arguments: argparse.Namespace) -> int:
    if arguments.columns or arguments.processes is not None:
        fail("a fleet has no columns and no processes. Leave them out, or --prometheus.", USAGE)
    from gputop.commands.fleet_status import status

    return status(arguments, output_width(), colour=_colour(arguments))


def _colour(arguments: argparse.Namespace) -> bool:
    from gputop.output.ansi import wanted

    if arguments.color is not None:
        return bool(arguments.color)
    return wanted(os.environ, terminal=sys.stdout.isatty())


def _hosts(arguments: argparse.Namespace, hosts: list[str], *, gpm: bool) -> int:
    if arguments.watch is not None:
        fail("--watch is of one machine. Leave it out, or see `gputop --host NAME`.", USAGE)
    from gputop.commands.host_status import status

    view = None if arguments.json else _view(arguments, output_width())
    return status(hosts, arguments.remote_command, view, gpm=gpm)


async def _once(arguments: argparse.Namespace, found: AsyncGenerator[Found]) -> int:
    from contextlib import aclosing

    from gputop.stream.child import Interruption

    seen: Snapshot | None = None
    async with aclosing(found):
        async for each in found:
            if isinstance(each, Interruption):
                break  # there was one before it
            waits = seen is None and _waits(arguments, each)
            seen = each
            if not waits:
                break
    assert seen is not None
    print_text(_text(arguments, seen, output_width()))
    if problem := seen.inventory.problem or seen.sample.problem:
        fail(str(problem), COULD_NOT_RUN)
    return FINE


async def _watch(arguments: argparse.Namespace, found: AsyncGenerator[Found]) -> int:
    from contextlib import aclosing

    from gputop.stream.child import Interruption

    begun = False
    async with aclosing(found):
        async for each in found:
            if isinstance(each, Interruption):
                print(f"gputop: {visible(str(each.problem))}", file=sys.stderr, flush=True)
                continue
            text = _text(arguments, each, output_width())
            problem = each.inventory.problem or each.sample.problem
            if problem is not None and not arguments.json:
                text += f"\n{visible(str(problem))}"
            print_again(arguments, text, first=not begun)
            begun = True
    return FINE


def _waits(arguments: argparse.Namespace, seen: Snapshot) -> bool:
    """Whether a column that was asked for has something to show after one more reading only."""
    inventory, sample = seen
    return any(
        column.waits(device, readings)
        for column in arguments.columns or ()
        for device in inventory.devices
        if (readings := sample.device(device.uuid)) is not None
    )


def _text(arguments: argparse.Namespace, seen: Snapshot, width: int | None) -> str:
    if arguments.json:
        from json import dumps

        from gputop.output.page import document

        return dumps(document(*seen), indent=2 if arguments.watch is None else None)
    from gputop.output.page import page

    return page(*seen, _view(arguments, width))


def _view(arguments: argparse.Namespace, width: int | None) -> View:
    from gputop.output.page import View
    from gputop.output.table import OWN

    places: dict[bool | None, Processes] = {None: "beside", True: "below", False: "none"}
    return View(arguments.columns or OWN, places[arguments.processes], width, _colour(arguments))
