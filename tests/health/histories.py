"""Histories as a stream would have left them, and what the rules say at their end."""

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from gputop.agent.device import READINGS, Absence, Device, DeviceSample, DeviceState
from gputop.agent.snapshot import Event, Host, Inventory, Process, Sample
from gputop.health.findings import Finding
from gputop.health.judge import Judge, Judgement, NoFinding, Verdict
from gputop.stream.child import Snapshot
from gputop.stream.history import History
from tests import streams
from tests.streams import GIB, NOW

BUSY, SM = "gpu_utilization_percent", "sm_active_percent"
TENSOR, DRAM = "tensor_active_percent", "dram_active_percent"
USED, FREE = "memory_used_bytes", "memory_free_bytes"
HELD, UNATTRIBUTED = "memory_attributed_bytes", "memory_unattributed_bytes"
WATTS, LIMIT, CLOCK = "power_watts", "power_limit_watts", "sm_clock_mhz"
REASONS, GENERATION, WIDTH = "clock_event_reasons", "pcie_generation", "pcie_width"
RX, TX = "pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second"
Value = Any
"""A value, or a function of the tick that gives one."""


def device(index: int = 0, **changes: Any) -> Device:
    known: dict[str, Any] = {"sm_count": 132, "pcie_generation_max": 5, "pcie_width_max": 16}
    return streams.device(index, **(known | changes))


WORKING: Mapping[str, Any] = {
    "gpu_utilization_percent": 97,
    "memory_utilization_percent": 45,
    "sm_active_percent": 88.0,
    "sm_occupancy_percent": 34.0,
    "tensor_active_percent": 52.0,
    "dram_active_percent": 45.0,
    "fp64_active_percent": 0.0,
    "fp32_active_percent": 4.0,
    "fp16_active_percent": 1.0,
    "memory_used_bytes": 60 * GIB,
    "memory_total_bytes": 80 * GIB,
    "memory_free_bytes": 20 * GIB,
    "memory_reserved_bytes": GIB // 2,
    "memory_attributed_bytes": 59 * GIB + GIB // 2,
    "memory_unattributed_bytes": GIB // 2,
    "temperature_celsius": 62,
    "power_watts": 590.0,
    "power_limit_watts": 700.0,
    "energy_joules": 1e9,
    "sm_clock_mhz": 1755,
    "memory_clock_mhz": 2619,
    "performance_state": 0,
    "clock_event_reasons": (),
    "clock_event_seconds": {"sw_power_cap": 0.0},
    "pcie_generation": 5,
    "pcie_width": 16,
    "pcie_rx_bytes_per_second": 300_000_000,
    "pcie_tx_bytes_per_second": 100_000_000,
    "pcie_replays": 0,
    "ecc_corrected": 0,
    "ecc_uncorrected": 0,
    "remapped_rows": 0,
    "remap_pending": False,
    "remap_failed": False,
    "recovery_action": "none",
}
"""A training run that is as it should be."""
IDLE: Mapping[str, Any] = {
    **WORKING,
    **dict.fromkeys((n for n in READINGS if n.endswith("_utilization_percent")), 0),
    **dict.fromkeys((n for n in READINGS if n.endswith("_active_percent")), 0.0),
    "memory_used_bytes": GIB // 2,
    "memory_free_bytes": 79 * GIB,
    "memory_attributed_bytes": 0,
    "memory_unattributed_bytes": GIB // 2,
    "temperature_celsius": 31,
    "power_watts": 72.0,
    "sm_clock_mhz": 345,
    "clock_event_reasons": ("idle",),
    "pcie_generation": 1,
    "pcie_rx_bytes_per_second": 20_000,
    "pcie_tx_bytes_per_second": 10_000,
}
"""A device without work: clocks and link are down, and that is well."""
NO_GPM = {n: None for n in READINGS if n.endswith("_active_percent")}
GPM_OFF = dict.fromkeys(NO_GPM, Absence.DISABLED)


def trainer(index: int = 0, **changes: Any) -> Process:
    known: dict[str, Any] = {
        "memory_used_bytes": 59 * GIB,
        "cpu_percent": 60.0,
        "io_wait": False,
        "children": 4,
        "children_cpu_percent": 120.0,
        "children_cpu_most_percent": 31.0,
        "parent_pid": 390,
    }
    return streams.process(4000 + index, index, **(known | changes))


def noise(mean: float, spread: float, seed: int = 1) -> Callable[[int], float]:
    """Around a mean, never below zero; the same at every run."""
    digits = random.Random(seed)  # noqa: S311 - noise, not a secret
    return lambda _: max(0.0, digits.gauss(mean, spread))


