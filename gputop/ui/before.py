"""Before a stress test starts: who can be tested, and whom it would disturb."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.bench import devices, pairs
from gputop.bench.devices import numbers
from gputop.text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputop.bench.plan import Request, Target
    from gputop.telemetry.snapshot import Process, Sample

LISTED = 8
"""Processes that the question names."""
UNKNOWN = "The driver does not say who uses it."


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
    if left[0].kind == "pairs" and (problem := pairs.refused(left)):
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
    named = [(numbers(on), _named(process)) for process, on in holding.values()]
    wide = max((len(label) for label, _ in named[:LISTED]), default=0)
    lines = [f"{label:<{wide}} {text}" for label, text in named]
    lines = _cut(lines) + [f"{numbers([target])}: {UNKNOWN}" for target in unknown]
    some = f"{len(busy)} of {len(targets)} devices"
    if not named:
        return f"{some} may be in use:", lines
    be = "are" if len(busy) > 1 else "is"
    return f"{some} {be} in use. A stress test slows down:", lines


def _of_one(target: Target, holders: list[Process] | None) -> tuple[str, list[str]]:
    label = visible(target.label)
    if holders is None:
        return f"{label} may be in use:", [UNKNOWN]
    lines = _cut([_named(process) for process in holders])
    return f"{label} is in use. A stress test slows down:", lines


def _cut(lines: list[str]) -> list[str]:
    more = len(lines) - LISTED
    return [*lines[:LISTED], f"          and {more} more"] if more > 0 else lines


def _named(process: Process) -> str:
    user, command = visible(process.user or "–"), visible(process.command or "(not visible)", 160)
    return f"{process.pid:>8}  {user:<10} {command}"
