"""Check: a pure function over the facts, and the findings that it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gputop.compat import StrEnum
from gputop.health.findings import Finding, Severity
from gputop.schema.device import Absence, Device, DeviceSample
from gputop.schema.values import absence_text

if TYPE_CHECKING:
    from gputop.health.doctor.facts import DoctorFacts

INDEX = "{index}"
"""Placeholder in a remedy for the index of the device, or of all that have the same finding."""


class CheckGroup(StrEnum):
    """Section of the page, in order."""

    DRIVER = "Driver"
    DEVICES = "Devices"
    TORCH = "CUDA and torch"
    GPUTOP = "gputop"


class Check(NamedTuple):
    """A check: `name` is for programs, `title` for people."""

    name: str
    group: CheckGroup
    title: str
    judge: Callable[[DoctorFacts], Iterable[Finding]]
    rule: str = ""
    """Rule whose finding about a device counts instead, if there is one."""


def _made(severity: Severity, text: str, remedy: str = "", device: Device | None = None) -> Finding:
    return Finding(severity, text, advice=remedy, device_uuid=device.uuid if device else "")


note = partial(_made, Severity.INFORMATION)
"""Makes a finding that is good to know, or that says why a check was not possible."""
warning = partial(_made, Severity.WARNING)
"""Makes one that costs speed or comfort, or may soon be a problem."""
problem = partial(_made, Severity.FAULT)
"""Makes one that something does not work or cannot be trusted."""


def ok(text: str, device: Device | None = None) -> Finding:
    """Return a finding that nothing is wrong."""
    return _made(Severity.OK, text, device=device)


def absent(name: str, device: Device, readings: DeviceSample) -> Finding:
    """Return the finding for a missing reading, which is fine if the device does not support it."""
    reason = {**device.absent, **readings.absent}.get(name, Absence.NOT_SUPPORTED)
    if reason is Absence.NOT_SUPPORTED:
        return ok("not supported by this device or its driver", device)
    return note(f"not judged: {absence_text(name, reason, device)}", device=device)
