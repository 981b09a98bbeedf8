"""Checks of driver, devices, torch and gputop. Pure functions judge facts gathered before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.health.doctor import checks, device_checks

if TYPE_CHECKING:
    from gputop.health.doctor.doctor_facts import DoctorFacts
    from gputop.health.findings import Finding


CHECKS = (
    *checks.DRIVER_CHECKS,
    *device_checks.DEVICE_CHECKS,
    *device_checks.TORCH_CHECKS,
    *checks.GPUTOP_CHECKS,
)
BY_NAME = {check.name: check for check in CHECKS}
DEFAULT = "nvml"
"""Check that reports a driver problem if the problem names no check."""


def examine(facts: DoctorFacts) -> tuple[Finding, ...]:
    """Return the findings of all checks. `Finding.rule` is the name of the check."""
    known = facts.inventory.problem
    culprit = ""
    if known is not None:
        culprit = known.check if known.check in BY_NAME else DEFAULT
    found: list[Finding] = []
    for check in CHECKS:
        judged = check.judge(facts)
        if known is not None and check.name == culprit:
            judged = [
                checks.problem(f"{known.what}: {known.why}", known.remedy)
            ]
        found += [replace(each, rule=check.name) for each in judged]
    return tuple(found)
