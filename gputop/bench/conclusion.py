"""What becomes of the ends of runs: kept, printed and exported, and the exit status."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from gputop.bench import exports, history
from gputop.bench.events import Done, Result
from gputop.bench.group import spreads
from gputop.bench.outliers import outliers, was_stopped
from gputop.bench.outliers_page import document
from gputop.bench.outliers_page import page as many
from gputop.bench.page import in_short, page, table_of
from gputop.bench.results import ResultsError, append
from gputop.console import print_out, say
from gputop.exits import COULD_NOT_RUN, DEGRADED, FAULT, FINE, INTERRUPTED
from gputop.telemetry.codec import to_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gputop.bench.cluster.run import Burned
    from gputop.bench.collect import LeftOut
    from gputop.bench.foreground import Ended
    from gputop.bench.outliers import Member

GRAVEST_FIRST = (FAULT, INTERRUPTED, COULD_NOT_RUN, DEGRADED, FINE)


def conclude(ends: Sequence[Ended], args: argparse.Namespace) -> int:
    """Keeps, prints and exports what was measured; the gravest exit status of all devices."""
    ends = [_kept(end) for end in ends]
    print_out(_text(ends, args))
    statuses = [_judge(end) for end in ends]
    problems = [
        problem
        for end in ends
        if isinstance(end.last, Done)
        for problem in exports.write(args, end.last.result, end.course)
    ]
    for problem in problems:
        say(f"error: {problem}.")
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
    print_out(text)
    for each in left_out:
        say(f"warning: {each}")
    missed = [COULD_NOT_RUN] if left_out or not members else []
    stopped = [INTERRUPTED for each in members if was_stopped(each)]
    found = [each.status for each in outliers(members)]
    return gravest([*found, *stopped, *missed, *statuses, FINE])


def conclude_cluster(burned: Burned, args: argparse.Namespace) -> int:
    """Keeps and prints what was measured on a cluster; the gravest exit status."""
    from gputop.bench.cluster.run import member

    # A CPU in the place of a GPU is a trial, and several of them have one name.
    ends = [end if end.target.uuid is None else _kept(end) for end in burned.ends]
    statuses = []
    for end in ends:
        if slower := _slower(end):
            say(f"warning: {end.target.label}: {slower}")
            statuses.append(DEGRADED)
    members = [*map(member, ends), *burned.not_begun]
    return conclude_many(members, (), args, statuses)


def gravest(statuses: Sequence[int]) -> int:
    """Of several devices: a fault first, and fine only where all are."""
    return min(statuses, key=GRAVEST_FIRST.index)


def _kept(end: Ended) -> Ended:
    """Keep the result, if there is one; return the end with the comparison in its result."""
    if not isinstance(end.last, Done):
        return end
    try:
        return replace(end, last=Done(append(end.last.result)))
    except ResultsError as error:
        say(f"warning: {error}")
        return end


def _slower(end: Ended) -> str | None:
    comparison = end.last.result.comparison if isinstance(end.last, Done) else None
    return comparison.slower if comparison else None


def _judge(end: Ended) -> int:
    """Says what is wrong with the run of one device; the exit status that it deserves."""
    if not isinstance(end.last, Done):
        say(f"error: {end.last.problem}")
        return end.last.status
    result = end.last.result
    if result.wrong_elements:
        say(
            f"error: {end.target.label} computed wrong results: {result.wrong_elements} elements "
            f"in {result.checks} checks. Do not train on it; run the test again to be sure."
        )
        return FAULT
    slower = _slower(end)
    if slower is not None:
        say(f"warning: {slower}")
    ended = DEGRADED if slower is not None else FINE
    return {"time": ended, "user": INTERRUPTED}.get(result.stopped, DEGRADED)


def _text(ends: Sequence[Ended], args: argparse.Namespace) -> str:
    """What goes to standard output; nothing where no device has a result, but as JSON who it is."""
    results = [(end.target, end.last.result) for end in ends if isinstance(end.last, Done)]
    if args.json:
        documents = [_document(end) for end in ends]
        what = documents if len(ends) > 1 else documents[0]
        return json.dumps(what, indent=2, allow_nan=False)
    if not results:
        return ""
    if args.csv:
        return _csv([result for _, result in results])
    if len(ends) == 1:
        return page(results[0][1])
    pages = [] if args.kind in ("soak", "pairs") else [page(result) for _, result in results]
    apart = "\n".join(in_short(spreads(results)))
    return "\n\n".join(filter(None, [*pages, table_of(results), apart]))


def _document(end: Ended) -> dict[str, Any]:
    """A result as it is kept; of a device without one who it is, and why."""
    if isinstance(end.last, Done):
        return asdict(end.last.result)
    target = end.target
    return {
        "device": target.name,
        "device_uuid": target.uuid,
        "host": target.host or platform.node() or None,
        "problem": to_json(end.last.problem),
        "status": end.last.status,
    }


def _csv(results: Sequence[Result]) -> str:
    """The rows of a run that is a table, or else a line for each result."""
    if len(results) == 1 and results[0].points:
        return history.points_csv(results[0])
    return history.as_csv(results)
