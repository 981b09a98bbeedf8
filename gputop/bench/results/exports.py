"""The options of `gputop bench` for what becomes of results: listed, and written to files."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gputop.problem import Problem
from gputop.text import visible

if TYPE_CHECKING:
    import argparse

    from gputop.bench.events import Result
    from gputop.bench.run.state import Course


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--history`, `--csv`, `--report`, `--force` and `--tensorboard`."""
    parser.add_argument(
        "--history", action="store_true", help="earlier results (of --device), newest first"
    )
    parser.add_argument(
        "--csv", action="store_true", help="the result, or the history, as comma-separated values"
    )
    parser.add_argument(
        "--report", metavar="FILE", help="also write the run as one HTML page, to send to somebody"
    )
    parser.add_argument(
        "--force", action="store_true", help="with --report: overwrite a file that is no report"
    )
    parser.add_argument(
        "--tensorboard",
        metavar="DIR",
        help="also write the run as scalars, into a folder of its own in DIR; to see them: "
        "`tensorboard --logdir DIR`",
    )


def misuse(args: argparse.Namespace) -> str | None:
    """Return which options do not go together, in a line; None where all do."""
    if args.json and args.csv:
        return "--json and --csv are two forms of one thing. Choose one of them."
    if args.history and (args.report or args.tensorboard):
        return "--report and --tensorboard write a run, and --history runs nothing. Leave it out."
    if args.force and not args.report:
        return "--force is for --report. Add --report FILE, or leave it out."
    return None


def unwritable(args: argparse.Namespace) -> Problem | None:
    """Why a file could not be written after the run, found out before it; None where it can."""
    no_file = partial(_no_file, force=args.force)
    for name, refused in ((args.report, no_file), (args.tensorboard, _no_folder)):
        if name is None:
            continue
        try:
            problem = refused(Path(name))
        except OSError as error:  # one may not look there, or nothing can be called so
            why = error.strerror or str(error)
            problem = _unwritten(Path(name), why, "Name another one")
        if problem is not None:
            return problem
    return None


def _no_file(file: Path, *, force: bool) -> Problem | None:
    from gputop.bench.results.html_report import is_report
    from gputop.files import check_target

    if file.is_dir():
        return _unwritten(file, "it is a directory", "Name a file in it")
    if not file.parent.is_dir():
        return _unwritten(file, "there is no such folder", "Make it, or name another file")
    if not os.access(file.parent, os.W_OK | os.X_OK):
        return _unwritten(file, "its folder may not be written to", "Name another file")
    check_target(file)
    if not force and file.exists() and not is_report(file):
        why = "it is there and is no report of gputop"
        return _unwritten(file, why, "Name another file, or add --force")
    return None


def _no_folder(wanted: Path) -> Problem | None:
    folder = wanted
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
        return None
    why = f"{visible(str(folder))} is no folder that may be written to"
    return _unwritten(wanted, why, "Name another one")


def write(args: argparse.Namespace, result: Result, course: Course) -> list[Problem]:
    """Writes what was asked for; what could not be written, and why."""
    problems = []
    if args.report is not None:
        from gputop.bench.results.html_report import page
        from gputop.files import write_whole

        try:
            write_whole(Path(args.report), page(result, course).encode())
        except OSError as error:
            problems.append(_failed(Path(args.report), error))
    if args.tensorboard is not None:
        from gputop.bench.results import tensorboard

        try:
            tensorboard.write(Path(args.tensorboard), result, course)
        except OSError as error:
            problems.append(_failed(Path(args.tensorboard), error))
    return problems


def _failed(file: Path, error: OSError) -> Problem:
    remedy = "Free some space or see the permissions, and run the test again"
    return _unwritten(file, error.strerror or str(error), remedy)


def _unwritten(file: Path, why: str, remedy: str) -> Problem:
    return Problem(f"{visible(str(file))} cannot be written", why, remedy)
