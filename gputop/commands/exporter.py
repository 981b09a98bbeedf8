"""`gputop exporter`: the stream as metrics for Prometheus."""

from __future__ import annotations

import ipaddress
import re
import signal
import socket
import time
from typing import TYPE_CHECKING, NamedTuple

from gputop.bench.said import say
from gputop.commands.arguments import add_source, argument, fail
from gputop.exits import COULD_NOT_RUN, FINE, INTERRUPTED
from gputop.text import visible

if TYPE_CHECKING:
    import argparse

    from gputop.output.family import Family
    from gputop.output.scrape import Look, Server
    from gputop.telemetry.child import StreamChild
    from gputop.telemetry.latest import Watch
    from gputop.telemetry.snapshot import Problem

ABOUT = (
    "Serves /metrics. Names begin with gputop_, in base units: ratios from 0 to 1, hertz, bytes, "
    "watts, joules, seconds, degrees Celsius. A missing reading has no series. gputop_up is 0 "
    "where the driver or the sampler does not answer; readings go away then."
)
DEFAULT = "127.0.0.1:9835"


class Address(NamedTuple):
    """Where to listen: on all interfaces for an empty host."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """`HOST:PORT`, `:PORT` or `[IPV6]:PORT`; raises `ValueError`."""
    found = re.fullmatch(r"(?:\[([^\]\s]+)\]|([^\[\]:/\s]*)):([0-9]{1,5})", text)
    if found is None or int(found[3]) > 65535:
        raise ValueError(
            f"{text!r} is not an address: give HOST:PORT such as {DEFAULT} or [::1]:9835, "
            "or :9835 for all interfaces."
        )
    return Address(found[1] or found[2], int(found[3]))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where it listens, and what it tells."""
    parser.description = ABOUT
    parser.add_argument(
        "--listen",
        type=argument(parse_address),
        default=DEFAULT,
        metavar="HOST:PORT",
        help=f"where to listen (default {DEFAULT}: this machine alone); :9835 is all interfaces",
    )
    parser.add_argument(
        "--processes",
        action="store_true",
        help="also metrics of each process: the 32 of each device with the most memory",
    )
    parser.add_argument(
        "--dcgm-names",
        action="store_true",
        help="the devices' metrics under the names, units and labels of dcgm-exporter instead",
    )
    add_source(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serves metrics until a signal; returns the exit status."""
    import asyncio

    from gputop.insight.standing import Follower
    from gputop.output.metrics import families
    from gputop.telemetry.child import StreamChild
    from gputop.telemetry.latest import Watch
    from gputop.telemetry.launch import command

    follower = Follower()
    watch = Watch(_tell, None if arguments.dcgm_names else follower.take)
    options = {"processes": arguments.processes, "dcgm": arguments.dcgm_names}

    def look() -> list[Family]:
        return families(watch.latest, time.monotonic(), follower.standing, **options)

    server = _listen(arguments.listen, look)
    interval = 1.0 if arguments.interval is None else arguments.interval
    gpm = arguments.gpm is not False
    child = StreamChild(command(interval=interval, demo=arguments.demo, gpm=gpm), interval)
    return asyncio.run(_serve(server, watch, child))


def _listen(address: Address, look: Look) -> Server:
    try:
        from gputop.output.scrape import listen
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("prometheus_client"):
            raise
        fail(
            "the Prometheus client is not installed. "
            'Type `pip install "gputop-tui[exporter]"`, or `pip install prometheus-client`.',
            COULD_NOT_RUN,
        )
    try:
        return listen(address.host, address.port, look)
    except (OSError, UnicodeError) as error:
        why = (isinstance(error, OSError) and error.strerror) or "it is not a name"
        fail(
            f"cannot listen on {address}: {why}. Name another with --listen HOST:PORT.",
            COULD_NOT_RUN,
        )


async def _serve(server: Server, watch: Watch, child: StreamChild) -> int:
    """Until SIGINT or SIGTERM; the child has ended then."""
    import asyncio

    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    status = FINE

    def stop(with_status: int) -> None:
        nonlocal status
        status = with_status
        stopped.set()

    loop.add_signal_handler(signal.SIGINT, stop, INTERRUPTED)
    loop.add_signal_handler(signal.SIGTERM, stop, FINE)
    server.start()
    say(f"metrics at {_place(server)}")
    try:
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(watch.follow(child))
            await stopped.wait()
            following.cancel()
    finally:
        await child.close()
    return status


def _place(server: Server) -> str:
    """The URL, and who else can read it."""
    host, port = server.server_address[:2]
    if not ipaddress.ip_address(str(host)).is_unspecified:
        return f"http://{Address(str(host), int(port))}/metrics"
    name = visible(socket.gethostname())
    return f"http://{name}:{port}/metrics, on all interfaces: whoever reaches them can read it"


def _tell(problem: Problem) -> None:
    say(f"error: {visible(str(problem))}.")
