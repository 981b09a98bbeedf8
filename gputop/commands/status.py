"""`gputop status`: the devices on one page, once or again and again; a page of each host."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

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
from gputop.console import COULD_NOT_RUN, FINE, USAGE
from gputop.text import visible

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from gputop.output.page import Processes, View
    from gputop.stream.child import Interruption
    from gputop.stream.remote import HostSnapshot
    from gputop.stream.snapshots import Snapshot

    SnapshotStream = AsyncGenerator[Snapshot | Interruption]

FIRST_SECONDS = 0.5
"""Seconds between the first snapshot and a second one, where that is needed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gputop status`."""
    parser.add_argument(
        "--json", action="store_true", help="one JSON document; with --watch, one on each line"
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
        "name on a device's page or in the JSON (a wrong name lists them all)",
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


def run_without_options(arguments: argparse.Namespace) -> int:
    """Run `gputop` where there is no terminal: the same without options of its own."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args([], arguments))


def run(arguments: argparse.Namespace) -> int:
    """Print what the arguments ask for; a problem of the driver goes to standard error."""
    try:
        return _status(arguments)
    except KeyboardInterrupt:
        if arguments.watch is None:
            raise
        if sys.stdout.isatty():
            print()  # after the terminal's "^C"
        return FINE  # as of watch: there is no other way to end it


def _status(arguments: argparse.Namespace) -> int:
    every, hosts = arguments.watch, hosts_of(arguments)
    if arguments.json and (arguments.columns or arguments.processes is not None):
        fail("--json has every reading. Leave out --columns and --processes.", USAGE)
    if every is not None and arguments.replay is not None:
        fail(
            "--watch is not for a recording. Leave it out, or play it with gputop --replay.", USAGE
        )
    if arguments.prometheus is not None:
        if arguments.columns or arguments.processes is not None:
            fail("a fleet has no columns and no processes. Leave them out, or --prometheus.", USAGE)
        from gputop.commands.fleet_status import status

        return status(arguments, output_width(), colour=_colour(arguments))
    gpm = arguments.json or any(column.needs_gpm for column in arguments.columns or ())
    if hosts:
        import asyncio

        if every is not None:
            fail("--watch is for one machine. Leave it out, or see `gputop --host NAME`.", USAGE)
        from gputop.stream.remote import host_snapshots

        return _print_hosts(
            arguments, asyncio.run(host_snapshots(hosts, arguments.remote_command, gpm=gpm))
        )
    found = snapshots(arguments, interval=every or FIRST_SECONDS, gpm=gpm)
    import asyncio

    import gputop.output.page  # noqa: F401 - here, where it has to wait for the sampler anyway
    from gputop.stream.snapshots import StreamError

    try:
        return asyncio.run((_once if every is None else _watch)(arguments, found))
    except StreamError as error:
        fail(str(error), COULD_NOT_RUN)


def _colour(arguments: argparse.Namespace) -> bool:
    from gputop.output.ansi import wanted

    if arguments.color is not None:
        return bool(arguments.color)
    return wanted(os.environ, terminal=sys.stdout.isatty())


async def _once(arguments: argparse.Namespace, found: SnapshotStream) -> int:
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


async def _watch(arguments: argparse.Namespace, found: SnapshotStream) -> int:
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
    """Return True if a requested column only has something to show after one more reading."""
    inventory, sample = seen
    return any(
        column.waits(device, readings)
        for column in arguments.columns or ()
        for device in inventory.devices
        if (readings := sample.device(device.uuid)) is not None
    )


def _text(arguments: argparse.Namespace, seen: Snapshot, width: int | None) -> str:
    from gputop.output.page import document, page

    if arguments.json:
        from json import dumps

        return dumps(document(*seen), indent=2 if arguments.watch is None else None)
    return page(*seen, _view(arguments, width))


def _view(arguments: argparse.Namespace, width: int | None) -> View:
    from gputop.output.page import View
    from gputop.output.table import OWN

    places: dict[bool | None, Processes] = {None: "beside", True: "below", False: "none"}
    return View(arguments.columns or OWN, places[arguments.processes], width, _colour(arguments))


def _print_hosts(arguments: argparse.Namespace, found: list[HostSnapshot]) -> int:
    """Print a page of each host, or JSON; problems go to standard error, and are status 3."""
    if arguments.json:
        from json import dumps

        print_text(dumps([_document(each) for each in found], indent=2))
    else:
        from gputop.output.page import page

        view = _view(arguments, output_width())
        pages = [page(*_named(each.host, each.snapshot), view) for each in found if each.snapshot]
        if pages:
            print_text("\n\n".join(pages))
    problems = [problem for each in found if (problem := _problem(each))]
    for problem in problems:
        print(f"gputop: error: {visible(problem)}", file=sys.stderr)
    return COULD_NOT_RUN if problems else FINE


def _named(host: str, seen: Snapshot) -> Snapshot:
    """Return the snapshot under the name that was asked for: hosts may call themselves alike."""
    own = seen.inventory.hostname
    name = host if host == own else f"{host} ({own})"
    return seen._replace(inventory=replace(seen.inventory, hostname=name))


def _problem(each: HostSnapshot) -> str | None:
    if each.snapshot is None:
        return str(each.problem)  # which names the host
    problem = each.snapshot.inventory.problem or each.snapshot.sample.problem
    return None if problem is None else f"{each.host}: {problem}"


def _document(each: HostSnapshot) -> dict[str, Any]:
    from gputop.output.page import document
    from gputop.schema.codec import to_json

    if each.snapshot:
        return {"host": each.host, **document(*each.snapshot)}
    return {"host": each.host, "problem": to_json(each.problem)}
