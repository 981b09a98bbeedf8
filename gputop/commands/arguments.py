"""What the commands share: exit statuses, how an error is said, common arguments."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from gputop.exits import COULD_NOT_RUN, USAGE
from gputop.telemetry.control import LONGEST_INTERVAL, SHORTEST_INTERVAL
from gputop.telemetry.ssh import REMOTE_COMMAND, parse_command, parse_host
from gputop.terminal import terminal_size
from gputop.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputop.telemetry.recorded import Recording


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, with where to look next."""

    def error(self, message: str) -> NoReturn:
        remedy = "" if message.endswith(".") else f". Try `{self.prog} --help`."
        fail(f"{message}{remedy}", USAGE)


def fail(message: str, status: int) -> NoReturn:
    """Ends the program with one line on standard error."""
    print(f"gputop: error: {visible(message, len(message))}", file=sys.stderr)
    sys.exit(status)


def interval(text: str) -> float:
    """Seconds between samples, as an argument."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not SHORTEST_INTERVAL <= seconds <= LONGEST_INTERVAL:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an interval: give seconds from {SHORTEST_INTERVAL:g} "
            f"to {LONGEST_INTERVAL:g}, such as 1."
        )
    return seconds


def count(text: str) -> int:
    """How many, as an argument."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count: give a whole number from 1.")
    return number


def argument(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """A parser that raises `ValueError` as argparse wants it."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def add_source(command: argparse.ArgumentParser) -> None:
    """How often to look, at what."""
    command.add_argument(
        "--interval",
        type=interval,
        default=argparse.SUPPRESS,  # or a command's default would overwrite what came before it
        metavar="S",
        help="seconds between samples (0.25 to 60, default 1)",
    )
    command.add_argument(
        "--gpm",
        action=argparse.BooleanOptionalAction,
        default=argparse.SUPPRESS,
        help="profiling counters: SM, tensor and DRAM activity (default: yes)",
    )
    add_demo(command)


def add_hosts(command: argparse.ArgumentParser) -> None:
    """Other machines in place of this one."""
    command.add_argument(
        "--host",
        type=argument(parse_host),
        action="append",
        dest="hosts",
        default=argparse.SUPPRESS,
        metavar="NAME",
        help="another machine, over ssh; NAME is such as gpu-1 or ada@gpu-1, several with --host "
        "again; `localhost` is this one, without ssh",
    )
    command.add_argument(
        "--remote-command",
        type=argument(parse_command),
        default=argparse.SUPPRESS,
        metavar="CMD",
        help="how gputop is started there, such as ~/venv/bin/gputop (default: gputop)",
    )


def hosts_of(arguments: argparse.Namespace) -> list[str]:
    """The hosts to look at, each once; none is this machine alone. Ends where that is misuse."""
    hosts: list[str] = list(dict.fromkeys(arguments.hosts or ()))
    if hosts and arguments.demo:
        fail("--host and --demo are two sources. Leave one of them out.", USAGE)
    if arguments.remote_command != REMOTE_COMMAND and not hosts:
        fail("--remote-command is for other machines. Name one with --host.", USAGE)
    return hosts


def _url(text: str) -> str:
    from gputop.fleet.server import parse_url

    return parse_url(text)


def _match(text: str) -> str:
    from gputop.fleet.matchers import parse_match

    return parse_match(text)


def add_fleet(command: argparse.ArgumentParser) -> None:
    """A fleet in place of machines."""
    command.add_argument(
        "--prometheus",
        type=argument(_url),
        default=argparse.SUPPRESS,
        metavar="URL",
        help="the fleet that a Prometheus scrapes; URL is such as http://prometheus:9090, signed "
        "in to by GPUTOP_PROMETHEUS_TOKEN_FILE, _USER and _PASSWORD, _CERT, _KEY "
        "and _CA, or ~/.netrc; GPUTOP_PROMETHEUS_HEADERS has headers of your own, such as "
        "'X-Scope-OrgID: TENANT'",
    )
    command.add_argument(
        "--match",
        type=argument(_match),
        default=argparse.SUPPRESS,
        metavar="LABELS",
        help="of the fleet those GPUs, in label matchers of PromQL, "
        """such as 'cluster="a",rack=~"r1.*"'""",
    )


def check_fleet(arguments: argparse.Namespace) -> None:
    """Ends where a fleet is asked for with what is of machines."""
    if arguments.prometheus is None:
        if arguments.match is not None:
            fail("--match is of a fleet. Say which with --prometheus URL.", USAGE)
        return
    options = ("demo", "host", "replay", "gpm", "record", "show-secrets")
    refuse(arguments, "a fleet", "prometheus", *options)


def refuse(arguments: argparse.Namespace, what: str, source: str, *options: str) -> None:
    """End the program if one of the options is given, which are not for that source."""
    for name in options:
        value = arguments.hosts if name == "host" else getattr(arguments, name.replace("-", "_"))
        if value not in (None, False):
            fail(f"--{name} is not for {what}. Leave it out, or --{source}.", USAGE)


def add_demo(command: argparse.ArgumentParser) -> None:
    """Simulated devices in place of the machine's."""
    command.add_argument(
        "--demo",
        action="store_true",
        default=argparse.SUPPRESS,
        help="simulated devices, marked as such",
    )


def add_replay(command: argparse.ArgumentParser) -> None:
    """A recording in place of the machine."""
    command.add_argument(
        "--replay",
        type=Path,
        default=argparse.SUPPRESS,
        metavar="FILE",
        help="play what was recorded, by `stream --output` or with r",
    )


def open_recording(path: Path) -> Recording:
    """The recording; ends the program where it cannot be played."""
    from gputop.telemetry.recorded import Recording, RecordingError

    try:
        return Recording(path)
    except RecordingError as error:
        fail(f"{error}.", COULD_NOT_RUN)


def output_width() -> int | None:
    """Columns of the terminal that standard output is; None where it is none."""
    return terminal_size()[0] if sys.stdout.isatty() else None


def print_text(text: str, end: str = "\n") -> None:
    """Prints in UTF-8 whatever the locale says: a "–" that becomes a "?" would be another word."""
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    print(text, end=end, flush=True)


def print_again(text: str, *, first: bool, json: bool) -> None:
    """Print what comes every few seconds: on a terminal over the page before, else after it."""
    if json or not sys.stdout.isatty():
        print_text(text if json or first else f"\n{text}")
        return
    from gputop.output.repeat import frame

    print_text(frame(text, terminal_size()[1], first=first), end="")
