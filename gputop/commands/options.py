"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import argparse
import math
import re
from argparse import SUPPRESS, ArgumentTypeError, BooleanOptionalAction
from collections.abc import Callable, Collection
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from gputop.agent.times import (
    DEFAULT_INTERVAL,
    LONGEST_INTERVAL,
    SHORTEST_INTERVAL,
)
from gputop.commands.arguments import Parser
from gputop.stream.ssh import parse_command

T = TypeVar("T")


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


seconds = number(0, 1e9, "not a time. Give seconds, such as 600")
"""Parses a time to wait."""
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
        raise ValueError(
            f"{text!r} is not a count: give a whole number from 1."
        )
    return number


@argument_type
def users(text: str) -> list[str]:
    """Parse names of users, separated by commas."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ValueError(
            f"{text!r} is not a list of users. Give names, such as ada,bob."
        )
    return names


@argument_type
def pids(text: str) -> list[int]:
    """Parse process numbers, separated by commas."""
    if not re.fullmatch(r"[0-9]{1,9}(, *[0-9]{1,9})*", text):
        raise ValueError(
            f"{text!r} is not a list of processes. Give their numbers, such as 4242,4243."
        )
    return [int(number) for number in text.split(",")]


def imported(module: str, name: str) -> Callable[[str], Any]:
    """Return a `type` for argparse: a function in a module that is loaded only when it is used."""

    @argument_type
    def parse(text: str) -> Any:
        return getattr(import_module(module), name)(text)

    return parse


python_path = imported("gputop.bench.plan.request", "parse_python")
"""Parses the path of a Python interpreter with torch."""
SHOWN = "what is shown"
SOURCE = "where it comes from"
"""Titles of groups in the help."""


def shared(groups: Collection[str], default: str | None = SUPPRESS) -> Parser:
    """Return a parent parser with these groups of options.

    A shared option may also be given before the command. A default of the command would overwrite
    that value, so only the top parser has defaults.
    """
    parent = Parser(
        add_help=False, allow_abbrev=False, argument_default=default
    )
    shown = parent.add_argument_group("what is shown")
    source = parent.add_argument_group("where it comes from")
    if "interval" in groups:
        shown.add_argument(
            "--interval",
            "-l",
            type=interval,
            metavar="S",
            help=f"seconds between samples ({SHORTEST_INTERVAL:g} to {LONGEST_INTERVAL:g}, "
            f"default {DEFAULT_INTERVAL:g})",
        )
    if "gpm" in groups:
        shown.add_argument(
            "--gpm",
            action=BooleanOptionalAction,
            help="profiling counters: SM, tensor and DRAM activity (default: yes)",
        )
    if "devices" in groups:
        _add_devices(shown)
    if "processes" in groups:
        _add_processes(shown)
    if "demo" in groups:
        source.add_argument(
            "--demo",
            action="store_true",
            help="simulated devices, marked as such",
        )
    if "hosts" in groups:
        _add_hosts(source)
    if "fleet" in groups:
        _add_fleet(source)
    if "replay" in groups:
        source.add_argument(
            "--replay",
            type=Path,
            metavar="FILE",
            help="play a recording; `stream --output` or r in the dashboard makes one",
        )
    return parent


def _add_devices(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--id",
        "-i",
        action="extend",
        type=imported("gputop.agent.selection", "parse_ids"),
        metavar="LIST",
        help="only these GPUs; indices, PCI addresses or starts of UUIDs, such as 0,2",
    )
    group.add_argument(
        "--only-visible",
        action="store_true",
        help="only GPUs that CUDA_VISIBLE_DEVICES leaves visible",
    )


def _add_processes(group: argparse._ArgumentGroup) -> None:
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


def _add_hosts(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--host",
        action="extend",
        type=imported("gputop.stream.host_names", "parse_hosts"),
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


def _add_fleet(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--prometheus",
        type=imported("gputop.commands.fleet", "parse_url"),
        metavar="URL",
        help="GPUs known to a Prometheus server; URL is such as http://prometheus:9090; to sign "
        "in, set GPUTOP_PROMETHEUS_TOKEN_FILE, _USER and _PASSWORD, _CERT, _KEY and _CA, or use "
        "~/.netrc; GPUTOP_PROMETHEUS_HEADERS adds headers, such as 'X-Scope-OrgID: TENANT'",
    )
    group.add_argument(
        "--match",
        type=imported("gputop.commands.fleet", "parse_match"),
        metavar="LABELS",
        help="""only these GPUs of the fleet, as PromQL matchers: 'cluster="a",rack=~"r1.*"'""",
    )


def add_python(parser: argparse.ArgumentParser, about: str) -> None:
    """Add `--python`, which may also be given before the command."""
    parser.add_argument(
        "--python",
        type=python_path,
        metavar="PATH",
        default=SUPPRESS,
        help=about,
    )
