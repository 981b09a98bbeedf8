"""Output of finished runs: stored, printed and exported results, and the exit status."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputop.bench.events import SCHEMA, Done
from gputop.bench.plan.kinds import KINDS
from gputop.bench.results import history
from gputop.bench.results.facts import wrong_results
from gputop.bench.results.text_report import comparison_table, outliers_document, result_page
from gputop.bench.results.text_report import outliers_page as many
from gputop.bench.results.verdict import (
    VerdictLimits,
    device_outcome,
    judged,
    outliers,
    status,
    was_stopped,
)
from gputop.commands.bench import unwritten
from gputop.console import (
    COULD_NOT_RUN,
    DEGRADED,
    FAULT,
    FINE,
    INTERRUPTED,
    print_message,
    print_output,
)
from gputop.problem import ProblemError
from gputop.schema.codec import to_json

if TYPE_CHECKING:
    from gputop.bench.results.collect import Collected, SkippedFile
    from gputop.bench.results.verdict import DeviceOutcome
    from gputop.bench.run.state import RunState

GRAVEST_FIRST = (FAULT, INTERRUPTED, COULD_NOT_RUN, DEGRADED, FINE)


def report_runs(runs: Sequence[RunState], args: argparse.Namespace) -> int:
    """Store, print and export results; return the gravest exit status of all devices."""
    _keep(runs, args)
    # All ranks of a collective have the same rows, or one problem.
    shown = runs[:1] if args.kind == "collective" else runs
    print_output(_text(runs, shown, args))
    for problem in filter(None, (run.problem for run in shown)):
        print_message(f"error: {problem}")
    status = gravest([_status(run, args) for run in runs])
    reported = shown if args.report is not None else ()
    exported = [_export(Path(args.report), each) for each in reported]
    return COULD_NOT_RUN if not all(exported) and status == FINE else status


def report_devices(
    members: Sequence[DeviceOutcome], left_out: Sequence[SkippedFile], args: argparse.Namespace
) -> int:
    """Print many devices and the outliers; return the gravest exit status."""
    if args.json:
        document = {**outliers_document(members), "left_out": [*map(asdict, left_out)]}
        text = json.dumps(document, indent=2, allow_nan=False)
    elif args.csv:
        text = history.as_csv([each.result for each in members if each.result is not None])
    else:
        text = many(members) if members else ""
    print_output(text)
    for each in left_out:
        print_message(f"warning: {each}")
    statuses = [each.status for each in outliers(members)]
    statuses += [INTERRUPTED for each in members if was_stopped(each)]
    return gravest([*statuses, COULD_NOT_RUN if left_out or not members else FINE])


def report_collected(found: Collected, args: argparse.Namespace) -> int:
    """Judge and print devices from files; return the gravest exit status."""
    members = judged(found.members, None if args.no_verdict else limits(args))
    return report_devices(members, found.left_out, args)


def report_cluster(
    ends: Sequence[RunState], not_begun: Sequence[DeviceOutcome], args: argparse.Namespace
) -> int:
    """Store and print results of a cluster; return the gravest exit status."""
    if args.kind == "collective":  # all ranks have the same rows, or one problem
        return gravest([report_runs(ends, args), *(each.status for each in not_begun)])
    _keep(ends, args)
    return report_devices([*map(device_outcome, ends), *not_begun], (), args)


def gravest(statuses: Sequence[int]) -> int:
    """Return the gravest status: a fault first, and fine only if all are."""
    return min(statuses, key=GRAVEST_FIRST.index)


def limits(args: argparse.Namespace) -> VerdictLimits:
    """Return the limits of the verdict."""
    return VerdictLimits(args.min_percent_of_peak, args.tolerance)


def _keep(runs: Sequence[RunState], args: argparse.Namespace) -> None:
    done = [(run, run.result) for run in runs if run.result is not None]
    results = [result for _, result in done]
    if not args.no_verdict:
        results = history.judged(results, limits(args))
    for (run, _), result in zip(done, results, strict=True):
        run.end = Done(result)
        if args.ray is not None and run.request.target.uuid is None:
            continue  # a CPU in the place of a GPU is a trial, and several have one name
        try:
            run.end = Done(history.append(result, run.kept_curves()))
        except ProblemError as error:
            print_message(f"warning: {error}")


def _status(run: RunState, args: argparse.Namespace) -> int:
    result = run.result
    if result is None:
        return run.status or COULD_NOT_RUN
    if result.wrong_elements:
        wrong = wrong_results(result.wrong_elements, result.checks)
        advice = "Do not train on it; run the test again to be sure."
        print_message(f"error: {run.request.target.label} {wrong}. {advice}")
        return FAULT
    # The text has the verdict, and the end of a run that was too hot is told already.
    if (args.json or args.csv) and result.stopped == "time":
        for part in result.verdict.bad if result.verdict else ():
            print_message(f"warning: {run.request.target.label}: {part.name}: {part.why}")
    return INTERRUPTED if result.stopped == "user" else status(result)


def _text(runs: Sequence[RunState], shown: Sequence[RunState], args: argparse.Namespace) -> str:
    """Return standard output; empty without results, except as JSON."""
    if args.json:
        documents = [_document(run) for run in runs]
        what = documents if len(runs) > 1 else documents[0]
        return json.dumps(what, indent=2, allow_nan=False)
    results = [(run.request.target, run.result) for run in runs if run.result is not None]
    if not results:
        return ""
    pages = [run.result for run in shown if run.result is not None]
    if args.csv:
        if len(pages) == 1 and pages[0].points:
            return history.points_csv(pages[0])
        return history.as_csv([result for _, result in results])
    if len(runs) == 1:
        return result_page(results[0][1])
    texts = [] if KINDS[args.kind].over_time else map(result_page, pages)
    return "\n\n".join([*texts, comparison_table(results)])


def _document(run: RunState) -> dict[str, Any]:
    if run.result is not None:
        return {"schema": SCHEMA, **asdict(run.result), "series": asdict(run.history())}
    target = run.request.target
    return {
        "device": target.name,
        "device_uuid": target.uuid,
        "host": target.host or platform.node() or None,
        "problem": to_json(run.problem),
        "status": run.status,
    }


def _export(file: Path, run: RunState) -> bool:
    """Write the page about a device, if it has a result; return False if that failed."""
    from gputop.bench.results import html_report

    try:
        if run.result is not None:
            html_report.write(file, run.result, run.history())
    except OSError as error:
        remedy = "Free some space or see the permissions, and run the test again"
        print_message(f"error: {unwritten(file, error.strerror or str(error), remedy)}.")
        return False
    return True
