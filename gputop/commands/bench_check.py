"""`gputop bench check`: runs the parts of a check, and reports them as one."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from gputop.agent.process_limit import says_process_limit
from gputop.bench.plan.request import Request, RunRefusedError, Target
from gputop.bench.results.check_report import (
    check_details,
    check_page,
    check_summary,
    part_outcome,
)
from gputop.bench.results.html_report import html_document
from gputop.bench.run.check import Check
from gputop.bench.run.check_parts import DEFAULT_LEVEL, LEVELS
from gputop.commands.bench_results import (
    gravest,
    keep_runs,
    print_json,
    show_page,
    warn_unkept,
    write_report,
)
from gputop.console import COULD_NOT_RUN, FINE, INTERRUPTED, print_message

if TYPE_CHECKING:
    from gputop.bench.run.check import Ends
    from gputop.bench.run.check_parts import CheckResult

    Requesting = Callable[[Sequence[Target]], list[Request]]
    RunOnce = Callable[[Requesting, str], Awaitable[Ends]]
    """Runs on the devices. The text is the heading of the progress line."""


def run_check(
    args: argparse.Namespace, requesting: Requesting, run: RunOnce
) -> int:
    """Run a check, and print a page with the verdicts of its parts."""
    level = args.level or DEFAULT_LEVEL
    args.seconds = args.seconds or LEVELS[level].seconds
    check = Check(level)
    status = FINE
    try:
        asyncio.run(_follow(check, args, requesting, run))
    except KeyboardInterrupt:
        check.stopping = True
    except RunRefusedError as error:
        # There is no page to print before the end of a part.
        if not check.result.parts:
            raise
        print_message(f"error: {error}")
        status = COULD_NOT_RUN
    if check.stopping:
        status = INTERRUPTED
    return _report(args, check.result, status)


async def _follow(
    check: Check,
    args: argparse.Namespace,
    requesting: Requesting,
    run: RunOnce,
) -> None:
    told: set[str] = set()
    head = ""

    def requests_of(targets: Sequence[Target]) -> list[Request]:
        return check.requests(requesting(targets))

    async def run_part() -> Ends:
        nonlocal head
        head = f"{check.number}/{len(check.parts)} {check.part.name}  "
        ends, others = await run(requests_of, head)
        problem = ends[0].problem if ends else None
        if not check.result.parts and says_process_limit(str(problem)):
            # The other parts could not start either.
            raise RunRefusedError(f"{problem}.", COULD_NOT_RUN)
        problems = keep_runs(ends, args, check.result.started_at)
        warn_unkept([each for each in problems if each not in told])
        told.update(problems)
        return ends, others

    async for part in check.follow(run_part):
        why = part.left_out and f", {part.left_out}"
        print_message(f"{head}{part_outcome(part).word}{why}")


def _report(
    args: argparse.Namespace, result: CheckResult, stopped: int
) -> int:
    """Print and export a check. Return the gravest status."""
    if not result.parts:
        return stopped
    page = check_page(result)
    printed = FINE
    if args.json:
        print_json({**result.document(), "summary": check_summary(result)})
    else:
        printed = show_page(page, args)
    page += check_details(result)
    document = html_document(page, result.started_at)
    written = args.report is None or write_report(args, document)
    statuses = []
    for part in result.parts:
        statuses += [each.outcome.status for each in part.members]
    complete = FINE if written and result.complete else COULD_NOT_RUN
    return gravest([*statuses, stopped, complete, printed])
