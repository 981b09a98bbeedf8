"""Which devices are put under stress, once nobody else is disturbed by it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from gputop.bench.plan import devices
from gputop.bench.plan import request as plan
from gputop.console import COULD_NOT_RUN, print_message
from gputop.text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputop.bench.plan.request import Request, Target
    from gputop.schema.snapshot import Inventory, Process, Sample

LISTED = 8
"""Processes that a question on the screen names."""
UNKNOWN = "The driver does not say who uses it."


class RefusedError(Exception):
    """The run is not begun: one line for the user, and the exit status."""

    def __init__(self, message: str, status: int = COULD_NOT_RUN) -> None:
        super().__init__(message)
        self.status = status


def select(named: Sequence[str] | None, kind: str, *, ignore_busy: bool) -> list[Target]:
    """The devices that are named, after a question where another process holds one.

    Where none is named it is the first GPU that CUDA_VISIBLE_DEVICES leaves, or else the CPU; of
    `pairs` every such GPU, and the CPU where there are fewer than two. Raises `RefusedError`.
    """
    if named == ("cpu",):
        return [plan.cpu_target()]
    # Only here: the CPU is put under stress without a look at the driver.
    import asyncio

    from gputop.stream.snapshots import StreamError, one_snapshot

    try:
        inventory, sample = asyncio.run(one_snapshot())
    except StreamError as error:
        raise RefusedError(f"{error}. Or choose --device cpu.") from None
    try:
        # Who names a device by its number or UUID means that one, whatever CUDA would see.
        by_name = named is not None and devices.ALL not in named
        left, note = (inventory, None) if by_name else devices.left_by_cuda(inventory, os.environ)
        if note is not None:
            print_message(note)
        found = _found(inventory, left, sample, named, kind)
    except ValueError as error:
        if inventory.problem is not None and not inventory.devices:
            raise RefusedError(f"{inventory.problem}, or choose --device cpu.") from None
        raise RefusedError(str(error)) from None
    for target in found:
        if target.kind == "cuda":
            look_at(target, sample, ignore_busy=ignore_busy)
        elif named is None and kind != "pairs":
            _say_why_cpu(inventory, left)
    return found


def _found(
    inventory: Inventory, left: Inventory, sample: Sample, named: Sequence[str] | None, kind: str
) -> list[Target]:
    if named is not None:
        return devices.choose_all(inventory, left, sample, named)
    if kind != "pairs":
        return [devices.choose(left, sample, None)]
    *gpus, cpu = devices.targets(left, sample)
    usable = [target for target in gpus if devices.unusable(sample, target) is None]
    return usable if len(usable) > 1 else [*usable, cpu]


def _say_why_cpu(inventory: Inventory, left: Inventory) -> None:
    problems = (inventory.problem, *devices.divided(left).values())
    whys = [problem.why for problem in problems if problem]
    if inventory.devices and not left.devices:
        whys.append(devices.HIDDEN)
    reasons = "; ".join(dict.fromkeys(whys))
    why = f" ({reasons})" if reasons else ""
    print_message(f"there is no GPU to use{why}: the CPU is put under stress")


def look_at(target: Target, sample: Sample, *, ignore_busy: bool) -> None:
    """Refuses a device that does not answer, or that is held and may not be shared."""
    problem = devices.unusable(sample, target)
    if problem is not None:
        raise RefusedError(f"{problem}.")
    holders = devices.holders(sample, target)
    if holders == [] or ignore_busy:
        return
    use = "may be in use: the driver does not say by whom" if holders is None else _named(holders)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise RefusedError(
            f"{target.label} {use}. "
            "Wait for it to end, choose another --device, or add --ignore-busy."
        )
    print(visible(f"{target.label} {use}.", 1_000), file=sys.stderr)
    print("Put it under stress all the same? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise RefusedError("nothing was started: the device is in use. Choose another --device.")


def _named(holders: list[Process]) -> str:
    named = ", ".join(
        f"{process.pid} ({visible(process.user or '?', 32)}: {visible(process.command or '?', 60)})"
        for process in holders[:3]
    )
    more = f" and {len(holders) - 3} more" if len(holders) > 3 else ""
    return f"is in use by process {named}{more}"


# For the dashboard.


def usable(
    sample: Sample | None, requests: Sequence[Request], *, of_all: bool
) -> tuple[list[Request], str]:
    """Those of devices that answer, and in words which do not; raises `ValueError` where none do.

    Of all GPUs those that do not are left out; a device that was named is not.
    """
    problems = {
        request.target: problem
        for request in requests
        if (problem := devices.unusable(sample, request.target))
    }
    left = [request for request in requests if request.target not in problems]
    if problems and (not left or not of_all):
        raise ValueError(str(next(iter(problems.values()))))
    if left[0].kind == "pairs" and (problem := plan.check_pairs(left)):
        raise ValueError(str(problem))
    said = "; ".join(f"{target.label}: {problem.why}" for target, problem in problems.items())
    return devices.with_peers(left), said


def question(sample: Sample | None, targets: Sequence[Target]) -> tuple[str, list[str]] | None:
    """The question as its title and lines; None where nobody is disturbed.

    A process that holds several of the devices is named once.
    """
    held = {target: devices.holders(sample, target) for target in targets}
    busy = [target for target, holders in held.items() if holders != []]
    if not busy:
        return None
    if len(targets) == 1:
        return _of_one(targets[0], held[targets[0]])
    unknown = [target for target in busy if held[target] is None]
    holding: dict[int, tuple[Process, list[Target]]] = {}
    for target in busy:
        for process in held[target] or ():
            holding.setdefault(process.pid, (process, []))[1].append(target)
    named = [(devices.numbers(on), _line(process)) for process, on in holding.values()]
    wide = max((len(label) for label, _ in named[:LISTED]), default=0)
    lines = [f"{label:<{wide}} {text}" for label, text in named]
    lines = _cut(lines) + [f"{devices.numbers([target])}: {UNKNOWN}" for target in unknown]
    some = f"{len(busy)} of {len(targets)} devices"
    if not named:
        return f"{some} may be in use:", lines
    be = "are" if len(busy) > 1 else "is"
    return f"{some} {be} in use. A stress test slows down:", lines


def _of_one(target: Target, holders: list[Process] | None) -> tuple[str, list[str]]:
    label = visible(target.label)
    if holders is None:
        return f"{label} may be in use:", [UNKNOWN]
    lines = _cut([_line(process) for process in holders])
    return f"{label} is in use. A stress test slows down:", lines


def _cut(lines: list[str]) -> list[str]:
    more = len(lines) - LISTED
    return [*lines[:LISTED], f"          and {more} more"] if more > 0 else lines


def _line(process: Process) -> str:
    user, command = visible(process.user or "–"), visible(process.command or "(not visible)", 160)
    return f"{process.pid:>8}  {user:<10} {command}"
