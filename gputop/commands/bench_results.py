"""Store, print and export the results of finished runs and suites, and choose the exit status."""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputop.agent.lines import to_plain
from gputop.agent.problem import ProblemError
from gputop.agent.process_limit import says_process_limit
from gputop.bench.events import SCHEMA, Done
from gputop.bench.plan.request import Request, RunRefusedError, Target
from gputop.bench.results import exports, store
from gputop.bench.results.html_report import html_document, html_page
from gputop.bench.results.measures import wrong_results
from gputop.bench.results.outliers import (
    GRAVEST_FIRST,
    device_outcome,
    devices_page,
    outliers,
    outliers_document,
    was_stopped,
)
from gputop.bench.results.page import device_blocks, result_page, rows_page
from gputop.bench.results.suite_report import (
    part_state,
    suite_details,
    suite_page,
    suite_summary,
)
from gputop.bench.results.verdict import VerdictLimits, status
from gputop.bench.run import suite as suites
from gputop.bench.run.suite import LEVELS, Part, PartResult, Suite
from gputop.commands.arguments import (
    fail,
    output_width,
    print_page,
    wants_colour,
)
from gputop.commands.bench import unwritten
from gputop.console import (
    COULD_NOT_RUN,
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

    Requesting = Callable[[Sequence[Target]], list[Request]]
    Ends = tuple[Sequence[DeviceRun], Sequence[DeviceOutcome]]
    """Finished runs, and devices that could not be tested."""
    RunOnce = Callable[[Requesting, str], Ends]
    """Runs on the devices. The text is the heading of the progress line."""


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
    _keep(runs, args, set())
    # All ranks of a collective have the same rows, or one problem.
    shown = runs[:1] if args.kind == "collective" else runs
    printed = FINE
    if args.json:
        documents = [_document(run) for run in runs]
        _print_json(documents if len(runs) > 1 else documents[0])
    elif args.csv:
        print_output(_csv(runs, shown))
    elif page := _page(runs, shown):
        printed = show_page(page, args)
    for problem in filter(None, (run.problem for run in shown)):
        print_message(f"error: {problem}")
    status = gravest([printed, *(_status(run, args) for run in runs)])
    if args.report is None or shown[0].result is None:
        return status
    written = _write_report(
        args, html_page(shown[0].result, shown[0].history())
    )
    return COULD_NOT_RUN if not written and status == FINE else status


def report_devices(
    members: Sequence[DeviceOutcome], args: argparse.Namespace
) -> int:
    """Print a page about many devices. Return the gravest exit status."""
    printed = FINE
    if args.json:
        _print_json(outliers_document(members))
    elif args.csv:
        results = [each.result for each in members if each.result is not None]
        print_output(exports.as_csv(results))
    elif members:
        printed = show_page(devices_page(members), args)
    statuses = [each.exit_status for each in outliers(members)]
    statuses += [INTERRUPTED for each in members if was_stopped(each)]
    return gravest([*statuses, printed if members else COULD_NOT_RUN])


def _print_json(document: object) -> None:
    print_output(json.dumps(document, indent=2, allow_nan=False))


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
    _keep(ends, args, set())
    return report_devices([*map(device_outcome, ends), *not_begun], args)


def gravest(statuses: Sequence[int]) -> int:
    """Return the gravest status. A fault is the gravest; `FINE` needs all to be fine."""
    return min(statuses, key=GRAVEST_FIRST.index)


def limits(args: argparse.Namespace) -> VerdictLimits:
    """Return the limits of the verdict."""
    return VerdictLimits(args.min_percent_of_peak, args.tolerance)


def _keep(
    runs: Sequence[DeviceRun],
    args: argparse.Namespace,
    told: set[str],
    check_started_at: float | None = None,
) -> None:
    """Judge and store the results. Print each problem once, and add it to `told`."""
    done = [(run, run.result) for run in runs if run.result is not None]
    results = [result for _, result in done]
    if not args.no_verdict:
        results = store.judged(results, limits(args))
    for (run, _), judged in zip(done, results, strict=True):
        result = replace(judged, check_started_at=check_started_at)
        run.end = Done(result)
        if args.ray is not None and run.request.target.uuid is None:
            # Trials on CPUs are not stored, because several CPUs have the same
            # name.
            continue
        try:
            run.end = Done(store.append(result, run.kept_curves()))
        except ProblemError as error:
            if str(error) not in told:
                told.add(str(error))
                print_message(f"warning: {error}")


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
    if (args.json or args.csv) and result.stopped == "time":
        for part in result.verdict.bad if result.verdict else ():
            print_message(
                f"warning: {run.request.target.label}: {part.name}: {part.why}"
            )
    return INTERRUPTED if result.stopped == "user" else status(result)


def _csv(runs: Sequence[DeviceRun], shown: Sequence[DeviceRun]) -> str:
    results = [run.result for run in runs if run.result is not None]
    pages = [run.result for run in shown if run.result is not None]
    if len(pages) == 1 and pages[0].points:
        return exports.points_csv(pages[0])
    return exports.as_csv(results) if results else ""


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


def _write_report(args: argparse.Namespace, page: str) -> bool:
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


class _LeftOutError(Exception):
    """No device supports this part of a suite."""


def run_suite(
    args: argparse.Namespace,
    requesting: Requesting,
    run: RunOnce,
) -> int:
    """Run the parts of a suite one after the other, and print a page with their verdicts."""
    level = LEVELS[args.level or suites.DEFAULT_LEVEL]
    args.seconds = args.seconds or level.seconds
    suite: Suite | None = None
    planned: PartResult | None = None

    def requests_of(part: Part, targets: Sequence[Target]) -> list[Request]:
        nonlocal suite, planned
        base = requesting(targets)
        if suite is None:
            suite = _new_suite(args, base)
        requests, planned = suites.part_requests(part, base)
        if not requests:
            raise _LeftOutError
        return requests

    stopped = FINE
    told: set[str] = set()
    for n, part in enumerate(level.parts, 1):
        head, planned = f"{n}/{len(level.parts)} {part.name}  ", None
        ended = _ends(
            partial(run, partial(requests_of, part), head), first=n == 1
        )
        if isinstance(ended, int):
            stopped = ended
            break
        # `requests_of` has set it.
        assert suite is not None
        ends, others = ended
        problem = ends[0].problem if ends and not suite.parts else None
        if problem is not None and says_process_limit(str(problem)):
            # The other parts could not start either.
            fail(f"{problem}.", COULD_NOT_RUN)
        _keep(ends, args, told, suite.started_at)
        planned = planned or PartResult(part.name, part.share * args.seconds)
        found = suites.part_result(planned, ends, others)
        why = found.left_out and f", {found.left_out}"
        print_message(f"{head}{part_state(found)}{why}")
        suite = suite.added(found)
        if any(map(was_stopped, found.members)):
            stopped = INTERRUPTED
            break
    return _report_suite(args, suite, stopped)


def _new_suite(args: argparse.Namespace, base: Sequence[Request]) -> Suite:
    """Return a suite without parts. Its method lists devices, data types and options."""
    devices = []
    for request in base:
        target = request.target
        devices.append(f"{target.label} {target.uuid or ''}".rstrip())
    method = {
        "devices": "; ".join(devices),
        "data type": ", ".join(dict.fromkeys(each.dtype for each in base)),
        "seconds": f"{args.seconds:g}",
        "memory share": f"{base[0].target.memory_share:g}",
        "verify": args.verify,
    }
    name = args.level or suites.DEFAULT_LEVEL
    return Suite(name, time.time(), method, len(LEVELS[name].parts))


def _ends(run: Callable[[], Ends], *, first: bool) -> Ends | int:
    """Return the ends of a part (empty if it is left out), or a status that ends the suite.

    Raises `RunRefusedError` if the first part is refused, because there is no page to print yet.
    """
    try:
        return run()
    except _LeftOutError:
        return (), ()
    except KeyboardInterrupt:
        return INTERRUPTED
    except RunRefusedError as error:
        if first:
            raise
        print_message(f"error: {error}")
        return COULD_NOT_RUN


def _report_suite(
    args: argparse.Namespace,
    suite: Suite | None,
    stopped: int,
) -> int:
    """Print and export a suite. Return the gravest status."""
    if suite is None or not suite.parts:
        return stopped
    page = suite_page(suite)
    printed = FINE
    if args.json:
        _print_json({**suite.document(), "summary": suite_summary(suite)})
    else:
        printed = show_page(page, args)
    page += suite_details(suite)
    document = html_document(page, suite.started_at)
    written = args.report is None or _write_report(args, document)
    statuses = []
    for part in suite.parts:
        statuses += [each.exit_status for each in outliers(part.members)]
    complete = FINE if written and suite.complete else COULD_NOT_RUN
    return gravest([*statuses, stopped, complete, printed])
