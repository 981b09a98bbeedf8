"""One table of the options that exclude each other or need each other."""

from __future__ import annotations

from argparse import Namespace
from typing import NamedTuple

from gputop.commands.arguments import fail, hosts_of
from gputop.console import USAGE
from gputop.stream.ssh import MOST_HOSTS


class Refusal(NamedTuple):
    """Options that have no meaning beside another one, or without it."""

    options: tuple[str, ...]
    message: str
    """Error, with a place for the option."""
    beside: str = ""
    """Option or command beside which they have no meaning; empty for everywhere."""
    without: tuple[str, ...] = ()
    """They have no meaning if one of these is missing; empty for always."""


DASHBOARD = "dashboard"
"""Word for the dashboard, which has no name among the commands."""
MEASURED = ("--gpm", "--no-gpm", "--id", "--only-visible")
PROCESSES = ("--user", "--pid", "--compute")
TABLE = ("--sort", "--top")
PAGE = ("--columns", "--processes", "--no-processes", *TABLE)
ON_SCREEN = ("--record", "--show-secrets")

REFUSALS = (
    Refusal(
        ("--demo", "--host", "--interval", *ON_SCREEN, *MEASURED),
        "{} is not for a recording. Leave it out, or --replay.",
        beside="--replay",
    ),
    Refusal(
        ("--watch",),
        "{} is not for a recording. Leave it out, or play it with gputop --replay.",
        beside="--replay",
    ),
    Refusal(
        ("--seconds",),
        "{} is not for a recording, which is read whole. Leave it out.",
        beside="--replay",
    ),
    Refusal(
        (
            *("--demo", "--host", "--replay", "--by-user"),
            *(*ON_SCREEN, *MEASURED, *PROCESSES, *PAGE),
        ),
        "{} is not for a fleet. Leave it out, or --prometheus.",
        beside="--prometheus",
    ),
    Refusal(
        ("--match",),
        "{} is for a fleet. Name its server with --prometheus URL.",
        without=("--prometheus",),
    ),
    Refusal(
        ("--demo", "--id", "--only-visible"),
        "{} is not for other machines. Leave it out, or --host.",
        beside="--host",
    ),
    Refusal(
        ("--watch",),
        "{} is not for other machines. Leave it out, or see `gputop --host NAME`.",
        beside="--host",
    ),
    Refusal(
        ("--show-secrets",),
        "{} is not for other machines: they mask theirs. Leave it out.",
        beside="--host",
    ),
    Refusal(
        ("--remote-command",),
        "{} is for other machines. Name one with --host.",
        without=("--host",),
    ),
    Refusal(
        ("--record",),
        "{} is for the dashboard. Try `gputop stream --output FILE`.",
        without=(DASHBOARD,),
    ),
    Refusal(
        ("--show-secrets",),
        "{} is for the dashboard: what is printed is masked. Leave it out.",
        without=(DASHBOARD,),
    ),
    Refusal(
        PAGE,
        "{} is not for JSON, which has every reading. Leave it out, or --json.",
        beside="--json",
    ),
    Refusal(
        PAGE,
        "{} is not for totals by user. Leave it out, or --by-user.",
        beside="--by-user",
    ),
    Refusal(
        TABLE,
        "{} is not for a page without them. Leave it out, or --no-processes.",
        beside="--no-processes",
    ),
    Refusal(
        (
            "--json",
            "--watch",
            "--prometheus",
            "--columns",
            "--by-user",
            *TABLE,
        ),
        "{} is not for a list of the GPUs. Leave it out, or --list-gpus.",
        beside="--list-gpus",
    ),
    Refusal(
        PROCESSES,
        "{} is not for metrics of devices. Leave it out, or add --processes.",
        beside="exporter",
        without=("--processes",),
    ),
    Refusal(
        ("--certfile", "--keyfile", "--client-cafile"),
        "TLS needs --certfile and --keyfile. Give both.",
        without=("--certfile", "--keyfile"),
    ),
)


def check(arguments: Namespace, *, is_dashboard: bool) -> None:
    """End the program with a remedy if options contradict each other."""
    given = _given(arguments)
    if is_dashboard:
        given.add(DASHBOARD)
    for refusal in REFUSALS:
        if refusal.beside and refusal.beside not in given:
            continue
        if refusal.without and given.issuperset(refusal.without):
            continue
        for option in refusal.options:
            if option in given:
                fail(refusal.message.format(option), USAGE)
    if len(hosts_of(arguments)) > MOST_HOSTS:
        fail(
            f"More than {MOST_HOSTS} hosts are named. Watch fewer at a time.",
            USAGE,
        )


def _given(arguments: Namespace) -> set[str]:
    """Return the command and the given options. An option that is off is its `--no-` form."""
    words = {arguments.command or ""}
    for name, value in vars(arguments).items():
        option = name.replace("_", "-")
        if value is False:
            words.add(f"--no-{option}")
        elif value:
            words.add(f"--{option}")
    return words
