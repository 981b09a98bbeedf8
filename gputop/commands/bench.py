"""`gputop bench`: a stress test without the dashboard."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gputop.bench.plan import devices, request
from gputop.bench.plan.devices import RunRefusedError, select_targets
from gputop.bench.plan.request import DTYPES, parse_dtypes
from gputop.commands.arguments import argument, count, output_width, print_text
from gputop.console import FINE, INTERRUPTED, USAGE, print_message
from gputop.problem import Problem
from gputop.text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputop.bench.plan.request import Request, Target
    from gputop.bench.run.state import RunState

HERE = "auto"
"""Address of the Ray cluster that this machine is in."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the kind of run and the options of `gputop bench`."""
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
        "for a sweep and a search the largest",
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
        "--ignore-busy", action="store_true", help="test even if another process uses the device"
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
        "--devices", type=count, metavar="N", help="with --ray: how many GPUs (default: all)"
    )
    parser.add_argument(
        "--screen",
        action="store_true",
        help="with --ray: show the devices on the whole terminal as they run; the results are "
        "printed when you leave",
    )
    parser.add_argument(
        "--collect",
        nargs="+",
        metavar="FILE",
        help="run nothing: compare the devices in files that `gputop bench --json` wrote, for "
        "example one for each GPU with `srun`",
    )
    parser.add_argument(
        "--history", action="store_true", help="list earlier results (of --device), newest first"
    )
    parser.add_argument(
        "--csv", action="store_true", help="the result, or the history, as comma-separated values"
    )
    parser.add_argument(
        "--report", metavar="FILE", help="also write the run as one HTML page, to send to somebody"
    )
    parser.add_argument(
        "--force", action="store_true", help="with --report: overwrite a file that is not a report"
    )
    parser.add_argument(
        "--tensorboard",
        metavar="DIR",
        help="also write the run as scalars, into a folder of its own in DIR; to see them: "
        "`tensorboard --logdir DIR`",
    )


def run(args: argparse.Namespace) -> int:
    """Run the requested stress tests and return the exit status."""
    try:
        _refuse_misuse(args)
        _check_outputs(args)
        if args.history:
            return _history(args)
        if args.collect:
            return _collect(args)
        if args.ray is not None:
            return _on_cluster(args)
        targets = select_targets(args.device, args.kind, ignore_busy=args.ignore_busy)
        requests = _requests(args, targets)
        ends = _stress(requests)
    except KeyboardInterrupt:
        return INTERRUPTED
    except RunRefusedError as error:
        print_message(f"error: {error}")
        return error.status
    from gputop.commands.bench_results import report_runs

    return report_runs(ends, args)


def _collect(args: argparse.Namespace) -> int:
    """Compare the devices of files."""
    from gputop.bench.results.collect import collect
    from gputop.commands.bench_results import report_devices

    found = collect(args.collect)
    return report_devices(found.members, found.left_out, args)


def _on_cluster(args: argparse.Namespace) -> int:
    """Run on the GPUs that Ray gives."""
    from gputop.bench.cluster.run import ClusterRequest, follow_on_terminal, run_on_cluster
    from gputop.commands.bench_results import report_cluster

    cpu = args.device == ("cpu",)
    python = getattr(args, "python", None)
    order = ClusterRequest(args.ray, args.devices, cpu, args.ignore_busy, python)
    follow = follow_on_terminal
    if args.screen:
        from gputop.ui.shell.cluster_screen import on_screen

        follow = on_screen
    return report_cluster(
        run_on_cluster(order, lambda targets: _requests(args, targets), follow), args
    )


def _stress(requests: list[Request]) -> list[RunState]:
    import asyncio

    from gputop.bench.run.progress import run_in_foreground

    return asyncio.run(run_in_foreground(requests))


def _history(args: argparse.Namespace) -> int:
    """Print earlier results, of one device if it is named."""
    from gputop.bench.results import history
    from gputop.bench.results.history import ResultsError

    form: history.Form = "json" if args.json else "csv" if args.csv else "table"
    try:
        text = history.listing(_one_device(args.device), form, output_width())
    except (ResultsError, ValueError) as error:
        raise RunRefusedError(f"{error}.") from None
    print_text(text)
    return FINE


def _one_device(named: tuple[str, ...] | None) -> str | None:
    """Return whose history to print, or None for all."""
    if named is None or named == (devices.ALL,):
        return None
    if len(named) > 1:
        raise RunRefusedError("--history lists one device, or all. Name one with --device.", USAGE)
    return named[0]


