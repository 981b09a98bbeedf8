"""Content of *Why is it slow?*: causes, completed checks, and checks without data.

The page `w` of the dashboard and `gputop why` show the same content.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from gputop.agent.device import Device
from gputop.agent.snapshot import EVENTS, Event, Inventory, Sample
from gputop.health.causes import (
    Cause,
    find_causes,
    first_time,
    place_of,
    shared_numbers,
    title_of,
)
from gputop.health.conditions import machine_findings, state_findings
from gputop.health.findings import (
    Evidence,
    Finding,
    Severity,
    capitalized,
    name_devices,
    phrase,
)
from gputop.health.judge import RULES, Judge, Judgement, NoFinding, Verdict
from gputop.health.rule_view import NO_INVENTORY, NO_SAMPLE, lack_text
from gputop.schema.advice import fill_index
from gputop.schema.derived import label_of
from gputop.stream.history import History
from gputop.text import count, duration

if TYPE_CHECKING:
    from gputop.health.findings import BoundBy

SECTIONS = ("", "What slows the work", "Other problems", "Good to know")
"""Headings of causes, by section."""
BOUND_BY = "Bound by"
CHECKED, LACKING = "Checked, no problem", "Not enough data"


class Entry(NamedTuple):
    """One cause as shown: the problem, the remedy, and the numbers of each device."""

    severity: Severity
    section: str
    """Its heading; empty above the first heading."""
    title: str
    """The cause in words, with its devices unless the page is about one device."""
    remedy: str = ""
    since: float | None = None
    devices: Sequence[Device] = ()
    evidence: Sequence[Sequence[Evidence]] = ()
    """Numbers of each of the devices."""
    numbers: Sequence[str] = ()
    """Numbers that all devices share, in words."""

    def line(self, room: int) -> str:
        """Return the title with as many of its numbers as fit into `room` cells."""
        return phrase(self.title, self.numbers, (), room)


def figures(evidence: Iterable[Evidence]) -> list[tuple[str, str, str]]:
    """Return label, number and time of each, such as `idle`, `48 %` and ` in 1:00`.

    The time is empty if the previous number has the same one.
    """
    found = []
    named = ""
    for each in evidence:
        time = ""
        if each.seconds and each.unit != "s":
            time = f" in {duration(each.seconds)}"
        found.append((each.label, each.text, "" if time == named else time))
        named = time or named
    return found


@dataclass(frozen=True, slots=True)
class WhyReport:
    """The page, from top to bottom."""

    entries: Sequence[Entry]
    fine: Sequence[str]
    """Titles of the checks that found nothing."""
    lacking: Mapping[str, Sequence[str]]
    """Titles of the checks that could not decide, by the reason."""
    done: int
    """Number of checks that could decide."""
    waiting: int
    """Number of checks that only need more time."""
    bound_by: Sequence[tuple[Device, BoundBy]] = ()

    @property
    def bounds(self) -> list[str]:
        """One line per bottleneck: its devices and why; with numbers for a single device."""
        groups: dict[tuple[str, str], list[tuple[Device, BoundBy]]] = {}
        for device, each in self.bound_by:
            groups.setdefault((each.bound.shown, each.text), []).append(
                (device, each)
            )
        lines = []
        for (word, text), pairs in groups.items():
            why = pairs[0][1].why if len(pairs) == 1 else text
            who = name_devices([label_of(device) for device, _ in pairs])
            lines.append(f"{who}: {word} ({why})")
        return lines

    @property
    def problems(self) -> list[Entry]:
        """Entries that are more than normal, the gravest first."""
        found = [
            each
            for each in self.entries
            if each.severity > Severity.INFORMATION
        ]
        return sorted(found, key=lambda entry: -entry.severity)

    @property
    def severity(self) -> Severity:
        """Severity of the gravest entry; OK if there is none."""
        return max(
            (each.severity for each in self.entries), default=Severity.OK
        )

    @property
    def total(self) -> int:
        """Number of all checks."""
        return len(RULES)

    @property
    def checks(self) -> str:
        """Number of completed checks, such as `8 of 21 checks done`."""
        if self.done == self.total:
            return f"all {self.total} checks done"
        return f"{self.done} of {self.total} checks done"

    @property
    def summary(self) -> str:
        """One line: the number of problems and of completed checks."""
        many = Counter(each.severity for each in self.entries)
        parts = []
        if many[Severity.FAULT]:
            parts.append(count(many[Severity.FAULT], "fault"))
        if many[Severity.WARNING]:
            parts.append(count(many[Severity.WARNING], "warning"))
        if not parts:
            parts.append(
                "No problem so far" if self.waiting else "No problem found"
            )
        return f"{', '.join(parts)}: {self.checks}"


class Observation:
    """Snapshots over some time, and the verdicts of the rules at the end."""

    def __init__(self) -> None:
        self.inventory: Inventory | None = None
        self.sample: Sample | None = None
        self._history = History()
        self._events: deque[Event] = deque(maxlen=EVENTS)
        self._judge = Judge()

    def add(self, inventory: Inventory, sample: Sample) -> None:
        """Add the newest snapshot."""
        self.inventory, self.sample = inventory, sample
        self._history.add(sample)
        self._events.extend(sample.events)

    @property
    def seconds(self) -> float:
        """Time from the first to the newest sample."""
        return self._history.span(len(self._history.times))

    def judge(self) -> Judgement:
        """Judge the devices after the newest snapshot."""
        assert self.inventory is not None
        assert self.sample is not None
        return self._judge.judge(
            self._history, self.inventory, self.sample, self._events
        )

    def report(self) -> WhyReport:
        """Judge the devices, and return all problems."""
        judgement = self.judge()
        assert self.inventory is not None
        assert self.sample is not None
        return Situation(self.inventory, self.sample, judgement).report(
            self.inventory.devices
        )


class Situation:
    """All problems at one moment."""

    def __init__(
        self, inventory: Inventory, sample: Sample, judgement: Judgement
    ) -> None:
        self.inventory, self.sample = inventory, sample
        self.judgement = judgement
        self.findings: Sequence[Finding] = [
            *machine_findings(sample, inventory),
            *state_findings(inventory.devices, sample),
            *judgement.findings,
        ]
        """Findings about hosts, devices that do not answer, and all others."""

    @cached_property
    def problems(self) -> Mapping[str, Finding]:
        """Gravest finding above normal of each device; slowness comes first."""
        found: list[Finding] = []
        for cause in find_causes(self.findings):
            found += cause
        problems: dict[str, Finding] = {}
        for each in sorted(found, key=lambda one: -one.severity):
            if each.severity > Severity.INFORMATION:
                problems.setdefault(each.device_uuid, each)
        return problems

    def report(
        self, devices: Sequence[Device], only: Device | None = None
    ) -> WhyReport:
        """Return the page about these devices, or about one of them."""
        if only is not None:
            devices = (only,)
        known = {device.uuid: device for device in devices}
        found = []
        for each in self.findings:
            is_of_host = not each.device_uuid and (
                only is None or only.machine in (None, each.label)
            )
            if is_of_host or each.device_uuid in known:
                found.append(each)
        entries = []
        for cause in find_causes(found):
            entries.append(_entry(cause, known, only))
        return self._with_checks(entries, devices)

    def _with_checks(
        self, entries: Sequence[Entry], devices: Sequence[Device]
    ) -> WhyReport:
        """Return the page with the checks that found nothing and the undecided checks."""
        known = {device.uuid: device for device in devices}
        by_rule: dict[str, list[Verdict]] = {}
        for verdict in self.judgement.verdicts:
            if verdict.device_uuid in known:
                by_rule.setdefault(verdict.rule, []).append(verdict)
        fine: list[str] = []
        lacking: dict[str, list[str]] = {}
        waiting = done = 0
        for rule in RULES:
            verdicts = by_rule.get(rule.name, [])
            silent = [each for each in verdicts if isinstance(each, NoFinding)]
            if len(silent) < len(verdicts):
                done += 1
                continue
            reasons = self._reasons(silent, known)
            for reason in reasons:
                lacking.setdefault(reason, []).append(rule.title)
            if not silent or any(each.waits for each in silent):
                waiting += 1
            elif not reasons:
                fine.append(rule.title)
        words = self.judgement.bound_by
        bounds = [
            (known[uuid], words[uuid]) for uuid in known if uuid in words
        ]
        return WhyReport(
            entries, fine, lacking, done + len(fine), waiting, bounds
        )

    def _reasons(
        self, verdicts: Iterable[NoFinding], known: Mapping[str, Device]
    ) -> list[str]:
        """Return why a check could not decide, with the devices if it could on others."""
        reasons: dict[str, list[str]] = {}
        for verdict in verdicts:
            device = known[verdict.device_uuid]
            if verdict.missing:
                why = lack_text(
                    verdict.missing, verdict.absence, device, self.sample.host
                )
                reasons.setdefault(why, []).append(label_of(device))
        found = []
        for why, labels in reasons.items():
            some = len(labels) < len(known)
            found.append(f"on {name_devices(labels)}, {why}" if some else why)
        return found


NOTHING = Situation(NO_INVENTORY, NO_SAMPLE, Judgement())
"""Situation before the first sample."""


def _entry(
    cause: Cause,
    known: Mapping[str, Device],
    only: Device | None,
) -> Entry:
    first = cause[0]
    devices = []
    evidence = []
    for each in cause:
        if each.device_uuid:
            devices.append(known[each.device_uuid])
            evidence.append(each.evidence)
    title = title_of(cause)
    if only is not None and devices:
        title = capitalized(phrase(first.title, also=first.also))
    return Entry(
        first.severity,
        SECTIONS[place_of(first)],
        title,
        fill_index(first.remedy, devices),
        first_time(cause),
        devices,
        evidence,
        shared_numbers(cause),
    )
