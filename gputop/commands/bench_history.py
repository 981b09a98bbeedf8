"""Stored results: `gputop bench --history` and `--compare`."""

from __future__ import annotations

import argparse
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from gputop.agent.problem import ProblemError
from gputop.bench.plan import target_choice
from gputop.bench.plan.request import RunRefusedError
from gputop.bench.results import store
from gputop.bench.results.differences import comparison_page
from gputop.commands.arguments import output_width, print_json, print_text
from gputop.commands.bench_results import show_page
from gputop.console import FINE, USAGE, print_message
from gputop.output.result_pages import result_list
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.bench.events import Result


def history(args: argparse.Namespace) -> int:
    """Print the stored results of one device, or of all."""
    named = [each for each in args.device or () if each != target_choice.ALL]
    if len(args.device or ()) > 1:
        raise RunRefusedError(
            "--history lists one device, or all. Name one with --device.",
            USAGE,
        )
    if any(":" in device for device in named):
        raise RunRefusedError(
            "Results have the index and the UUID of a GPU. Name it by one of them.",
            USAGE,
        )
    unread: list[ProblemError] = []
    try:
        results = store.recent(unread=unread)
    except ProblemError as error:
        raise RunRefusedError(f"{error}.") from None
    for problem in unread:
        print_message(f"warning: {problem}.")
    for device in named:
        results = [each for each in results if _is_of(each, device)]
    if args.json:
        print_json([asdict(result) for result in results])
    elif results:
        print_text(result_list(results, output_width()))
    else:
        print_text(" of ".join(["No results", *named]))
    return FINE


def _is_of(result: Result, device: str) -> bool:
    """Return True for a result of a device, whose index is that at the time of the run."""
    uuid = result.device_uuid
    if device == target_choice.CPU:
        return uuid is None
    if device.isdecimal():
        return result.device_index == int(device)
    return (uuid or "").lower().startswith(device.lower())


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
