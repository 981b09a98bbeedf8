"""`gputop why`: watch the devices for a while, then print the page *Why is it slow?*."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from gputop.commands.arguments import (
    fail,
    open_recording,
    output_width,
    print_ending,
    progress,
    show,
    snapshots,
    wants_colour,
)
from gputop.commands.options import number
from gputop.console import COULD_NOT_RUN, DEGRADED, FAULT, FINE, print_message
from gputop.text import duration

if TYPE_CHECKING:
    from gputop.agent.snapshot import Inventory
    from gputop.health.why import Observation, WhyReport
    from gputop.stream.child import Interruption, Snapshot

INTERVAL = 1.0
"""Seconds between samples."""
SECONDS = 35.0
"""Default time to watch. A mean over one minute needs at least half of its window."""
LONGEST_SECONDS = 3600.0
START_SECONDS = 60.0
"""Additional seconds for the driver or the hosts to answer."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gputop why`."""
    parser.description = (
        "Watch the devices, then print the page *Why is it slow?*: findings with their numbers and "
        "what to do, what was checked, and what cannot be judged. Exit status 0: nothing is wrong; "
        "1: a GPU has a fault; 3: could not run, or a host did not answer; 4: something slows the "
        "work."
    )
    parser.add_argument(
        "--seconds",
        type=number(
            1,
            LONGEST_SECONDS,
            "no time to watch: give seconds from 1 to 3600, such as 35",
        ),
        metavar="N",
        help=f"watch for this long (default {SECONDS:g}); most checks need 30 s, some 300",
    )
    parser.add_argument(
        "--json", action="store_true", help="the findings as one JSON document"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the reasons why devices are slow, and return the exit status."""
    from gputop.agent.snapshot import MachineState
    from gputop.health.why import Observation
    from gputop.output.why_page import document, page

    seen = Observation()
    if arguments.replay is not None:
        _read(arguments, seen)
    else:
        _watch(arguments, seen)
    inventory, sample = seen.inventory, seen.sample
    if inventory is None or sample is None:
        fail("no device has answered. Try `gputop doctor`.", COULD_NOT_RUN)
    if inventory.problem is not None:
        fail(f"{inventory.problem}.", COULD_NOT_RUN)
    report = seen.report()
    show(
        arguments,
        lambda: document(report, inventory, sample, seen.seconds),
        lambda: page(
            report,
            inventory,
            sample,
            seen.seconds,
            output_width(),
            colour=wants_colour(),
        ),
    )
    away = [
        each for each in sample.machines if each.state is not MachineState.OK
    ]
    for machine in away:
        problem = machine.problem or f"{machine.name} has not answered in time"
        print_message(f"error: {problem}")
    return status_of(report, unreachable=bool(away))


def status_of(report: WhyReport, *, unreachable: bool) -> int:
    """Return the exit status. A fault of a GPU takes precedence over an unreachable host."""
    from gputop.health.findings import Severity

    about_devices = [each.severity for each in report.entries if each.devices]
    if Severity.FAULT in about_devices:
        return FAULT
    if unreachable:
        return COULD_NOT_RUN
    if report.severity >= Severity.WARNING:
        return DEGRADED
    return FINE


def _read(arguments: argparse.Namespace, seen: Observation) -> None:
    from gputop.agent.snapshot import Inventory
    from gputop.recording.reader import RecordingError

    inventory: Inventory | None = None
    try:
        recording = open_recording(arguments.replay)
        for record in recording.records():
            if isinstance(record, Inventory):
                inventory = record
            elif inventory is not None:
                seen.add(inventory, record)
        print_ending(recording)
    except RecordingError as error:
        fail(f"{error}.", COULD_NOT_RUN)


def _watch(arguments: argparse.Namespace, seen: Observation) -> None:
    """Add snapshots for the time to watch. Also stop if the stream stays silent."""
    import asyncio

    from gputop.stream.child import StreamError

    seconds = arguments.seconds or SECONDS
    gpm = arguments.gpm is not False
    found = snapshots(arguments, interval=INTERVAL, gpm=gpm)

    async def follow() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds + START_SECONDS):
                await _add_all(found, seen, seconds)

    with progress(f"Watching for {duration(seconds)} ..."):
        try:
            asyncio.run(follow())
        except StreamError as error:
            fail(str(error), COULD_NOT_RUN)


async def _add_all(
    found: AsyncGenerator[Snapshot | Interruption],
    seen: Observation,
    seconds: float,
) -> None:
    from gputop.stream.child import Interruption

    async with contextlib.aclosing(found):
        async for each in found:
            if isinstance(each, Interruption):
                print_message(str(each.problem))
                continue
            seen.add(*each)
            if seen.seconds >= seconds or each.inventory.problem is not None:
                return
