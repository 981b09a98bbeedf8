"""Output of finished runs: stored, printed and exported results, and the exit status."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputop.bench.events import Done, Result
from gputop.bench.results import history
from gputop.bench.results.compare import spreads
from gputop.bench.results.facts import wrong_results
from gputop.bench.results.history import ResultsError, append
from gputop.bench.results.outliers import device_outcome, outliers, was_stopped
from gputop.bench.results.text_report import (
    comparison_table,
    outliers_document,
    result_page,
    spread_lines,
)
from gputop.bench.results.text_report import outliers_page as many
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
from gputop.schema.codec import to_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gputop.bench.cluster.run import ClusterResult
    from gputop.bench.results.collect import SkippedFile
    from gputop.bench.results.outliers import DeviceOutcome
    from gputop.bench.run.state import RunCurves, RunState
    from gputop.problem import Problem

GRAVEST_FIRST = (FAULT, INTERRUPTED, COULD_NOT_RUN, DEGRADED, FINE)


def report_runs(runs: Sequence[RunState], args: argparse.Namespace) -> int:
    """Store, print and export results; return the gravest exit status of all devices."""
    for run in runs:
        _keep(run)
    print_output(_text(runs, args))
    statuses = [_judge(run) for run in runs]
    problems = [
        problem
        for run in runs
        if run.result is not None
        for problem in _export(args, run.result, run.history())
    ]
    for problem in problems:
        print_message(f"error: {problem}.")
    status = gravest(statuses)
    return COULD_NOT_RUN if problems and status == FINE else status


def report_devices(
    members: Sequence[DeviceOutcome],
    left_out: Sequence[SkippedFile],
    args: argparse.Namespace,
    statuses: Sequence[int] = (),
) -> int:
    """Print many devices and the outliers; return the gravest exit status.

    `statuses` are further findings.
    """
    if args.json:
        unused = [asdict(each) for each in left_out]
        text = json.dumps(
            {**outliers_document(members), "left_out": unused}, indent=2, allow_nan=False
        )
    elif args.csv:
        text = history.as_csv([each.result for each in members if each.result is not None])
    else:
        text = many(members) if members else ""
    print_output(text)
    for each in left_out:
        print_message(f"warning: {each}")
    missed = [COULD_NOT_RUN] if left_out or not members else []
    stopped = [INTERRUPTED for each in members if was_stopped(each)]
    found = [each.status for each in outliers(members)]
    return gravest([*found, *stopped, *missed, *statuses, FINE])


def report_cluster(burned: ClusterResult, args: argparse.Namespace) -> int:
    """Store and print results of a cluster; return the gravest exit status."""
    statuses = []
    for run in burned.ends:
        if run.request.target.uuid is not None:
            _keep(run)  # a CPU in the place of a GPU is a trial, and several have one name
        if slower := _slower(run):
            print_message(f"warning: {run.request.target.label}: {slower}")
            statuses.append(DEGRADED)
    members = [*map(device_outcome, burned.ends), *burned.not_begun]
    return report_devices(members, (), args, statuses)


def gravest(statuses: Sequence[int]) -> int:
    """Return the gravest status: a fault first, and fine only if all are."""
    return min(statuses, key=GRAVEST_FIRST.index)


def _keep(run: RunState) -> None:
    """Store the result, if there is one, with its comparison."""
    if run.result is not None:
        try:
            run.end = Done(append(run.result))
        except ResultsError as error:
            print_message(f"warning: {error}")


def _slower(run: RunState) -> str | None:
    comparison = run.result.comparison if run.result else None
    return comparison.slower if comparison else None


def _judge(run: RunState) -> int:
    """Report what is wrong with a run; return its exit status."""
    result = run.result
    if result is None:
        print_message(f"error: {run.problem}")
        return run.status or COULD_NOT_RUN
    if result.wrong_elements:
        wrong = wrong_results(result.wrong_elements, result.checks)
        advice = "Do not train on it; run the test again to be sure."
        print_message(f"error: {run.request.target.label} {wrong}. {advice}")
        return FAULT
    slower = _slower(run)
    if slower is not None:
        print_message(f"warning: {slower}")
    ended = DEGRADED if slower is not None else FINE
    return {"time": ended, "user": INTERRUPTED}.get(result.stopped, DEGRADED)


def _text(runs: Sequence[RunState], args: argparse.Namespace) -> str:
    """Return standard output; empty without results, except as JSON."""
    if args.json:
        documents = [_document(run) for run in runs]
        what = documents if len(runs) > 1 else documents[0]
        return json.dumps(what, indent=2, allow_nan=False)
    results = [(run.request.target, run.result) for run in runs if run.result is not None]
    if not results:
        return ""
    if args.csv:
        return _csv([result for _, result in results])
    if len(runs) == 1:
        return result_page(results[0][1])
    pages = [] if args.kind in ("soak", "pairs") else [result_page(result) for _, result in results]
    apart = "\n".join(spread_lines(spreads(results)))
    return "\n\n".join(filter(None, [*pages, comparison_table(results), apart]))


def _document(run: RunState) -> dict[str, Any]:
    """Return a result as it is stored, or the device and its problem."""
    if run.result is not None:
        return asdict(run.result)
    target = run.request.target
    return {
        "device": target.name,
        "device_uuid": target.uuid,
        "host": target.host or platform.node() or None,
        "problem": to_json(run.problem),
        "status": run.status,
    }


def _csv(results: Sequence[Result]) -> str:
    """Return the rows of a table, or else a line for each result."""
    if len(results) == 1 and results[0].points:
        return history.points_csv(results[0])
    return history.as_csv(results)


def _export(args: argparse.Namespace, result: Result, course: RunCurves) -> list[Problem]:
    """Write the requested files; return the problems."""
    problems = []
    if args.report is not None:
        from gputop.bench.results.html_report import html_page
        from gputop.files import write_whole

        try:
            write_whole(Path(args.report), html_page(result, course).encode())
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
    return unwritten(file, error.strerror or str(error), remedy)
