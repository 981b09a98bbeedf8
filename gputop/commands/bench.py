"""`gputop bench`: a stress test without the dashboard."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.bench.plan import devices, request
from gputop.bench.plan.dtypes import DTYPES, parse_dtypes
from gputop.bench.plan.selection import RefusedError, select
from gputop.bench.results import exports
from gputop.commands.arguments import argument, count, output_width, print_text
from gputop.console import say
from gputop.exits import FINE, INTERRUPTED, USAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputop.bench.plan.request import Request, Target
    from gputop.bench.run.state import RunState

HERE = "auto"
"""The Ray cluster that this machine is in."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The kind of run and the options of `gputop bench`."""
    parser.add_argument(
        "kind",
        nargs="?",
        choices=tuple(request.KINDS),
        default="soak",
        metavar="KIND",
        help="; ".join(f"{kind}: {what}" for kind, what in request.KINDS.items())
        + " (default: soak)",
    )
    parser.add_argument(
        "--device",
        type=argument(devices.parse_devices),
        metavar="DEVICE",
        help="cpu, an index, that of a MIG instance such as 0:1, or the start of a UUID; several "
        "at once with commas, or `all` GPUs that CUDA_VISIBLE_DEVICES leaves (default: the first "
        "of those, or else the CPU)",
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
        type=argument(request.parse_size),
        default="auto",
        metavar="N",
        help="multiply N x N matrices, or `auto` (default): as large as is useful; "
        "of a sweep and a search the largest",
    )
    parser.add_argument(
        "--seconds",
        type=argument(request.parse_seconds),
        default=request.DEFAULT_SECONDS,
        metavar="S",
        help=f"how long (default {request.DEFAULT_SECONDS:g})",
    )
    parser.add_argument(
        "--memory-share",
        type=argument(request.parse_share),
        default=request.DEFAULT_MEMORY_SHARE,
        metavar="SHARE",
        help="how much of the free memory may be used, up to 1 "
        f"(default {request.DEFAULT_MEMORY_SHARE:g})",
    )
    parser.add_argument("--json", action="store_true", help="the result as one JSON document")
    parser.add_argument(
        "--python",
        type=argument(request.parse_python),
        metavar="PATH",
        default=argparse.SUPPRESS,  # or it would overwrite the one before the command
        help="the interpreter whose torch is used (default: the active environment's)",
    )
    parser.add_argument(
        "--ignore-busy", action="store_true", help="also where another process holds the device"
    )
    parser.add_argument(
        "--ray",
        nargs="?",
        const=HERE,
        metavar="ADDRESS",
        help="on the GPUs of a Ray cluster, one worker on each that is free, begun together: the "
        "one that this machine is in, or the one at ADDRESS (see `ray start`)",
    )
    parser.add_argument(
        "--devices", type=count, metavar="N", help="with --ray: so many GPUs (default: all)"
    )
    parser.add_argument(
        "--screen",
        action="store_true",
        help="with --ray: the whole terminal shows the devices as they run; what it ends with is "
        "printed when you leave",
    )
    parser.add_argument(
        "--collect",
        nargs="+",
        metavar="FILE",
        help="run nothing: compare the devices of files that `gputop bench --json` wrote, such as "
        "with `srun` one for each GPU",
    )
    exports.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the stress tests that the arguments ask for; returns the exit status."""
    try:
        _look_over(args)
        _check(args)
        if args.history:
            return _history(args)
        if args.collect:
            return _collect(args)
        if args.ray is not None:
            return _on_cluster(args)
        targets = select(args.device, args.kind, ignore_busy=args.ignore_busy)
        requests = _requests(args, targets)
        ends = _stress(requests)
    except KeyboardInterrupt:
        return INTERRUPTED
    except RefusedError as error:
        say(f"error: {error}")
        return error.status
    from gputop.commands.bench_results import conclude

    return conclude(ends, args)


def _collect(args: argparse.Namespace) -> int:
    """Compares the devices of files."""
    from gputop.bench.results.collect import collect
    from gputop.commands.bench_results import conclude_many

    found = collect(args.collect)
    return conclude_many(found.members, found.left_out, args)


def _on_cluster(args: argparse.Namespace) -> int:
    """Runs on the GPUs that Ray gives."""
    from gputop.bench.cluster.run import Order, burn, on_a_line
    from gputop.commands.bench_results import conclude_cluster

    cpu = args.device == ("cpu",)
    python = getattr(args, "python", None)
    order = Order(args.ray, args.devices, cpu, args.ignore_busy, python)
    follow = on_a_line
    if args.screen:
        from gputop.ui.shell.cluster_screen import on_screen

        follow = on_screen
    return conclude_cluster(burn(order, lambda targets: _requests(args, targets), follow), args)


def _stress(requests: list[Request]) -> list[RunState]:
    import asyncio

    from gputop.bench.run.foreground import run_in_foreground

    return asyncio.run(run_in_foreground(requests))


def _check(args: argparse.Namespace) -> None:
    """Refuses what could not be written after a run, before it."""
    if misuse := exports.misuse(args):
        raise RefusedError(misuse, USAGE)
    if problem := exports.unwritable(args):
        raise RefusedError(f"{problem}.")


def _history(args: argparse.Namespace) -> int:
    """Prints earlier results, of one device where it is named."""
    from gputop.bench.results import history
    from gputop.bench.results.store import ResultsError

    form: history.Form = "json" if args.json else "csv" if args.csv else "table"
    try:
        text = history.text(_one_device(args.device), form, output_width())
    except (ResultsError, ValueError) as error:
        raise RefusedError(f"{error}.") from None
    print_text(text)
    return FINE


def _one_device(named: tuple[str, ...] | None) -> str | None:
    """Whose history it is, None for all."""
    if named is None or named == (devices.ALL,):
        return None
    if len(named) > 1:
        raise RefusedError("--history is of one device, or of all. Name one with --device.", USAGE)
    return named[0]


def _look_over(args: argparse.Namespace) -> None:
    """Refuses options that the kind of run does not have."""
    kind: str = args.kind
    _look_over_many(args)
    if kind == "copy" and args.dtype:
        raise RefusedError("copy has no data type. Leave out --dtype.", USAGE)
    if args.dtype and len(args.dtype) > 1 and kind != "sweep":
        raise RefusedError(f"{kind} runs one data type. Give --dtype one, or sweep.", USAGE)
    if args.size is not None and kind in ("latency", "copy"):
        raise RefusedError(f"{kind} has sizes of its own. Leave out --size.", USAGE)


def _look_over_many(args: argparse.Namespace) -> None:
    """Refuses what does not go with a cluster, or with files."""
    if args.ray is None and args.devices is not None:
        raise RefusedError("--devices is how many GPUs of a cluster. Add --ray.", USAGE)
    if args.ray in request.KINDS:
        raise RefusedError(
            f"{args.ray} is a kind of run, and no address. Type `gputop bench {args.ray} --ray`.",
            USAGE,
        )
    if args.screen and args.ray is None:
        raise RefusedError("--screen shows a cluster. Add --ray, or start `gputop`.", USAGE)
    if args.screen and not (os.isatty(0) and os.isatty(2)):
        raise RefusedError("--screen wants a terminal. Leave it out.", USAGE)
    if args.ray is not None and args.kind == "pairs":
        raise RefusedError("pairs is of one machine. Leave out --ray.", USAGE)
    if args.ray is not None and args.device not in (None, ("cpu",)):
        raise RefusedError("Ray chooses the devices. Say how many with --devices.", USAGE)
    many = "--ray" if args.ray is not None else "--collect" if args.collect else None
    if many and args.collect and args.ray is not None:
        raise RefusedError("--collect runs nothing. Leave out --ray.", USAGE)
    if many and args.history:
        raise RefusedError(f"--history is of earlier runs. Leave out {many}.", USAGE)
    if many and (args.report or args.tensorboard):
        raise RefusedError(
            f"--report and --tensorboard are of one device. Leave out {many}.", USAGE
        )


def _requests(args: argparse.Namespace, targets: Sequence[Target]) -> list[Request]:
    """One for each device; raises `RefusedError` where several cannot be had."""
    if len(targets) > 1 and args.ray is None:
        _look_over_several(args)
    python = getattr(args, "python", None)
    dtypes = args.dtype or ((devices.common_dtype(targets),) if args.kind == "pairs" else ())
    requests = []
    for found in targets:
        target = replace(found, memory_share=args.memory_share)
        dtype, *further = dtypes or (request.default_dtype(target),)
        requests.append(
            request.Request(
                target, dtype, args.size, args.seconds, python, args.kind, tuple(further)
            )
        )
    if args.kind == "pairs" and (problem := request.check_pairs(requests)):
        raise RefusedError(f"{problem}.")
    return requests if args.ray is not None else devices.with_peers(requests)


def _look_over_several(args: argparse.Namespace) -> None:
    """Refuses options that are for one device."""
    if args.report is not None:
        raise RefusedError("--report is a page of one device. Name one with --device.", USAGE)
    if args.csv and args.kind not in ("soak", "pairs"):
        raise RefusedError(
            "--csv has the rows of one device. Name one with --device, or take --json.", USAGE
        )
