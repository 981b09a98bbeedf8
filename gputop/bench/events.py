"""Events of a run: those of its worker and its device, and the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gputop.agent.problem import Problem
from gputop.agent.snapshot import Inventory, Sample
from gputop.bench.worker.events import (
    Hello,
    Planned,
    Point,
    Progress,
    RunLimit,
    Verified,
)

__all__ = [
    "Hello",
    "Planned",
    "Point",
    "Progress",
    "RunLimit",
    "Verified",
]

OK, DEGRADED, FAULTY, NOT_JUDGED = "ok", "degraded", "faulty", "not judged"
"""States of a verdict and of its parts."""
UNWATCHED = "unwatched"
"""`stopped` of a run that ended as its guard failed, which says nothing about the device."""
SCHEMA = 1
"""Version of the JSON documents of results. New fields leave it as it is."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """State of the device during a run. Readings that it does not have are None."""

    driver_version: str | None = None
    pci_device_id: str | None = None
    compute_capability: str | None = None
    power_watts_mean: float | None = None
    power_limit_watts: float | None = None
    sm_clock_mhz_mean: float | None = None
    sm_clock_max_mhz: float | None = None
    temperature_celsius_max: float | None = None
    heat_limit: str | None = None
    """Temperature that would have ended the run: `84°C (slowdown at 87°C)`; None for a CPU."""
    energy_joules: float | None = None
    """Energy by the device's own counter."""
    tflop_per_joule: float | None = None
    clock_event_seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds that each clock event reason held."""
    pcie_bytes_per_second: float | None = None
    """Most that the PCIe link can carry in each direction, of device and slot together."""
    late_power_cap_seconds: float | None = None
    """Seconds of the second half with a power cap: by the samples or by the device's counter,
    whichever is larger."""
    late_power_watts_mean: float | None = None
    """Mean power in the second half."""
    percent_of_peak: Mapping[str, float] = field(default_factory=dict)
    """Percentages by denominator, `datasheet dense` or `formula at the live clock`: of the mean, of
    a table's best row, or of the bandwidth of copies within the device."""
    clock_events_known: bool | None = None
    """True if the device reports clock event reasons, also if none held."""
    memory_errors: Mapping[str, tuple[float, ...]] = field(
        default_factory=dict
    )
    """Counters of memory errors before and after the run, by reading: those of a memory test, and
    otherwise only where one rose."""
    other_load: tuple[str, ...] = ()
    """Processes of others that used the device meanwhile: `4711 (ada: python train.py)`."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison with earlier runs of the same test, as they were at that time."""

    under_percent: float | None = None
    """Percent under their median, negative above it, or None without one. Older versions compared
    with the best of them."""
    slower: str | None = None
    runs: int | None = None
    """Number of these runs; None of older versions."""


