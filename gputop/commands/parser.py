"""The parser of the command line, with a subparser for each command."""

from __future__ import annotations

import argparse
from argparse import BooleanOptionalAction
from collections.abc import Collection, Sequence
from importlib import import_module
from pathlib import Path

from gputop.commands import options
from gputop.commands.arguments import Parser, fail
from gputop.console import USAGE
from gputop.settings import AUTO, THEMES

COMMANDS = {
    "status": "the devices, a line each, as text or JSON; once, or every few seconds",
    "run": "run a training with the dashboard beside it, so that it outlives both",
    "bench": "a stress test without the dashboard",
    "pick": "the idlest devices, for CUDA_VISIBLE_DEVICES",
    "wait": "until a GPU is idle, has free memory or a fault, or a process has ended",
    "why": "what slows the GPUs, or is wrong: watch for half a minute, and say what to do",
    "doctor": "check driver, devices and torch; say what to do about problems",
    "stream": "snapshots as JSON lines or CSV, until stopped",
    "exporter": "metrics for Prometheus, over HTTP, until stopped",
    "schema": "JSON Schema of what other commands print",
    "completion": "shell completion for bash, zsh or fish",
}
"""Commands in the order of the help, with their help texts."""

DASHBOARD = (
    "interval",
    "gpm",
    "devices",
    "processes",
    "demo",
    "hosts",
    "fleet",
    "replay",
)
"""Shared options of the dashboard. They are also allowed before a command that has them."""
SHARED = {
    "status": (
        "gpm",
        "devices",
        "processes",
        "demo",
        "hosts",
        "fleet",
        "replay",
    ),
    "run": ("interval", "gpm", "devices", "demo"),
    "pick": ("demo", "hosts"),
    "wait": ("devices", "demo", "hosts"),
    "why": ("gpm", "devices", "demo", "hosts", "replay"),
    "stream": (
        "interval",
        "gpm",
        "devices",
        "processes",
        "demo",
        "hosts",
        "replay",
    ),
    "exporter": ("interval", "gpm", "devices", "processes", "demo"),
}
"""Shared options of each command."""


def parser(words: Collection[str] = tuple(COMMANDS)) -> Parser:
    """Return the parser, with the options of only those commands that occur in `words`.

    Adding the options of all commands would take 5 % of the dashboard's start.
    """
    top = Parser(
        prog="gputop",
        usage="gputop [OPTIONS] [COMMAND ...]",
        description="A terminal dashboard for NVIDIA GPUs, with a stress test on one key.",
        epilog="`gputop COMMAND --help` has the options of a command.",
        allow_abbrev=False,
        parents=[options.shared(DASHBOARD, default=None)],
    )
    top.set_defaults(parser=top)
    _add_dashboard_options(top)
    commands = top.add_subparsers(
        dest="command",
        metavar="COMMAND",
        prog="gputop",
    )
    for name, about in COMMANDS.items():
        if name not in words:
            commands.add_parser(name, help=about)
            continue
        shared = options.shared(SHARED.get(name, ()))
        command = commands.add_parser(
            name, help=about, allow_abbrev=False, parents=[shared]
        )
        command.set_defaults(parser=command)
        import_module(f"gputop.commands.{name}").add_arguments(command)
    return top


def _add_dashboard_options(top: Parser) -> None:
    top.add_argument(
        "--version",
        "-V",
        action="store_true",
        help="show the version and exit; `gputop doctor` shows all that a bug report needs",
    )
    top.add_argument(
        "--list-gpus",
        "-L",
        action="store_true",
        help="the same as `gputop status --list-gpus`",
    )
    top.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="record what the dashboard shows to a new file, as r does",
    )
    top.add_argument(
        "--show-secrets",
        action=BooleanOptionalAction,
        help="show passwords and tokens in command lines and environments; only on this screen "
        "and of this machine: recordings and other hosts mask them",
    )
    top.add_argument(
        "--python",
        type=options.python_path,
        metavar="PATH",
        help="the interpreter whose torch runs stress tests (default: the active environment's)",
    )
    screen = top.add_argument_group(
        "the dashboard", "settings of its file, too"
    )
    themes = (AUTO, *THEMES)
    screen.add_argument(
        "--theme",
        choices=themes,
        metavar="NAME",
        help=f"{' '.join(themes)}; auto suits the terminal",
    )
    screen.add_argument(
        "--ascii",
        action=BooleanOptionalAction,
        help="draw with ASCII characters only (default: if TERM=linux or the locale is not UTF-8)",
    )
    screen.add_argument(
        "--mouse",
        action=BooleanOptionalAction,
        help="use the mouse, or leave it to the terminal (default: use it)",
    )
    screen.add_argument(
        "--bell",
        action=BooleanOptionalAction,
        help="ring the terminal's bell at a new alert",
    )
    screen.add_argument(
        "--notes",
        action=BooleanOptionalAction,
        help="have the terminal show a note when a job ends, a GPU becomes free or a fault appears",
    )
    screen.add_argument(
        "--on-event",
        metavar="COMMAND",
        help="run a command on these events, with the text as its last argument: notify-send",
    )
    screen.add_argument(
        "--readonly",
        action=BooleanOptionalAction,
        help="never signal a process",
    )
    screen.add_argument(
        "--config",
        metavar="FILE",
        help="the settings file (default: gputop/config.toml in $XDG_CONFIG_HOME)",
    )


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Return the arguments of a command line. End the program if the command line is wrong."""
    arguments, unknown = parser(words).parse_known_args(words)
    if unknown:
        arguments.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if arguments.command is not None:
        _refuse_others(arguments)
    return arguments


def _refuse_others(arguments: argparse.Namespace) -> None:
    """End the program if an option before the command does not apply to the command."""
    dashboard = options.shared(DASHBOARD, default=None).parse_args([])
    for name, unset in [*vars(dashboard).items(), ("list_gpus", False)]:
        has_option = arguments.parser.get_default(name) == argparse.SUPPRESS
        if getattr(arguments, name) != unset and not has_option:
            option = f"--{name.replace('_', '-')}"
            remedy = "Leave it out"
            if (arguments.command, name) == ("bench", "id"):
                remedy = f"Choose with --device {','.join(arguments.id)}"
            fail(
                f"{option} is not for `{arguments.command}`. {remedy}.", USAGE
            )
