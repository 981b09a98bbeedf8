"""What becomes of the ends of runs: kept, printed and exported, and the exit status."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gputop.bench.events import Done, Result
from gputop.bench.results import exports, history
from gputop.bench.results.compare import spreads
from gputop.bench.results.outliers import member_of, outliers, was_stopped, wrong_results
from gputop.bench.results.outliers_page import document
from gputop.bench.results.outliers_page import page as many
from gputop.bench.results.page import in_short, page, table_of
from gputop.bench.results.store import ResultsError, append
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

    from gputop.bench.cluster.run import Burned
    from gputop.bench.results.collect import LeftOut
    from gputop.bench.results.outliers import Member
    from gputop.bench.run.state import RunState

GRAVEST_FIRST = (FAULT, INTERRUPTED, COULD_NOT_RUN, DEGRADED, FINE)


def conclude(runs: Sequence[RunState], args: argparse.Namespace) -> int:
    """Keep, print and export what was measured; return the gravest exit status of all devices."""
    for run in runs:
        _keep(run)
    print_output(_text(runs, args))
    statuses = [_judge(run) for run in runs]
    problems = [
        problem
        for run in runs
        if run.result is not None
        for problem in exports.write(args, run.result, run.course())
    ]
    for problem in problems:
        print_message(f"error: {problem}.")
    status = gravest(statuses)
    return COULD_NOT_RUN if problems and status == FINE else status


def conclude_many(
    members: Sequence[Member],
    left_out: Sequence[LeftOut],
    args: argparse.Namespace,
    statuses: Sequence[int] = (),
) -> int:
    """Prints many devices and those that are not like the others; the gravest exit status.

    `statuses` are what else was found.
    """
    if args.json:
        unused = [asdict(each) for each in left_out]
        text = json.dumps({**document(members), "left_out": unused}, indent=2, allow_nan=False)
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


def conclude_cluster(burned: Burned, args: argparse.Namespace) -> int:
    """Keeps and prints what was measured on a cluster; the gravest exit status."""
    statuses = []
    for run in burned.ends:
        if run.request.target.uuid is not None:
            _keep(run)  # a CPU in the place of a GPU is a trial, and several have one name
        if slower := _slower(run):
            print_message(f"warning: {run.request.target.label}: {slower}")
            statuses.append(DEGRADED)
    members = [*map(member_of, burned.ends), *burned.not_begun]
    return conclude_many(members, (), args, statuses)


def gravest(statuses: Sequence[int]) -> int:
    """Of several devices: a fault first, and fine only where all are."""
    return min(statuses, key=GRAVEST_FIRST.index)


def _keep(run: RunState) -> None:
    """Keep the result, if there is one; it has its comparison then."""
    if run.result is not None:
        try:
            run.end = Done(append(run.result))
        except ResultsError as error:
            print_message(f"warning: {error}")


def _slower(run: RunState) -> str | None:
    comparison = run.result.comparison if run.result else None
    return comparison.slower if comparison else None


def _judge(run: RunState) -> int:
    """Say what is wrong with the run of one device; return the exit status that it deserves."""
    result = run.result
    if result is None:
        print_message(f"error: {run.problem}")
        return run.status or COULD_NOT_RUN
    if result.wrong_elements:
        print_message(
            f"error: {run.request.target.label} {wrong_results(result.wrong_elements)} "
            f"in {result.checks} checks. Do not train on it; run the test again to be sure."
        )
        return FAULT
    slower = _slower(run)
    if slower is not None:
        print_message(f"warning: {slower}")
    ended = DEGRADED if slower is not None else FINE
    return {"time": ended, "user": INTERRUPTED}.get(result.stopped, DEGRADED)


def _text(runs: Sequence[RunState], args: argparse.Namespace) -> str:
    """What goes to standard output; nothing where no device has a result, but as JSON who it is."""
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
        return page(results[0][1])
    pages = [] if args.kind in ("soak", "pairs") else [page(result) for _, result in results]
    apart = "\n".join(in_short(spreads(results)))
    return "\n\n".join(filter(None, [*pages, table_of(results), apart]))


def _document(run: RunState) -> dict[str, Any]:
    """A result as it is kept; of a device without one who it is, and why."""
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
    """The rows of a run that is a table, or else a line for each result."""
    if len(results) == 1 and results[0].points:
        return history.points_csv(results[0])
    return history.as_csv(results)
