"""Temperatures at which a run is ended early."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gputop.bench.plan.request import Target
    from gputop.schema.device import Device, DeviceSample
    from gputop.schema.snapshot import Inventory, Sample

MARGIN_CELSIUS = 3
"""Distance to the driver's threshold, so that the test ends before the device throttles."""
DEFAULT_CELSIUS = 80
"""Core limit where the driver reports neither a threshold nor a margin.

It is low on purpose: the H100, H200 and L40S reach their maximum operating temperature at 87 to
88°C, GeForce cards at 89 to 90°C.
"""
NONE = "none, no temperature is read"


@dataclass(frozen=True, slots=True)
class HeatLimit:
    """A reading, and the value at which it ends a run."""

    reading: str
    celsius: int
    kind: str
    """Word before the value: `margin`, `memory`, `default`; empty for the core's own limit."""
    why: str

    @property
    def short(self) -> str:
        """Limit in short: `84°C`, `margin 3°C`."""
        return f"{self.kind} {self.celsius}°C".lstrip()

    @property
    def value(self) -> str:
        """Value with its source: `84°C (slowdown at 87°C)`."""
        return f"{self.celsius}°C ({self.why})" if self.why else f"{self.celsius}°C"

    def __str__(self) -> str:
        return f"{self.kind} {self.value}".lstrip()


def heat_limits(gpu: Device, readings: DeviceSample) -> tuple[HeatLimit, ...]:
    """Return the limits of a GPU whose reading and threshold are known."""
    limits = _known(gpu, readings)
    return tuple(each for each in limits if getattr(readings, each.reading) is not None)


def _known(gpu: Device, readings: DeviceSample) -> Iterator[HeatLimit]:
    slowdown, most = gpu.temperature_slowdown_celsius, gpu.memory_temperature_max_celsius
    margin = readings.temperature_margin_celsius
    if slowdown is not None:
        why = f"slowdown at {slowdown}°C"
        yield HeatLimit("temperature_celsius", slowdown - MARGIN_CELSIUS, "", why)
    if margin is not None:
        # The scale of the margin ("T.Limit") has 0 at the maximum operating temperature, of core
        # or memory, and its thresholds below: software slows down from 0 on, hardware from -2 on.
        slowdown = gpu.temperature_slowdown_margin_celsius
        why = "" if slowdown is None else f"slowdown at {slowdown}°C"
        limit = max(0, slowdown or 0) + MARGIN_CELSIUS
        yield HeatLimit("temperature_margin_celsius", limit, "margin", why)
    elif slowdown is None:
        why = "the driver reports none"
        yield HeatLimit("temperature_celsius", DEFAULT_CELSIUS, "default", why)
    if most is not None:
        why = f"maximum {most}°C"
        yield HeatLimit("memory_temperature_celsius", most - MARGIN_CELSIUS, "memory", why)


def in_words(limits: Iterable[HeatLimit]) -> str:
    """Return the limits in words: `84°C (slowdown at 87°C), memory 92°C (maximum 95°C)`."""
    return ", ".join(map(str, limits)) or NONE


def in_short(several: Iterable[Iterable[HeatLimit]]) -> str:
    """Return the limits of several GPUs without reasons, each once: `margin 3°C; 86°C`."""
    texts = (", ".join(limit.short for limit in limits) or NONE for limits in several)
    return "; ".join(dict.fromkeys(texts))


def reached_limit(target: Target, inventory: Inventory | None, sample: Sample | None) -> str | None:
    """Return the limit that the device has reached in words, or None.

    A MIG instance has the limits of its GPU, a CPU none.
    """
    if target.gpu_uuid is None or inventory is None or sample is None:
        return None
    gpu, readings = inventory.device(target.gpu_uuid), sample.device(target.gpu_uuid)
    if gpu is None or readings is None:
        return None
    what = None if target.parent_uuid is None else f"GPU {gpu.label}"
    for limit in heat_limits(gpu, readings):
        celsius: int = getattr(readings, limit.reading)
        over = celsius - limit.celsius
        if (-over if limit.kind == "margin" else over) >= 0:  # a margin falls with the heat
            return f"{_event(limit, what)} {celsius}°C, and its limit is {limit.value}"
    return None


def _event(limit: HeatLimit, gpu: str | None) -> str:
    verb = "fell to" if limit.kind == "margin" else "reached"
    if limit.kind in ("margin", "memory"):
        return f"its {limit.kind} {verb}" if gpu is None else f"the {limit.kind} of {gpu} {verb}"
    return f"{gpu or 'it'} {verb}"
