"""All rules over all devices, at one moment; remembers which findings stand."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gputop.insight import clocks, health, jobs, links, memory, work
from gputop.insight.findings import Clear, Finding, Insufficient, Judgement, Lack, Verdict
from gputop.insight.look import Axis, Look, NoEvidence
from gputop.insight.rule import Rule
from gputop.telemetry.derived import PROCESS_COUNT, PROCESS_CPU, PROCESS_IO_WAIT
from gputop.telemetry.snapshot import DeviceSample, DeviceState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gputop.telemetry.history import History
    from gputop.telemetry.snapshot import Event, Inventory, Process, Sample

_BUSY, _SM, _TENSOR = "gpu_utilization_percent", "sm_active_percent", "tensor_active_percent"
_DRAM, _REASONS, _CLOCK = "dram_active_percent", "clock_event_reasons", "sm_clock_mhz"
_USED = "memory_used_bytes"

RULES = (
    Rule("xid", "Xid errors", (), health.xid, of_silent=True),
    Rule("ecc", "memory errors", (health.ECC,), health.ecc),
    Rule("remap", "bad memory rows", ("remap_pending",), health.remap),
    Rule("recovery", "recovery", ("recovery_action",), health.recovery),
    Rule("almost_full", "out of memory", (_USED, "memory_free_bytes"), memory.almost_full),
    Rule("thermal", "heat", (_REASONS,), clocks.thermal),
    Rule("hardware_slowdown", "hardware slowdown", (_REASONS,), clocks.hardware_slowdown),
    Rule("straggler", "straggler", (_BUSY, _CLOCK), jobs.straggler),
    Rule("input_bound", "input", (_BUSY, PROCESS_CPU, PROCESS_IO_WAIT), work.input_bound),
    Rule("not_working", "busy without work", (_BUSY, _SM, "power_watts"), work.not_working),
    Rule(
        "link_degraded",
        "slow link",
        ("pcie_generation", "pcie_width", "pcie_generation_max", "pcie_width_max", _BUSY),
        links.link_degraded,
    ),
    Rule(
        "pcie_bound",
        "full link",
        (*links.TRAFFIC, "pcie_generation", "pcie_width"),
        links.pcie_bound,
    ),
    Rule(
        "clocks_low",
        "low clocks",
        (_BUSY, _CLOCK, "sm_clock_max_mhz", _REASONS),
        clocks.clocks_low,
    ),
    Rule("leak", "leak", (_USED,), memory.leak),
    Rule("ghost_load", "ghost load", (_BUSY, PROCESS_COUNT), memory.ghost_load),
    Rule("unattributed", "unattributed memory", (memory.UNATTRIBUTED,), memory.unattributed),
    Rule("no_tensor_cores", "tensor cores", (_SM, _TENSOR), work.no_tensor_cores),
    Rule("memory_bound", "memory bandwidth", (_DRAM, _TENSOR), work.memory_bound),
    Rule("imbalance", "imbalance", (_USED, _BUSY), jobs.imbalance),
    Rule("held_idle", "held but idle", (memory.ATTRIBUTED, _BUSY), memory.held_idle),
    Rule("power_capped", "power limit", (_REASONS,), clocks.power_capped),
)
"""Of findings that are equally grave, the first of these is the one to look at first."""
BY_NAME = {rule.name: rule for rule in RULES}
_RANK = {rule.name: rank for rank, rule in enumerate(RULES)}
_LOST = "state"


class Judge:
    """Asks the rules; what it remembers keeps findings from coming and going with the noise."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str], float] = {}
        """When the findings that stand were first found."""
        self.read = 0
        """Numbers read from the history at the last tick."""

    def judge(
        self, history: History, inventory: Inventory, sample: Sample, events: Iterable[Event] = ()
    ) -> Judgement:
        """What the rules say now, of the devices of `inventory`; never raises.

        `sample` is the newest one of `history`; `events` are those of the last hour.
        """
        looks = _looks(history, inventory, sample, events)
        verdicts: list[Verdict] = []
        standing: dict[tuple[str, str], float] = {}
        for look in looks:
            for rule in RULES:
                key = look.device.uuid, rule.name
                verdict = self._ask(rule, look, self._since.get(key))
                verdicts.append(verdict)
                if isinstance(verdict, Finding):
                    standing[key] = self._since.get(key, sample.time)
        self._since = standing
        self.read = looks[0].axis.read if looks else 0
        findings = [verdict for verdict in verdicts if isinstance(verdict, Finding)]
        findings.sort(key=lambda finding: (-finding.severity, _RANK[finding.rule]))
        return Judgement(sample.time, tuple(verdicts), tuple(findings))

    def _ask(self, rule: Rule, look: Look, since: float | None) -> Verdict:
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


def _looks(
    history: History, inventory: Inventory, sample: Sample, events: Iterable[Event]
) -> list[Look]:
    processes: dict[str, list[Process]] = defaultdict(list)
    for process in sample.processes:
        processes[process.device_uuid].append(process)
    happened: dict[str | None, list[Event]] = defaultdict(list)
    for event in events:
        happened[event.device_uuid].append(event)
    readings = {device.uuid: device for device in sample.devices}
    axis = Axis(history, inventory.interval_seconds)
    looks = [
        Look(
            axis,
            device,
            readings.get(device.uuid) or DeviceSample(device.uuid),
            processes.get(device.uuid, ()),
            happened.get(device.uuid, ()),
            sample.time,
        )
        for device in inventory.devices
    ]
    jobs.find_peers(looks)
    return looks
