"""A fleet at one moment: every GPU that a Prometheus server has scraped, and what is wrong with it.

Readings have the names and units of `DeviceSample`; None is what nobody has scraped, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from gputop.frozen import dataclass

if TYPE_CHECKING:
    from gputop.problem import Problem


class Health(StrEnum):
    """How a GPU is, best first."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"
    STALE = "stale"
    """It was there, and its last scrape is too long ago, or failed."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, or a MIG instance of one, with its newest readings."""

    key: str
    """Unique in the fleet: the UUID, with the host where one is there twice."""
    uuid: str
    host: str
    index: str
    """On its host: `3`, or `3:1` for a MIG instance; "" where nobody says."""
    name: str = ""
    """The model: `NVIDIA H100 80GB HBM3`."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """All others that say where it is and who uses it: cluster, rack, namespace, pod, job, ..."""
    age_seconds: float | None = None
    """Since its newest reading was scraped."""
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
    """The last one, where there was one lately; dcgm-exporter has 0 for none."""
    ecc_uncorrected: float | None = None
    remap_failed: bool | None = None
    remap_pending: bool | None = None

    @property
    def is_instance(self) -> bool:
        """True for a MIG instance."""
        return ":" in self.index

    @property
    def device(self) -> tuple[str, str]:
        """Identity of the physical GPU, which MIG instances share: its host, and number or UUID."""
        return self.host, self.index.partition(":")[0] or self.uuid

    @property
    def memory_used_percent(self) -> float | None:
        """Of its memory."""
        if self.memory_used_bytes is None or not self.memory_total_bytes:
            return None
        return 100 * self.memory_used_bytes / self.memory_total_bytes


@dataclass(frozen=True, slots=True)
class Wrong:
    """Something that is wrong with a GPU, in words for the list."""

    key: str
    """The GPU's."""
    kind: str
    """`xid`, `ecc`, `remap`, `thermal`, `slowdown`, `idle_held`, `stale`, ...."""
    severity: Health
    """`WARNING`, `FAULT` or `STALE`."""
    text: str
    """What it is, with its numbers, in less than 60 characters: `Xid 79: fell off the bus`."""
    rank: float = 0.0
    """Among those of its severity: more is worse."""
    since: float | None = None
    """Unix seconds of when it began, where that is known."""


@dataclass(frozen=True, slots=True)
class Series:
    """A reading of a GPU over time, oldest first."""

    name: str
    """As that of the field of `Gpu`, or of `DeviceSample`."""
    times: tuple[float, ...]
    """In Unix seconds; where nothing was scraped, there is none."""
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Fleet:
    """All of it, as the last refresh found it."""

    time: float
    """When it was asked, in Unix seconds, by the server's clock; ages count until then."""
    gpus: tuple[Gpu, ...] = ()
    """By host and index, in natural order: node2 is before node10."""
    wrong: tuple[Wrong, ...] = ()
    """Worst first."""
    problems: tuple[Problem, ...] = ()
    """Of the server: away, slow, refusing; or of metrics that nobody scrapes."""
    took_seconds: float | None = None
    """From the first question to the last answer."""
    fresh: bool = True
    """Whether the last refresh succeeded: else these are the readings of the one before."""
    label_names: tuple[str, ...] = ()
    """That differ among its GPUs, and so can be grouped by: those that most GPUs have first."""
    read_at: Mapping[str, float] = field(default_factory=dict)
    """For which moment each reading was asked, in Unix seconds: all of one moment fit each other.

    Readings that change seldom are asked seldom, and so are of an earlier moment than others.
    """
    simulated: bool = False
    """Whether any of it is made up, by `gputop exporter --demo` or `--demo-fleet`."""

    @property
    def moment(self) -> float:
        """The moment of the newest readings, by the server's clock."""
        return max(self.read_at.values(), default=self.time)

    def lag_seconds(self, reading: str) -> float:
        """Return by how much a reading is older than the newest ones."""
        return self.moment - self.read_at.get(reading, self.moment)
