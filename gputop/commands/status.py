"""`gputop status`: the devices on one page, once or again and again; a page of each host."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gputop.commands.arguments import (
    chosen_processes,
    fail,
    hosts_of,
    needs_extra,
    output_width,
    print_again,
    print_text,
    refuse,
    snapshots,
)
from gputop.commands.options import argument_type, interval
from gputop.console import COULD_NOT_RUN, FINE, USAGE, print_message
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.agent.problem import Problem
    from gputop.fleet.model import Fleet
    from gputop.fleet.watch import FleetWatch
    from gputop.output.status_page import Processes, TableColumn
    from gputop.stream.child import Interruption, Snapshot

    SnapshotStream = AsyncGenerator[Snapshot | Interruption]

FIRST_SECONDS = 0.5
"""Seconds between the first snapshot and the next ones, where these are needed."""
FLEET_INTERVAL = 10.0
"""Default seconds between two refreshes of a fleet."""
NO_GPUS = (
    "no GPUs: Prometheus has no series of dcgm-exporter (DCGM_FI_DEV_GPU_TEMP) or of gputop "
    "exporter (gputop_device_info){}. Check whether they are scraped, at {}/targets."
)


@argument_type
def parse_columns(text: str) -> tuple[TableColumn, ...]:
    """Parse names of columns."""
    from gputop.output import status_page

    return status_page.parse_columns(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gputop status`."""
    parser.add_argument(
        "--json",
        action="store_true",
        help="one JSON document; with --watch, one on each line",
    )
    parser.add_argument(
        "-L",
        "--list-gpus",
        action="store_true",
        default=argparse.SUPPRESS,  # it may stand before the command
        help="the GPUs and their MIG instances with their UUIDs, as nvidia-smi lists them",
    )
    parser.add_argument(
        "--watch",
        "-l",
        "-w",
        type=interval,
        metavar="S",
        nargs="?",
        const=1.0,
        help="every S seconds (default 1), in place on a terminal; Ctrl+C ends it",
    )
    parser.add_argument(
        "--columns",
        type=parse_columns,
        metavar="NAME,...",
        help="these columns, such as GPU,busy,memory,power,sm-active,pcie-rx: readings by their "
        "names on a device's page or in the JSON (a wrong name lists them all)",
    )
    parser.add_argument(
        "--processes",
        action=argparse.BooleanOptionalAction,
        help="each process on a line of its own, or none (default: on the line of its device)",
    )
    parser.add_argument(
        "--color",
        action=argparse.BooleanOptionalAction,
        help="in colour, or not (default: on a terminal, unless NO_COLOR is set)",
    )
    # Before the command, --interval is --watch, and --once is the same as the command.
    suppressed: dict[str, Any] = {
        "default": argparse.SUPPRESS,
        "help": argparse.SUPPRESS,
    }
    parser.add_argument("--interval", type=interval, **suppressed)
    parser.add_argument("--once", action="store_true", **suppressed)


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
    if arguments.watch is None and not arguments.once:
        arguments.watch = arguments.interval
    every, hosts = arguments.watch, hosts_of(arguments)
    if arguments.json:
        refuse(
            arguments,
            ("columns", "processes"),
            "JSON, which has every reading",
            "--json",
        )
    if arguments.list_gpus:
        others = ("json", "columns", "watch", "prometheus")
        refuse(arguments, others, "a list of the GPUs", "--list-gpus")
    if arguments.replay is not None:
        refuse(arguments, ("watch",), "a recording", "play it with gputop --replay")
    if arguments.prometheus is not None:
        refuse(arguments, ("columns", "processes"), "a fleet", "--prometheus")
        import asyncio

        watch = open_watch(arguments, max(1.0, every or FLEET_INTERVAL), at_once=True)
        return asyncio.run(_print_fleets(arguments, watch))
    wanted = arguments.json or any(
        column.needs_gpm for column in arguments.columns or ()
    )
    gpm = arguments.gpm is not False and wanted
    if hosts:
        import asyncio

        refuse(arguments, ("watch",), "other machines", "see `gputop --host NAME`")
        from gputop.stream.machines import host_snapshots

        return _print_hosts(
            arguments,
            asyncio.run(
                host_snapshots(
                    hosts,
                    arguments.remote_command,
                    gpm=gpm,
                    waits=partial(_waits, arguments),
                )
            ),
        )
    found = snapshots(arguments, interval=every or FIRST_SECONDS, gpm=gpm)
    import asyncio

    import gputop.output.status_page  # noqa: F401 - here, where it has to wait for the sampler anyway
    from gputop.stream.child import StreamError

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
    from gputop.stream.child import MOST_SNAPSHOTS, Interruption

    seen: Snapshot | None = None
    taken = 0
    async with aclosing(found):
        async for each in found:
            if isinstance(each, Interruption):
                break  # there was one before it
            seen = each
            taken += 1
            if taken == MOST_SNAPSHOTS or not _waits(arguments, each):
                break
    assert seen is not None
    text = _text(arguments, seen)
    is_choice = arguments.id or arguments.only_visible
    if text and (arguments.json or not (is_choice and seen.problem)):
        print_text(text)
    if seen.problem is not None:
        fail(str(seen.problem), COULD_NOT_RUN)
    return FINE


