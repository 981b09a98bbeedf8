"""argv → command. Imports nothing heavy before it knows which."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from gputop import __version__
from gputop.telemetry.control import LONGEST_INTERVAL, SHORTEST_INTERVAL
from gputop.text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

FINE, USAGE, COULD_NOT_RUN, INTERRUPTED = 0, 2, 3, 130
OUTPUT_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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
    """How many samples, as an argument."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count: give a whole number from 1.")
    return number


def parser() -> Parser:
    """Every command and option."""
    from gputop.bench import plan
    from gputop.bench.command import add_arguments, argument
    from gputop.settings import AUTO, THEMES

    top = Parser(
        prog="gputop",
        description="A terminal dashboard for NVIDIA GPUs, with a stress test on one key.",
        epilog="Without a command: the dashboard, or `status` where there is no terminal.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"gputop {__version__}")
    top.set_defaults(interval=None, demo=False, gpm=None)  # None: not said here
    _add_source(top)
    top.add_argument(
        "--python",
        type=argument(plan.parse_python),
        metavar="PATH",
        help="the interpreter whose torch runs stress tests (default: the active environment's)",
    )
    screen = top.add_argument_group("the dashboard", "also kept in its settings file")
    screen.add_argument(
        "--theme", choices=(AUTO, *THEMES), help="the colours (default: what suits the terminal)"
    )
    for name, what in SWITCHES.items():
        screen.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, help=what)
    screen.add_argument(
        "--config",
        metavar="FILE",
        help="the settings file (default: gputop/config.toml in $XDG_CONFIG_HOME)",
    )
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)

    status = commands.add_parser("status", help="one snapshot, as text or JSON", allow_abbrev=False)
    status.add_argument("--json", action="store_true", help="as one JSON document")
    _add_demo(status)

    stream = commands.add_parser(
        "stream", help="snapshots as JSON lines, until stopped", allow_abbrev=False
    )
    _add_source(stream)
    stream.add_argument("--count", type=count, metavar="N", help="stop after N samples")
    stream.add_argument("--control", action="store_true", help=argparse.SUPPRESS)

    bench = commands.add_parser(
        "bench", help="a stress test without the dashboard", allow_abbrev=False
    )
    add_arguments(bench)
    return top


SWITCHES = {
    "ascii": "draw in ASCII alone (default: where TERM=linux, or the locale is not UTF-8)",
    "mouse": "take the mouse, or leave it to the terminal (default: take it)",
    "bell": "ring the terminal's bell at a new alert",
    "readonly": "never signal a process",
}
"""Settings of the dashboard that are on or off."""


def _add_source(command: argparse.ArgumentParser) -> None:
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
        help="read the devices' profiling counters: SM, tensor and DRAM activity (default: yes)",
    )
    _add_demo(command)


def _add_demo(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--demo",
        action="store_true",
        default=argparse.SUPPRESS,
        help="simulated devices, marked as such",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    try:
        return run(parser().parse_args(argv))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return FINE
    except OSError as error:
        if error.errno not in OUTPUT_FULL:
            raise
        _drop_output()
        fail(
            f"standard output cannot be written: {error.strerror}. Free some space, or write "
            "elsewhere.",
            COULD_NOT_RUN,
        )


def _drop_output() -> None:
    """Nobody takes what is still buffered; without this the interpreter complains at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(arguments: argparse.Namespace) -> int:
    """The command that was asked for."""
    if getattr(sys, "stdout", None) is None:  # as Python has it where the shell said `>&-`
        fail("standard output is closed. Open it, or send it to a file.", COULD_NOT_RUN)
    match arguments.command:
        case "stream":
            from gputop.telemetry.stream import run as stream

            return stream(
                interval=1.0 if arguments.interval is None else arguments.interval,
                count=arguments.count,
                demo=arguments.demo,
                gpm=arguments.gpm is not False,
                control=arguments.control,
            )
        case "bench":
            if arguments.demo:
                fail("simulated devices do no work: leave --demo out to test a real one.", USAGE)
            from gputop.bench.command import run as bench

            return bench(arguments)
        case "status":
            return status(demo=arguments.demo, json=arguments.json)
    if not (os.isatty(0) and os.isatty(1)):
        return status(demo=arguments.demo, json=False)
    if os.environ.get("TERM", "dumb") in ("", "dumb"):
        fail(
            "this terminal cannot draw a dashboard: TERM is dumb or not set. "
            "Set TERM=xterm-256color, or use `gputop status`.",
            COULD_NOT_RUN,
        )
    from gputop import settings
    from gputop.ui.start import run as dashboard

    given = {key: getattr(arguments, key, None) for key in settings.KEYS}
    config = settings.path(arguments.config)
    kept, problems = settings.load(
        config, given={key: value for key, value in given.items() if value is not None}
    )
    return dashboard(
        settings=kept,
        problems=problems,
        config=config,
        demo=arguments.demo,
        python=arguments.python,
    )


def status(*, demo: bool, json: bool) -> int:
    """Prints one snapshot; the driver's problem, if there is one, goes to standard error."""
    import asyncio

    from gputop.output.page import document, page
    from gputop.telemetry.child import StreamError, one_snapshot

    try:
        inventory, sample = asyncio.run(one_snapshot(demo=demo))
    except StreamError as error:
        fail(str(error), COULD_NOT_RUN)
    if json:
        from json import dumps

        print(dumps(document(inventory, sample), indent=2))
    else:
        # Whatever the locale says: a "–" that becomes a "?" would say something else.
        sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
        width = os.get_terminal_size(1).columns if sys.stdout.isatty() else None
        print(page(inventory, sample, width or None))
    sys.stdout.flush()
    if inventory.problem is not None:
        fail(str(inventory.problem), COULD_NOT_RUN)
    return FINE
