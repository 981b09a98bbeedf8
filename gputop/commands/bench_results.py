"""Output of finished runs: stored, printed and exported results, and the exit status; suites."""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputop.agent.lines import to_plain
from gputop.agent.problem import ProblemError
from gputop.bench.events import SCHEMA, Done
from gputop.bench.plan.kinds import KINDS
from gputop.bench.plan.request import Request, RunRefusedError, Target
from gputop.bench.results import store
from gputop.bench.results.collect import SkippedFile, collect
from gputop.bench.results.facts import wrong_results
from gputop.bench.results.html_report import html_page, suite_html
from gputop.bench.results.outliers import (
    GRAVEST_FIRST,
    device_outcome,
    judged,
    outliers,
    was_stopped,
)
from gputop.bench.results.text_report import (
    comparison_table,
    outliers_document,
    part_state,
    result_page,
    rows_page,
    suite_page,
)
from gputop.bench.results.text_report import outliers_page as many
from gputop.bench.results.verdict import VerdictLimits, status
from gputop.bench.run import suite as suites
from gputop.bench.run import worker_launch
from gputop.bench.run.suite import LEVELS, Part, PartResult, Suite
from gputop.commands.bench import unwritten
from gputop.console import (
    COULD_NOT_RUN,
    FAULT,
    FINE,
    INTERRUPTED,
    USAGE,
    print_message,
    print_output,
)
from gputop.files import NoHomeError, user_folder, write_whole
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.bench.results.outliers import DeviceOutcome
    from gputop.bench.run.progress import Until
    from gputop.bench.run.run_state import RunState

    Requesting = Callable[[Sequence[Target]], list[Request]]
    Ends = tuple[Sequence[RunState], Sequence[DeviceOutcome]]
    """Runs that have ended, and devices that could not be tested."""
    RunOnce = Callable[[Requesting, str, Until | None], Ends]
    """Runs on the devices with a line of progress behind a heading, until its time or a state."""


def report_runs(runs: Sequence[RunState], args: argparse.Namespace) -> int:
    """Store, print and export results; return the gravest exit status of all devices."""
    _keep(runs, args, set())
    # All ranks of a collective have the same rows, or one problem.
    shown = runs[:1] if args.kind == "collective" else runs
    print_output(_text(runs, shown, args))
    for problem in filter(None, (run.problem for run in shown)):
        print_message(f"error: {problem}")
    status = gravest([_status(run, args) for run in runs])
    if args.report is None or shown[0].result is None:  # it is about one device
        return status
    written = _write_report(args, html_page(shown[0].result, shown[0].history()))
    return COULD_NOT_RUN if not written and status == FINE else status


def report_devices(
    members: Sequence[DeviceOutcome],
    left_out: Sequence[SkippedFile],
    args: argparse.Namespace,
) -> int:
    """Print many devices and the outliers; return the gravest exit status."""
    if args.json:
        document = {**outliers_document(members), "left_out": [*map(asdict, left_out)]}
        text = json.dumps(document, indent=2, allow_nan=False)
    elif args.csv:
        text = store.as_csv(
            [each.result for each in members if each.result is not None]
        )
    else:
        text = many(members) if members else ""
    print_output(text)
    for each in left_out:
        print_message(f"warning: {each}")
    statuses = [each.status for each in outliers(members)]
    statuses += [INTERRUPTED for each in members if was_stopped(each)]
    return gravest([*statuses, COULD_NOT_RUN if left_out or not members else FINE])


def report_collected(args: argparse.Namespace) -> int:
    """Judge and print the devices in the files of `--collect`; return the gravest exit status."""
    found, left_out = collect(args.collect)
    members = judged(found, None if args.no_verdict else limits(args))
    return report_devices(members, left_out, args)


def report(
    ends: Sequence[RunState],
    not_begun: Sequence[DeviceOutcome],
    args: argparse.Namespace,
) -> int:
    """Store and print results, of a cluster by its outliers; return the gravest exit status."""
    if (
        args.ray is None or args.kind == "collective"
    ):  # ranks have the same rows, or one problem
        return gravest([report_runs(ends, args), *(each.status for each in not_begun)])
    _keep(ends, args, set())
    return report_devices([*map(device_outcome, ends), *not_begun], (), args)


def gravest(statuses: Sequence[int]) -> int:
    """Return the gravest status: a fault first, and fine only if all are."""
    return min(statuses, key=GRAVEST_FIRST.index)


