"""Simulated site: racks of hosts with eight GPUs each, their jobs, and planted flaws.

A smaller site is the beginning of a larger one with the same seed. The flaws are at the beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, pairwise, repeat
from random import Random
from typing import NamedTuple
from uuid import UUID

GPUS_OF_HOST, HOSTS_OF_RACK = 8, 4
DRIVER = "580.95.05"
STRANGE_POD = 'chat"\\\x1b[31mred\x1b[0m\n[bold]x[/bold][link=https://example.org]'
"""Pod name with all that a label may contain: quotes, backslash, escapes, newline, markup."""
WIDE_POD = "翻訳-モデル-0"

Corners = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Wave:
    """Periodic load in straight lines."""

    period_seconds: float
    corners: Corners
    """Share of the period and level there, each 0 to 1. The first is at 0, the last at 1."""
    offset_seconds: float = 0.0

    def level(self, seconds: float) -> float:
        """Return the load at a time, 0 to 1."""
        at = (seconds + self.offset_seconds) / self.period_seconds % 1
        for (x0, y0), (x1, y1) in pairwise(self.corners):
            if at < x1:
                return y0 + (y1 - y0) * (at - x0) / (x1 - x0)
        return self.corners[-1][1]

    @property
    def mean(self) -> float:
        """Mean load, 0 to 1."""
        return sum((x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in pairwise(self.corners))


class JobKind(NamedTuple):
    """Kind of job: its load, its share of power and units, and its names."""

    corners: Corners
    seconds: tuple[float, float]
    """Shortest and longest period."""
    draw: float
    """Share of the power limit, above idle, at full load."""
    tensor: float
    dram: float
    memory: tuple[float, float]
    """Smallest and largest share of the memory."""
    container: str = ""
    namespaces: tuple[str, ...] = ("",)
    names: tuple[str, ...] = ("",)


TRAINING = JobKind(
    # A sawtooth of the data loader, and a checkpoint at the end of each period.
    (
        (0.0, 0.94),
        (0.29, 0.80),
        (0.30, 0.98),
        (0.59, 0.83),
        (0.60, 0.97),
        (0.90, 0.82),
        (0.92, 0.12),
        (0.98, 0.12),
        (1.0, 0.94),
    ),
    (90.0, 240.0),
    draw=0.96,
    tensor=0.58,
    dram=0.52,
    memory=(0.62, 0.93),
    container="trainer",
    namespaces=("research", "vision", "speech"),
    names=("llm-70b-pretrain", "llm-8b-finetune", "diffusion-xl", "whisper-large", "moe-8x22b"),
)
INFERENCE = JobKind(
    ((0.0, 0.25), (0.35, 0.70), (0.5, 0.62), (0.75, 0.35), (1.0, 0.25)),
    (600.0, 1800.0),
    draw=0.72,
    tensor=0.22,
    dram=0.64,
    memory=(0.80, 0.92),
    container="server",
    namespaces=("serving",),
    names=("chat-8b", "chat-70b", "embeddings", "rerank"),
)
NOTEBOOK = JobKind(
    # Never idle for ten minutes, as it would then hold its memory for nothing.
    ((0.0, 0.0), (0.70, 0.0), (0.72, 0.65), (0.97, 0.45), (1.0, 0.0)),
    (180.0, 300.0),
    draw=0.55,
    tensor=0.12,
    dram=0.30,
    memory=(0.10, 0.45),
    container="notebook",
    namespaces=("users",),
    names=("jupyter-ada", "jupyter-grace", "jupyter-linus", "jupyter-barbara"),
)
IDLE = JobKind(
    ((0.0, 0.0), (1.0, 0.0)), (60.0, 60.0), draw=0.0, tensor=0.0, dram=0.0, memory=(0, 0)
)


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Work that some GPUs do in step."""

    kind: JobKind
    name: str
    """Name of its pods without their rank; "" for no job."""
    namespace: str
    wave: Wave
    memory: float
    """Share of each GPU's memory."""


def job_of(kind: JobKind, digits: Random) -> Job:
    """Return a random job of that kind."""
    name = digits.choice(kind.names)
    period = digits.uniform(*kind.seconds)
    return Job(
        kind,
        f"{name}-{digits.getrandbits(16):04x}" if name else "",
        digits.choice(kind.namespaces),
        Wave(period, kind.corners, digits.uniform(0, period)),
        digits.uniform(*kind.memory),
    )


class Model(NamedTuple):
    """GPU model according to its datasheet and `nvidia-smi`."""

    name: str
    memory_mib: int
    reserved_mib: int
    idle_watts: float
    limit_watts: float
    sm_mhz: int
    memory_mhz: int


H100 = Model("NVIDIA H100 80GB HBM3", 81_559, 624, 71.0, 700.0, 1980, 2619)
A100 = Model("NVIDIA A100-SXM4-80GB", 81_920, 617, 58.0, 400.0, 1410, 1593)
H200 = Model("NVIDIA H200", 143_771, 632, 76.0, 700.0, 1980, 3201)
B200 = Model("NVIDIA B200", 183_359, 718, 142.0, 1000.0, 1965, 3996)
RACKS = (
    *(("oslo", H100), ("reno", A100), ("oslo", H200), ("reno", H100)),
    *(("oslo", H100), ("reno", B200), ("oslo", H100), ("reno", A100)),
)
"""Cluster and model of each rack, repeated."""


