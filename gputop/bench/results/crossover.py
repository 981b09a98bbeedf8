"""From which size on a GPU is worth its launch: two sweeps of the same products, size by size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gputop.bench.events import Point, Result


@dataclass(frozen=True, slots=True)
class Crossover:
    """How many times as fast a GPU is as a CPU, in one data type."""

    series: str
    ratios: tuple[tuple[int, float], ...]
    """N and TFLOP/s of the GPU over those of the CPU, at the sizes that both have, ascending."""

    @property
    def wins_from(self) -> int | None:
        """The size from which on the GPU is faster at every one; None where it never is."""
        found = None
        for n, ratio in reversed(self.ratios):
            if ratio <= 1:
                break
            found = n
        return found


def crossovers(gpu: Iterable[Point], cpu: Iterable[Point]) -> list[Crossover]:
    """One for each data type that both have at one size at least, in the order of the GPU's."""
    fast, slow = _by_series(gpu), _by_series(cpu)
    found = []
    for series, rates in fast.items():
        others = slow.get(series, {})
        shared = sorted(n for n in rates if others.get(n))
        if shared:
            found.append(Crossover(series, tuple((n, rates[n] / others[n]) for n in shared)))
    return found


def _by_series(points: Iterable[Point]) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for point in points:
        if "tflops" in point.values:
            found.setdefault(point.series, {})[round(point.x)] = point.values["tflops"]
    return found


def others(results: Iterable[Result], device: str, uuid: str | None) -> list[Result]:
    """Of results, newest first, the sweeps of other devices; a CPU is known by its name."""
    return [
        result
        for result in results
        if result.kind == "sweep" and key(result.device, result.device_uuid) != key(device, uuid)
    ]


def key(device: str, uuid: str | None) -> str:
    """Which device it is."""
    return uuid or device


def newest(results: Iterable[Result]) -> dict[tuple[str, str], tuple[Result, list[Point]]]:
    """By device and data type, the points of the newest of results that come newest first."""
    found: dict[tuple[str, str], tuple[Result, list[Point]]] = {}
    for result in results:
        device = key(result.device, result.device_uuid)
        lines: dict[str, list[Point]] = {}
        for point in result.points:
            lines.setdefault(point.series, []).append(point)
        for series, points in lines.items():
            found.setdefault((device, series), (result, points))
    return found


def with_earlier(
    points: Iterable[Point], uuid: str | None, earlier: Iterable[Result]
) -> list[Crossover]:
    """A sweep against the newest of the other sort of device, of `others`, by data type."""
    theirs: dict[str, list[Point]] = {}
    for (_, series), (result, line) in newest(earlier).items():
        if (result.device_uuid is None) != (uuid is None):
            theirs.setdefault(series, line)
    matching = [point for line in theirs.values() for point in line]
    return crossovers(matching, points) if uuid is None else crossovers(points, matching)


def in_words(crossover: Crossover) -> str:
    """`float32: the GPU is faster from 192 on, 88 times at 8192`."""
    most, last = crossover.ratios[-1]
    start = crossover.wins_from
    if start is None:
        return f"{crossover.series}: the GPU is not faster even at {most}, {times(last)} times"
    return f"{crossover.series}: the GPU is faster from {start} on, {times(last)} times" + (
        f" at {most}" if start != most else ""
    )


def times(ratio: float) -> str:
    """A ratio in two digits, whole ones in full: `0.042`, `1.3`, `312`."""
    return f"{ratio:.0f}" if ratio >= 9.95 else f"{ratio:.2g}"
