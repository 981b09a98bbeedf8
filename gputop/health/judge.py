"""Runs the rules on the devices at each sample, and keeps the active findings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from gputop.agent.device import Absence, DeviceSample, DeviceState
from gputop.agent.snapshot import Event, Inventory, Sample
from gputop.health.bound_by import BUSY, bound_by
from gputop.health.findings import Bound, BoundBy, Finding, Severity
from gputop.health.ranks import JobState, find_jobs, find_peers, judge_jobs
from gputop.health.rule_view import (
    MOMENT,
    NoEvidence,
    RuleView,
    SampleWindow,
    find_windows,
)
from gputop.health.rules import hardware, jobs, memory_use, workload
from gputop.schema.derived import label_of
from gputop.stream.history import History


@dataclass(frozen=True, slots=True)
class NoFinding:
    """Verdict of a rule that found nothing or that lacks evidence."""

    rule: str
    device_uuid: str
    missing: str = ""
    """Reading that the rule lacks; empty if it could decide."""
    absence: Absence | None = None
    """Reason why the reading is missing; None if only more time is needed."""

    @property
    def waits(self) -> bool:
        """True if the rule can decide after a longer time."""
        return self.missing != "" and self.absence in (
            None,
            Absence.NO_DATA_YET,
        )


Verdict = Finding | NoFinding


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdicts of all rules on all devices at one moment."""

    time: float = 0.0
    verdicts: tuple[Verdict, ...] = ()
    """Verdicts by device, in the order of the rules."""
    findings: tuple[Finding, ...] = ()
    """Findings, the gravest first, then in the order of the rules."""
    bound_by: Mapping[str, BoundBy] = field(default_factory=dict)
    """Bottleneck of each device."""
    jobs: Mapping[str, JobState] = field(default_factory=dict)
    """Parallel jobs by their ids."""


class Rule(NamedTuple):
    """A check of a device."""

    name: str
    title: str
    """The condition in a few words, for the list of rules that found nothing."""
    judge: Callable[[RuleView], Finding | None]
    """Function that returns a finding or None. Raises only `NoEvidence`, if it cannot decide."""
    of_silent: bool = False
    """True if the rule also applies to a device that does not answer."""
    needs_history: bool = True
    """True if one snapshot is not enough. Doctor runs only the other rules."""
    is_urgent: bool = False
    """True if one sample is enough until there is a longer history."""


_at_once = partial(Rule, needs_history=False)
RULES = (
    _at_once("xid", "Xid errors", hardware.xid, of_silent=True),
    _at_once("ecc", "memory errors", hardware.ecc),
    _at_once("remap", "bad memory rows", hardware.remap),
    _at_once("recovery", "recovery", hardware.recovery),
    _at_once("almost_full", "out of memory", memory_use.almost_full),
    _at_once("thermal", "heat", hardware.thermal, is_urgent=True),
    _at_once(
        "hardware_slowdown",
        "hardware slowdown",
        hardware.hardware_slowdown,
        is_urgent=True,
    ),
    Rule("held_up", "a rank behind", jobs.held_up),
    Rule("input_bound", "waiting for input", workload.input_bound),
    Rule("straggler", "straggler", jobs.straggler),
    Rule("not_working", "busy with idle SMs", workload.not_working),
    _at_once("link_degraded", "slow PCIe link", hardware.link_degraded),
    Rule("pcie_bound", "full PCIe link", hardware.pcie_bound),
    Rule("clocks_low", "low clocks", hardware.clocks_low),
    Rule("ghost_load", "load without a process", memory_use.ghost_load),
    _at_once("unattributed", "unattributed memory", memory_use.unattributed),
    Rule("no_tensor_cores", "tensor cores", workload.no_tensor_cores),
    Rule("memory_bound", "memory bandwidth", workload.memory_bound),
    Rule("imbalance", "imbalance", jobs.imbalance),
    Rule("held_idle", "idle memory", memory_use.held_idle),
    Rule("power_capped", "power limit", hardware.power_capped),
)
"""All rules. Equally grave findings are in the order of their rules.

Waiting for input comes before the rules that compare devices, because they depend on it.
"""
_RANKS = {
    rule.name: float(len(RULES) - number) for number, rule in enumerate(RULES)
}
_SUDDEN = attrgetter(
    "state",
    "ecc_uncorrected",
    "remap_pending",
    "remap_failed",
    "recovery_action",
)
"""Readings that cause an immediate judgement when they change: faults that need no minute of
evidence."""
JUDGE_SECONDS = 4.0
"""Time between two judgements. A judgement of 64 devices takes about 20 ms."""
NOTHING_KNOWN = BoundBy(Bound.UNKNOWN, "")


