"""Rules about errors: what the driver reported, and what the device's memory counts."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import isfinite
from typing import TYPE_CHECKING

from gputop.health import thresholds as t
from gputop.health.alerts import PROGRAM_XIDS, Severity
from gputop.health.conditions import event_text
from gputop.health.device_view import Look, now
from gputop.health.findings import Evidence, Said
from gputop.schema.values import value_text
from gputop.text import duration, visible

if TYPE_CHECKING:
    from gputop.schema.snapshot import Event

ECC, ECC_UNCORRECTED = "ecc_corrected", "ecc_uncorrected"


def xid(look: Look) -> Said | None:
    """The gravest Xid of the last hour."""
    recent = [e for e in look.events if e.kind == "xid" and look.now - e.time < t.XID_SECONDS]
    if not recent:
        return None
    last = gravest(recent)
    what, remedy = event_text(last)
    evidence = [Evidence("Xids in the last hour", "events", len(recent), "", t.XID_SECONDS)]
    if last.code is not None:
        evidence.append(now("code", "events", last.code))
    program = last.code in PROGRAM_XIDS
    return Said(Severity.WARNING if program else Severity.FAULT, what, evidence, remedy, last.time)


def gravest(xids: Iterable[Event]) -> Event:
    """The last one; a program's only where there is no other."""
    return max(xids, key=lambda event: (event.code not in PROGRAM_XIDS, event.time))


def ecc(look: Look) -> Said | None:
    """Errors in device memory: uncorrected ones at all, corrected ones while they rise.

    One snapshot shows no rise.
    """
    uncorrected = look.sample.ecc_uncorrected
    if uncorrected:
        return Said(
            Severity.FAULT,
            f"{uncorrected} uncorrected memory error{'s' if uncorrected > 1 else ''} (ECC)",
            [now("uncorrected", ECC_UNCORRECTED, uncorrected)],
            "Affected jobs crashed or have corrupt data: restart them. Reset the device when idle; "
            "if the errors come again, have it replaced",
        )
    rising = _corrected(look) if look.reading(ECC) else None
    if rising is None:
        look.reading(ECC_UNCORRECTED)
    return rising


def _corrected(look: Look) -> Said | None:
    counts = look.values(ECC, t.ECC_SECONDS, enough=0.01)
    known = [*filter(isfinite, counts)]
    last = known[-1]
    # One that goes backwards starts anew from there.
    rise = sum(max(0.0, after - before) for before, after in pairwise(known))
    if rise <= 0:
        return None
    span = look.span(t.ECC_SECONDS)
    many = rise >= t.ECC_MANY
    errors = "errors" if rise > 1 else "error"
    return Said(
        Severity.WARNING if many else Severity.INFORMATION,
        f"{rise:.0f} memory {errors} corrected (ECC) in {duration(span)}",
        [Evidence("corrected", ECC, rise, "", span), now("since the start", ECC, last)],
        "Watch it; many of them come before an uncorrected one: a reset may put a spare row in"
        if many
        else "Nothing for one now and then",
    )


def remap(look: Look) -> Said | None:
    """A row of memory waits for its spare, or there is none left."""
    if look.sample.remap_failed:
        return Said(
            Severity.FAULT, "No spare memory rows are left", _rows(look), "Have it replaced"
        )
    if look.reading("remap_pending"):
        return Said(
            Severity.WARNING,
            "A bad row of memory is replaced at its next reset",
            _rows(look),
            "Reset it when it is idle: `nvidia-smi --gpu-reset`, or reboot",
        )
    return None


def _rows(look: Look) -> list[Evidence]:
    rows = look.sample.remapped_rows
    return [] if rows is None else [now("rows replaced in its life", "remapped_rows", rows)]


def recovery(look: Look) -> Said | None:
    """The driver wants something done about it."""
    action = look.sample.recovery_action
    if action is None:
        look.reading("recovery_action")
    if action in (None, "none"):
        return None
    words = visible(action, 40).replace("_", " ")
    remedy = value_text("recovery_action", action)
    remedy = remedy[:1].upper() + remedy[1:]
    return Said(Severity.FAULT, f"The driver wants it recovered: {words}", [], remedy)
