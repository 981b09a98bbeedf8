"""Which devices `gputop bench` puts under stress, once nobody else is disturbed by it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from gputop.bench import devices, plan
from gputop.console import say
from gputop.text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputop.bench.plan import Target
    from gputop.telemetry.snapshot import Inventory, Process, Sample

USAGE, COULD_NOT_RUN = 2, 3


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

    from gputop.telemetry.child import StreamError, one_snapshot

    try:
        inventory, sample = asyncio.run(one_snapshot())
    except StreamError as error:
        raise RefusedError(f"{error}. Or choose --device cpu.") from None
    try:
        # Who names a device by its number or UUID means that one, whatever CUDA would see.
        by_name = named is not None and devices.ALL not in named
        left, note = (inventory, None) if by_name else devices.left_by_cuda(inventory, os.environ)
        if note is not None:
            say(note)
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
    say(f"there is no GPU to use{why}: the CPU is put under stress")


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
