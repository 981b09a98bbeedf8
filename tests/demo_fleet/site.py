"""Simulated site: racks of four hosts with eight GPUs each, their jobs, and planted flaws.

A smaller site is the beginning of a larger one with the same seed. The flaws are at the beginning.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import NamedTuple
from uuid import UUID

GPUS_OF_HOST, HOSTS_OF_RACK = 8, 4
PERIOD_SECONDS = 240.0
"""Of a load. No GPU is idle for so long that it would hold its memory for nothing."""


class JobKind(NamedTuple):
    """Kind of job. Loads and shares are 0 to 1."""

    container: str
    namespace: str
    names: tuple[str, ...]
    load: float
    swing: float
    """How far the load moves to either side."""
    draw: float
    """Share of the power limit, above idle, at full load."""
    tensor: float
    dram: float
    memory: float

    def level(self, seconds: float) -> float:
        turn = seconds / PERIOD_SECONDS * math.tau
        return max(0.0, self.load + self.swing * math.sin(turn))


LLM, CHAT, USERS = ("llm-70b", "moe-8x22b"), ("chat-8b", "rerank"), ("jupyter-ada", "jupyter-linus")
TRAINING = JobKind("trainer", "research", LLM, 0.90, 0.08, 0.96, 0.58, 0.52, 0.80)
INFERENCE = JobKind("server", "serving", CHAT, 0.48, 0.22, 0.72, 0.22, 0.64, 0.85)
NOTEBOOK = JobKind("notebook", "users", USERS, 0.10, 0.50, 0.55, 0.12, 0.30, 0.30)
IDLE = JobKind("", "", ("",), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


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
B200 = Model("NVIDIA B200", 183_359, 718, 142.0, 1000.0, 1965, 3996)
RACKS = (
    ("oslo", H100, (TRAINING, TRAINING, TRAINING, NOTEBOOK)),
    ("reno", A100, (TRAINING, TRAINING, INFERENCE, TRAINING)),
    ("oslo", H100, (TRAINING, TRAINING, TRAINING, TRAINING)),
    ("reno", B200, (TRAINING, TRAINING, INFERENCE, IDLE)),
)
"""Cluster, model and jobs of each rack, repeated. A rack's training is one job."""


class Flaw(StrEnum):
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


_FLAWS = {
    (0, 0): Flaw.SLOW,
    (0, 1): Flaw.LOST,
    (0, 2): Flaw.THERMAL,
    (1, 0): Flaw.ECC,
    (1, 1): Flaw.REMAP,
}
"""By rack and host."""


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedGpu:
    """GPU with everything that does not change."""

    host: str
    cluster: str
    rack: str
    index: int
    uuid: str
    model: Model
    job: JobKind
    pod: str
    evenness: float
    """Its load relative to its job: close to 1."""
    phase: float
    """Phase of its own ripple, in radians."""
    inlet_celsius: float
    flaw: Flaw | None = None


def hosts_of(gpus: int, seed: int) -> Iterator[tuple[SimulatedGpu, ...]]:
    """Yield the GPUs of each host; the last host has the rest."""
    for number in range(-(-gpus // GPUS_OF_HOST)):
        rack, place = divmod(number, HOSTS_OF_RACK)
        made = _host(rack, place, seed)
        yield made[: gpus - number * GPUS_OF_HOST]


def _host(rack: int, place: int, seed: int) -> tuple[SimulatedGpu, ...]:
    digits = Random(f"{seed}:{rack}:{place}")  # noqa: S311 - no secret
    cluster, model, jobs = RACKS[rack % len(RACKS)]
    job = jobs[place]
    flawed = digits.randrange(GPUS_OF_HOST)
    planted = _FLAWS.get((rack, place))
    made = []
    for index in range(GPUS_OF_HOST):
        name = job.names[rack % len(job.names)]
        shared = f"{name}-{rack:04x}-{place}"
        own = f"{name}-{digits.getrandbits(16):04x}-0" if name else ""
        made.append(
            SimulatedGpu(
                host=f"{cluster}-r{rack + 1:02d}-n{place + 1}",
                cluster=cluster,
                rack=f"r{rack + 1:02d}",
                index=index,
                uuid=f"GPU-{UUID(int=digits.getrandbits(128))}",
                model=model,
                job=job,
                pod=shared if job is TRAINING else own,
                evenness=digits.uniform(0.97, 1.0),
                phase=digits.uniform(0, 6.28),
                inlet_celsius=digits.uniform(27, 33),
                flaw=planted if index == flawed else None,
            )
        )
    return tuple(made)
