"""`gputop status`: the devices on one page, once or repeatedly, or one page for each host."""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gputop.agent.device import Absence
from gputop.commands.arguments import (
    chosen_processes,
    fail,
    hosts_of,
    output_width,
    show,
    snapshots,
    wants_colour,
)
from gputop.commands.options import count, imported, interval
from gputop.console import COULD_NOT_RUN, FINE, print_message
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.agent.problem import Problem
    from gputop.output.status_page import Processes
    from gputop.stream.child import Interruption, Snapshot

    SnapshotStream = AsyncGenerator[Snapshot | Interruption]

FIRST_SECONDS = 0.5
"""Seconds between snapshots if one is not enough."""
SORT_NAMES = ("memory", "gpu", "cpu", "time", "pid", "user")


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
        default=argparse.SUPPRESS,  # keeps the value from before the command
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
        type=imported("gputop.output.status_page", "parse_columns"),
        metavar="NAME,...",
        help="these columns, such as GPU,busy,memory,power,sm-active,pcie-rx: readings by their "
        "names on a device's page or in the JSON (a wrong name lists them all)",
    )
    parser.add_argument(
        "--processes",
        action=argparse.BooleanOptionalAction,
        help="a table of all processes, or none (default: on the line of their device)",
    )
    parser.add_argument(
        "--sort",
        choices=SORT_NAMES,
        metavar="ORDER",
        help="the table of processes, by memory, gpu, cpu, time, pid or user",
    )
    parser.add_argument(
        "--top",
        type=count,
        metavar="N",
        help="the table of processes, only its first N (by memory if there is no --sort)",
    )
    parser.add_argument(
        "--by-user",
        action="store_true",
        help="totals for each user: GPUs, processes, memory, and the busiest of the GPUs",
    )
    parser.add_argument(
        "--color",
        action=argparse.BooleanOptionalAction,
        help="in colour, or not (default: on a terminal, unless NO_COLOR is set)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the page or the JSON. A problem of the driver goes to standard error."""
    try:
        return _status(arguments)
    except KeyboardInterrupt:
        if arguments.watch is None:
            raise
        if sys.stdout.isatty():
            print()  # after the terminal's "^C"
        # As with `watch`, Ctrl+C is the normal end.
        return FINE


def _status(arguments: argparse.Namespace) -> int:
    hosts = hosts_of(arguments)
    if arguments.prometheus is not None:
        from gputop.commands.fleet import print_fleet

        return print_fleet(arguments)
    gpm = arguments.json and not arguments.by_user
    for column in arguments.columns or ():
        gpm = gpm or column.needs_gpm
    gpm = gpm and arguments.gpm is not False
    if hosts:
        return _print_hosts(arguments, hosts, gpm=gpm)
    found = snapshots(
        arguments, interval=arguments.watch or FIRST_SECONDS, gpm=gpm
    )
    import asyncio

    # Import these while the sampler starts.
    import gputop.health.judge
    import gputop.output.status_page  # noqa: F401
    from gputop.stream.child import StreamError

    try:
        if arguments.watch is None:
            return asyncio.run(_once(arguments, found))
        return asyncio.run(_watch(arguments, found))
    except StreamError as error:
        fail(str(error), COULD_NOT_RUN)


async def _once(arguments: argparse.Namespace, found: SnapshotStream) -> int:
    from gputop.stream.child import first_snapshot

    seen = await first_snapshot(found, waits=partial(_waits, arguments))
    is_choice = arguments.id or arguments.only_visible or arguments.list_gpus
    if arguments.json or not (seen.problem and is_choice):
        _show(arguments, seen)
    if seen.problem is not None:
        fail(str(seen.problem), COULD_NOT_RUN)
    return FINE


async def _watch(arguments: argparse.Namespace, found: SnapshotStream) -> int:
    from gputop.stream.child import Interruption

    first = True
    async with aclosing(found):
        async for each in found:
            if isinstance(each, Interruption):
                print_message(str(each.problem))
                continue
            _show(arguments, each, first=first)
            first = False
    return FINE


def _show(
    arguments: argparse.Namespace,
    seen: Snapshot,
    *,
    first: bool = True,
) -> None:
    def text() -> str:
        if arguments.watch is None or seen.problem is None:
            return _text(arguments, seen)
        return f"{_text(arguments, seen)}\n{visible(str(seen.problem))}"

    show(
        arguments,
        lambda: _document(arguments, seen),
        text,
        first=first,
    )


def _waits(arguments: argparse.Namespace, seen: Snapshot) -> bool:
    """Return True if the next snapshot will show more: a rate, or the user of a process."""
    if any(
        each.absent.get("user") is Absence.NO_DATA_YET
        for each in seen.sample.processes
    ):
        return True
    for column in arguments.columns or ():
        for device in seen.inventory.devices:
            readings = seen.sample.device(device.uuid)
            if readings is not None and column.waits(device, readings):
                return True
    return False


def _text(arguments: argparse.Namespace, seen: Snapshot) -> str:
    """Return a snapshot as a list of its GPUs, or as a page."""
    from gputop.output.process_tables import SORT_KEYS
    from gputop.output.status_page import (
        OWN,
        View,
        bounds_of,
        gpu_list,
        page,
        users_page,
    )

    inventory, sample = seen
    if arguments.list_gpus:
        text = gpu_list(inventory, sample)
        if arguments.host:
            text = f"{visible(inventory.hostname)}\n{text}"
        return text
    sort = arguments.sort
    if arguments.top is not None and sort is None:
        sort = "memory"
    processes: Processes = "beside"
    if arguments.processes is False:
        processes = "none"
    elif arguments.processes or sort is not None:
        processes = "below"
    view = View(
        columns=arguments.columns or OWN,
        processes=processes,
        width=output_width(),
        colour=wants_colour(arguments.color),
        chosen=_chosen(arguments),
        sort=SORT_KEYS.get(sort or ""),
        top=arguments.top,
        bound_by=bounds_of(inventory, sample),
    )
    sample = chosen_processes(arguments, sample)
    if arguments.by_user:
        return users_page(inventory, sample, view)
    return page(inventory, sample, view)


def _chosen(arguments: argparse.Namespace) -> str:
    """Return a description of the chosen processes: `processes 4242 of ada`; empty for all."""
    words = ["processes"]
    if arguments.compute:
        words.insert(0, "compute")
    for pid in arguments.pid or ():
        words.append(str(pid))
    if arguments.user:
        words.append(f"of {', '.join(arguments.user)}")
    if words == ["processes"]:
        return ""
    return " ".join(words)


def _document(
    arguments: argparse.Namespace, seen: Snapshot | Problem
) -> dict[str, Any]:
    from gputop.agent.lines import to_plain
    from gputop.output.process_tables import users_document
    from gputop.output.status_page import bounds_of, document

    if not isinstance(seen, tuple):
        return {"problem": to_plain(seen)}
    sample = chosen_processes(arguments, seen.sample)
    if arguments.by_user:
        return users_document(seen.inventory, sample)
    return document(seen.inventory, sample, bounds_of(*seen))


def _print_hosts(
    arguments: argparse.Namespace,
    hosts: list[str],
    *,
    gpm: bool,
) -> int:
    """Print a page for each host, or JSON. Problems go to standard error and give status 3."""
    import asyncio

    from gputop.stream.machines import host_snapshots

    found: Mapping[str, Snapshot | Problem] = asyncio.run(
        host_snapshots(
            hosts,
            arguments.remote_command,
            gpm=gpm,
            waits=partial(_waits, arguments),
        )
    )
    documents, texts, problems = [], [], []
    for host, seen in found.items():
        documents.append({"host": host, **_document(arguments, seen)})
        if not isinstance(seen, tuple):
            # The text contains the host's name.
            problems.append(str(seen))
            continue
        texts.append(_text(arguments, _named(host, seen)))
        if seen.problem is not None:
            problems.append(f"{host}: {seen.problem}")
    if arguments.json or texts:
        show(arguments, lambda: documents, lambda: "\n\n".join(texts))
    for problem in problems:
        print_message(f"error: {problem}")
    if problems:
        return COULD_NOT_RUN
    return FINE


def _named(host: str, seen: Snapshot) -> Snapshot:
    """Return the snapshot with the name given to `--host`, because hostnames may be equal."""
    name = host
    if host != seen.inventory.hostname:
        name = f"{host} ({seen.inventory.hostname})"
    return seen._replace(inventory=replace(seen.inventory, hostname=name))
