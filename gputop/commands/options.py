"""Options that several commands share. Each function returns a parent parser for argparse.

A shared option may also be given before the command. A default here would overwrite that value, so
the defaults are in `UNSET`, for the top parser only.
"""

from __future__ import annotations

import argparse
import math
import re
from argparse import SUPPRESS, ArgumentTypeError, BooleanOptionalAction
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from gputop.agent.times import LONGEST_INTERVAL, SHORTEST_INTERVAL
from gputop.commands.arguments import Parser
from gputop.stream.ssh import parse_command

T = TypeVar("T")

UNSET: Mapping[str, Any] = {
    "once": False,
    "list_gpus": False,
    "interval": None,
    "gpm": None,
    "id": None,
    "only_visible": False,
    "user": None,
    "pid": None,
    "compute": False,
    "demo": False,
    "host": None,
    "remote_command": None,
    "prometheus": None,
    "match": None,
    "replay": None,
}
"""Defaults of the shared options."""


def argument_type(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Wrap `parse` for argparse's `type`, so that users see the text of its `ValueError`."""

    @wraps(parse)
    def parsed(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    return parsed


def number(
    low: float,
    high: float,
    advice: str,
) -> Callable[[str], float]:
    """Return a parser of numbers within limits. `advice` is the end of its error message."""

    @argument_type
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise ValueError(f"{text!r} is {advice}.")
        return value

    return parse


interval = number(
    SHORTEST_INTERVAL,
    LONGEST_INTERVAL,
    f"not an interval: give seconds from {SHORTEST_INTERVAL:g} to {LONGEST_INTERVAL:g}, such as 1",
)
"""Parses the seconds between samples."""


@argument_type
def count(text: str) -> int:
    """Parse a positive whole number."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ValueError(f"{text!r} is not a count: give a whole number from 1.")
    return number


@argument_type
def users(text: str) -> list[str]:
    """Parse names of users, separated by commas."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ValueError(f"{text!r} names no users. Give names, such as ada,bob.")
    return names


@argument_type
def pids(text: str) -> list[int]:
    """Parse process numbers, separated by commas."""
    if not re.fullmatch(r"[0-9]{1,9}(, *[0-9]{1,9})*", text):
        raise ValueError(
            f"{text!r} names no processes. Give their numbers, such as 4242,4243."
        )
    return [int(number) for number in text.split(",")]


@argument_type
def ids(text: str) -> tuple[str, ...]:
    """Parse the choice of GPUs."""
    from gputop.agent.selection import parse_ids

    return parse_ids(text)


@argument_type
def host_names(text: str) -> list[str]:
    """Parse the hosts of one `--host`."""
    from gputop.stream.host_names import parse_hosts

    return parse_hosts(text)


@argument_type
def python_path(text: str) -> str:
    """Parse the path of a Python interpreter with torch."""
    from gputop.bench.plan.request import parse_python

    return parse_python(text)


@argument_type
def prometheus_url(text: str) -> str:
    """Parse the address of a Prometheus server."""
    from gputop.commands.fleet import parse_url

    return parse_url(text)


@argument_type
def prometheus_match(text: str) -> str:
    """Parse PromQL matchers."""
    from gputop.commands.fleet import parse_match

    return parse_match(text)


SHOWN = "what is shown"
SOURCE = "where it comes from"
"""Titles of groups in the help."""


def _parent() -> Parser:
    return Parser(
        add_help=False,
        allow_abbrev=False,
        argument_default=SUPPRESS,
    )


def sample_interval() -> Parser:
    """Return the parent with `--interval`."""
    parent = _parent()
    group = parent.add_argument_group(SHOWN)
    group.add_argument(
        "--interval",
        "-l",
        type=interval,
        metavar="S",
        help="seconds between samples (0.25 to 60, default 1)",
    )
    return parent


def gpm() -> Parser:
    """Return the parent with `--gpm`."""
    parent = _parent()
    group = parent.add_argument_group(SHOWN)
    group.add_argument(
        "--gpm",
        action=BooleanOptionalAction,
        help="profiling counters: SM, tensor and DRAM activity (default: yes)",
    )
    return parent


def devices() -> Parser:
    """Return the parent with the options that choose GPUs."""
    parent = _parent()
    group = parent.add_argument_group(SHOWN)
    group.add_argument(
        "--id",
        "-i",
        action="extend",
        type=ids,
        metavar="LIST",
        help="only these GPUs; indices, PCI addresses or starts of UUIDs, such as 0,2",
    )
    group.add_argument(
        "--only-visible",
        action="store_true",
        help="only GPUs that CUDA_VISIBLE_DEVICES leaves visible",
    )
    return parent


def processes() -> Parser:
    """Return the parent with the options that choose processes."""
    parent = _parent()
    group = parent.add_argument_group(SHOWN)
    group.add_argument(
        "--user",
        "-u",
        action="extend",
        type=users,
        metavar="LIST",
        help="only processes of these users; LIST is such as ada,bob; all GPUs are still shown",
    )
    group.add_argument(
        "--pid",
        "-p",
        action="extend",
        type=pids,
        metavar="LIST",
        help="only processes with these PIDs; LIST is such as 42,43; all GPUs are still shown",
    )
    group.add_argument(
        "--compute",
        "-c",
        action="store_true",
        help="only processes that compute, such as those of CUDA; all GPUs are still shown",
    )
    return parent


def demo() -> Parser:
    """Return the parent with `--demo`."""
    parent = _parent()
    group = parent.add_argument_group(SOURCE)
    group.add_argument(
        "--demo", action="store_true", help="simulated devices, marked as such"
    )
    return parent


def hosts() -> Parser:
    """Return the parent with the options for other machines."""
    parent = _parent()
    group = parent.add_argument_group(SOURCE)
    group.add_argument(
        "--host",
        action="extend",
        type=host_names,
        metavar="NAME",
        help="another machine, over ssh, such as gpu-1 or ada@gpu-1; repeat --host for several, or "
        "give node[01-40], @FILE with a host on each line, or 'gpu-*' for those in ~/.ssh/config; "
        "`localhost` is this machine, without ssh",
    )
    group.add_argument(
        "--remote-command",
        type=argument_type(parse_command),
        metavar="CMD",
        help="command that starts an installed gputop there, such as ~/venv/bin/gputop (default: "
        "gputop sends what is needed to the python3 there, and installs nothing)",
    )
    return parent


def fleet() -> Parser:
    """Return the parent with the options for the GPUs of a Prometheus server."""
    parent = _parent()
    group = parent.add_argument_group(SOURCE)
    group.add_argument(
        "--prometheus",
        type=prometheus_url,
        metavar="URL",
        help="GPUs known to a Prometheus server; URL is such as http://prometheus:9090; to sign "
        "in, set GPUTOP_PROMETHEUS_TOKEN_FILE, _USER and _PASSWORD, _CERT, _KEY and _CA, or use "
        "~/.netrc; GPUTOP_PROMETHEUS_HEADERS adds headers, such as 'X-Scope-OrgID: TENANT'",
    )
    group.add_argument(
        "--match",
        type=prometheus_match,
        metavar="LABELS",
        help="""only these GPUs of the fleet, as PromQL matchers: 'cluster="a",rack=~"r1.*"'""",
    )
    return parent


def replay() -> Parser:
    """Return the parent with `--replay`."""
    parent = _parent()
    group = parent.add_argument_group(SOURCE)
    group.add_argument(
        "--replay",
        type=Path,
        metavar="FILE",
        help="play a recording; `stream --output` or r in the dashboard makes one",
    )
    return parent


def add_python(parser: argparse.ArgumentParser, about: str) -> None:
    """Add `--python`, which may also be given before the command."""
    parser.add_argument(
        "--python", type=python_path, metavar="PATH", default=SUPPRESS, help=about
    )
