"""`gputop bench`: a stress test without the dashboard."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gputop.bench import devices, exports, plan
from gputop.bench.dtypes import DTYPES, parse_dtypes

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, Callable

    from gputop.bench.course import Course
    from gputop.bench.events import Done, Event, Failed, Result
    from gputop.bench.plan import Request, Target
    from gputop.bench.session import Session
    from gputop.telemetry.snapshot import Process, Sample

FINE, FAULT, USAGE, COULD_NOT_RUN, DEGRADED, INTERRUPTED = 0, 1, 2, 3, 4, 130
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _RefusedError(Exception):
    """The run is not begun: one line for the user, and the exit status."""

    def __init__(self, message: str, status: int = COULD_NOT_RUN) -> None:
        super().__init__(message)
        self.status = status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The kind of run and the options of `gputop bench`."""
    parser.add_argument(
        "kind",
        nargs="?",
        choices=tuple(plan.KINDS),
        default="soak",
        metavar="KIND",
        help="; ".join(f"{kind}: {what}" for kind, what in plan.KINDS.items()) + " (default: soak)",
    )
    parser.add_argument(
        "--device",
        type=argument(devices.parse_device),
        metavar="DEVICE",
        help="cpu, an index, that of a MIG instance such as 0:1, or the start of a UUID "
        "(default: the first GPU, or else the CPU)",
    )
    parser.add_argument(
        "--dtype",
        type=argument(parse_dtypes),
        metavar="TYPE",
        help=f"{', '.join(DTYPES)}; several for a sweep, with commas "
        "(default: the fastest that people train with on the device)",
    )
    parser.add_argument(
        "--size",
        type=argument(plan.parse_size),
        default="auto",
        metavar="N",
        help="multiply N x N matrices, or `auto` (default): as large as is useful; "
        "of a sweep and a search the largest",
    )
    parser.add_argument(
        "--seconds",
        type=argument(plan.parse_seconds),
        default=plan.DEFAULT_SECONDS,
        metavar="S",
        help=f"how long (default {plan.DEFAULT_SECONDS:g})",
    )
    parser.add_argument(
        "--memory-share",
        type=argument(plan.parse_share),
        default=plan.DEFAULT_MEMORY_SHARE,
        metavar="SHARE",
        help="how much of the free memory may be used, up to 1 "
        f"(default {plan.DEFAULT_MEMORY_SHARE:g})",
    )
    parser.add_argument("--json", action="store_true", help="the result as one JSON document")
    parser.add_argument(
        "--python",
        type=argument(plan.parse_python),
        metavar="PATH",
        default=argparse.SUPPRESS,  # or it would overwrite the one before the command
        help="the interpreter whose torch is used (default: the active environment's)",
    )
    parser.add_argument(
        "--ignore-busy", action="store_true", help="also where another process holds the device"
    )
    exports.add_arguments(parser)


