"""What simulated GPUs are busy with: jobs whose load is a function of the time alone."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from random import Random

Corners = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Wave:
    """A load that repeats, in straight lines, so that its integral is known, too."""

    period_seconds: float
    corners: Corners
    """Share of the period and level there, both 0 to 1; the first is at 0, the last at 1."""
    offset_seconds: float = 0.0

    def level(self, seconds: float) -> float:
        """How busy it is at that time, 0 to 1."""
        at = (seconds + self.offset_seconds) / self.period_seconds % 1
        for (x0, y0), (x1, y1) in pairwise(self.corners):
            if at < x1:
                return y0 + (y1 - y0) * (at - x0) / (x1 - x0)
        return self.corners[-1][1]

    def integral(self, seconds: float) -> float:
        """What the level adds up to from a fixed time until then, in seconds of full load."""
        turns, at = divmod((seconds + self.offset_seconds) / self.period_seconds, 1)
        return (turns * self._area(1.0) + self._area(at)) * self.period_seconds

    def _area(self, at: float) -> float:
        area = 0.0
        for (x0, y0), (x1, y1) in pairwise(self.corners):
            if at < x1:
                return area + (at - x0) * (y0 + (y1 - y0) * (at - x0) / (x1 - x0) / 2)
            area += (x1 - x0) * (y0 + y1) / 2
        return area


class Kind(NamedTuple):
    """A kind of job: its shape, its share of the power and of the units, and its names."""

    corners: Corners
    seconds: tuple[float, float]
    """The shortest and the longest period."""
    draw: float
    """Share of the power limit, above idle, at full load."""
    tensor: float
    dram: float
    memory: tuple[float, float]
    """Share of the memory that it takes, at least and at most."""
    container: str = ""
    namespaces: tuple[str, ...] = ("",)
    names: tuple[str, ...] = ("",)


TRAINING = Kind(
    # A saw-tooth of the data loader, and at the end of each period a checkpoint.
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
INFERENCE = Kind(
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
NOTEBOOK = Kind(
    # Never silent for as long as ten minutes: that it holds its memory for nothing is not so.
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
IDLE = Kind(((0.0, 0.0), (1.0, 0.0)), (60.0, 60.0), draw=0.0, tensor=0.0, dram=0.0, memory=(0, 0))


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """What some GPUs do together, in step."""

    kind: Kind
    name: str
    """Its pods' up to their rank; "" where there is no job."""
    namespace: str
    wave: Wave
    memory: float
    """Share of each GPU's that it takes."""


def job_of(kind: Kind, digits: Random) -> Job:
    """A job of that kind, as the digits say."""
    name = digits.choice(kind.names)
    period = digits.uniform(*kind.seconds)
    return Job(
        kind,
        f"{name}-{digits.getrandbits(16):04x}" if name else "",
        digits.choice(kind.namespaces),
        Wave(period, kind.corners, digits.uniform(0, period)),
        digits.uniform(*kind.memory),
    )
