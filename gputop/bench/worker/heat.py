"""Temperature limits of a GPU that end a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gputop.agent.device import Device, DeviceSample

MARGIN_CELSIUS = 3
"""Distance to the driver's threshold, so that the test ends before the device throttles."""
DEFAULT_CELSIUS = 80
"""Core limit where the driver reports neither a threshold nor a margin.

It is low on purpose: the maximum operating temperature is 87 to 88°C for the H100, H200 and L40S,
and 89 to 90°C for GeForce cards.
"""
NONE = "none, no temperature is read"


@dataclass(frozen=True)
class HeatLimit:
    """A reading, and the value at which it ends a run."""

    reading: str
    celsius: int
    kind: str
    """Word before the value: `margin`, `memory`, `default`; empty for the core's own limit."""
    why: str
    """Source of the value as ` (source)` with a leading space; empty if unknown."""

    @property
    def short(self) -> str:
        """Limit in short: `84°C`, `margin 3°C`."""
        return f"{self.kind} {self.celsius}°C".lstrip()

    def __str__(self) -> str:
        return f"{self.short}{self.why}"

    def is_reached(self, celsius: int) -> bool:
        """Return True if the reading ends a run. A margin shrinks as the GPU heats up."""
        if self.kind == "margin":
            return celsius <= self.celsius
        return celsius >= self.celsius


def heat_limits(gpu: Device, readings: DeviceSample) -> tuple[HeatLimit, ...]:
    """Return the limits of a GPU whose reading and threshold are known."""
    found: list[HeatLimit] = []
    slowdown = gpu.temperature_slowdown_celsius
    if slowdown is not None:
        why = f" (slowdown at {slowdown}°C)"
        limit = slowdown - MARGIN_CELSIUS
        found.append(HeatLimit("temperature_celsius", limit, "", why))
    if readings.temperature_margin_celsius is not None:
        # The margin ("T.Limit") is 0 at the maximum operating temperature of
        # core or memory. Software slows the GPU down from 0 on, hardware from
        # -2 on.
        threshold = gpu.temperature_slowdown_margin_celsius
        why = "" if threshold is None else f" (slowdown at {threshold}°C)"
        limit = max(0, threshold or 0) + MARGIN_CELSIUS
        found.append(
            HeatLimit("temperature_margin_celsius", limit, "margin", why)
        )
    elif slowdown is None:
        why = " (the driver reports none)"
        found.append(
            HeatLimit("temperature_celsius", DEFAULT_CELSIUS, "default", why)
        )
    most = gpu.memory_temperature_max_celsius
    if most is not None:
        why = f" (maximum {most}°C)"
        limit = most - MARGIN_CELSIUS
        found.append(
            HeatLimit("memory_temperature_celsius", limit, "memory", why)
        )
    return tuple(
        each for each in found if getattr(readings, each.reading) is not None
    )


def heat_in_words(limits: Iterable[HeatLimit]) -> str:
    """Return the limits in words: `84°C (slowdown at 87°C), memory 92°C (maximum 95°C)`."""
    return ", ".join(map(str, limits)) or NONE


def heat_in_short(several: Iterable[Iterable[HeatLimit]]) -> str:
    """Return the limits of several GPUs without reasons, each once: `margin 3°C; 86°C`."""
    texts = (
        ", ".join(limit.short for limit in limits) or NONE
        for limits in several
    )
    return "; ".join(dict.fromkeys(texts))


def reached_limit(
    gpu: Device,
    readings: DeviceSample,
    of: str = "",
) -> str | None:
    """Return a sentence about the limit that the GPU has reached, or None.

    A MIG instance has the limits of its GPU, and `of` is that GPU's label.
    """
    for limit in heat_limits(gpu, readings):
        celsius: int = getattr(readings, limit.reading)
        if limit.is_reached(celsius):
            subject = of or "it"
            if limit.kind in ("margin", "memory"):
                subject = (
                    f"the {limit.kind} of {of}" if of else f"its {limit.kind}"
                )
            verb = "fell to" if limit.kind == "margin" else "reached"
            reading = f"{subject} {verb} {celsius}°C"
            return f"{reading}, and its limit is {limit.celsius}°C{limit.why}"
    return None
