"""`gputop bench`: a stress test without the dashboard."""

from __future__ import annotations

import argparse
import os
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gputop.agent.problem import Problem
from gputop.bench.plan import request, target_choice
from gputop.bench.plan.kinds import (
    CHECK,
    DEFAULT_KIND,
    DTYPES,
    KINDS,
    parse_dtypes,
    parse_kind,
)
from gputop.bench.plan.request import Request, RunRefusedError, Target
from gputop.bench.plan.target_choice import select_targets
from gputop.commands import options
from gputop.commands.options import argument_type, count
from gputop.console import INTERRUPTED, USAGE, print_message
from gputop.files import check_target
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.bench.run.check import Ends
    from gputop.bench.run.device_run import DeviceRun


def add_arguments(parser: ArgumentParser) -> None:
    """Add the kind of run and the options of `gputop bench`."""
    _add_run(parser)
    _add_check(parser)
    _add_devices(parser)
    _add_verdict(parser)
    _add_output(parser)


def _add_run(parser: ArgumentParser) -> None:
    kinds = []
    for kind in KINDS.values():
        minutes = f" ({kind.minutes} minutes)" if kind.minutes > 1 else ""
        kinds.append(f"{kind.name}: {kind.description}{minutes}")
    parser.add_argument(
        "kind",
        metavar="KIND",
        nargs="?",
        type=parse_kind,
        choices=tuple(KINDS),
        default=DEFAULT_KIND,
        help=f"{'; '.join(kinds)} (default: {DEFAULT_KIND})",
    )
    parser.add_argument(
        "--dtype",
        type=argument_type(parse_dtypes),
        metavar="TYPE",
        help=f"{', '.join(DTYPES)}; for a sweep several with commas "
        "(default: the fastest usual one for training)",
    )
    parser.add_argument(
        "--size",
        type=argument_type(request.parse_size),
        metavar="N",
        default="auto",
        help="multiply N x N matrices; for sweep and peak, the largest N (default: auto)",
    )
    parser.add_argument(
        "--seconds",
        type=argument_type(request.parse_seconds),
        metavar="S",
        help=f"duration (default {request.DEFAULT_SECONDS:g}; of a check, as its level says)",
    )
    parser.add_argument(
        "--frequency",
        type=argument_type(request.parse_hertz),
        metavar="HZ",
        help=f"frequency of pulse, from 0.1 to 20 (default {request.DEFAULT_HERTZ:g})",
    )
    parser.add_argument(
        "--memory-share",
        type=argument_type(request.parse_share),
        metavar="SHARE",
        help=f"most of the free memory to use, up to 1 (default {request.DEFAULT_MEMORY_SHARE:g}, "
        f"of the host's {request.CPU_MEMORY_SHARE:g})",
    )
    parser.add_argument(
        "--verify",
        choices=("some", "all"),
        default="some",
        help="products to verify in a run of one shape: some (default; costs little) or all",
    )
    options.add_python(
        parser,
        "the interpreter whose torch is used (default: the active environment's)",
    )


def _add_check(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--level",
        choices=("quick", "standard", "burn-in"),
        help="length of a check: quick (2 minutes, default), standard (10 minutes), "
        "burn-in (1 hour)",
    )


def _add_devices(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--device",
        type=argument_type(target_choice.parse_devices),
        metavar="DEVICE",
        help="cpu, an index such as 0, or 0:1 of a MIG instance, a PCI address or the start of a "
        "UUID; several with commas; `all`: all that CUDA_VISIBLE_DEVICES leaves "
        "(default: the first, or the CPU)",
    )
    parser.add_argument(
        "--ignore-busy",
        action="store_true",
        help="test even if another process uses the device",
    )
    parser.add_argument(
        "--ranks",
        type=count,
        metavar="N",
        help="processes of collective on the CPU (default: 2 to 4, depending on the cores)",
    )
    parser.add_argument(
        "--ray",
        nargs="?",
        const="auto",
        metavar="ADDRESS",
        help="run on the free GPUs of a Ray cluster, all at the same time; ADDRESS is as "
        "`ray start` prints it (default: the cluster that this machine is in)",
    )
    parser.add_argument(
        "--devices",
        type=count,
        metavar="N",
        help="with --ray: how many GPUs (default: all)",
    )


def _add_verdict(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--min-percent-of-peak",
        type=argument_type(request.parse_percent),
        metavar="PERCENT",
        default=request.DEFAULT_MIN_PERCENT_OF_PEAK,
        help="a GPU below this share of the datasheet's dense peak or memory bandwidth is "
        f"degraded (default {request.DEFAULT_MIN_PERCENT_OF_PEAK:g})",
    )
    parser.add_argument(
        "--tolerance",
        type=argument_type(request.parse_percent),
        metavar="PERCENT",
        default=request.DEFAULT_TOLERANCE_PERCENT,
        help="how far a device may be below the median of equal devices "
        f"(default {request.DEFAULT_TOLERANCE_PERCENT:g})",
    )


def _add_output(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the result as one JSON document",
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="also print how it was measured, and all parts of the verdict",
    )
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="also write the run as an HTML page, to send to others",
    )
    parser.add_argument(
        "--history",
        action="store_true",
        help="list earlier results (of --device), newest first",
    )
    parser.add_argument(
        "--compare",
        nargs=2,
        metavar="RESULT",
        help="run nothing: show what differs between two results; each is a file that `--json` "
        "wrote, or a number in --history, where 1 is the newest",
    )


