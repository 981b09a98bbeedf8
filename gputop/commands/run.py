"""`gputop run`: run a training with the dashboard beside it, so that it outlives both.

Without a terminal the output is printed as the command writes it, and kept as well.
"""

from __future__ import annotations

import argparse
import os
import shlex
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
    from collections.abc import Callable
    from subprocess import Popen

    from gputop.training.follow import Training
    from gputop.training.runs import Run
    from gputop.training.screens.tab import TrainingTab
    from gputop.training.steps import Parse
    from gputop.ui.shell.tabs import ExtraTab
    from gputop.ui.telemetry import Telemetry

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
        "the output is printed instead. Exit status: that of the command, if it has ended."
    )
    parser.add_argument(
        "words", nargs="*", metavar="COMMAND", help="the command, after `--`"
    )
    parser.add_argument(
        "--attach",
        nargs="?",
        const="",
        metavar="RUN",
        help="come back to the newest run, to the one whose name begins so (see --list), or show "
        "a process, by its pid, whose output goes to a file",
    )
    parser.add_argument(
        "--list", action="store_true", help="all runs, the newest first"
    )
    add_pattern(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command without a dashboard, or come back to it; return its exit status."""
    _check(arguments)
    if arguments.list:
        return _list()
    if not arguments.words and arguments.attach is None:
        fail("The simulated training needs a terminal. Give a command.", USAGE)
    from gputop.training.runs import RunError, find_run

    try:
        if arguments.attach is not None:
            return _print_output(find_run(arguments.attach or None), None)
        return _print_output(*_start(arguments))
    except RunError as error:
        fail(f"{error}.", COULD_NOT_RUN)


def run_beside(arguments: argparse.Namespace, show: Callable[..., int]) -> int:
    """Run the command or come back to it, beside the dashboard, which `show` shows."""
    _check(arguments)
    if arguments.list:
        return _list()
    from gputop.training.follow import training_of
    from gputop.training.runs import RunError

    parse = arguments.pattern
    if not arguments.words and arguments.attach is None:
        return show(arguments, demo_tab(is_first=True))
    try:
        if arguments.attach is not None:
            training = _attach(arguments.attach, parse)
        else:
            training = training_of(_start(arguments)[0], parse)
    except RunError as error:
        fail(f"{error}.", COULD_NOT_RUN)
    status = show(arguments, tab_of(training))
    return _state_after(training, status)


def tab_of(training: Training, *, is_first: bool = True) -> ExtraTab:
    """Return the tab of a training."""
    from gputop.ui.shell.tabs import ExtraTab

    def make(telemetry: Telemetry) -> TrainingTab:
        from gputop.training.screens.tab import TrainingTab

        return TrainingTab(training, telemetry)

    return ExtraTab("training", "4 Training", make, is_first)


def demo_tab(*, is_first: bool = False) -> ExtraTab:
    """Return the tab of the simulated training."""
    from gputop.training.demo import SimulatedTraining

    return tab_of(SimulatedTraining(), is_first=is_first)


def _check(arguments: argparse.Namespace) -> None:
    """End the program unless there is one thing to do."""
    asked = [
        bool(arguments.words),
        arguments.attach is not None,
        arguments.list,
    ]
    if sum(asked) == 1 or (arguments.demo and not any(asked)):
        return
    what = "Give a command: `gputop run -- python train.py`"
    if any(asked):
        what = "Give one of a command, --attach and --list"
    fail(f"{what}.", USAGE)


def _attach(name: str, parse: Parse | None) -> Training:
    """Return a run, or the process with that pid. Raises `RunError`."""
    from gputop.training.follow import attach, training_of
    from gputop.training.runs import RunError, find_run

    try:
        return training_of(find_run(name or None), parse)
    except RunError:
        if not name.isdecimal():
            raise
    return attach(int(name), parse)


def _state_after(training: Training, status: int) -> int:
    """Return the exit status of the command, or say that it goes on."""
    from gputop.training.runs import exit_status, read_run

    if training.run is None:
        return status
    run = read_run(training.run.folder) or training.run
    if run.status is not None:
        return exit_status(run.status)
    if run.is_running:
        print_message(
            f"the command goes on as pid {run.pid}: `gputop run --attach` comes back to it"
        )
    return status


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


def _start(arguments: argparse.Namespace) -> tuple[Run, Popen[bytes]]:
    """Start the command. End the program if there is no such command."""
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
            f"{shlex.quote(program)} was not started: {why}. Check the command.",
            COULD_NOT_RUN,
        )
    columns, rows = terminal_size()
    return start_run(arguments.words, columns, rows)


def _print_output(run: Run, relay: Popen[bytes] | None) -> int:
    """Copy the output to standard output until the command has ended."""
    from gputop.training.runs import (
        copy_output,
        exit_status,
        pass_on_signals,
        read_run,
    )

    if relay is not None:
        pass_on_signals(relay)
    print_message(f"the output is also in {run.folder}")
    try:
        for _ in copy_output(run, sys.stdout.fileno()):
            time.sleep(COPY_SECONDS)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if relay is not None:
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
