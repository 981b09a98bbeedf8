"""`gputop doctor`: problems of driver, devices, torch and gputop, with remedies.

`gputop --version --verbose` is here, too: what a bug report needs of this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputop import DISTRIBUTION, __version__
from gputop.commands.arguments import output_width, print_text
from gputop.commands.options import add_python
from gputop.console import FAULT, FINE, terminal_size
from gputop.health.findings import Finding, Severity, name_devices
from gputop.output.ansi import CYAN, GREEN, LOUD_RED, YELLOW, Piece, painted, wanted
from gputop.schema.advice import fill_index
from gputop.schema.derived import label_of
from gputop.text import count, visible

if TYPE_CHECKING:
    from gputop.agent.device import Device
    from gputop.health.doctor.doctor_facts import DoctorFacts

WAITING = "Checking driver, devices and torch ..."
STATUSES = {
    Severity.OK: ("ok", GREEN),
    Severity.INFORMATION: ("note", CYAN),
    Severity.WARNING: ("warning", YELLOW),
    Severity.FAULT: ("problem", LOUD_RED),
}
"""Words and colours of the severities, from fine to what keeps something from working."""
MARK_WIDTH = max(len(word) for word, _ in STATUSES.values())
LEAST_TEXT = 30
"""Fewest columns for the text, however narrow the terminal is."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gputop doctor`."""
    parser.add_argument(
        "--json", action="store_true", help="the findings as one JSON document"
    )
    add_python(
        parser,
        "the interpreter whose torch is checked (default: the one that stress tests use)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print what the checks find. A problem is a fault; notes and warnings are not."""
    import asyncio

    from gputop.health.doctor import examine
    from gputop.health.doctor.doctor_facts import gather

    _print_progress(WAITING)
    try:
        facts = asyncio.run(gather(arguments.python))
    finally:
        _print_progress(" " * len(WAITING))
    findings = examine(facts)
    if arguments.json:
        print_text(json.dumps(document(findings, facts), indent=2))
    else:
        colour = wanted(os.environ, terminal=sys.stdout.isatty())
        print_text(page(findings, facts, output_width(), colour=colour))
    return FAULT if any(each.severity is Severity.FAULT for each in findings) else FINE


def _print_progress(text: str) -> None:
    """Print text on a terminal that is overwritten later: importing torch can take seconds."""
    if sys.stderr.isatty():
        print(text, end="\r", file=sys.stderr, flush=True)


def document(findings: Sequence[Finding], facts: DoctorFacts) -> dict[str, Any]:
    """Return findings and versions as JSON values; a device is named by its UUID."""
    from gputop.health.doctor import BY_NAME

    torch, gpus = facts.torch, facts.gpus
    return {
        "versions": {
            "gputop": __version__,
            "python": facts.python_version,
            "driver": facts.inventory.driver_version,
            "kernel_module": facts.system.module_version,
            "nvml_library": facts.system.library_version,
            "cuda_driver": facts.inventory.cuda_version,
            "torch": torch.version if torch else None,
            "torch_cuda": torch.cuda_version if torch else None,
            "torch_python": facts.found.chosen.path if facts.found.chosen else None,
        },
        "checks": [
            {
                "check": each.rule,
                "group": BY_NAME[each.rule].group,
                "status": STATUSES[each.severity][0],
                "finding": each.line,
                "remedy": fill_index(each.remedy, _found_on(each, gpus)) or None,
                "device": each.device_uuid or None,
                "rows": list(each.rows),
            }
            for each in findings
        ],
    }


def page(
    findings: Sequence[Finding],
    facts: DoctorFacts,
    width: int | None = None,
    *,
    colour: bool = False,
) -> str:
    """Return a line for each check with its remedy below, and a summary.

    Lines are broken at `width` columns if given. Without colours the text is the same.
    """
    from gputop.health.doctor import BY_NAME

    gpus = facts.gpus
    merged = _merged(findings, gpus)
    titles = max(len(BY_NAME[finding.rule].title) for finding, _ in merged)
    indent = 2 + MARK_WIDTH + 2 + titles + 2
    room = None if width is None else max(LEAST_TEXT, width - indent)
    lines: list[str] = []
    group = None
    for finding, found_on in merged:
        check, severity = BY_NAME[finding.rule], finding.severity
        if check.group != group:
            group = check.group
            lines += ["", group] if lines else [group]
        word, look = STATUSES[severity]
        word = word.upper() if severity is Severity.FAULT else word
        first, *rest = _texts(finding, found_on, len(gpus), room)
        text = f"  {check.title:<{titles}}  {first}"
        mark = Piece(f"{word:<{MARK_WIDTH}}", look)
        lines.append(painted([Piece("  "), mark, Piece(text)], colour=colour))
        lines += [f"{'':{indent}}{line}" for line in rest]
    summary = _summary([finding.severity for finding, _ in merged], colour=colour)
    return "\n".join([*lines, "", summary])


def _found_on(finding: Finding, gpus: Iterable[Device]) -> list[Device]:
    return [device for device in gpus if device.uuid == finding.device_uuid]


def _merged(
    findings: Iterable[Finding], gpus: Iterable[Device]
) -> Sequence[tuple[Finding, list[Device]]]:
    """Merge what several devices have in common, at the place of the first."""
    groups: dict[Finding, list[Device]] = {}
    for finding in findings:
        same = groups.setdefault(replace(finding, device_uuid=""), [])
        same += _found_on(finding, gpus)
    return [*groups.items()]


def _named(devices: Sequence[Device], gpus: int) -> str:
    """Return which devices a text is about; empty if there is only one GPU."""
    if not devices or gpus == 1:
        return ""
    if len(devices) == gpus:
        return "all: "
    return f"{name_devices([label_of(device) for device in devices])}: "


def _texts(
    finding: Finding, devices: Sequence[Device], gpus: int, room: int | None
) -> Iterator[str]:
    yield from _broken(f"{_named(devices, gpus)}{visible(finding.line, 600)}", room)
    for row in finding.rows:
        yield from _broken(row, room)
    if finding.remedy and finding.severity is not Severity.OK:
        yield from _broken(
            f"> {visible(fill_index(finding.remedy, devices), 600)}", room, "  "
        )


def _broken(text: str, room: int | None, indent: str = "") -> list[str]:
    width = room or len(text) + 1
    # Commands keep their hyphens.
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_on_hyphens=False
    ) or [""]