def limits(args: argparse.Namespace) -> VerdictLimits:
    """Return the limits of the verdict."""
    return VerdictLimits(args.min_percent_of_peak, args.tolerance)


def _keep(runs: Sequence[RunState], args: argparse.Namespace, told: set[str]) -> None:
    """Judge and store the results. Print each problem once, and add it to `told`."""
    done = [(run, run.result) for run in runs if run.result is not None]
    results = [result for _, result in done]
    if not args.no_verdict:
        results = store.judged(results, limits(args))
    for (run, _), result in zip(done, results, strict=True):
        run.end = Done(result)
        if args.ray is not None and run.request.target.uuid is None:
            continue  # a CPU in the place of a GPU is a trial, and several have one name
        try:
            run.end = Done(store.append(result, run.kept_curves()))
        except ProblemError as error:
            if str(error) not in told:
                told.add(str(error))
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
            print_message(
                f"warning: {run.request.target.label}: {part.name}: {part.why}"
            )
    return INTERRUPTED if result.stopped == "user" else status(result)


def _text(
    runs: Sequence[RunState], shown: Sequence[RunState], args: argparse.Namespace
) -> str:
    """Return standard output; empty if nothing was measured, except as JSON."""
    if args.json:
        documents = [_document(run) for run in runs]
        what = documents if len(runs) > 1 else documents[0]
        return json.dumps(what, indent=2, allow_nan=False)
    failed = [
        rows_page(run.request.target.name, run.request.kind, run.rows)
        for run in shown
        if run.result is None and run.rows
    ]
    results = [
        (run.request.target, run.result) for run in runs if run.result is not None
    ]
    if not results:
        return "" if args.csv else "\n\n".join(failed)
    pages = [run.result for run in shown if run.result is not None]
    if args.csv:
        if len(pages) == 1 and pages[0].points:
            return store.points_csv(pages[0])
        return store.as_csv([result for _, result in results])
    if len(runs) == 1:
        return result_page(results[0][1])
    texts = [] if KINDS[args.kind].over_time else map(result_page, pages)
    return "\n\n".join([*texts, *failed, comparison_table(results)])


def _document(run: RunState) -> dict[str, Any]:
    if run.result is not None:
        return {"schema": SCHEMA, **asdict(run.result), "series": asdict(run.history())}
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
    """Write `--report`; print the problem and return False if that fails."""
    file = Path(args.report)
    try:
        write_whole(file, page.encode())
    except OSError as error:
        remedy = "Free some space or see the permissions, and run the test again"
        print_message(
            f"error: {unwritten(file, error.strerror or str(error), remedy)}."
        )
        return False
    return True


def run_suite(args: argparse.Namespace, requesting: Requesting, run: RunOnce) -> int:
    """Run the parts of a suite, keep each in a file, and print the page of their verdicts."""
    file, suite = _kept_suite(args)
    level = args.level or (suite.level if suite else suites.DEFAULT_LEVEL)
    args.seconds = args.seconds or LEVELS[level].seconds
    parts, done = LEVELS[level].parts, len(suite.parts) if suite else 0
    planned: PartResult | None = None
    torch = "" if args.ray is not None else _torch_version(args)
    if suite is not None:
        names = ", ".join(visible(each.name) for each in suite.parts)
        print_message(f"skipped, as they are done: {names}")

    def asked(part: Part, targets: Sequence[Target]) -> list[Request]:
        nonlocal suite, planned
        base = requesting(targets)
        method = {"level": level, **_method(args, base, torch)}
        suite = suite or Suite(level, time.time(), method, len(parts))
        if len(suite.parts) == done and (changed := suite.changed(method)):
            what = f"{visible(str(file))} is of another suite"
            raise RunRefusedError(
                f"{what}: {visible(changed, 500)}. Name another file.", USAGE
            )
        requests, planned = suites.part_requests(part, base)
        if not requests:
            raise _LeftOutError
        return requests

    stopped = FINE
    told: set[str] = set()
    for n, part in enumerate(parts[done:], done + 1):
        head, planned = f"{n}/{len(parts)} {part.name}  ", None
        until = (
            suites.is_steady
            if args.until_steady and part.kind in suites.STEADY_PARTS
            else None
        )
        ended = _ends(
            partial(run, partial(asked, part), head, until), first=n == done + 1
        )
        if isinstance(ended, int):
            stopped = ended
            break
        assert suite is not None  # it is there once a part has run
        ends, others = ended
        for end in ends if until else ():
            suites.note_steady(end)
        _keep(ends, args, told)
        planned = planned or PartResult(part.name, part.share * args.seconds)
        found = suites.part_result(planned, ends, others)
        why = found.left_out and f", {found.left_out}"
        print_message(f"{head}{part_state(found)}{why}")
        if any(map(was_stopped, found.members)):
            stopped = gravest(
                [INTERRUPTED, *(each.status for each in outliers(found.members))]
            )
            break
        suite = suite.added(found)
        if file is not None:
            _write_suite(file, suite)
    return _report_suite(args, suite, file, stopped)


