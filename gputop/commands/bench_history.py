"""Stored results: `gputop bench --history` and `--compare`."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gputop.agent.problem import ProblemError
from gputop.bench.plan import target_choice
from gputop.bench.plan.request import RunRefusedError
from gputop.bench.results import exports, store
from gputop.bench.results.differences import comparison_page
from gputop.commands.arguments import output_width, print_text
from gputop.commands.bench_results import show_page
from gputop.console import FINE, USAGE
from gputop.output.result_pages import result_list
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.bench.events import Result


def history(args: argparse.Namespace) -> int:
    """Print the stored results of one device, or of all."""
    named = args.device or ()
    if len(named) > 1:
        raise RunRefusedError(
            "--history lists one device, or all. Name one with --device.",
            USAGE,
        )
    device = None
    if named and named != (target_choice.ALL,):
        device = named[0]
    try:
        results = exports.kept_results(device)
    except (ProblemError, ValueError) as error:
        raise RunRefusedError(f"{error}.") from None
    if args.json:
        print_text(exports.documents(results))
    elif results:
        print_text(result_list(results, output_width()))
    else:
        print_text(f"No results of {device}" if device else "No results")
    return FINE


def compare(args: argparse.Namespace) -> int:
    """Print the differences between two results. The history shows the scatter of equal runs."""
    before, after = map(_result, args.compare)
    known: list[Result] = []
    with suppress(ProblemError):
        known = [*store.of_device(after.device_uuid, after.device)]
    return show_page(comparison_page(before, after, known), args)


def _result(named: str) -> Result:
    """Return the result in a file, or a result of the history by its number."""
    try:
        if not named.isdecimal() or Path(named).exists():
            return store.read(Path(named))
        return store.recent(int(named))[int(named) - 1]
    except OSError as error:
        why = error.strerror or str(error)
    except IndexError:
        why = "the history has no such result"
    except (ProblemError, ValueError) as error:
        why = str(error)
    raise RunRefusedError(f"{visible(named)} cannot be compared: {why}.")