def _summary(severities: Sequence[Severity], *, colour: bool) -> str:
    found = [s for s in reversed(STATUSES) if s in severities and s is not Severity.OK]
    parts = [
        count(severities.count(severity), STATUSES[severity][0]) for severity in found
    ]
    text = f"{', '.join(parts)}." if parts else "No problems found."
    if parts and Severity.FAULT not in severities:
        text = f"No problem found; {text}"
    _, look = STATUSES[max(severities, default=Severity.OK)]
    return painted([Piece(text, look)], colour=colour)


DRIVER = Path("/proc/driver/nvidia/version")
VARIABLES = (
    "TERM",
    "COLORTERM",
    "TERM_PROGRAM",
    "LANG",
    "LC_ALL",
    "TMUX",
    "SSH_CONNECTION",
)
"""Variables that decide what a terminal shows."""


def version_facts() -> Iterator[tuple[str, str]]:
    """Yield names and values: the system, Python, the dependencies, the driver and the terminal."""
    yield "system", platform.platform()
    yield "Python", f"{platform.python_version()} {sys.executable}"
    yield from _dependencies()
    yield "driver", _driver()
    columns, rows = terminal_size()
    hidden = {"TMUX": "set", "SSH_CONNECTION": "set"}
    found = {
        name: hidden.get(name, os.environ[name])
        for name in VARIABLES
        if name in os.environ
    }
    words = (f"{name}={visible(value, 40)}" for name, value in found.items())
    yield "terminal", " ".join((f"{columns}x{rows}", *words))


def _dependencies() -> Iterator[tuple[str, str]]:
    """Yield those that are always needed, and of the others those that are there."""
    try:
        needs = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        yield DISTRIBUTION, "is not installed"
        return
    for each in needs:
        name, _, condition = each.partition(";")
        name = re.split(r"[^\w.-]", name.strip())[0]
        try:
            if "dev" not in condition:
                yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            if not condition:
                yield name, "is not installed"


def _driver() -> str:
    try:
        first = DRIVER.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    except OSError as error:
        return f"none: {DRIVER}: {error.strerror}"
    return visible(" ".join(first.removeprefix("NVRM version:").split()), 200)