class Judge:
    """Runs the rules every few seconds, and at once if a fault begins or ends.

    Near its limit, a finding stays as it was in the previous judgement.
    """

    def __init__(self, seconds: float = JUDGE_SECONDS) -> None:
        """Return the previous judgement for so many `seconds`."""
        self._seconds = seconds
        self._last = Judgement()
        self._news: object = None

    def judge(
        self,
        history: History,
        inventory: Inventory,
        sample: Sample,
        events: Iterable[Event] = (),
    ) -> Judgement:
        """Return the verdicts on the devices of `inventory`. Never raises.

        `sample` is the newest sample in `history`. `events` are those of the last hour, in order
        for each device.
        """
        events = [*events]
        states = [_SUDDEN(readings) for readings in sample.devices]
        uuids = [device.uuid for device in inventory.devices]
        news = uuids, states, events[-1:]
        elapsed = sample.time - self._last.time
        # The time is negative if the clock was set back.
        if news == self._news and 0.0 <= elapsed < self._seconds:
            return self._last
        windows = find_windows(history, inventory.interval_seconds)
        views = _views(history, windows, inventory, sample, events)
        find_peers(views, sample.processes)
        found = judge_jobs(views, find_jobs(sample.processes), self._last.jobs)
        judgement = _judge(views, sample.time, self._last)
        self._last = replace(judgement, jobs=found)
        self._news = news
        return self._last


def judge_snapshot(inventory: Inventory, sample: Sample) -> Judgement:
    """Return the verdicts of the rules that need no history. Never raises."""
    judgement = judge_moment(inventory, sample)
    names = {rule.name for rule in RULES if not rule.needs_history}
    verdicts = [each for each in judgement.verdicts if each.rule in names]
    findings = [each for each in judgement.findings if each.rule in names]
    return replace(
        judgement, verdicts=tuple(verdicts), findings=tuple(findings)
    )


def judge_moment(
    inventory: Inventory, sample: Sample, rules: Iterable[Rule] = RULES
) -> Judgement:
    """Return the verdicts of `rules` on one sample. Never raises."""
    history = History(1)
    history.add(sample)
    views = _views(history, MOMENT, inventory, sample, sample.events)
    find_peers(views, sample.processes)
    return _judge(views, sample.time, Judgement(), rules)


def _judge(
    views: Mapping[str, RuleView],
    time: float,
    before: Judgement,
    rules: Iterable[Rule] = RULES,
) -> Judgement:
    since = {}
    for finding in before.findings:
        since[finding.device_uuid, finding.rule] = finding.since
    verdicts: list[Verdict] = []
    findings: list[Finding] = []
    words = {}
    for uuid, view in views.items():
        found = {}
        for rule in rules:
            verdict = _ask(rule, view, since.get((uuid, rule.name)))
            verdicts.append(verdict)
            if isinstance(verdict, Finding):
                found[rule.name] = verdict
            if rule.name == "input_bound" and isinstance(verdict, Finding):
                view.waits_for_input = verdict.severity is Severity.WARNING
        # Views of the peers read it, too.
        view.held = False
        word = before.bound_by.get(uuid, NOTHING_KNOWN).bound
        words[uuid] = bound_by(view, found, word)
        findings += found.values()
    findings.sort(key=_gravest_first)
    return Judgement(time, tuple(verdicts), tuple(findings), words)


def _gravest_first(finding: Finding) -> tuple[int, float]:
    return -finding.severity, -finding.rank


def _ask(
    rule: Rule,
    view: RuleView,
    since: float | None,
) -> Verdict:
    """Return the verdict of a rule. `since` is the start of its active finding, or None."""
    uuid = view.device.uuid
    if view.sample.state is not DeviceState.OK and not rule.of_silent:
        return NoFinding(rule.name, uuid, "state", view.absence(BUSY))
    view.held = since is not None
    try:
        found = rule.judge(view)
    except NoEvidence as error:
        absence = view.absence(error.reading)
        lacking = NoFinding(rule.name, uuid, error.reading, absence)
        if lacking.waits and rule.is_urgent and not view.momentary:
            verdict = _ask(rule, replace(view, windows=MOMENT), since)
            if isinstance(verdict, Finding):
                return replace(verdict, evidence=())
        return lacking
    if found is None:
        return NoFinding(rule.name, uuid)
    began = since if found.since is None else found.since
    return replace(
        found,
        evidence=tuple(found.evidence),
        since=view.now if began is None else began,
        rule=rule.name,
        device_uuid=uuid,
        label=label_of(view.device),
        rank=_RANKS.get(rule.name, 0.0),
    )


def _views(
    history: History,
    windows: Mapping[float, SampleWindow],
    inventory: Inventory,
    sample: Sample,
    events: Iterable[Event],
) -> dict[str, RuleView]:
    processes = sample.processes_by_device()
    events_by_device: dict[str | None, list[Event]] = defaultdict(list)
    for event in events:
        events_by_device[event.device_uuid].append(event)
    readings = {device.uuid: device for device in sample.devices}
    views = {}
    for device in inventory.devices:
        views[device.uuid] = RuleView(
            history,
            windows,
            device,
            readings.get(device.uuid) or DeviceSample(device.uuid),
            processes.get(device.uuid, ()),
            events_by_device.get(device.uuid, ()),
            sample.time,
            host=sample.host_of(device),
        )
    return views