def _refuse_misuse(args: argparse.Namespace) -> None:
    """Raise `RefusedError` for options that do not go together, or not with the kind of run."""
    kind, ray, collect = args.kind, args.ray is not None, bool(args.collect)
    many = "--ray" if ray else "--collect"
    exported = args.report or args.tensorboard
    misuses = (
        (args.devices is not None and not ray, "--devices is for a Ray cluster. Add --ray."),
        (
            args.ray in request.KINDS,
            f"{args.ray} is a kind of run, not an address. Type `gputop bench {args.ray} --ray`.",
        ),
        (args.screen and not ray, "--screen shows a cluster. Add --ray, or start `gputop`."),
        (
            args.screen and not (os.isatty(0) and os.isatty(2)),
            "--screen needs a terminal. Leave it out.",
        ),
        (ray and kind == "pairs", "pairs runs on one machine. Leave out --ray."),
        (
            ray and args.device not in (None, ("cpu",)),
            "Ray chooses the devices. Say how many with --devices.",
        ),
        (collect and ray, "--collect runs nothing. Leave out --ray."),
        ((collect or ray) and args.history, f"--history lists earlier runs. Leave out {many}."),
        (
            (collect or ray) and exported,
            f"--report and --tensorboard are for one device. Leave out {many}.",
        ),
        (kind == "copy" and args.dtype, "copy has no data type. Leave out --dtype."),
        (
            args.dtype and len(args.dtype) > 1 and kind != "sweep",
            f"{kind} runs one data type. Give --dtype one, or run a sweep.",
        ),
        (
            args.size is not None and kind in ("latency", "copy"),
            f"{kind} chooses its own sizes. Leave out --size.",
        ),
        (args.json and args.csv, "--json and --csv exclude each other. Choose one."),
        (
            args.history and exported,
            "--report and --tensorboard export a run, and --history runs nothing. Leave it out.",
        ),
        (args.force and not args.report, "--force is for --report. Add --report FILE."),
    )
    for misused, message in misuses:
        if misused:
            raise RunRefusedError(message, USAGE)


def _requests(args: argparse.Namespace, targets: Sequence[Target]) -> list[Request]:
    """Return a request for each device; raise `RunRefusedError` if they cannot run together."""
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
        raise RunRefusedError(f"{problem}.")
    return requests if args.ray is not None else devices.with_peers(requests)


def _look_over_several(args: argparse.Namespace) -> None:
    """Raise `RunRefusedError` for options that need one device."""
    if args.report is not None:
        raise RunRefusedError("--report is a page about one device. Name one with --device.", USAGE)
    if args.csv and args.kind not in ("soak", "pairs"):
        raise RunRefusedError(
            "--csv has the rows of one device. Name one with --device, or take --json.", USAGE
        )


def _check_outputs(args: argparse.Namespace) -> None:
    """Raise `RefusedError` before the run if a file could not be written after it."""
    no_file = partial(_no_file, force=args.force)
    for name, refused in ((args.report, no_file), (args.tensorboard, _no_folder)):
        if name is None:
            continue
        try:
            problem = refused(Path(name))
        except OSError as error:  # one may not look there, or nothing can be called so
            why = error.strerror or str(error)
            problem = unwritten(Path(name), why, "Name another one")
        if problem is not None:
            raise RunRefusedError(f"{problem}.")


def _no_file(file: Path, *, force: bool) -> Problem | None:
    from gputop.bench.results.html_report import is_report
    from gputop.files import check_target

    if file.is_dir():
        return unwritten(file, "it is a directory", "Name a file in it")
    if not file.parent.is_dir():
        return unwritten(file, "there is no such folder", "Create it, or name another file")
    if not os.access(file.parent, os.W_OK | os.X_OK):
        return unwritten(file, "its folder cannot be written to", "Name another file")
    check_target(file)
    if not force and file.exists() and not is_report(file):
        why = "it exists and is not a gputop report"
        return unwritten(file, why, "Name another file, or add --force")
    return None


def _no_folder(wanted: Path) -> Problem | None:
    folder = wanted
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
        return None
    why = f"{visible(str(folder))} is not a folder that can be written to"
    return unwritten(wanted, why, "Name another one")


def unwritten(file: Path, why: str, remedy: str) -> Problem:
    return Problem(f"{visible(str(file))} cannot be written", why, remedy)
