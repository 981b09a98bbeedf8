"""Store, print and export the results of finished runs, and choose the exit status."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputop.agent.lines import to_plain
from gputop.bench.events import SCHEMA
from gputop.bench.results.html_report import html_page
from gputop.bench.results.measures import wrong_results
from gputop.bench.results.outcome import outcome_of
from gputop.bench.results.outliers import (
    device_outcome,
    devices_page,
    outliers_document,
)
from gputop.bench.results.page import device_blocks, result_page, rows_page
from gputop.bench.results.verdict import VerdictLimits
from gputop.bench.run.keep import keep
from gputop.commands.arguments import (
    INDENT,
    output_width,
    print_page,
    wants_colour,
)
from gputop.commands.bench import unwritten
from gputop.console import (
    COULD_NOT_RUN,
    DEGRADED,
    FAULT,
    FINE,
    INTERRUPTED,
    discard_output,
    print_message,
    print_output,
)
from gputop.files import write_whole
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.bench.results.outliers import DeviceOutcome
    from gputop.bench.results.page import Block, Page
    from gputop.bench.run.device_run import DeviceRun


GRAVEST_FIRST = (FAULT, INTERRUPTED, COULD_NOT_RUN, DEGRADED, FINE)


def show_page(page: Page, args: argparse.Namespace) -> int:
    """Print a page, wrapped at words and in colour on a terminal, and return the exit status.

    The method needs `--verbose`.
    """
    from gputop.output.result_pages import page_text

    text = page_text(
        page,
        output_width(),
        details=args.verbose,
        colour=wants_colour(),
    )
    try:
        print_page(text)
    except BrokenPipeError:
        discard_output()
    except OSError as error:
        print_message(f"error: the page cannot be printed: {error.strerror}.")
        discard_output()
        return COULD_NOT_RUN
    return FINE


def report_runs(runs: Sequence[DeviceRun], args: argparse.Namespace) -> int:
    """Store, print and export results. Return the gravest exit status of all devices."""
    warn_unkept(keep_runs(runs, args))
    # All ranks of a collective have the same rows, or one problem.
    shown = runs[:1] if args.kind == "collective" else runs
    printed = FINE
    if args.json:
        documents = [_document(run) for run in runs]
        print_json(documents if len(runs) > 1 else documents[0])
    elif page := _page(runs, shown):
        printed = show_page(page, args)
    for problem in filter(None, (run.problem for run in shown)):
        print_message(f"error: {problem}")
    status = gravest([printed, *(_status(run, args) for run in runs)])
    if args.report is None or shown[0].result is None:
        return status
    written = write_report(
        args, html_page(shown[0].result, shown[0].history())
    )
    return COULD_NOT_RUN if not written and status == FINE else status


def report_devices(
    members: Sequence[DeviceOutcome], args: argparse.Namespace
) -> int:
    """Print a page about many devices. Return the gravest exit status."""
    printed = FINE
    if args.json:
        print_json(outliers_document(members))
    elif members:
        printed = show_page(devices_page(members), args)
    statuses = [each.outcome.status for each in members]
    return gravest([*statuses, printed if members else COULD_NOT_RUN])


def print_json(document: object) -> None:
    print_output(json.dumps(document, indent=INDENT, allow_nan=False))


def report(
    ends: Sequence[DeviceRun],
    not_begun: Sequence[DeviceOutcome],
    args: argparse.Namespace,
) -> int:
    """Store and print results; print a cluster as its outliers. Return the gravest status."""
    # Ranks of a collective have the same rows, or one problem.
    if args.ray is None or args.kind == "collective":
        return gravest(
            [report_runs(ends, args), *(each.status for each in not_begun)]
        )
    warn_unkept(keep_runs(ends, args))
    return report_devices([*map(device_outcome, ends), *not_begun], args)


def gravest(statuses: Sequence[int]) -> int:
    """Return the gravest status. A fault is the gravest; `FINE` needs all to be fine."""
    return min(statuses, key=GRAVEST_FIRST.index)


def warn_unkept(problems: Sequence[str]) -> None:
    """Print why results were not stored."""
    for problem in problems:
        print_message(f"warning: {problem}")


def keep_runs(
    runs: Sequence[DeviceRun],
    args: argparse.Namespace,
    check_started_at: float | None = None,
) -> list[str]:
    """Judge and store the results. Return the problems, each once."""
    limits = VerdictLimits(args.min_percent_of_peak, args.tolerance)
    return keep(runs, limits, check_started_at)


def _status(run: DeviceRun, args: argparse.Namespace) -> int:
    result = run.result
    if result is None:
        return run.status or COULD_NOT_RUN
    if result.wrong_elements:
        wrong = wrong_results(result.wrong_elements, result.checks)
        advice = "Do not train on it; run the test again to be sure."
        print_message(f"error: {run.request.target.label} {wrong}. {advice}")
        return FAULT
    # Text output contains the verdict already, and an early end (such as by
    # heat) was reported.
    if args.json and result.stopped == "time":
        for part in result.verdict.bad if result.verdict else ():
            print_message(
                f"warning: {run.request.target.label}: {part.name}: {part.why}"
            )
    return outcome_of(result).status


def _page(
    runs: Sequence[DeviceRun], shown: Sequence[DeviceRun]
) -> list[Block]:
    """Return the page of one device, or the tables of several and then their common part."""
    results = [run.result for run in runs if run.result is not None]
    page: list[Block] = []
    if len(runs) > 1 and results:
        page += devices_page([device_outcome(run) for run in runs])
    for run in shown:
        if run.result is None and run.rows:
            page += rows_page(
                run.request.target.name, run.request.kind, run.rows
            )
        elif run.result is not None and len(runs) == 1:
            page += result_page(run.result)
        elif run.result is not None:
            page += device_blocks(run.request.target.place, run.result)
    return page


def _document(run: DeviceRun) -> dict[str, Any]:
    if run.result is not None:
        return {
            "schema": SCHEMA,
            **asdict(run.result),
            "series": asdict(run.history()),
        }
    target = run.request.target
    rows = {"points": [asdict(row) for row in run.rows]} if run.rows else {}
    return {
        "device": target.name,
        "device_uuid": target.uuid,
        "host": target.host or platform.node() or None,
        "problem": to_plain(run.problem),
        "status": run.status,
        **rows,
    }


def write_report(args: argparse.Namespace, page: str) -> bool:
    """Write `--report` and print its path. If that fails, print the problem and return False."""
    file = Path(args.report)
    try:
        write_whole(file, page.encode())
    except OSError as error:
        remedy = (
            "Free some space or check the permissions, and run the test again"
        )
        print_message(
            f"error: {unwritten(file, error.strerror or str(error), remedy)}."
        )
        return False
    print_message(f"report: {visible(str(file))}")
    return True
