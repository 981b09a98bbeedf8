"""A fleet at one moment: the GPUs that a Prometheus server has scraped, findings and totals.

Readings have the names and units of `DeviceSample`. A reading that was not scraped is None, never
0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gputop.agent.problem import Problem
from gputop.health.findings import Finding, Severity
from gputop.text import visible


@dataclass(
    frozen=True,
    slots=True,
    eq=False,
)
class Gpu:
    """A GPU, or a MIG instance of one, with its newest readings."""

    key: str
    """Unique key in the fleet: the UUID, with the number of the MIG instance."""
    uuid: str
    host: str
    index: str
    """Index on its host: `3`, or `3:1` for a MIG instance; "" if unknown."""
    name: str = ""
    """The model: `NVIDIA H100 80GB HBM3`."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Other labels, such as cluster, rack, namespace, pod and job."""
    age_seconds: float | None = None
    """Seconds since its newest reading was scraped."""
    gpu_utilization_percent: float | None = None
    sm_active_percent: float | None = None
    tensor_active_percent: float | None = None
    dram_active_percent: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    temperature_celsius: float | None = None
    memory_temperature_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    sm_clock_mhz: float | None = None
    clock_event_reasons: tuple[str, ...] | None = None
    xid: int | None = None
    """Last recent Xid. dcgm-exporter reports 0 for none."""
    ecc_uncorrected: float | None = None
    remap_failed: bool | None = None
    remap_pending: bool | None = None

    @property
    def is_instance(self) -> bool:
        """True for a MIG instance."""
        return ":" in self.index

    @property
    def device(self) -> tuple[str, str]:
        """Identity of the physical GPU, which MIG instances share: host, and number or UUID."""
        return self.host, self.index.partition(":")[0] or self.uuid

    @property
    def place(self) -> str:
        """Its host and index, such as `node7:3`, safe to show."""
        return visible(":".join(filter(None, (self.host, self.index))), 60)

    def is_older_than(self, seconds: float) -> bool:
        """Return True if its newest reading is older or missing."""
        return self.age_seconds is None or self.age_seconds > seconds

    @property
    def memory_used_percent(self) -> float | None:
        """Memory in use, % of the total."""
        if self.memory_used_bytes is None or not self.memory_total_bytes:
            return None
        return 100 * self.memory_used_bytes / self.memory_total_bytes


@dataclass(frozen=True, slots=True)
class Fleet:
    """The fleet as of the last refresh."""

    time: float
    """Unix time of the refresh by the server's clock. Ages are relative to it."""
    gpus: tuple[Gpu, ...] = ()
    """By host and index in natural order: node2 comes before node10."""
    findings: tuple[Finding, ...] = ()
    """Worst first."""
    problems: tuple[Problem, ...] = ()
    """Problems of the server (unreachable, slow) and of metrics that are not scraped."""
    took_seconds: float | None = None
    """Seconds from the first request to the last answer."""
    fresh: bool = True
    """True if the last refresh succeeded. Otherwise these are the previous readings."""
    label_names: tuple[str, ...] = ()
    """Labels that differ between GPUs, for grouping. Labels of the most GPUs come first."""
    read_at: Mapping[str, float] = field(default_factory=dict)
    """Unix time for which each reading was queried. Readings of the same time are consistent.

    Readings that rarely change are queried rarely, so they are older.
    """
    simulated: bool = False
    """True if any reading comes from `gputop exporter --demo`."""

    @property
    def moment(self) -> float:
        """Time of the newest readings by the server's clock."""
        return max(self.read_at.values(), default=self.time)

    def lag_seconds(self, reading: str) -> float:
        """Return how much older a reading is than the newest ones."""
        return self.moment - self.read_at.get(reading, self.moment)


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals of a fleet, or of a part of it."""

    gpus: int
    instances: int
    hosts: int
    models: int
    power_watts: float | None
    memory_used_bytes: float | None
    """Sum over the GPUs with both memory readings, as is the next field."""
    memory_total_bytes: float | None
    gpus_with_findings: int
    findings: Mapping[Severity, int]


def totals(gpus: Sequence[Gpu], findings: Sequence[Finding]) -> Totals:
    """Return the totals of these GPUs and findings."""
    watts = [
        gpu.power_watts for gpu in devices(gpus) if gpu.power_watts is not None
    ]
    memory = [
        (gpu.memory_used_bytes, gpu.memory_total_bytes)
        for gpu in wholes(gpus)
        if gpu.memory_used_bytes is not None
        and gpu.memory_total_bytes is not None
    ]
    bad = {finding.device_uuid for finding in findings}
    return Totals(
        gpus=len(devices(gpus)),
        instances=sum(gpu.is_instance for gpu in gpus),
        hosts=len({gpu.host for gpu in gpus}),
        models=len({gpu.name for gpu in gpus}),
        power_watts=sum(watts) if watts else None,
        memory_used_bytes=sum(used for used, _ in memory) if memory else None,
        memory_total_bytes=sum(of for _, of in memory) if memory else None,
        gpus_with_findings=len({gpu.device for gpu in gpus if gpu.key in bad}),
        findings=Counter(finding.severity for finding in findings),
    )


def devices(gpus: Sequence[Gpu]) -> Sequence[Gpu]:
    """Return each physical GPU once: the GPU itself if present, else one of its instances.

    Each instance reports the power and temperature of the whole GPU, if any.
    """
    found: dict[tuple[str, str], Gpu] = {}
    for gpu in gpus:
        best = found.setdefault(gpu.device, gpu)
        better = not gpu.is_instance or best.power_watts is None
        if best.is_instance and better:
            found[gpu.device] = gpu
    return [*found.values()]


def wholes(gpus: Sequence[Gpu]) -> Sequence[Gpu]:
    """Leave out instances whose GPU is present, because its memory includes theirs."""
    whole = {gpu.device for gpu in gpus if not gpu.is_instance}
    return [
        gpu for gpu in gpus if not gpu.is_instance or gpu.device not in whole
    ]
