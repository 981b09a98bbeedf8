"""`gputop status --prometheus`: a fleet on one page."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from gputop.commands.arguments import fail, needs_extra, print_again, print_text
from gputop.console import COULD_NOT_RUN, FINE, USAGE
from gputop.text import visible

if TYPE_CHECKING:
    import argparse

    from gputop.fleet.model import Fleet
    from gputop.fleet.watch import FleetWatch

INTERVAL = 10.0
"""Default seconds between two refreshes."""
NO_GPUS = (
    "no GPUs: Prometheus has no series of dcgm-exporter (DCGM_FI_DEV_GPU_TEMP) or of gputop "
    "exporter (gputop_device_info){}. Check whether they are scraped, at {}/targets."
)


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


def status(arguments: argparse.Namespace, width: int | None, *, colour: bool) -> int:
    """Print the fleet once, or repeatedly; exit with status 3 if the server has a problem."""
    every: float | None = arguments.watch
    interval = INTERVAL if every is None else max(1.0, every)
    watch = open_watch(arguments, interval, at_once=True)
    return asyncio.run(_print(arguments, watch, width, colour=colour))


async def _print(
    arguments: argparse.Namespace, watch: FleetWatch, width: int | None, *, colour: bool
) -> int:
    from contextlib import aclosing

    begun = False
    try:
        async with aclosing(watch.fleets()) as fleets:
            async for fleet in fleets:
                if arguments.watch is None:
                    return _once(arguments, fleet, width, colour=colour)
                text = _text(arguments, fleet, width, colour=colour)
                print_again(arguments, text, first=not begun)
                begun = True
    finally:
        await watch.close()
    return FINE


def _once(arguments: argparse.Namespace, fleet: Fleet, width: int | None, *, colour: bool) -> int:
    if not fleet.fresh and not arguments.json:
        fail(f"{fleet.problems[0]}.", COULD_NOT_RUN)
    print_text(_text(arguments, fleet, width, colour=colour))
    if not fleet.fresh:
        fail(f"{fleet.problems[0]}.", COULD_NOT_RUN)
    if not fleet.gpus:
        of = f" with {visible(arguments.match, 200)}" if arguments.match else ""
        fail(NO_GPUS.format(of, arguments.prometheus), COULD_NOT_RUN)
    return FINE


def _text(arguments: argparse.Namespace, fleet: Fleet, width: int | None, *, colour: bool) -> str:
    if arguments.json:
        from json import dumps

        from gputop.fleet.page import document

        return dumps(document(fleet), indent=2 if arguments.watch is None else None)
    from gputop.fleet.page import page

    return page(fleet, arguments.prometheus, arguments.match or "", width, colour=colour)
