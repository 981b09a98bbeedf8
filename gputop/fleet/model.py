"""A fleet at one moment: the GPUs that a Prometheus server has scraped, findings and totals.

Readings have the names and units of `DeviceSample`. A reading that was not scraped is None, never
0.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from gputop.agent.problem import Problem
from gputop.health.findings import Finding, Severity
from gputop.text import percentage, quantity, visible


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


@dataclass(slots=True)
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
    physical = devices(gpus)
    bad = {finding.device_uuid for finding in findings}
    found = Totals(
        gpus=len(physical),
        instances=sum(gpu.is_instance for gpu in gpus),
        hosts=len({gpu.host for gpu in gpus}),
        models=len({gpu.name for gpu in gpus}),
        power_watts=None,
        memory_used_bytes=None,
        memory_total_bytes=None,
        gpus_with_findings=len({gpu.device for gpu in gpus if gpu.key in bad}),
        findings=Counter(finding.severity for finding in findings),
    )
    whole = set()
    for gpu in physical:
        if not gpu.is_instance:
            whole.add(gpu.device)
        if gpu.power_watts is not None:
            found.power_watts = (found.power_watts or 0.0) + gpu.power_watts
    for gpu in gpus:
        used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
        # A GPU's memory includes that of its instances.
        is_counted = gpu.is_instance and gpu.device in whole
        if used is not None and total is not None and not is_counted:
            found.memory_used_bytes = (found.memory_used_bytes or 0.0) + used
            found.memory_total_bytes = (
                found.memory_total_bytes or 0.0
            ) + total
    return found


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


UNKNOWN = -1
"""Level of a GPU whose value is not scraped."""


@dataclass(frozen=True)
class MapMetric:
    """A value of a GPU, and the edges between its levels, of which the lowest is 0."""

    name: str
    unit: str
    edges: tuple[float, ...]
    attribute: str
    """Attribute of a GPU."""
    of_device: bool = False
    """True for a reading of the whole GPU. Each of its MIG instances reports the same value."""

    def value(self, gpu: Gpu) -> float | None:
        """Return the value of a GPU."""
        value: float | None = getattr(gpu, self.attribute)
        return value

    def text(self, value: float | None) -> str:
        """Return the value with its unit, in at most five cells."""
        if self.unit == "%":
            return percentage(value, "%")
        return quantity(value, self.unit)

    def level(self, gpu: Gpu) -> int:
        """Return the level of a GPU."""
        value = self.value(gpu)
        return UNKNOWN if value is None else bisect_right(self.edges, value)


SHARES = (5, 35, 65, 95)
BUSY = MapMetric("busy", "%", SHARES, "gpu_utilization_percent")
MEMORY = MapMetric("memory", "%", SHARES, "memory_used_percent")
TEMPERATURE = MapMetric(
    "temp", "°C", (40, 55, 70, 80), "temperature_celsius", of_device=True
)
POWER = MapMetric(
    "power", "W", (150, 300, 500, 700), "power_watts", of_device=True
)
METRICS = (BUSY, MEMORY, TEMPERATURE, POWER)


def median_of(gpus: Sequence[Gpu], metric: MapMetric) -> float | None:
    """Return the median of the known values, or None if none is known.

    A reading of a whole GPU counts once, not once per instance.
    """
    known = [
        value
        for gpu in (devices(gpus) if metric.of_device else gpus)
        if (value := metric.value(gpu)) is not None
    ]
    return median(known) if known else None
