"""A simulated site: racks of hosts of eight GPUs each, the jobs on them, and what is wrong there.

A smaller site is the beginning of a larger one of the same seed: what is wrong is at its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, repeat
from random import Random
from typing import NamedTuple

from gputop.fleet.demo.load import IDLE, INFERENCE, NOTEBOOK, TRAINING, Job, Kind, job_of

GPUS_OF_HOST, HOSTS_OF_RACK = 8, 4
DRIVER = "580.95.05"
STRANGE_POD = 'chat"\\\x1b[31mred\x1b[0m\n[bold]x[/bold][link=https://example.org]'
"""Quotes, a backslash, escape sequences, a line's end and markup: what a label may have in it."""
WIDE_POD = "翻訳-モデル-0"


class Model(NamedTuple):
    """A GPU as its datasheet and `nvidia-smi` have it."""

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
"""Cluster and model of each rack, in turns."""


class Flaw(StrEnum):
    """What is planted."""

    LOST = "lost"
    """Xid 79: it has fallen off the bus, and nothing of it can be read."""
    ECC = "ecc"
    """Xid 48, and ever more uncorrected errors of its memory."""
    REMAP = "remap"
    """No spare row of memory was left."""
    THERMAL = "thermal"
    """It is too hot, and slows itself down."""
    SLOW = "slow"
    """Its clock is far below those of its job's others, and it does not say why."""
    IDLE_HELD = "idle_held"
    """Nothing runs, and most of its memory is taken."""
    AWAY = "away"
    """The exporter of its host does not answer any more."""


_FLAWS = {
    Flaw.LOST: (0, 1),
    Flaw.ECC: (1, 0),
    Flaw.REMAP: (1, 1),
    Flaw.THERMAL: (0, 2),
    Flaw.SLOW: (0, 0),
    Flaw.IDLE_HELD: (0, 3),
    Flaw.AWAY: (1, 3),
}
"""The rack and the host in it: one flaw a host."""
_STRANGE = (1, 2)
"""The same of the names that are hard to show."""
_FIRST = {
    ("oslo", H100): ((TRAINING, 3), (NOTEBOOK, 1)),
    ("reno", A100): ((TRAINING, 2), (INFERENCE, 1), (TRAINING, 1)),
}
"""The first jobs of a cluster's hosts of a model, with their hosts: where the flaws are."""
_KINDS = (TRAINING, TRAINING, TRAINING, TRAINING, INFERENCE, INFERENCE, NOTEBOOK, IDLE)
_TRAINING_HOSTS = (1, 2, 2, 4, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedGpu:
    """A GPU: what does not change."""

    host: str
    cluster: str
    rack: str
    index: int
    uuid: str
    model: Model
    job: Job
    pod: str
    evenness: float
    """Its share of the load of its job's others: close to 1."""
    phase: float
    """Of its own ripple, in radians."""
    inlet_celsius: float
    flaw: Flaw | None = None

    @property
    def pci_bus_id(self) -> str:
        """As NVML has it."""
        return f"00000000:{0x1A + 0x10 * self.index:02X}:00.0"


def hosts_of(gpus: int, seed: int) -> Iterator[tuple[SimulatedGpu, ...]]:
    """So many GPUs, by host: the last one has what is left."""
    jobs: dict[tuple[str, Model], Iterator[tuple[Job, int]]] = {}
    for number in range(-(-gpus // GPUS_OF_HOST)):
        rack, place = divmod(number, HOSTS_OF_RACK)
        pool = RACKS[rack % len(RACKS)]
        jobs.setdefault(pool, _jobs(pool, seed))
        job, rank = next(jobs[pool])
        made = _host(rack, place, job, rank, Random(f"{seed}:{number}"))  # noqa: S311 - no secret
        yield made[: gpus - number * GPUS_OF_HOST]


def _jobs(pool: tuple[str, Model], seed: int) -> Iterator[tuple[Job, int]]:
    """The job of each host of the pool, and the host's rank in it."""
    digits = Random(f"{seed}:{pool[0]}:{pool[1].name}")  # noqa: S311 - no secret
    for kind, hosts in chain(_FIRST.get(pool, ()), _kinds(digits)):
        yield from zip(repeat(job_of(kind, digits)), range(hosts), strict=False)


def _kinds(digits: Random) -> Iterator[tuple[Kind, int]]:
    while True:
        kind = digits.choice(_KINDS)
        yield kind, digits.choice(_TRAINING_HOSTS) if kind is TRAINING else digits.randint(1, 3)


def _host(rack: int, place: int, job: Job, rank: int, digits: Random) -> tuple[SimulatedGpu, ...]:
    """The GPUs of a host."""
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
                uuid=_uuid(digits),
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


def _uuid(digits: Random) -> str:
    text = f"{digits.getrandbits(128):032x}"
    return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _pod(job: Job, rank: int, place: tuple[int, int], index: int) -> str:
    if place == _STRANGE and index < 2:
        return (STRANGE_POD, WIDE_POD)[index]
    return f"{job.name}-{rank if job.kind is TRAINING else 0}" if job.name else ""