def saw(high: Value, low: Value, period: int, width: int) -> Callable[[int], Value]:
    """High for `width` ticks of each `period`, else low."""
    return lambda tick: high if tick % period < width else low


@dataclass
class Machine:
    """Devices that do something, and what a `Judge` says of it at every tick."""

    devices: Sequence[Device] = field(default_factory=lambda: (device(),))
    readings: Sequence[Mapping[str, Value]] = (WORKING,)
    processes: Sequence[Process] = field(default_factory=lambda: (trainer(),))
    interval: float = 1.0
    events: Sequence[Event] = ()
    absent: Mapping[str, Absence] = field(default_factory=dict)
    state: DeviceState = DeviceState.OK
    host_cpu: float | None = 40.0
    host_memory: tuple[int | None, int | None] = (None, None)
    """GiB in use and available."""
    said: list[Judgement] = field(default_factory=list)
    history: History = field(default_factory=History)
    judge: Judge = field(default_factory=lambda: Judge(seconds=0.0))
    ticks: int = 0

    @property
    def inventory(self) -> Inventory:
        return streams.inventory(devices=0, interval_seconds=self.interval)

    def run(self, seconds: float, *, judged: bool = True) -> Self:
        inventory = dataclasses.replace(self.inventory, devices=tuple(self.devices))
        for _ in range(round(seconds / self.interval)):
            sample = self.sample()
            self.history.add(sample)
            self.ticks += 1
            if judged:
                self.said.append(self.judge.judge(self.history, inventory, sample, self.events))
        return self

    def watched(self, seconds: float) -> Self:
        self.run(seconds - self.interval, judged=False)
        return self.run(self.interval)

    def sample(self) -> Sample:
        made = [
            DeviceSample(
                uuid=each.uuid, state=self.state, absent=dict(self.absent), **self._now(readings)
            )
            for each, readings in zip(self.devices, self.readings, strict=True)
        ]
        processes = tuple(self._process(process) for process in self.processes)
        used, available = (each and each * GIB for each in self.host_memory)
        host = Host(self.host_cpu, memory_used_bytes=used, memory_available_bytes=available)
        return Sample(NOW + self.ticks * self.interval, host, tuple(made), processes)

    def _now(self, readings: Mapping[str, Value]) -> dict[str, Any]:
        return {n: v(self.ticks) if callable(v) else v for n, v in readings.items()}

    def _process(self, process: Process) -> Process:
        now = {f.name: getattr(process, f.name) for f in dataclasses.fields(process)}
        return Process(**self._now(now))

    @property
    def last(self) -> Judgement:
        return self.said[-1]

    def verdict(self, rule: str, index: int = 0) -> Verdict:
        uuid = self.devices[index].uuid
        found = [v for v in self.last.verdicts if v.rule == rule and v.device_uuid == uuid]
        assert len(found) == 1
        return found[0]


def one(
    changes: Mapping[str, Value] | None = None,
    *,
    process: Process | None = None,
    of: Mapping[str, Any] = WORKING,
    seconds: float = 90,
    **machine: Any,
) -> Machine:
    machine.setdefault("processes", (process or trainer(),))
    return Machine(readings=({**of, **(changes or {})},), **machine).watched(seconds)


def several(*readings: Mapping[str, Value], **process: Any) -> Machine:
    """Devices that do this, each with a process; those of a `job_id` are its ranks."""
    many = range(len(readings))
    ranks = [{"rank": n} if "job_id" in process else {} for n in many]
    return Machine(
        devices=tuple(map(device, many)),
        readings=tuple({**WORKING, **each} for each in readings),
        processes=tuple(trainer(n, **ranks[n], **process) for n in many),
    )


def watched(
    *readings: Mapping[str, Value], seconds: int = 30, machines: Any = (), **process: Any
) -> list[Snapshot]:
    made = several(*readings, **process)
    inventory = dataclasses.replace(made.inventory, devices=tuple(made.devices))
    found = []
    for _ in range(seconds):
        found.append(Snapshot(inventory, dataclasses.replace(made.sample(), machines=machines)))
        made.ticks += 1
    return found


def finding(machine: Machine, rule: str, index: int = 0) -> Finding:
    verdict = machine.verdict(rule, index)
    assert isinstance(verdict, Finding), verdict
    return verdict


def lacking(machine: Machine, rule: str, index: int = 0) -> dict[str, Absence | None]:
    verdict = machine.verdict(rule, index)
    assert isinstance(verdict, NoFinding), verdict
    assert verdict.missing
    return {verdict.missing: verdict.absence}


def silent(machine: Machine, rule: str, index: int = 0) -> None:
    verdict = machine.verdict(rule, index)
    assert isinstance(verdict, NoFinding), verdict
    assert not verdict.missing
