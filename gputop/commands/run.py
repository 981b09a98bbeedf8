"""`gputop run`: run a training with the dashboard beside it, so that it outlives both.

Without a terminal the output is printed as the command writes it, and kept as well.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gputop.commands.arguments import fail, print_text
from gputop.commands.options import argument_type
from gputop.console import (
    COULD_NOT_RUN,
    FINE,
    USAGE,
    print_message,
    terminal_size,
)
from gputop.text import duration, visible

if TYPE_CHECKING:
    from subprocess import Popen

    from gputop.training.runs import Run
    from gputop.training.steps import Parse

COPY_SECONDS = 0.1
"""Seconds between two looks at the output without a terminal."""


@argument_type
def parse_pattern(text: str) -> Parse:
    """Parse the regular expression of steps."""
    from gputop.training.steps import pattern_parser

    return pattern_parser(text)


def add_pattern(parser: argparse.ArgumentParser) -> None:
    """Add `--pattern`."""
    parser.add_argument(
        "--pattern",
        type=parse_pattern,
        metavar="REGEX",
        help="how a line tells the step, if gputop does not see it, with groups such as "
        "'it (?P<step>[0-9]+).*loss=(?P<loss>[0-9.]+)'",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gputop run`."""
    parser.usage = "gputop run [OPTIONS] -- COMMAND ..."
    parser.description = (
        "Run a command, such as a training, and show it beside the GPUs. The command goes on if "
        "the dashboard is left, the connection drops or the terminal closes: `gputop run --attach` "
        "comes back to it. Its output is kept in a file. Without a terminal, as in a batch job, "
        "the output is printed instead. Exit status: that of the command."
    )
    parser.add_argument(
        "words", nargs="*", metavar="COMMAND", help="the command, after `--`"
    )
    parser.add_argument(
        "--attach",
        nargs="?",
        const="",
        metavar="RUN",
        help="show a run again: the one that is running, or the start of a name from --list",
    )
    parser.add_argument(
        "--list", action="store_true", help="all runs, the newest first"
    )
    add_pattern(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command, or show a run again. Return the exit status of the command."""
    from gputop.training.runs import RunError

    if arguments.list:
        return _list()
    attaches = arguments.attach is not None
    if attaches == bool(arguments.words):
        fail(
            "Give a command: `gputop run -- python train.py`, or --attach.",
            USAGE,
        )
    try:
        if attaches:
            return _attach(arguments)
        return _start(arguments)
    except RunError as error:
        fail(f"{error}.", COULD_NOT_RUN)


def _list() -> int:
    from gputop.training.runs import all_runs

    runs = all_runs()
    if not runs:
        print_message("there is no run yet: `gputop run -- python train.py`")
    for each in runs:
        command = visible(" ".join(each.command), 60)
        print_text(f"{each.name}  {_state(each)}  {command}")
    return FINE


def _state(run: Run) -> str:
    if run.ended is not None:
        state = f"exit {run.status}, ran {duration(run.ended - run.started)}"
    elif run.is_running:
        state = f"running for {duration(time.time() - run.started)}"
    else:
        state = "its relay was killed"
    return f"{state:<26}"


def _start(arguments: argparse.Namespace) -> int:
    from gputop.training.runs import start_run

    program = arguments.words[0]
    if shutil.which(program) is None:
        why = "it is not in PATH"
        if "/" in program:
            why = (
                "it cannot be executed"
                if Path(program).exists()
                else "there is no such file"
            )
        fail(
            f"{program} was not started: {why}. Check the command.",
            COULD_NOT_RUN,
        )
    columns, rows = terminal_size()
    run, relay = start_run(arguments.words, columns, rows)
    return _print_output(run, relay)


def _print_output(run: Run, relay: Popen[bytes]) -> int:
    """Copy the output to standard output until the command has ended."""
    from gputop.training.runs import (
        copy_output,
        exit_status,
        pass_on_signals,
        read_run,
    )

    pass_on_signals(relay)
    print_message(f"the output is also in {run.folder}")
    try:
        for _ in copy_output(run, sys.stdout.fileno()):
            time.sleep(COPY_SECONDS)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    relay.wait()
    ended = read_run(run.folder)
    if ended is None or ended.status is None:
        fail(
            "the command was lost: its relay was killed. Start it again.",
            COULD_NOT_RUN,
        )
    if ended.lost_bytes:
        print_message(
            f"{ended.lost_bytes} bytes of the output are lost: the disk was full"
        )
    return exit_status(ended.status)


def _attach(arguments: argparse.Namespace) -> int:
    from gputop.training.runs import find_run

    run = find_run(arguments.attach or None)
    print_message(f"{run.name}: {_state(run).strip()}")
    return FINE
