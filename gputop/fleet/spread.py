"""Totals of a fleet, and how a reading is spread over it. Pure.

What is of a whole GPU, such as its power, is told by each of its MIG instances, and counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gputop.fleet.model import Gpu, Health, Wrong

OF_DEVICE = frozenset(("power_watts", "temperature_celsius"))
"""Readings that are those of the whole GPU."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals of a fleet, or of a part of it."""

    gpus: int
    """Physical ones."""
    instances: int
    """MIG instances of these."""
    hosts: int
    models: int
    power_watts: float | None
    memory_used_bytes: float | None
    """Sum over the GPUs of which both are known; so is the next."""
    memory_total_bytes: float | None
    gpus_with_findings: int
    findings: Mapping[Health, int]
    """How many there are of each severity, as many as the list of them has rows."""


def totals(gpus: Sequence[Gpu], wrong: Sequence[Wrong]) -> Totals:
    """Add up some GPUs and what is wrong with them."""
    both = [(each.memory_used_bytes, each.memory_total_bytes) for each in wholes(gpus)]
    memory = [(used, of) for used, of in both if used is not None and of is not None]
    watts = [each.power_watts for each in devices(gpus) if each.power_watts is not None]
    keys = {each.key for each in wrong}
    return Totals(
        gpus=len(devices(gpus)),
        instances=sum(each.is_instance for each in gpus),
        hosts=len({each.host for each in gpus}),
        models=len({each.name for each in gpus}),
        power_watts=sum(watts) if watts else None,
        memory_used_bytes=sum(used for used, _ in memory) if memory else None,
        memory_total_bytes=sum(of for _, of in memory) if memory else None,
        gpus_with_findings=len({each.device for each in gpus if each.key in keys}),
        findings=Counter(each.severity for each in wrong),
    )


def devices(gpus: Sequence[Gpu]) -> Sequence[Gpu]:
    """Return each physical GPU once: itself where it is there, else the first of its instances."""
    if not any(each.is_instance for each in gpus):
        return gpus
    found: dict[tuple[str, str], Gpu] = {}
    for each in sorted(gpus, key=lambda gpu: (gpu.is_instance, gpu.power_watts is None)):
        found.setdefault(each.device, each)
    return [*found.values()]


def wholes(gpus: Sequence[Gpu]) -> Sequence[Gpu]:
    """Leave out instances of GPUs that are there themselves, whose memory has theirs in it."""
    whole = {each.device for each in gpus if not each.is_instance}
    if len(whole) == len(gpus):
        return gpus
    return [each for each in gpus if not each.is_instance or each.device not in whole]


@dataclass(frozen=True, slots=True)
class Spread:
    """Of those GPUs that have it."""

    count: int
    low: float
    """The 5th percentile: one in twenty has less."""
    median: float
    high: float
    """The 95th percentile."""
    total: float


def spread(values: Iterable[float | None]) -> Spread | None:
    """The spread of those that are there; None where none is."""
    found = sorted(value for value in values if value is not None)
    if not found:
        return None
    low, middle, high = (_at(found, share) for share in (0.05, 0.5, 0.95))
    return Spread(len(found), low, middle, high, sum(found))


def _at(values: list[float], share: float) -> float:
    """Between two values, the share of the way from one to the other."""
    place = share * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])
