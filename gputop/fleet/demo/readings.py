"""A simulated fleet, for tests and for a look without one: what its GPUs read at a time.

Readings are a function of the seed and of the time, so that two scrapes, two programs and a program
that is started again agree. Two flaws develop from the start on: a host's exporter goes away, and
uncorrected errors of a memory become more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from gputop.fleet.demo.site import Flaw, SimulatedGpu, hosts_of
from gputop.schema.clock_events import BITS

if TYPE_CHECKING:
    from gputop.fleet.demo.load import Wave

SEED = 9
ORIGIN = 1_750_000_000.0
"""When all drivers were loaded, in Unix seconds: what is counted, counts from here."""
AWAY_AFTER_SECONDS = 30.0
"""Long enough for a scrape at an interval of 15 s: that it was there is known then."""
ERROR_SECONDS = 120.0
"""From one uncorrected error to the next."""
WARM_SECONDS = 60.0
"""The temperature follows the mean power of so long a time."""
RIPPLE, RIPPLE_PER_SECOND = 0.006, 0.31
"""Of the power limit; radians."""
IDLE_MHZ = 345


class Reading(NamedTuple):
    """What a GPU says, in the units of DCGM; None is what cannot be read."""

    xid: int
    """The last one; 0 for none."""
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    memory_celsius: int | None = None
    gpu_celsius: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    energy_millijoules: int | None = None
    pcie_replays: int | None = None
    gpu_percent: int | None = None
    memory_percent: int | None = None
    memory_free_mib: int | None = None
    memory_used_mib: int | None = None
    memory_reserved_mib: int | None = None
    clock_event_reasons: int | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    remapped_rows: int | None = None
    remap_failed: int | None = None
    remap_pending: int | None = None
    engine_active: float | None = None
    sm_active: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None


class Simulator:
    """The fleet; whatever it is asked, it stays as it is."""

    def __init__(self, gpus: int, *, started: float, seed: int = SEED) -> None:
        """`started`, in Unix seconds, is when what develops began."""
        self.started = started
        self.hosts = {gpus[0].host: gpus for gpus in hosts_of(gpus, seed)}
        """Its GPUs by host."""

    @property
    def gpus(self) -> list[SimulatedGpu]:
        """All of them."""
        return [gpu for gpus in self.hosts.values() for gpu in gpus]

    @property
    def planted(self) -> list[SimulatedGpu]:
        """Those with a flaw: each kind is there in a fleet of 64 and more."""
        return [gpu for gpu in self.gpus if gpu.flaw is not None]

    def is_away(self, host: str, now: float) -> bool:
        """Whether the host's exporter does not answer at that time."""
        return now >= self.started + AWAY_AFTER_SECONDS and any(
            gpu.flaw is Flaw.AWAY for gpu in self.hosts[host]
        )

    def readings(self, gpus: Iterable[SimulatedGpu], now: float) -> list[Reading]:
        """What each of them says at that time."""
        seconds = max(0.0, now - ORIGIN)
        gpus = tuple(gpus)
        loads = {job: _load(job.wave, seconds) for job in {gpu.job for gpu in gpus}}
        return [self._reading(gpu, loads[gpu.job], seconds, now) for gpu in gpus]

    def _reading(self, gpu: SimulatedGpu, load: _Load, seconds: float, now: float) -> Reading:
        flaw, model, kind = gpu.flaw, gpu.model, gpu.job.kind
        if flaw is Flaw.LOST:
            return Reading(xid=79)
        if flaw is Flaw.IDLE_HELD:
            load = _NONE
        level = load.level * gpu.evenness
        slowed = _CLOCK.get(flaw, 1.0)
        swing = (model.limit_watts - model.idle_watts) * kind.draw * gpu.evenness * slowed
        ripple = RIPPLE * model.limit_watts
        turn = RIPPLE_PER_SECOND * seconds + gpu.phase
        power = model.idle_watts + swing * load.level + ripple * math.sin(turn)
        joules = model.idle_watts * seconds + swing * load.total
        joules += ripple / RIPPLE_PER_SECOND * (math.cos(gpu.phase) - math.cos(turn))
        warm = (model.idle_watts + swing * load.mean) / model.limit_watts
        celsius = 88 + round(math.sin(turn)) if flaw is Flaw.THERMAL else None
        celsius = celsius or round(gpu.inlet_celsius + 38 * warm)
        used = round(model.memory_mib * (0.74 if flaw is Flaw.IDLE_HELD else gpu.job.memory))
        errors = _errors(now - self.started) if flaw is Flaw.ECC else 0
        dram = kind.dram * level
        return Reading(
            xid=48 if errors else 0,
            sm_clock_mhz=round(model.sm_mhz * slowed - 0.2 * power) if level else IDLE_MHZ,
            memory_clock_mhz=model.memory_mhz,
            memory_celsius=celsius + 5 + round(8 * dram),
            gpu_celsius=celsius,
            power_watts=power,
            power_limit_watts=model.limit_watts,
            energy_millijoules=round(joules * 1000),
            pcie_replays=0,
            gpu_percent=round(100 * level),
            memory_percent=round(100 * dram),
            memory_free_mib=model.memory_mib - model.reserved_mib - used,
            memory_used_mib=used,
            memory_reserved_mib=model.reserved_mib,
            clock_event_reasons=_reasons(flaw, level, power / model.limit_watts),
            ecc_corrected=2 * errors,
            ecc_uncorrected=errors,
            remapped_rows=8 if flaw is Flaw.REMAP else min(errors, 8),
            remap_failed=int(flaw is Flaw.REMAP),
            remap_pending=int(flaw is Flaw.ECC),
            engine_active=level,
            sm_active=0.93 * level,
            tensor_active=kind.tensor * level,
            dram_active=dram,
        )


class _Load(NamedTuple):
    """Of a job: now, all that it added up to, and its mean lately."""

    level: float
    total: float
    mean: float


def _load(wave: Wave, seconds: float) -> _Load:
    total = wave.integral(seconds)
    lately = total - wave.integral(seconds - WARM_SECONDS)
    return _Load(wave.level(seconds), total, lately / WARM_SECONDS)


_NONE = _Load(0.0, 0.0, 0.0)
_CLOCK: dict[Flaw | None, float] = {Flaw.SLOW: 0.6, Flaw.THERMAL: 0.55}
"""What is left of clock and power."""


def _errors(seconds: float) -> int:
    return 3 + int(max(0.0, seconds) / ERROR_SECONDS)


def _reasons(flaw: Flaw | None, level: float, of_limit: float) -> int:
    if flaw is Flaw.THERMAL:
        return BITS["hw_slowdown"] | BITS["hw_thermal"]
    if not level:
        return BITS["idle"]
    return BITS["sw_power_cap"] if of_limit > 0.9 else 0