@dataclass(frozen=True, slots=True)
class VerdictPart:
    """One thing that a device was judged by."""

    name: str
    """`results`, `memory`, `datasheet`, `like devices`, `earlier runs`, `links`, `PCIe`,
    `throttling`, `droop` or `steadiness`."""
    state: str
    """`ok`, `degraded`, `faulty` or `not judged`."""
    why: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict about a device, in parts."""

    parts: tuple[VerdictPart, ...]
    summary: str = ""
    """The verdict in plain English for the owner; empty in results of older versions."""

    @property
    def bad(self) -> tuple[VerdictPart, ...]:
        """Parts that are not ok, the gravest first."""
        bad = (FAULTY, DEGRADED)
        return tuple(
            part for state in bad for part in self.parts if part.state == state
        )

    @property
    def state(self) -> str:
        """State of the gravest part; `not judged` if no part was."""
        if self.bad:
            return self.bad[0].state
        return (
            OK if any(part.state == OK for part in self.parts) else NOT_JUDGED
        )


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a run. Throughput is in TFLOP/s, with 2·m·n·k FLOP a product."""

    device: str
    device_uuid: str | None
    dtype: str
    m: int
    n: int
    k: int
    tflops_mean: float | None
    """None for a run without products, and so is the peak."""
    tflops_peak: float | None
    """Best window, by device events on a GPU; for a table the best row."""
    tflops_sustained: float | None
    """Mean of the last half, or None for a run that is too short."""
    droop_percent: float | None
    """Percent of the sustained throughput below the burst; 0 unless it is more than noise."""
    tflops_device: float | None
    """Mean by device events. Below it, `tflops_mean` shows that the host was in the way."""
    seconds: float
    """Timed seconds: without preparation, and on a CPU without checks."""
    iterations: int
    wrong_elements: int
    checks: int
    stopped: str
    """End of the run: `time`, `user`, `limit` for too hot, `silent` for a device that did not
    answer, `unwatched` if the guard failed."""
    torch_version: str
    cuda_version: str | None
    python: str
    """Path of the interpreter."""
    method: str
    started_at: float
    """Unix seconds."""
    verified_products: int | None = None
    """Iterations that were compared, or None for results of older versions."""
    verify: str = "some"
    """Products that were meant to be verified, `all` or `some`."""
    mismatches: Mapping[str, int] = field(default_factory=dict)
    """Products whose checksums were not those of the first, by `facts.MISMATCHES`."""
    kind: str = "soak"
    """One of `plan.kinds.KINDS`, or another of a newer version."""
    points: tuple[Point, ...] = ()
    """Rows of a table. m, n, k and the peak are those of the best one."""
    notes: tuple[str, ...] = ()
    """Notes: what was left out and why, and what the rows say in words."""
    time_to_steady_seconds: float | None = None
    """Seconds until the throughput stayed within 2 % of the sustained one."""
    tflops_burst: float | None = None
    """Mean from the first timed product on, over at most 2 s: where it is the most significant."""
    droop_interval_percent: tuple[float, ...] | None = None
    """Bounds of the droop, with at least 95 % confidence."""
    dip_percent: float | None = None
    """Percent that the slowest 5 s are below the median of such blocks; None for a short run."""
    tflops_mean_interval: tuple[float, ...] | None = None
    """Bounds of the mean, with 95 % confidence, or None if the run shows too little."""
    conditions: Conditions | None = None
    """State of the device meanwhile, or None if unknown."""
    accumulate: str | None = None
    """Accumulation of the plan. This and the next three are the method without its text."""
    layout: str | None = None
    data: str | None = None
    threads: int | None = None
    """Threads of a CPU."""
    unset: tuple[str, ...] = ()
    """Variables that were set and left out, as they change what is measured: `NAME=value`."""
    bound_to: str | None = None
    """Processors that the worker was bound to, those of its GPU's NUMA node."""
    cublas_version: str | None = None
    gputop_version: str | None = None
    host: str | None = None
    """Machine of the device, or None for results of older versions, from this machine."""
    device_index: int | None = None
    """NVML's index of the GPU at the time of the run; None for a CPU and for a MIG instance."""
    check_started_at: float | None = None
    """Start of the check that the run was a part of, in Unix seconds; None for a single run."""
    comparison: Comparison | None = field(default=None, compare=False)
    """Comparison made once, when the result is stored; None before."""
    verdict: Verdict | None = field(default=None, compare=False)
    """Verdict given once, when all devices of the run have ended; None before, and of older
    versions."""

    @property
    def known_conditions(self) -> Conditions:
        """Conditions, with nothing in them if they are unknown."""
        return self.conditions or Conditions()

    @property
    def known_comparison(self) -> Comparison:
        """Comparison, with nothing in it before it is made."""
        return self.comparison or Comparison()

    @property
    def state(self) -> str:
        """State of the verdict; without one it is faulty, or not judged."""
        judged = FAULTY if self.wrong_elements else NOT_JUDGED
        return judged if self.verdict is None else self.verdict.state


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a run that measured something."""

    result: Result


@dataclass(frozen=True, slots=True)
class Failed:
    """The end of a run without a result. `status` is its exit status."""

    problem: Problem
    status: int


Event = (
    Hello
    | Planned
    | Progress
    | Point
    | Verified
    | RunLimit
    | Inventory
    | Sample
    | Done
    | Failed
)
"""Events of a run. The agent's records are those of the device under test."""
