"""`gputop exporter`: serve the stream as metrics for Prometheus."""

from __future__ import annotations

import argparse
import re
import signal
import socket
import time
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gputop.commands.arguments import (
    chosen_processes,
    fail,
    needs_extra,
    refuse,
    source_of,
)
from gputop.commands.options import argument_type
from gputop.console import COULD_NOT_RUN, FINE, INTERRUPTED, USAGE, print_message
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.agent.problem import Problem
    from gputop.output.prometheus.metrics import Family
    from gputop.output.prometheus.scrape import Server
    from gputop.stream.child import StreamChild

ABOUT = """\
Serves /metrics. Names begin with gputop_, in base units: ratios from 0 to 1,
hertz, bytes, watts, joules, seconds, degrees Celsius. A missing reading has
no series. gputop_up is 0 while the driver or the sampler does not answer,
and there are no readings then."""
DEFAULT = "127.0.0.1:9835"
SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"


class Address(NamedTuple):
    """Address to listen on; an empty host means all interfaces."""

    host: str
    port: int

    def __str__(self) -> str:
        return (
            f"[{self.host}]:{self.port}"
            if ":" in self.host
            else f"{self.host}:{self.port}"
        )


def parse_address(text: str) -> Address:
    """Parse `HOST:PORT`, `:PORT` or `[IPV6]:PORT`. Raises `ValueError`."""
    found = re.fullmatch(r"(?:\[([^\]\s]+)\]|([^\[\]:/\s]*)):([0-9]{1,5})", text)
    if found is None or int(found[3]) > 65535:
        raise ValueError(
            f"{text!r} is not an address: give HOST:PORT such as {DEFAULT} or [::1]:9835, "
            "or :9835 for all interfaces."
        )
    return Address(found[1] or found[2], int(found[3]))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gputop exporter`."""
    parser.description = ABOUT
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--listen",
        type=argument_type(parse_address),
        metavar="HOST:PORT",
        default=DEFAULT,
        help=f"where to listen (default {DEFAULT}: this machine only); :9835 is all interfaces",
    )
    parser.add_argument(
        "--web-config",
        metavar="FILE",
        help="TLS and basic authentication, from a web configuration file of Prometheus exporters",
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
        "--pod-resources-kubelet-socket",
        metavar="FILE",
        help="the kubelet's socket, which tells the pods of the devices, for labels "
        f"(default {SOCKET})",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve metrics until a signal, and return the exit status."""
    import asyncio

    from gputop.output.prometheus.metrics import families
    from gputop.output.prometheus.state import PodResources, StreamFollower
    from gputop.stream.child import StreamChild
    from gputop.stream.launch import StreamOptions

    with needs_extra("exporter"):
        from gputop.output.prometheus.scrape import (
            Server,
            WebConfig,
            WebConfigError,
            dcgm_page,
            metrics_page,
        )
    try:
        web_config = arguments.web_config and WebConfig(
            Path(arguments.web_config), print_message
        )
    except WebConfigError:
        return USAGE
    if not arguments.processes:
        refuse(
            arguments,
            ("user", "pid", "compute"),
            "metrics of devices",
            "add --processes",
        )
    dcgm = arguments.dcgm_names
    watch = StreamFollower(_tell, judges=not dcgm)
    socket = arguments.pod_resources_kubelet_socket
    kubelet = PodResources(socket or SOCKET, _tell, must_exist=socket is not None)

    def look() -> list[Family]:
        now, processes = time.monotonic(), arguments.processes
        state = watch.state
        state = replace(state, sample=chosen_processes(arguments, state.sample))
        return families(state, now, processes=processes, dcgm=dcgm, pods=kubelet.pods())

    address: Address = arguments.listen
    pages = {"/metrics": dcgm_page(look) if dcgm else metrics_page(look)}
    try:
        server = Server(
            *address, pages, web_config, lambda: watch.state.sample is not None
        )
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "it is not a name"
        remedy = "Name another with --listen HOST:PORT."
        fail(f"cannot listen on {address}: {why}. {remedy}", COULD_NOT_RUN)
    interval = 1.0 if arguments.interval is None else arguments.interval
    asked = StreamOptions(
        interval, gpm=arguments.gpm is not False, **source_of(arguments)
    )
    child = StreamChild(asked.command, interval)
    followed = [watch.follow(child)]
    if socket or not arguments.demo:  # the usual socket knows no simulated device
        followed.append(kubelet.follow())
    return asyncio.run(_serve(server, child, followed))


def _tell(problem: Problem) -> None:
    print_message(f"error: {problem}.")


async def _serve(
    server: Server, child: StreamChild, followed: Iterable[Coroutine[Any, Any, None]]
) -> int:
    import asyncio

    serving = asyncio.create_task(until_stopped(server))
    following = asyncio.gather(*followed)  # ends only with an error
    try:
        await asyncio.wait((serving, following), return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            await following
        return await serving
    finally:
        serving.cancel()
        following.cancel()
        await asyncio.gather(serving, following, return_exceptions=True)
        await child.close()


async def until_stopped(server: Server) -> int:
    """Serve until SIGINT or SIGTERM, after printing the URL."""
    import asyncio

    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()

    def stop(status: int) -> None:
        if not stopped.done():
            stopped.set_result(status)

    loop.add_signal_handler(signal.SIGINT, stop, INTERRUPTED)
    loop.add_signal_handler(signal.SIGTERM, stop, FINE)
    server.start()
    where = url_of(server)
    if server.is_open and server.web_config is None:
        where += ", on all interfaces: anyone who reaches them can read it"
    print_message(f"metrics at {where}")
    return await stopped


def url_of(server: Server, page: str = "metrics") -> str:
    """Return the URL of a page."""
    host, port = server.server_address[:2]
    name = visible(socket.gethostname()) if server.is_open else str(host)
    scheme = "https" if server.web_config and server.web_config.has_tls else "http"
    return f"{scheme}://{Address(name, int(port))}/{page}"
