"""`gputop exporter`: serve the stream as metrics for Prometheus."""

from __future__ import annotations

import argparse
import re
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gputop.commands.arguments import add_source, argument, fail, needs_extra, refuse
from gputop.console import COULD_NOT_RUN, FINE, INTERRUPTED, USAGE, print_message
from gputop.text import visible

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

    from gputop.output.prometheus.family import Family
    from gputop.output.prometheus.scrape import Server
    from gputop.output.prometheus.web_config import WebConfig
    from gputop.stream.child import StreamChild
    from gputop.stream.snapshots import StreamFollower

ABOUT = """\
Serves /metrics. Names begin with gputop_, in base units: ratios from 0 to 1,
hertz, bytes, watts, joules, seconds, degrees Celsius. A missing reading has
no series. gputop_up is 0 while the driver or the sampler does not answer,
and there are no readings then."""
DEFAULT = "127.0.0.1:9835"
PROMETHEUS = "prometheus --config.file=fleet.yml"
LARGEST_FLEET = 100_000
EXAMPLE = f"""\
a fleet to try:
  gputop exporter --demo-fleet 512
  curl -o fleet.yml http://{DEFAULT}/prometheus.yml
  {PROMETHEUS}

Each host of the fleet is a target of its own, as with dcgm-exporter: its page
is /metrics?host=NAME, and /sd lists them all. /metrics alone is the whole
fleet on one page. Every series has the label simulated="true".
"""


class Address(NamedTuple):
    """Address to listen on; an empty host means all interfaces."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse `HOST:PORT`, `:PORT` or `[IPV6]:PORT`. Raises `ValueError`."""
    found = re.fullmatch(r"(?:\[([^\]\s]+)\]|([^\[\]:/\s]*)):([0-9]{1,5})", text)
    if found is None or int(found[3]) > 65535:
        raise ValueError(
            f"{text!r} is not an address: give HOST:PORT such as {DEFAULT} or [::1]:9835, "
            "or :9835 for all interfaces."
        )
    return Address(found[1] or found[2], int(found[3]))


def parse_fleet(text: str) -> int:
    """Parse a number of GPUs. Raises `ValueError`."""
    if re.fullmatch("[0-9]{1,6}", text) is None or not 1 <= int(text) <= LARGEST_FLEET:
        raise ValueError(
            f"{text!r} is not the size of a fleet: give a whole number of GPUs from 1 to "
            f"{LARGEST_FLEET}."
        )
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gputop exporter`."""
    parser.description = ABOUT
    parser.epilog = EXAMPLE
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--listen",
        type=argument(parse_address),
        default=DEFAULT,
        metavar="HOST:PORT",
        help=f"where to listen (default {DEFAULT}: this machine alone); :9835 is all interfaces",
    )
    parser.add_argument(
        "--web-config",
        metavar="FILE",
        help="TLS and basic authentication, by the web configuration file of Prometheus exporters",
    )
    parser.add_argument(
        "--processes",
        action="store_true",
        help="also metrics of processes: the 32 with the most memory on each device",
    )
    parser.add_argument(
        "--dcgm-names",
        action="store_true",
        help="the devices' metrics under the names, units and labels of dcgm-exporter instead",
    )
    parser.add_argument(
        "--demo-fleet",
        type=argument(parse_fleet),
        metavar="N",
        help="a simulated fleet of N GPUs instead, on hosts of eight, with the names of "
        "dcgm-exporter",
    )
    add_source(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve metrics until a signal, and return the exit status."""
    if arguments.demo_fleet is not None:
        return _run_fleet(arguments)
    import asyncio

    from gputop.health.judge import FindingTracker
    from gputop.output.prometheus.metrics import families
    from gputop.stream.child import StreamChild
    from gputop.stream.launch import command
    from gputop.stream.snapshots import StreamFollower

    tracker = FindingTracker()
    with needs_extra("exporter"):
        from gputop.output.prometheus.scrape import application
    web_config = _web_config(arguments.web_config)
    take = None if arguments.dcgm_names else tracker.add_record
    watch = StreamFollower(lambda problem: print_message(f"error: {problem}."), take)
    options = {"processes": arguments.processes, "dcgm": arguments.dcgm_names}

    def look() -> list[Family]:
        return families(watch.latest, time.monotonic(), tracker.active, **options)

    pages = application(look, lambda: watch.latest.sample is not None)
    server = _listen(arguments.listen, pages, web_config)
    interval = 1.0 if arguments.interval is None else arguments.interval
    gpm = arguments.gpm is not False
    child = StreamChild(command(interval=interval, demo=arguments.demo, gpm=gpm), interval)
    return asyncio.run(_serve(server, watch, child))


def _run_fleet(arguments: argparse.Namespace) -> int:
    """Serve a simulated fleet until a signal, and return the exit status."""
    not_of_fleets = ("demo", "processes", "web_config", "interval", "gpm")
    refuse(arguments, not_of_fleets, "a simulated fleet", "--demo-fleet")
    import asyncio

    from gputop.fleet.demo.site import GPUS_OF_HOST

    with needs_extra("exporter"):
        from gputop.fleet.demo.exporter import Simulator, site

    gpus = arguments.demo_fleet
    simulator = Simulator(gpus, started=time.time())
    server = _listen(arguments.listen, site(simulator))
    print_message(
        f"a simulated fleet of {gpus} GPUs, {GPUS_OF_HOST} on each host, some with faults"
    )
    fetch = f"curl -o fleet.yml {_url(server, 'prometheus.yml')}"
    return asyncio.run(_until_stopped(server, f"for Prometheus: {fetch} && {PROMETHEUS}"))


def _web_config(name: str | None) -> WebConfig | None:
    """Read the file; end the program if it cannot be used."""
    if name is None:
        return None
    with needs_extra("exporter"):
        from gputop.output.prometheus.web_config import WebConfig, WebConfigError
    try:
        return WebConfig(Path(name), print_message)
    except WebConfigError:
        raise SystemExit(USAGE) from None


def _listen(address: Address, app: WSGIApplication, web_config: WebConfig | None = None) -> Server:
    from gputop.output.prometheus.scrape import listen

    try:
        return listen(address.host, address.port, app, web_config)
    except (OSError, UnicodeError) as error:
        why = (isinstance(error, OSError) and error.strerror) or "it is not a name"
        fail(
            f"cannot listen on {address}: {why}. Name another with --listen HOST:PORT.",
            COULD_NOT_RUN,
        )


async def _serve(server: Server, watch: StreamFollower, child: StreamChild) -> int:
    import asyncio

    try:
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(watch.follow(child))
            status = await _until_stopped(server)
            following.cancel()
    finally:
        await child.close()
    return status


async def _until_stopped(server: Server, also: str = "") -> int:
    """Serve until SIGINT or SIGTERM, after printing the URL and `also`."""
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
    print_message(f"metrics at {_described_url(server)}")
    if also:
        print_message(also)
    await stopped.wait()
    return status


def _described_url(server: Server) -> str:
    if server.web_config is not None or not server.is_open:
        return _url(server)
    return f"{_url(server)}, on all interfaces: anyone who reaches them can read it"


def _url(server: Server, page: str = "metrics") -> str:
    host, port = server.server_address[:2]
    name = visible(socket.gethostname()) if server.is_open else str(host)
    scheme = "https" if server.web_config and server.web_config.has_tls else "http"
    return f"{scheme}://{Address(name, int(port))}/{page}"
