"""`gputop exporter`: serve the stream as metrics for Prometheus."""

from __future__ import annotations

import argparse
import ipaddress
import re
import signal
import socket
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from gputop.agent.times import DEFAULT_INTERVAL
from gputop.commands.arguments import (
    chosen_processes,
    fail,
    needs_extra,
    source_of,
)
from gputop.commands.options import argument_type
from gputop.console import COULD_NOT_RUN, FINE, print_message
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.agent.problem import Problem
    from gputop.output.prometheus.state import ExporterState
    from gputop.stream.child import StreamChild

ABOUT = """\
Serves /metrics. Names begin with gputop_, in base units: ratios from 0 to 1,
hertz, bytes, watts, joules, seconds, degrees Celsius. A missing reading has
no series. gputop_up is 0 while the driver or the sampler does not answer,
and there are no readings then."""
DEFAULT = "127.0.0.1:9835"


class Address(NamedTuple):
    """Address to listen on. An empty host means all interfaces."""

    host: str
    port: int

    def __str__(self) -> str:
        if ":" in self.host:
            return f"[{self.host}]:{self.port}"
        return f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse `HOST:PORT`, `:PORT` or `[IPV6]:PORT`. Raises `ValueError`."""
    found = re.fullmatch(
        r"(?:\[([^\]\s]+)\]|([^\[\]:/\s]*)):([0-9]{1,5})", text
    )
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
        "--certfile",
        metavar="FILE",
        help="serve over TLS with this certificate",
    )
    parser.add_argument(
        "--keyfile", metavar="FILE", help="the private key of the certificate"
    )
    parser.add_argument(
        "--client-cafile",
        metavar="FILE",
        help="answer only clients with a certificate that these authorities signed",
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


def run(arguments: argparse.Namespace) -> int:
    """Serve metrics until a signal, and return the exit status."""
    import asyncio

    from gputop.output.prometheus.state import ExporterState
    from gputop.stream.child import StreamChild
    from gputop.stream.launch import StreamOptions

    with needs_extra("exporter"):
        from gputop.output.prometheus.metrics import families
        from gputop.output.prometheus.scrape import serve
    processes, dcgm = arguments.processes, arguments.dcgm_names
    state = ExporterState(_tell, partial(chosen_processes, arguments))

    look = partial(families, state, processes=processes, dcgm=dcgm)
    address: Address = arguments.listen
    tls = _tls(arguments)
    try:
        server = serve(
            *address,
            look,
            lambda: state.newest is not None,
            dcgm=dcgm,
            **tls,
        )
    except (OSError, UnicodeError) as error:
        _fail_to_serve(address, error)
    interval = arguments.interval or DEFAULT_INTERVAL
    asked = StreamOptions(
        interval, gpm=arguments.gpm is not False, **source_of(arguments)
    )
    child = StreamChild(asked.command, interval)
    host, port = server.server_address[:2]
    url = _url(str(host), int(port), is_secure=bool(tls))
    with suppress(asyncio.CancelledError):
        asyncio.run(_follow(state, child, url))
    return FINE


def _tls(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options for TLS; empty without a certificate."""
    if arguments.certfile is None:
        return {}
    return {
        "certfile": arguments.certfile,
        "keyfile": arguments.keyfile,
        "client_cafile": arguments.client_cafile,
        "client_auth_required": arguments.client_cafile is not None,
    }


def _fail_to_serve(
    address: Address, error: OSError | UnicodeError
) -> NoReturn:
    """End the program with the reason: a port in use, an unknown name, or an invalid file."""
    why = getattr(error, "strerror", None)
    if isinstance(error, UnicodeError):
        why = "it is not a name"
    # The client raised the error, and its message names the file.
    if why is None:
        why = error.args[0]
        fail(
            f"TLS cannot be used: {why}. Give files in PEM format.",
            COULD_NOT_RUN,
        )
    remedy = "Name another with --listen HOST:PORT."
    fail(f"cannot listen on {address}: {why}. {remedy}", COULD_NOT_RUN)


def _url(
    host: str,
    port: int,
    *,
    is_secure: bool,
) -> str:
    """Return the URL of the metrics, with a warning if it is public and without TLS."""
    scheme = "http"
    if is_secure:
        scheme = "https"
    if not ipaddress.ip_address(host).is_unspecified:
        return f"{scheme}://{Address(host, port)}/metrics"
    url = f"{scheme}://{Address(visible(socket.gethostname()), port)}/metrics"
    if is_secure:
        return url
    return f"{url}, on all interfaces: anyone who reaches them can read it"


def _tell(problem: Problem) -> None:
    print_message(f"error: {problem}.")


async def _follow(
    state: ExporterState,
    child: StreamChild,
    url: str,
) -> None:
    """Follow the stream forever. SIGTERM cancels this."""
    import asyncio

    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    print_message(f"metrics at {url}")
    try:
        async with aclosing(child.records()) as records:
            async for record in records:
                state.add_record(record)
    finally:
        await child.close()
