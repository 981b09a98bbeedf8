"""All checks in the order of the page, and what they find in facts. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.health.doctor import cuda, devices, installation, system
from gputop.health.doctor.finding import Finding, problem

if TYPE_CHECKING:
    from gputop.health.doctor.facts import Facts

CHECKS = (*system.CHECKS, *devices.CHECKS, *cuda.CHECKS, *installation.CHECKS)
NAMES = frozenset(check.name for check in CHECKS)
DEFAULT = "nvml"
"""Whose finding a problem of the driver is that names no check."""


def examine(facts: Facts) -> tuple[Finding, ...]:
    """What every check finds; the driver's own problem is the finding of the check it names."""
    known = facts.problem
    culprit = None if known is None else known.check if known.check in NAMES else DEFAULT
    found = []
    for check in CHECKS:
        if known is not None and check.name == culprit:
            found.append(Finding(check, problem(f"{known.what}: {known.why}", known.remedy)))
        else:
            found += [Finding(check, judgement) for judgement in check.judge(facts)]
    return tuple(found)