class Flaw(StrEnum):
    """Planted flaw."""

    LOST = "lost"
    """Xid 79: fallen off the bus, without readings."""
    ECC = "ecc"
    """Xid 48, and a growing number of uncorrected memory errors."""
    REMAP = "remap"
    """No spare memory rows left."""
    THERMAL = "thermal"
    """Too hot, and slowed down."""
    SLOW = "slow"
    """Clock far below that of its job, for no stated reason."""
    IDLE_HELD = "idle_held"
    """Idle with most of its memory in use."""
    AWAY = "away"
    """The exporter of its host stops answering."""


_FLAWS = {
    Flaw.LOST: (0, 1),
    Flaw.ECC: (1, 0),
    Flaw.REMAP: (1, 1),
    Flaw.THERMAL: (0, 2),
    Flaw.SLOW: (0, 0),
    Flaw.IDLE_HELD: (0, 3),
    Flaw.AWAY: (1, 3),
}
"""Rack and host of each flaw."""
_STRANGE = (1, 2)
"""Rack and host of the names that are hard to show."""
_FIRST = {
    ("oslo", H100): ((TRAINING, 3), (NOTEBOOK, 1)),
    ("reno", A100): ((TRAINING, 2), (INFERENCE, 1), (TRAINING, 1)),
}
"""First jobs by cluster and model, with their numbers of hosts: those with the flaws."""
_KINDS = (TRAINING, TRAINING, TRAINING, TRAINING, INFERENCE, INFERENCE, NOTEBOOK, IDLE)
_TRAINING_HOSTS = (1, 2, 2, 4, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedGpu:
    """GPU with everything that does not change."""

    host: str
    cluster: str
    rack: str
    index: int
    uuid: str
    model: Model
    job: Job
    pod: str
    evenness: float
    """Its load relative to its job: close to 1."""
    phase: float
    """Phase of its own ripple, in radians."""
    inlet_celsius: float
    flaw: Flaw | None = None


def hosts_of(gpus: int, seed: int) -> Iterator[tuple[SimulatedGpu, ...]]:
    """Yield the GPUs of each host; the last host has the rest."""
    jobs: dict[tuple[str, Model], Iterator[tuple[Job, int]]] = {}
    for number in range(-(-gpus // GPUS_OF_HOST)):
        rack, place = divmod(number, HOSTS_OF_RACK)
        pool = RACKS[rack % len(RACKS)]
        jobs.setdefault(pool, _jobs(pool, seed))
        job, rank = next(jobs[pool])
        made = _host(rack, place, job, rank, Random(f"{seed}:{number}"))  # noqa: S311 - no secret
        yield made[: gpus - number * GPUS_OF_HOST]


def _jobs(pool: tuple[str, Model], seed: int) -> Iterator[tuple[Job, int]]:
    """Yield the job of each host of the pool, and the rank of the host in it."""
    digits = Random(f"{seed}:{pool[0]}:{pool[1].name}")  # noqa: S311 - no secret
    for kind, hosts in chain(_FIRST.get(pool, ()), _kinds(digits)):
        yield from zip(repeat(job_of(kind, digits)), range(hosts), strict=False)


def _kinds(digits: Random) -> Iterator[tuple[JobKind, int]]:
    while True:
        kind = digits.choice(_KINDS)
        yield kind, digits.choice(_TRAINING_HOSTS) if kind is TRAINING else digits.randint(1, 3)


def _host(rack: int, place: int, job: Job, rank: int, digits: Random) -> tuple[SimulatedGpu, ...]:
    cluster, model = RACKS[rack % len(RACKS)]
    flawed = digits.randrange(GPUS_OF_HOST)
    planted = next((flaw for flaw, at in _FLAWS.items() if at == (rack, place)), None)
    made = []
    for index in range(GPUS_OF_HOST):
        own = job if job.kind in (TRAINING, IDLE) else job_of(job.kind, digits)
        has_flaw = index == flawed or planted is Flaw.AWAY
        made.append(
            SimulatedGpu(
                host=f"{cluster}-r{rack + 1:02d}-n{place + 1}",
                cluster=cluster,
                rack=f"r{rack + 1:02d}",
                index=index,
                uuid=f"GPU-{UUID(int=digits.getrandbits(128))}",
                model=model,
                job=own,
                pod=_pod(own, rank, (rack, place), index),
                evenness=digits.uniform(0.97, 1.0),
                phase=digits.uniform(0, 6.28),
                inlet_celsius=digits.uniform(27, 33),
                flaw=planted if has_flaw else None,
            )
        )
    return tuple(made)


def _pod(job: Job, rank: int, place: tuple[int, int], index: int) -> str:
    if place == _STRANGE and index < 2:
        return (STRANGE_POD, WIDE_POD)[index]
    return f"{job.name}-{rank if job.kind is TRAINING else 0}" if job.name else ""