async def _watch(arguments: argparse.Namespace, found: SnapshotStream) -> int:
    from gputop.stream.child import Interruption

    begun = False
    async with aclosing(found):
        async for each in found:
            if isinstance(each, Interruption):
                print_message(str(each.problem))
                continue
            text = _text(arguments, each)
            if each.problem is not None and not arguments.json:
                text += f"\n{visible(str(each.problem))}"
            print_again(arguments, text, first=not begun)
            begun = True
    return FINE


def _waits(arguments: argparse.Namespace, seen: Snapshot) -> bool:
    """Return True if a requested column only has something to show after another reading."""
    inventory, sample = seen
    return any(
        column.waits(device, readings)
        for column in arguments.columns or ()
        for device in inventory.devices
        if (readings := sample.device(device.uuid)) is not None
    )


def _text(arguments: argparse.Namespace, seen: Snapshot) -> str:
    """Return a snapshot as JSON, as a list of its GPUs, or as a page."""
    from gputop.output.status_page import OWN, View, gpu_list, page

    if arguments.json:
        return _dumps(arguments, _document(arguments, seen))
    if arguments.list_gpus:
        title = f"{visible(seen.inventory.hostname)}\n" if arguments.host else ""
        return title + gpu_list(seen.inventory, seen.sample)
    places: dict[bool | None, Processes] = {
        None: "beside",
        True: "below",
        False: "none",
    }
    columns, processes = arguments.columns or OWN, places[arguments.processes]
    view = View(
        columns, processes, output_width(), _colour(arguments), _chosen(arguments)
    )
    return page(seen.inventory, chosen_processes(arguments, seen.sample), view)


def _chosen(arguments: argparse.Namespace) -> str:
    """Return which processes are shown, such as `processes 4242 of ada`; empty for all."""
    pids = " ".join(["", *map(str, arguments.pid or ())])
    users = f" of {', '.join(arguments.user)}" if arguments.user else ""
    kind = "compute " if arguments.compute else ""
    return f"{kind}processes{pids}{users}" if pids or users or kind else ""


def _document(
    arguments: argparse.Namespace, seen: Snapshot | Problem
) -> dict[str, Any]:
    from gputop.agent.lines import to_plain
    from gputop.output.status_page import document

    if not isinstance(seen, tuple):
        return {"problem": to_plain(seen)}
    return document(seen.inventory, chosen_processes(arguments, seen.sample))


def _print_hosts(
    arguments: argparse.Namespace, found: Mapping[str, Snapshot | Problem]
) -> int:
    """Print a page of each host, or JSON; problems go to standard error, and are status 3."""
    seen = {host: each for host, each in found.items() if isinstance(each, tuple)}
    if arguments.json:
        hosts = [
            {"host": host, **_document(arguments, each)} for host, each in found.items()
        ]
        print_text(_dumps(arguments, hosts))
    elif seen:
        print_text(
            "\n\n".join(_text(arguments, _named(*each)) for each in seen.items())
        )
    status = FINE
    for host, each in found.items():
        problem = each.problem if isinstance(each, tuple) else each
        if problem is not None:
            at = (
                f"{host}: " if host in seen else ""
            )  # without an answer, the problem names it
            print_message(f"error: {at}{problem}")
            status = COULD_NOT_RUN
    return status


def _named(host: str, seen: Snapshot) -> Snapshot:
    """Return the snapshot under the name that was asked for: hosts may call themselves alike."""
    own = seen.inventory.hostname
    name = host if host == own else f"{host} ({own})"
    return seen._replace(inventory=replace(seen.inventory, hostname=name))


def open_watch(
    arguments: argparse.Namespace, interval: float, *, at_once: bool = False
) -> FleetWatch:
    """Return the watch of the fleet that the arguments name; exit if its address is bad."""
    with needs_extra("fleet"):
        from gputop.fleet.watch import FleetWatch
    from gputop.fleet.server import PrometheusServer

    try:
        server = PrometheusServer.from_environment(arguments.prometheus, os.environ)
    except ValueError as error:
        fail(str(error), USAGE)
    return FleetWatch(server, arguments.match or "", interval, at_once=at_once)


async def _print_fleets(arguments: argparse.Namespace, watch: FleetWatch) -> int:
    """Print the fleet once, or repeatedly; exit with status 3 if the server has a problem."""
    begun = False
    try:
        async with aclosing(watch.fleets()) as fleets:
            async for fleet in fleets:
                if arguments.watch is None:
                    return _print_fleet(arguments, fleet)
                print_again(arguments, _fleet_text(arguments, fleet), first=not begun)
                begun = True
    finally:
        await watch.close()
    return FINE


def _print_fleet(arguments: argparse.Namespace, fleet: Fleet) -> int:
    if fleet.fresh or arguments.json:
        print_text(_fleet_text(arguments, fleet))
    if not fleet.fresh:
        fail(f"{fleet.problems[0]}.", COULD_NOT_RUN)
    if not fleet.gpus:
        of = f" with {visible(arguments.match, 200)}" if arguments.match else ""
        fail(NO_GPUS.format(of, arguments.prometheus), COULD_NOT_RUN)
    return FINE


def _fleet_text(arguments: argparse.Namespace, fleet: Fleet) -> str:
    from gputop.fleet.page import document, page

    if arguments.json:
        return _dumps(arguments, document(fleet))
    where, match = arguments.prometheus, arguments.match or ""
    return page(fleet, where, match, output_width(), colour=_colour(arguments))


def _dumps(arguments: argparse.Namespace, document: object) -> str:
    return json.dumps(document, indent=2 if arguments.watch is None else None)