def _ends(run: Callable[[], Ends], *, first: bool) -> Ends | int:
    """Return the ends of a part, none if it is left out, or the status that ends the suite.

    Raise `RunRefusedError` if the first one is refused: there is no page to print yet.
    """
    try:
        with suppress(_LeftOutError):
            return run()
    except KeyboardInterrupt:
        return INTERRUPTED
    except RunRefusedError as error:
        if first:
            raise
        print_message(f"error: {error}")
        return COULD_NOT_RUN
    return (), ()


class _LeftOutError(Exception):
    """No device can do a part of a suite."""


def _method(
    args: argparse.Namespace, base: Sequence[Request], torch: str
) -> dict[str, str]:
    """Return what must be the same to go on with a suite, by name; `torch` is this machine's."""
    versions = {each.target.torch or torch for each in base}
    devices = (
        f"{each.target.label}{f' {each.target.uuid}' * bool(each.target.uuid)}"
        for each in base
    )
    return {
        "torch": ", ".join(sorted(versions)),
        "devices": "; ".join(devices),
        "data type": ", ".join(dict.fromkeys(each.dtype for each in base)),
        "seconds": f"{args.seconds:g}",
        "memory share": f"{base[0].target.memory_share:g}",
        "verify": args.verify,
        "end": "once steady" if args.until_steady else "after the time",
    }


def _kept_suite(args: argparse.Namespace) -> tuple[Path | None, Suite | None]:
    """Return the file of a suite, and what it has if it is there; no file without a home folder."""
    if args.resume is None:
        try:
            folder = user_folder("data")
        except NoHomeError:
            return None, None
        with suppress(OSError):  # which writing says
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder / time.strftime("suite-%Y%m%d-%H%M%S.json"), None
    file = Path(args.resume)
    try:
        return file, suites.read(file)
    except FileNotFoundError:
        if file.parent.is_dir():
            return file, None
        why = "there is no such folder"
    except OSError as error:
        why = error.strerror or str(error)
    except (ValueError, RecursionError):
        why = "it is no file of a suite"
    raise RunRefusedError(
        f"{visible(str(file))} cannot be resumed: {why}. Name another.", USAGE
    )


def _torch_version(args: argparse.Namespace) -> str:
    python, cuda = getattr(args, "python", None), args.device != ("cpu",)
    found = asyncio.run(worker_launch.find_interpreter(python, cuda=cuda))
    if found.chosen is None:
        raise RunRefusedError(f"{found.problem}.")
    return found.chosen.torch_version or ""


def _write_suite(file: Path, suite: Suite) -> None:
    try:
        suites.write(file, suite)
    except OSError as error:
        what = f"{visible(str(file))} cannot be written: {error.strerror or error}"
        print_message(f"warning: {what}. The suite cannot be resumed from here.")


def _report_suite(
    args: argparse.Namespace, suite: Suite | None, file: Path | None, stopped: int
) -> int:
    """Print and export a suite, and say how to go on with it; return the gravest status."""
    if suite is None or not suite.parts:
        return stopped
    document = (
        json.dumps(suite.document(), indent=2, allow_nan=False) if args.json else ""
    )
    print_output(document or suite_page(suite))
    written = args.report is None or _write_report(args, suite_html(suite))
    if stopped != FINE and file is None:
        print_message(
            "there is no home folder for a file to go on with: give --resume FILE"
        )
    elif stopped != FINE:
        options = [] if args.resume else ["--resume", str(file)]
        print_message(f"to go on: {shlex.join(['gputop', *sys.argv[1:], *options])}")
    elif args.resume is None and file is not None:
        file.unlink(missing_ok=True)  # the results are kept, and nothing is left to do
    statuses = [each.status for part in suite.parts for each in outliers(part.members)]
    return gravest(
        [*statuses, stopped, FINE if written and suite.complete else COULD_NOT_RUN]
    )
