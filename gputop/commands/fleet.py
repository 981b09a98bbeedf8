"""GPUs of a Prometheus server: `gputop --prometheus` and `gputop status --prometheus`.

Nothing else imports `gputop.fleet`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from gputop.commands.arguments import (
    fail,
    needs_extra,
    output_width,
    show,
    wants_colour,
)
from gputop.console import COULD_NOT_RUN, FINE, USAGE
from gputop.fleet.model import Fleet, Gpu
from gputop.fleet.server import PrometheusServer, parse_match, parse_url
from gputop.text import visible

__all__ = ["Gpu", "parse_match", "parse_url", "print_fleet", "run_screen"]

if TYPE_CHECKING:
    from gputop.fleet.watch import FleetWatch

INTERVAL = 10.0
"""Default seconds between two refreshes of a fleet."""
NO_GPUS = (
    "no GPUs: Prometheus has no series of dcgm-exporter (DCGM_FI_DEV_GPU_TEMP) or of gputop "
    "exporter (gputop_device_info){}. Check whether they are scraped, at {}/targets."
)


def _open_watch(arguments: argparse.Namespace, interval: float) -> FleetWatch:
    """Return a watch of the fleet in the arguments. End the program if the address is bad."""
    with needs_extra("fleet"):
        from gputop.fleet.watch import FleetWatch

    try:
        server = PrometheusServer.from_environment(
            arguments.prometheus, os.environ
        )
    except ValueError as error:
        fail(str(error), USAGE)
    return FleetWatch(server, arguments.match or "", interval)


def run_screen(
    arguments: argparse.Namespace, options: Mapping[str, Any]
) -> int:
    """Run the fleet screen until it is left. The `options` are the app's."""
    interval = arguments.interval or INTERVAL
    watch = _open_watch(arguments, interval)
    from gputop.fleet.screens.screen import FleetScreen
    from gputop.fleet.screens.state import FleetState
    from gputop.ui.shell.start import show_screen

    state = FleetState(interval, arguments.prometheus, arguments.match or "")
    return show_screen(FleetScreen(state, watch), **options)


def print_fleet(arguments: argparse.Namespace) -> int:
    """Print the fleet once, or repeatedly."""
    import asyncio

    watch = _open_watch(arguments, arguments.watch or INTERVAL)
    return asyncio.run(_print_all(arguments, watch))


async def _print_all(arguments: argparse.Namespace, watch: FleetWatch) -> int:
    first = True
    async with aclosing(watch.fleets()) as fleets:
        async for fleet in fleets:
            if arguments.watch is None:
                return _print_once(arguments, fleet)
            _print(arguments, fleet, first=first)
            first = False
    return FINE


def _print_once(arguments: argparse.Namespace, fleet: Fleet) -> int:
    """Print a fleet. End with status 3 if the server has a problem or no GPUs."""
    if fleet.fresh or arguments.json:
        _print(arguments, fleet)
    if not fleet.fresh:
        fail(f"{fleet.problems[0]}.", COULD_NOT_RUN)
    if not fleet.gpus:
        of = ""
        if arguments.match:
            of = f" with {visible(arguments.match)}"
        fail(NO_GPUS.format(of, arguments.prometheus), COULD_NOT_RUN)
    return FINE


def _print(
    arguments: argparse.Namespace,
    fleet: Fleet,
    *,
    first: bool = True,
) -> None:
    from gputop.fleet.page import document, page

    def text() -> str:
        return page(
            fleet,
            arguments.prometheus,
            arguments.match or "",
            output_width(),
            colour=wants_colour(arguments.color),
        )

    show(
        arguments,
        lambda: document(fleet),
        text,
        first=first,
    )
