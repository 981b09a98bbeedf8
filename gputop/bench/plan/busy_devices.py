"""Busy devices: which processes use them, and the question before such a device is tested."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gputop.bench.plan.request import RunRefusedError, Target, short_labels
from gputop.schema.snapshot import Process, ProcessKind, Sample
from gputop.text import fold_list, visible

LISTED = 8
"""Most processes named in a question on the screen."""
UNKNOWN = "The driver does not say who uses it."


def processes_on(sample: Sample | None, target: Target) -> list[Process] | None:
    """Return the processes that compute on the device, or None if unknown."""
    if target.kind == "cpu":
        return []
    readings = sample.device(target.uuid or "") if sample else None
    if sample is None or readings is None or "processes" in readings.absent:
        return None
    return [
        process
        for process in sample.processes
        if process.device_uuid == target.uuid and process.kind is not ProcessKind.GRAPHICS
    ]


def refuse_busy(target: Target, sample: Sample) -> None:
    """Raise `RunRefusedError` for a device in use, unless the user answers that with yes."""
    processes = processes_on(sample, target)
    if processes == []:
        return
    use = "may be in use: the driver does not say by whom"
    if processes is not None:
        holders = [
            f"{each.pid} ({visible(each.user or '?', 32)}: {visible(each.command or '?', 60)})"
            for each in processes
        ]
        use = f"is in use by process {fold_list(holders, 3)}"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        remedy = "Wait for it to end, choose another --device, or add --ignore-busy."
        raise RunRefusedError(f"{target.label} {use}. {remedy}")
    print(visible(f"{target.label} {use}.", 1_000), file=sys.stderr)
    print("Start the stress test anyway? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise RunRefusedError("nothing was started: the device is in use. Choose another --device.")


def busy_question(sample: Sample | None, targets: Sequence[Target]) -> tuple[str, list[str]] | None:
    """Return the title and lines of the question before a busy device is tested, or None.

    A process on several devices is named once.
    """
    held = {target: processes_on(sample, target) for target in targets}
    busy = [target for target, holders in held.items() if holders != []]
    if not busy:
        return None
    holding: dict[int, tuple[Process, list[Target]]] = {}
    for target in busy:
        for process in held[target] or ():
            holding.setdefault(process.pid, (process, []))[1].append(target)
    alone = len(targets) == 1
    named = ["" if alone else f"{short_labels(on)} " for _, on in holding.values()]
    wide = max(map(len, named[:LISTED]), default=0)
    lines = [
        f"{label:<{wide}}{_line(process)}"
        for label, (process, _) in zip(named, holding.values(), strict=True)
    ]
    if (more := len(lines) - LISTED) > 0:
        lines[LISTED:] = [f"          and {more} more"]
    unknown = [target for target in busy if held[target] is None]
    lines += [UNKNOWN if alone else f"{short_labels([target])}: {UNKNOWN}" for target in unknown]
    who = visible(busy[0].label) if alone else f"{len(busy)} of {len(targets)} devices"
    if not named:
        return f"{who} may be in use:", lines
    be = "are" if len(busy) > 1 else "is"
    return f"{who} {be} in use. A stress test would slow down:", lines


def _line(process: Process) -> str:
    user, command = visible(process.user or "–"), visible(process.command or "(not visible)", 160)
    return f"{process.pid:>8}  {user:<10} {command}"