def argument(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """A parser that raises `ValueError` as argparse wants it."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def run(args: argparse.Namespace) -> int:
    """Runs the stress test that the arguments ask for; returns the exit status."""
    import asyncio

    from gputop.bench.course import Recorder

    recorder = Recorder()
    try:
        _look_over(args)
        _check(args)
        if args.history:
            return _history(args)
        found = _target(args.device, ignore_busy=args.ignore_busy)
        target = replace(found, memory_share=args.memory_share)
        last = asyncio.run(_stress(_request(args, target), recorder.take))
    except KeyboardInterrupt:
        return INTERRUPTED
    except _RefusedError as error:
        _say(f"error: {error}")
        return error.status
    status = _conclude(last, as_json=args.json, as_csv=args.csv)
    return _export(args, last, recorder.course(), status)


def _check(args: argparse.Namespace) -> None:
    """Refuses what could not be written after a run, before it."""
    if misuse := exports.misuse(args):
        raise _RefusedError(misuse, USAGE)
    if problem := exports.unwritable(args):
        raise _RefusedError(f"{problem}.")


def _history(args: argparse.Namespace) -> int:
    """Prints earlier results, of one device where it is named."""
    from gputop.bench import history
    from gputop.bench.results import ResultsError

    form: history.Form = "json" if args.json else "csv" if args.csv else "table"
    try:
        width = os.get_terminal_size(1).columns if sys.stdout.isatty() else None
        text = history.text(args.device, form, width or None)
    except (ResultsError, ValueError) as error:
        raise _RefusedError(f"{error}.") from None
    # Whatever the locale says: a "–" that becomes a "?" would say something else.
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    _print(text)
    return FINE


def _export(args: argparse.Namespace, last: Done | Failed, course: Course, status: int) -> int:
    """Writes the files that were asked for; the exit status with what came of it."""
    from gputop.bench.events import Done

    if not isinstance(last, Done):
        return status
    problems = exports.write(args, last.result, course)
    for problem in problems:
        _say(f"error: {problem}.")
    return COULD_NOT_RUN if problems and status == FINE else status


def _look_over(args: argparse.Namespace) -> None:
    """Refuses options that the kind of run does not have."""
    kind: str = args.kind
    if kind == "copy" and args.dtype:
        raise _RefusedError("copy has no data type. Leave out --dtype.", USAGE)
    if args.dtype and len(args.dtype) > 1 and kind != "sweep":
        raise _RefusedError(f"{kind} runs one data type. Give --dtype one, or sweep.", USAGE)
    if args.size is not None and kind in ("latency", "copy"):
        raise _RefusedError(f"{kind} has sizes of its own. Leave out --size.", USAGE)


def _request(args: argparse.Namespace, target: Target) -> Request:
    dtype, *further = args.dtype or (plan.default_dtype(target),)
    python = getattr(args, "python", None)
    return plan.Request(target, dtype, args.size, args.seconds, python, args.kind, tuple(further))


def _target(device: str | None, *, ignore_busy: bool) -> Target:
    """The device to use, after a question where another process holds it."""
    if device == "cpu":
        return plan.cpu_target()
    # Only here: the CPU is put under stress without a look at the driver.
    import asyncio

    from gputop.telemetry.child import StreamError, one_snapshot

    try:
        inventory, sample = asyncio.run(one_snapshot())
    except StreamError as error:
        raise _RefusedError(f"{error}. Or choose --device cpu.") from None
    try:
        target = devices.choose(inventory, sample, device)
    except ValueError as error:
        if inventory.problem is not None and not inventory.devices:
            raise _RefusedError(f"{inventory.problem}, or choose --device cpu.") from None
        raise _RefusedError(str(error)) from None
    if target.kind == "cuda":
        _look_at(target, sample, ignore_busy=ignore_busy)
        return target
    problems = (inventory.problem, *devices.divided(inventory).values())
    reasons = "; ".join(dict.fromkeys(problem.why for problem in problems if problem))
    why = f" ({reasons})" if reasons else ""
    _say(f"there is no GPU to use{why}: the CPU is put under stress")
    return target


def _look_at(target: Target, sample: Sample, *, ignore_busy: bool) -> None:
    """Refuses a device that does not answer, or that is held and may not be shared."""
    problem = devices.unusable(sample, target)
    if problem is not None:
        raise _RefusedError(f"{problem}.")
    holders = devices.holders(sample, target)
    if holders == [] or ignore_busy:
        return
    use = "may be in use: the driver does not say by whom" if holders is None else _named(holders)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise _RefusedError(
            f"{target.label} {use}. "
            "Wait for it to end, choose another --device, or add --ignore-busy."
        )
    print(f"{target.label} {use}.", file=sys.stderr)
    print("Put it under stress all the same? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise _RefusedError("nothing was started: the device is in use. Choose another --device.")


def _named(holders: list[Process]) -> str:
    from gputop.text import visible

    named = ", ".join(
        f"{process.pid} ({visible(process.user or '?', 32)}: {visible(process.command or '?', 60)})"
        for process in holders[:3]
    )
    more = f" and {len(holders) - 3} more" if len(holders) > 3 else ""
    return f"is in use by process {named}{more}"


async def _stress(request: Request, take: Callable[[Event], None]) -> Done | Failed:
    """Runs the session to its end; the first signal stops it, a second one kills the worker.

    `take` is told of every event.
    """
    import asyncio

    from gputop.bench.events import Done, Failed
    from gputop.bench.progress import Progressing
    from gputop.bench.session import Session

    session = Session(request)
    stops: list[asyncio.Task[None]] = []

    def interrupted() -> None:
        if stops:
            session.kill()
        else:
            stops.append(asyncio.create_task(session.stop()))

    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, interrupted)
    last: Done | Failed | None = None
    bar = Progressing(sys.stderr, request.seconds)
    ticking = asyncio.create_task(bar.keep_drawing())
    try:
        async with contextlib.aclosing(_watched(request, session)) as events:
            async for event in events:
                bar.take(event)
                take(event)
                if isinstance(event, (Done, Failed)):
                    last = event
        await asyncio.gather(*stops)
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)
        bar.clear()
        for number in SIGNALS:
            loop.remove_signal_handler(number)
    assert last is not None, "a session ends with a Done or a Failed"
    return last


def _watched(request: Request, session: Session) -> AsyncGenerator[Event]:
    """The session's events, while its device is watched; says which limit ends the run."""
    from gputop.bench import watch
    from gputop.bench.conditions import Trace

    def ending(limit: watch.Limit) -> None:
        _say(f"{request.target.label}: {limit.title[0].lower()}{limit.title[1:]}, {limit.why}")

    return watch.events(session, Trace(request.target), ending)


def _conclude(last: Done | Failed, *, as_json: bool, as_csv: bool = False) -> int:
    """Keeps and prints the result; returns the exit status that it deserves."""
    from gputop.bench.events import Failed

    if isinstance(last, Failed):
        _say(f"error: {last.problem}")
        return last.status
    result = last.result
    from gputop.bench.page import page
    from gputop.bench.results import ResultsError, append, regression

    slower = None
    try:
        slower = regression(result)
        append(result)
    except ResultsError as error:
        _say(f"warning: {error}")
    _print(_csv(result) if as_csv else _document(result) if as_json else page(result))
    if result.wrong_elements:
        _say(
            f"error: {result.device} computed wrong results: {result.wrong_elements} elements in "
            f"{result.checks} checks. Do not train on it; run the test again to be sure."
        )
        return FAULT
    if slower is not None:
        _say(f"warning: {slower}")
    ended = DEGRADED if slower is not None else FINE
    return {"time": ended, "user": INTERRUPTED}.get(result.stopped, DEGRADED)


def _csv(result: Result) -> str:
    """The rows of a run that is a table, or else the result in one line."""
    from gputop.bench import history

    return history.points_csv(result) if result.points else history.as_csv([result], [])


def _document(result: Result) -> str:
    import json
    from dataclasses import asdict

    return json.dumps(asdict(result), indent=2, allow_nan=False)


def _say(line: str) -> None:
    """One line on standard error, where somebody may have gone already."""
    with contextlib.suppress(OSError):
        print(f"gputop: {line}", file=sys.stderr, flush=True)


def _print(text: str) -> None:
    try:
        print(text, flush=True)
    except OSError:
        # Nobody reads it; without this the interpreter complains at its end.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
