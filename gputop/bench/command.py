"""`gputop bench`: a stress test without the dashboard."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from gputop.bench import plan
from gputop.bench.dtypes import DTYPES, parse_dtypes

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from gputop.bench.events import Done, Failed, Result
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
        type=argument(plan.parse_device),
        metavar="DEVICE",
        help="cpu, an index or the start of a UUID (default: the first GPU, or else the CPU)",
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

    try:
        _look_over(args)
        target = _target(args.device, ignore_busy=args.ignore_busy)
        last = asyncio.run(_stress(_request(args, target)))
    except KeyboardInterrupt:
        return INTERRUPTED
    except _RefusedError as error:
        _say(f"error: {error}")
        return error.status
    return _conclude(last, as_json=args.json)


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
    if device is None and not inventory.devices:
        reason = f" ({inventory.problem.why})" if inventory.problem else ""
        _say(f"there is no GPU{reason}: the CPU is put under stress")
    try:
        target = plan.choose(plan.targets(inventory, sample), device)
    except ValueError as error:
        if inventory.problem is not None and not inventory.devices:
            raise _RefusedError(f"{inventory.problem}, or choose --device cpu.") from None
        raise _RefusedError(str(error)) from None
    if target.kind == "cuda":
        _look_at(target, sample, ignore_busy=ignore_busy)
    return target


def _look_at(target: Target, sample: Sample, *, ignore_busy: bool) -> None:
    """Refuses a device that does not answer, or that is held and may not be shared."""
    problem = plan.unusable(sample, target)
    if problem is not None:
        raise _RefusedError(f"{problem}.")
    holders = plan.holders(sample, target)
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


async def _stress(request: Request) -> Done | Failed:
    """Runs the session to its end; the first signal stops it, a second one kills the worker."""
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
    watching = asyncio.create_task(_watch(request.target, session))
    last: Done | Failed | None = None
    bar = Progressing(sys.stderr, request.seconds)
    ticking = asyncio.create_task(bar.keep_drawing())
    try:
        async with contextlib.aclosing(session.events()) as events:
            async for event in events:
                bar.take(event)
                if isinstance(event, (Done, Failed)):
                    last = event
        await asyncio.gather(*stops)
    finally:
        for task in (ticking, watching):
            task.cancel()
        await asyncio.gather(ticking, watching, return_exceptions=True)
        bar.clear()
        for number in SIGNALS:
            loop.remove_signal_handler(number)
    assert last is not None, "a session ends with a Done or a Failed"
    return last


async def _watch(target: Target, session: Session) -> None:
    """Ends the run at the device's temperature limit; a CPU looks after itself."""
    if target.kind == "cpu":
        return
    from gputop.bench.limits import reached
    from gputop.telemetry.child import StreamChild, command
    from gputop.telemetry.snapshot import Inventory, Sample

    inventory: Inventory | None = None
    child = StreamChild(command(interval=1.0), 1.0)
    try:
        async with contextlib.aclosing(child.records()) as records:
            async for record in records:
                if isinstance(record, Inventory):
                    inventory = record
                elif isinstance(record, Sample) and (why := reached(target, inventory, record)):
                    _say(f"{target.label} is too hot: {why}")
                    await session.stop(by="limit")
                    return
    finally:
        await child.close()


def _conclude(last: Done | Failed, *, as_json: bool) -> int:
    """Keeps and prints the result; returns the exit status that it deserves."""
    from gputop.bench.events import Failed

    if isinstance(last, Failed):
        _say(f"error: {last.problem}")
        return last.status
    result = last.result
    from gputop.bench.page import page
    from gputop.bench.results import ResultsError, append

    try:
        append(result)
    except ResultsError as error:
        _say(f"warning: {error}")
    _print(_document(result) if as_json else page(result))
    if result.wrong_elements:
        _say(
            f"error: {result.device} computed wrong results: {result.wrong_elements} elements in "
            f"{result.checks} checks. Do not train on it; run the test again to be sure."
        )
        return FAULT
    return {"time": FINE, "limit": DEGRADED}.get(result.stopped, INTERRUPTED)


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
