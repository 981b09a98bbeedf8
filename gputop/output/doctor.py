"""Findings of `gputop doctor` as a page of text or one JSON document."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gputop import __version__
from gputop.health.doctor.finding import Status
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.health.doctor.facts import Facts
    from gputop.health.doctor.finding import Finding, Judgement
    from gputop.schema.device import Device

MARKS = {status: str(status) for status in Status} | {Status.PROBLEM: "PROBLEM"}
MARK_WIDTH = max(map(len, MARKS.values()))
_COLOURS = {Status.OK: "32", Status.NOTE: "36", Status.WARNING: "33", Status.PROBLEM: "1;31"}
_PLURALS = {Status.NOTE: "notes", Status.WARNING: "warnings", Status.PROBLEM: "problems"}
LEAST_TEXT = 30
"""Columns for the text on the narrowest terminal."""


def document(findings: Sequence[Finding], facts: Facts) -> dict[str, Any]:
    """Return versions and findings as JSON; a device is named by its UUID."""
    torch = facts.torch
    return {
        "versions": {
            "gputop": __version__,
            "python": facts.python_version,
            "driver": facts.driver_version,
            "kernel_module": facts.system.module_version,
            "nvml_library": facts.system.library_version,
            "cuda_driver": facts.cuda_version,
            "torch": torch.version if torch else None,
            "torch_cuda": torch.cuda_version if torch else None,
            "torch_python": facts.found.chosen.path if facts.found.chosen else None,
        },
        "checks": [
            {
                "check": each.check.name,
                "group": each.check.group,
                "status": each.judgement.status,
                "finding": each.judgement.finding,
                "remedy": _remedy(each.judgement, each.judgement.device) or None,
                "device": each.judgement.device.uuid if each.judgement.device else None,
                "rows": list(each.judgement.rows),
            }
            for each in findings
        ],
    }


def page(
    findings: Sequence[Finding], gpus: int, width: int | None = None, *, colour: bool = False
) -> str:
    """Return a line for each check with the remedy below, and a summary.

    `gpus` is the number of GPUs. Lines break at `width` columns if it is given.
    """
    merged = list(_merged(findings))
    titles = max(len(finding.check.title) for finding, _ in merged)
    indent = 2 + MARK_WIDTH + 2 + titles + 2
    room = None if width is None else max(LEAST_TEXT, width - indent)
    lines: list[str] = []
    group = None
    for finding, devices in merged:
        if finding.check.group != group:
            group = finding.check.group
            lines += ["", group] if lines else [group]
        status = finding.judgement.status
        mark = _painted(MARKS[status].ljust(MARK_WIDTH), status if colour else None)
        first, *rest = _texts(finding.judgement, devices, gpus, room)
        lines.append(f"  {mark}  {finding.check.title:<{titles}}  {first}")
        lines += [f"{'':{indent}}{line}" for line in rest]
    summary = _summary([finding.judgement.status for finding, _ in merged], colour=colour)
    return "\n".join([*lines, "", summary])


def _painted(text: str, status: Status | None) -> str:
    return text if status is None else f"\x1b[{_COLOURS[status]}m{text}\x1b[0m"


def _merged(findings: Iterable[Finding]) -> Iterator[tuple[Finding, list[Device]]]:
    """Yield each finding once, with all devices that have it, in the order of the first."""
    groups: dict[tuple[object, ...], tuple[Finding, list[Device]]] = {}
    for finding in findings:
        said = finding.judgement
        key = (finding.check.name, *dataclasses.astuple(dataclasses.replace(said, device=None)))
        _, devices = groups.setdefault(key, (finding, []))
        if said.device is not None:
            devices.append(said.device)
    yield from groups.values()


def _named(devices: Sequence[Device], gpus: int) -> str:
    """Return the devices as a prefix of the text; empty if the machine has only one."""
    if not devices or gpus == 1:
        return ""
    if len(devices) == gpus:
        return "all: "
    labels = ", ".join(device.label for device in devices)
    return f"GPU {labels}: " if len(devices) == 1 else f"GPUs {labels}: "


def _remedy(said: Judgement, *devices: Device | None) -> str:
    return said.remedy_for(*(device for device in devices if device is not None))


def _texts(
    said: Judgement, devices: Sequence[Device], gpus: int, room: int | None
) -> Iterator[str]:
    yield from _broken(f"{_named(devices, gpus)}{visible(said.finding, 600)}", room)
    for row in said.rows:
        yield from _broken(row, room)
    if said.remedy and said.status is not Status.OK:
        yield from _broken(f"> {visible(_remedy(said, *devices), 600)}", room, "  ")


def _broken(text: str, room: int | None, indent: str = "") -> list[str]:
    if room is None:
        return [text]
    # Commands must not break at hyphens.
    lines = textwrap.wrap(text, room, subsequent_indent=indent, break_on_hyphens=False)
    return lines or [""]


def _summary(statuses: Sequence[Status], *, colour: bool) -> str:
    counts = {status: statuses.count(status) for status in Status}
    said = [
        f"{count} {_PLURALS[status] if count != 1 else status}"
        for status, count in reversed(counts.items())
        if count and status is not Status.OK
    ]
    worst = next((status for status in reversed(Status) if counts[status]), Status.OK)
    if worst is Status.OK:
        text = "Nothing is wrong."
    elif counts[Status.PROBLEM]:
        text = f"{', '.join(said)}."
    else:
        text = f"No problem found; {', '.join(said)}."
    return _painted(text, worst if colour else None)
