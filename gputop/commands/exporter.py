"""`gputop exporter`: the stream as metrics for Prometheus."""

from __future__ import annotations

import argparse
import re
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gputop.commands.arguments import add_source, argument, fail, needs_extra, refuse
from gputop.console import say
from gputop.exits import COULD_NOT_RUN, FINE, INTERRUPTED, USAGE
from gputop.text import visible

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

    from gputop.output.prometheus.family import Family
    from gputop.output.prometheus.scrape import Server
    from gputop.output.prometheus.web_config import WebConfig
    from gputop.stream.child import StreamChild
    from gputop.stream.latest import Watch

ABOUT = """\
Serves /metrics. Names begin with gputop_, in base units: ratios from 0 to 1,
hertz, bytes, watts, joules, seconds, degrees Celsius. A missing reading has
no series. gputop_up is 0 where the driver or the sampler does not answer;
readings go away then."""
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


def parse_fleet(text: str) -> int:
    """A number of GPUs; raises `ValueError`."""
    if re.fullmatch("[0-9]{1,6}", text) is None or not 1 <= int(text) <= LARGEST_FLEET:
        raise ValueError(
            f"{text!r} is not the size of a fleet: give a whole number of GPUs from 1 to "
            f"{LARGEST_FLEET}."
        )
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where it listens, and what it tells."""
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
        help="also metrics of each process: the 32 of each device with the most memory",
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
        help="a simulated fleet of so many GPUs instead, on hosts of eight, in dcgm-exporter's "
        "names, for Prometheus",
    )
    add_source(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serves metrics until a signal; returns the exit status."""
    if arguments.demo_fleet is not None:
        return _run_fleet(arguments)
    import asyncio

    from gputop.health.judge import FindingTracker
    from gputop.output.prometheus.metrics import families
    from gputop.stream.child import StreamChild
    from gputop.stream.latest import Watch
    from gputop.stream.launch import command

    tracker = FindingTracker()
    with needs_extra("exporter"):
        from gputop.output.prometheus.scrape import application
    web_config = _web_config(arguments.web_config)
    take = None if arguments.dcgm_names else tracker.add_record
    watch = Watch(lambda problem: say(f"error: {problem}."), take)
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
    """Serves a simulated fleet until a signal; returns the exit status."""
    not_of_fleets = ("demo", "processes", "web_config", "interval", "gpm")
    refuse(arguments, not_of_fleets, "a simulated fleet", "--demo-fleet")
    import asyncio

    from gputop.fleet.demo.site import GPUS_OF_HOST

    with needs_extra("exporter"):
        from gputop.fleet.demo.exporter import Simulator, site

    gpus = arguments.demo_fleet
    simulator = Simulator(gpus, started=time.time())
    server = _listen(arguments.listen, site(simulator))
    say(f"a simulated fleet of {gpus} GPUs, {GPUS_OF_HOST} on each host, some with faults")
    fetch = f"curl -o fleet.yml {_url(server, 'prometheus.yml')}"
    return asyncio.run(_until_stopped(server, f"for Prometheus: {fetch} && {PROMETHEUS}"))


def _web_config(name: str | None) -> WebConfig | None:
    """Read the file; ends the program where it cannot be used."""
    if name is None:
        return None
    with needs_extra("exporter"):
        from gputop.output.prometheus.web_config import WebConfig, WebConfigError
    try:
        return WebConfig(Path(name), say)
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


async def _serve(server: Server, watch: Watch, child: StreamChild) -> int:
    """Until SIGINT or SIGTERM; the child has ended then."""
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
    """Answers until SIGINT or SIGTERM; says where, and what else there is to say."""
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
    if also:
        say(also)
    await stopped.wait()
    return status


def _place(server: Server) -> str:
    """The URL, and who else can read it."""
    if server.web_config is not None or not server.is_open:
        return _url(server)
    return f"{_url(server)}, on all interfaces: whoever reaches them can read it"


def _url(server: Server, page: str = "metrics") -> str:
    host, port = server.server_address[:2]
    name = visible(socket.gethostname()) if server.is_open else str(host)
    scheme = "https" if server.web_config and server.web_config.has_tls else "http"
    return f"{scheme}://{Address(name, int(port))}/{page}"
