"""What a check says: its judgements, as findings with the check that they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from gputop.schema.device import Absence
from gputop.schema.remedies import absence_text

if TYPE_CHECKING:
    from gputop.health.doctor.facts import Facts
    from gputop.schema.device import Device, DeviceSample


INDEX = "{index}"


class Status(StrEnum):
    """From fine to what keeps something from working."""

    OK = "ok"
    NOTE = "note"
    """Good to know; or why it was not judged."""
    WARNING = "warning"
    PROBLEM = "problem"


class Group(StrEnum):
    """What belongs together on the page, in its order."""

    DRIVER = "Driver"
    DEVICES = "Devices"
    TORCH = "CUDA and torch"
    GPUTOP = "gputop"


@dataclass(frozen=True, slots=True)
class Judgement:
    """One thing that a check found: in a short phrase, and what to do about it."""

    status: Status
    finding: str
    remedy: str = ""
    """`INDEX` in it is for the device's."""
    device: Device | None = None
    rows: tuple[str, ...] = ()
    """A table under the finding."""

    def remedy_for(self, *devices: Device) -> str:
        """The remedy where several devices have the same finding."""
        return self.remedy.replace(INDEX, ",".join(str(each.index) for each in devices))


class Check(NamedTuple):
    """A pure function over the facts. `name` is for programs, `title` for people."""

    name: str
    group: Group
    title: str
    judge: Callable[[Facts], Iterable[Judgement]]


@dataclass(frozen=True, slots=True)
class Finding:
    """A judgement, and whose."""

    check: Check
    judgement: Judgement


def ok(finding: str, device: Device | None = None) -> Judgement:
    """Nothing is wrong."""
    return Judgement(Status.OK, finding, device=device)


def note(finding: str, remedy: str = "", device: Device | None = None) -> Judgement:
    """Good to know."""
    return Judgement(Status.NOTE, finding, remedy, device)


def warning(finding: str, remedy: str, device: Device | None = None) -> Judgement:
    """It costs speed or comfort, or may soon be a problem."""
    return Judgement(Status.WARNING, finding, remedy, device)


def problem(finding: str, remedy: str, device: Device | None = None) -> Judgement:
    """Something does not work, or cannot be trusted."""
    return Judgement(Status.PROBLEM, finding, remedy, device)


def absent(name: str, device: Device, readings: DeviceSample) -> Judgement:
    """No reading to judge by: fine where the device has no such thing."""
    reason = {**device.absent, **readings.absent}.get(name, Absence.NOT_SUPPORTED)
    if reason is Absence.NOT_SUPPORTED:
        return ok("not supported by this device or its driver", device)
    return note(f"not judged: {absence_text(name, reason, device)}", device=device)