def run(args: argparse.Namespace) -> int:
    """Run the requested stress tests, and return the exit status."""
    try:
        _refuse_misuse(args)
        _check_outputs(args)
        if args.history or args.compare:
            from gputop.commands import bench_history

            if args.history:
                return bench_history.history(args)
            return bench_history.compare(args)
        import asyncio

        from gputop.commands.bench_results import report

        targets = []
        if args.ray is None:
            targets = select_targets(
                args.device, args.kind, ignore_busy=args.ignore_busy
            )
        requesting = partial(_requests, args)
        run_once = partial(_run, args, targets)
        if args.kind == CHECK:
            from gputop.commands.bench_check import run_check

            return run_check(args, requesting, run_once)
        ends, others = asyncio.run(run_once(requesting))
    except KeyboardInterrupt:
        return INTERRUPTED
    except RunRefusedError as error:
        print_message(f"error: {error}")
        return error.status
    return report(ends, others, args)


async def _run(
    args: argparse.Namespace,
    targets: Sequence[Target],
    requesting: Callable[[Sequence[Target]], list[Request]],
    head: str = "",
) -> Ends:
    """Run on these devices or on a cluster. Return the runs and the untested devices."""
    if args.ray is None:
        return await _stress(requesting(targets), head), ()
    from gputop.bench.cluster.run import run_on_cluster

    return await run_on_cluster(
        args.ray,
        requesting,
        devices=args.devices,
        cpu=args.device == ("cpu",),
        ignore_busy=args.ignore_busy,
        python=args.python,
        head=head,
    )


async def _stress(
    requests: list[Request], head: str = ""
) -> Sequence[DeviceRun]:
    from gputop.bench.run.progress import follow_on_a_line
    from gputop.bench.run.run import Run
    from gputop.bench.run.runner import Runner

    return await follow_on_a_line(Runner(Run(requests)), head)


def _refuse_misuse(args: argparse.Namespace) -> None:
    name, kind, ray = args.kind, KINDS[args.kind], args.ray is not None
    ways = {"--ray": ray, "--compare": args.compare, "--history": args.history}
    named = [way for way, chosen in ways.items() if chosen]
    unfit = {
        "--dtype": args.dtype and not kind.has_dtype,
        "--size": args.size and not kind.has_size,
        "--verify": args.verify == "all" and kind.has_rows,
        "--frequency": args.frequency and name != "pulse",
        "--ranks": args.ranks and name != "collective",
        "--level": args.level and name != CHECK,
    }
    misuses = (
        (
            args.devices and not ray,
            "--devices is for a Ray cluster. Add --ray.",
        ),
        (
            args.ray in KINDS,
            f"{args.ray} is a kind of run, not an address. Type `gputop bench {args.ray} --ray`.",
        ),
        (
            ray and args.device not in (None, ("cpu",)),
            "Ray chooses the devices. Give their number with --devices.",
        ),
        (
            len(named) > 1,
            f"{' and '.join(named)} exclude each other. Choose one.",
        ),
        (
            args.report and named and (name, named) != (CHECK, ["--ray"]),
            f"--report is for a run on one device. Leave out {named and named[0]}.",
        ),
        (
            args.compare and args.json,
            "--compare prints text. Leave out --json.",
        ),
        *(
            (wrong, f"{option} is not for {name}. Leave it out.")
            for option, wrong in unfit.items()
        ),
        (
            args.dtype and len(args.dtype) > 1 and not kind.several_dtypes,
            f"{name} runs one data type. Give --dtype one, or run a sweep.",
        ),
        (
            args.ranks is not None and args.ranks not in range(2, 65),
            "--ranks is from 2 to 64. Give a number such as 4.",
        ),
    )
    for misused, message in misuses:
        if misused:
            raise RunRefusedError(message, USAGE)


def _requests(
    args: argparse.Namespace, targets: Sequence[Target]
) -> list[Request]:
    alone = args.ray is None and [each.kind for each in targets] == ["cpu"]
    if args.kind == "collective" and alone:
        targets = request.cpu_ranks(args.ranks)
    elif args.ranks is not None:
        raise RunRefusedError("Each GPU is a rank. Leave out --ranks.", USAGE)
    several = len(targets) > 1 and args.ray is None
    if args.report and several and args.kind not in (CHECK, "collective"):
        raise RunRefusedError(
            "--report is a page about one device. Name one with --device.",
            USAGE,
        )
    python = args.python
    hertz = args.frequency or request.DEFAULT_HERTZ
    common = (
        args.size,
        args.seconds or request.DEFAULT_SECONDS,
        python,
        args.kind,
    )
    requests = []
    for found in targets:
        target = replace(
            found, memory_share=args.memory_share or found.memory_share
        )
        dtype, *further = args.dtype or (request.default_dtype(target),)
        requests.append(
            request.Request(
                *(target, dtype, *common, tuple(further)),
                hertz=hertz,
                verify_all=args.verify == "all",
            )
        )
    problem = request.check_together(requests)
    if problem is not None:
        raise RunRefusedError(f"{problem}.", USAGE)
    return target_choice.with_peers(requests)


def _check_outputs(args: argparse.Namespace) -> None:
    if args.report is None:
        return
    file = Path(args.report)
    why, remedy = "", "Name another file"
    try:
        check_target(file)
    except OSError as error:
        why = error.strerror or str(error)
    if not file.parent.is_dir():
        why, remedy = (
            "there is no such folder",
            "Create it, or name another file",
        )
    elif not os.access(file.parent, os.W_OK | os.X_OK):
        why = "its folder cannot be written to"
    if why:
        raise RunRefusedError(f"{unwritten(file, why, remedy)}.")


def unwritten(
    file: Path,
    why: str,
    remedy: str,
) -> Problem:
    return Problem(f"{visible(str(file))} cannot be written", why, remedy)
