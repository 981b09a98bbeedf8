"""All rules over all devices, at one moment; remembers which findings stand."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from itertools import chain
from math import ceil
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from gputop.health.device_view import Axis, Look, NoEvidence
from gputop.health.findings import Clear, Finding, Insufficient, Judgement, Lack, Rule, Verdict
from gputop.health.rules import errors, hardware, jobs, links, memory, workload
from gputop.schema.derived import PROCESS_COUNT, PROCESS_CPU, PROCESS_IO_WAIT
from gputop.schema.snapshot import DeviceSample, DeviceState
from gputop.stream.history import History

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gputop.schema.snapshot import Event, Inventory, Process, Sample

_BUSY, _SM, _TENSOR = "gpu_utilization_percent", "sm_active_percent", "tensor_active_percent"
_DRAM, _REASONS, _CLOCK = "dram_active_percent", "clock_event_reasons", "sm_clock_mhz"
_USED = "memory_used_bytes"

_now = partial(Rule, needs_history=False)
# fmt: off
RULES = (
    Rule("xid", "Xid errors", (), errors.xid, of_silent=True),
    _now("ecc", "memory errors", (errors.ECC,), errors.ecc),
    _now("remap", "bad memory rows", ("remap_pending",), errors.remap),
    _now("recovery", "recovery", ("recovery_action",), errors.recovery),
    _now("almost_full", "out of memory", (_USED, "memory_free_bytes"), memory.almost_full),
    _now("thermal", "heat", (_REASONS,), hardware.thermal),
    _now("hardware_slowdown", "hardware slowdown", (_REASONS,), hardware.hardware_slowdown),
    Rule("straggler", "straggler", (_BUSY, _CLOCK), jobs.straggler),
    Rule("input_bound", "input", (_BUSY, PROCESS_CPU, PROCESS_IO_WAIT), workload.input_bound),
    Rule("not_working", "busy without work", (_BUSY, _SM, "power_watts"), workload.not_working),
    _now("link_degraded", "slow link", ("pcie_generation", "pcie_width", "pcie_generation_max",
         "pcie_width_max", _BUSY), links.link_degraded),
    Rule("pcie_bound", "full link", (*links.TRAFFIC, "pcie_generation", "pcie_width"),
         links.pcie_bound),
    Rule(
        "clocks_low",
        "low clocks",
        (_BUSY, _CLOCK, "sm_clock_max_mhz", _REASONS),
        hardware.clocks_low,
    ),
    Rule("leak", "leak", (_USED,), memory.leak),
    Rule("ghost_load", "ghost load", (_BUSY, PROCESS_COUNT), memory.ghost_load),
    _now("unattributed", "unattributed memory", (memory.UNATTRIBUTED,), memory.unattributed),
    Rule("no_tensor_cores", "tensor cores", (_SM, _TENSOR), workload.no_tensor_cores),
    Rule("memory_bound", "memory bandwidth", (_DRAM, _TENSOR), workload.memory_bound),
    Rule("imbalance", "imbalance", (_USED, _BUSY), jobs.imbalance),
    Rule("held_idle", "held but idle", (memory.ATTRIBUTED, _BUSY), memory.held_idle),
    Rule("power_capped", "power limit", (_REASONS,), hardware.power_capped),
)
# fmt: on
"""Of findings that are equally grave, the first of these is the one to look at first."""
BY_NAME = {rule.name: rule for rule in RULES}
_RANK = {rule.name: rank for rank, rule in enumerate(RULES)}
_LOST = "state"
_SUDDEN = attrgetter("state", "ecc_uncorrected", "remap_pending", "remap_failed", "recovery_action")
"""What a device is judged for at once where it has changed: faults, that need no minute to tell."""
AT_A_TIME = 2
"""Devices that are judged at each sample: eight have had their turn after four."""
ROUND_SECONDS = 16.0
"""In which each device has had its turn, however many there are: of 64 then four at each second."""


class Turns:
    """Order of devices: those with news at once, then the one that waited longest."""

    def __init__(self, at_a_time: int = AT_A_TIME) -> None:
        self._at_a_time = at_a_time
        self._news: dict[str, object] = {}
        """News of each device at its last turn; the first had it longest ago."""
        self._time = 0.0

    def take(self, news: Mapping[str, object], time: float) -> Collection[str]:
        """Return the devices to judge at that time; `news` has all that are there now."""
        elapsed, self._time = time - self._time, time
        known = {uuid: told for uuid, told in self._news.items() if uuid in news}
        due = dict.fromkeys(uuid for uuid in news if uuid not in known or known[uuid] != news[uuid])
        waiting = [uuid for uuid in known if uuid not in due]
        due |= dict.fromkeys(waiting[: self._many(len(news), elapsed)])
        rest = {uuid: told for uuid, told in known.items() if uuid not in due}
        self._news = rest | {uuid: news[uuid] for uuid in due}
        return due

    def _many(self, devices: int, elapsed: float) -> int:
        """How many have their turn after so many seconds; all where the clock was set back."""
        if not 0.0 <= elapsed < ROUND_SECONDS:
            return devices
        return max(self._at_a_time, ceil(devices * elapsed / ROUND_SECONDS))


class _Said(NamedTuple):
    """What the rules said of a device when it was its turn."""

    verdicts: tuple[Verdict, ...] = ()
    findings: tuple[Finding, ...] = ()
    since: Mapping[str, float] = {}
    """By rule, when what stands was first found."""


class Judge:
    """Asks the rules; what it remembers keeps findings from coming and going with the noise.

    Devices take turns: what was said of one stands until its next, which comes at once where it is
    new or something sudden has happened to it.
    """

    def __init__(self, at_a_time: int = AT_A_TIME) -> None:
        self._turns = Turns(at_a_time)
        self._said: Mapping[str, _Said] = {}
        self.judged: Collection[str] = ()
        """Whose turn it was at the last tick."""
        self.read = 0
        """Numbers read from the history for it."""

    def judge(
        self, history: History, inventory: Inventory, sample: Sample, events: Iterable[Event] = ()
    ) -> Judgement:
        """What the rules say, of the devices of `inventory`; never raises.

        `sample` is the newest one of `history`; `events` are those of the last hour, of each device
        in their order.
        """
        axis = Axis(history, inventory.interval_seconds)
        looks = _looks(axis, inventory, sample, events)
        self.judged = self._turns.take({u: _news(look) for u, look in looks.items()}, sample.time)
        jobs.find_peers(looks, self.judged)
        self._said = {
            uuid: self._all(look) if uuid in self.judged else self._said[uuid]
            for uuid, look in looks.items()
        }
        self.read = axis.read
        verdicts = chain.from_iterable(each.verdicts for each in self._said.values())
        findings = chain.from_iterable(each.findings for each in self._said.values())
        return Judgement(sample.time, tuple(verdicts), _gravest_first(findings))

    def _all(self, look: Look) -> _Said:
        before = self._said.get(look.device.uuid, _Said()).since
        verdicts = tuple(_ask(rule, look, before.get(rule.name)) for rule in RULES)
        look.held = False  # others look at it, too
        findings = _found(verdicts)
        return _Said(verdicts, findings, {f.rule: before.get(f.rule, look.now) for f in findings})


def judge_snapshot(inventory: Inventory, sample: Sample) -> Judgement:
    """What the rules say that need no history; never raises."""
    history = History(1)
    history.add(sample)
    looks = _looks(Axis(history, 0.0, momentary=True), inventory, sample, ())
    rules = [rule for rule in RULES if not rule.needs_history]
    verdicts = [_ask(rule, look, None) for look in looks.values() for rule in rules]
    return Judgement(sample.time, tuple(verdicts), _gravest_first(_found(verdicts)))


def _found(verdicts: Iterable[Verdict]) -> tuple[Finding, ...]:
    return tuple(verdict for verdict in verdicts if isinstance(verdict, Finding))


def _gravest_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda found: (-found.severity, _RANK[found.rule])))


def _ask(rule: Rule, look: Look, since: float | None) -> Verdict:
    uuid = look.device.uuid
    if look.sample.state is not DeviceState.OK and not rule.of_silent:
        return Insufficient(rule.name, uuid, (Lack(_LOST, look.absence(_BUSY)),))
    look.held = since is not None
    try:
        said = rule.judge(look)
    except NoEvidence as missing:
        return Insufficient(rule.name, uuid, _lacking(rule, look, missing.reading))
    if said is None:
        return Clear(rule.name, uuid)
    began = said.since if said.since is not None else since
    return Finding(
        rule.name,
        said.severity,
        uuid,
        said.sentence,
        tuple(said.evidence),
        said.advice,
        look.now if began is None else began,
    )


def _lacking(rule: Rule, look: Look, reading: str) -> tuple[Lack, ...]:
    """All that is missing of what the rule needs, first what it stumbled over."""
    names = dict.fromkeys((reading, *rule.needs))
    found = ((name, look.absence(name)) for name in names)
    return tuple(Lack(name, absence) for name, absence in found if absence or name == reading)


def _news(look: Look) -> object:
    """Whatever it is judged for at once, where it is another than before."""
    return _SUDDEN(look.sample), look.events[-1] if look.events else None


def _looks(
    axis: Axis, inventory: Inventory, sample: Sample, events: Iterable[Event]
) -> dict[str, Look]:
    processes: dict[str, list[Process]] = defaultdict(list)
    for process in sample.processes:
        processes[process.device_uuid].append(process)
    happened: dict[str | None, list[Event]] = defaultdict(list)
    for event in events:
        happened[event.device_uuid].append(event)
    readings = {device.uuid: device for device in sample.devices}
    return {
        device.uuid: Look(
            axis,
            device,
            readings.get(device.uuid) or DeviceSample(device.uuid),
            processes.get(device.uuid, ()),
            happened.get(device.uuid, ()),
            sample.time,
        )
        for device in inventory.devices
    }
