"""Findings about a training: a slowdown, and the GPU's share of the time of a step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from gputop.health.findings import Finding, Severity
from gputop.text import moment, number
from gputop.training.progress import Point, rates

COLUMN_SECONDS = 10.0
"""Steps are counted in columns of this length, or longer if steps are slow."""
WINDOW_SECONDS = 1800.0
STEPS_A_COLUMN = 5
FEWEST_COLUMNS = 3
"""Fewest columns before and after a slowdown."""
SLOWER_PERCENT = 10.0
"""A smaller drop is noise: other batches, logging, checkpoints."""
NOISES = 3.0
"""A drop must be this many times the usual deviation of a column from the median."""
CAUSE_SECONDS = 60.0
"""Longest time between the start of a cause and the start of the slowdown."""
CAUSES = (
    "thermal",
    "hardware_slowdown",
    "power_capped",
    "clocks_low",
    "input_bound",
    "straggler",
    "held_up",
)
"""Rules whose findings explain a slowdown, the likeliest cause first."""
HELD_BACK = CAUSES[:3]
"""Rules whose titles say what is done to a GPU, such as `throttled by heat`."""
SHORT_WORK_PERCENT = 80.0
"""A GPU that is less busy waits during a part of each step."""


@dataclass(frozen=True)
class Slowdown:
    """A drop of the steps per second that still lasts."""

    percent: float
    """Drop in percent of the steps per second before."""
    since: float

    def sentence(self, findings: Iterable[tuple[str, Finding]] = ()) -> str:
        """Return a sentence, with the cause if one began at the same time.

        `findings` are pairs of a device's name and a finding about this device.
        """
        text = f"Steps are {self.percent:.0f} % slower since {moment(self.since)[:5]}"
        best, cause = len(CAUSES), ""
        for name, finding in findings:
            if finding.rule not in CAUSES or finding.since is None:
                continue
            if finding.severity <= Severity.INFORMATION:
                continue  # normal, such as the power limit at full load
            order = CAUSES.index(finding.rule)
            is_near = abs(finding.since - self.since) <= CAUSE_SECONDS
            if is_near and order < best:
                best = order
                cause = f"; {name}: {finding.title}"
                if finding.rule in HELD_BACK:
                    cause = f", when {name} began to be {finding.title}"
        return text + cause


def find_slowdown(points: Sequence[Point], now: float) -> Slowdown | None:
    """Return the slowdown that still lasts, or None.

    It begins where the steps per second split best into two levels.
    """
    if not points:
        return None
    first, last = points[0], points[-1]
    start = max(first.time, now - WINDOW_SECONDS)
    end = last.time
    done = last.value - first.value
    if end <= start or not done:
        return None
    step_seconds = (end - first.time) / done
    width = max(COLUMN_SECONDS, STEPS_A_COLUMN * step_seconds)
    columns = int((end - start) / width)
    if columns < 2 * FEWEST_COLUMNS:
        return None
    edges = [end - width * n for n in range(columns, -1, -1)]
    found = [rate for rate in rates(points, edges) if rate is not None]
    place = _change(found)
    before, after = found[:place], found[place:]
    usual = median(before)
    drop = usual - median(after)
    noise = max(_deviation(before), _deviation(after))
    if (
        usual <= 0
        or 100 * drop / usual < SLOWER_PERCENT
        or drop < NOISES * noise
    ):
        return None
    is_fast_at_times = max(after) > usual - drop / 2
    if is_fast_at_times:
        return None
    return Slowdown(100 * drop / usual, edges[place])


def _change(values: Sequence[float]) -> int:
    """Return the place that splits the values best into two levels, each with its mean."""

    def gain(place: int) -> float:
        before, after = values[:place], values[place:]
        return len(before) * len(after) * (fmean(before) - fmean(after)) ** 2

    last = len(values) - FEWEST_COLUMNS
    return max(range(FEWEST_COLUMNS, last + 1), key=gain)


def _deviation(values: Sequence[float]) -> float:
    """Return the median distance from the median."""
    middle = median(values)
    return median(abs(value - middle) for value in values)


def step_sentence(
    steps_per_second: float | None,
    busy: Iterable[float | None],
) -> str:
    """Return a sentence about the GPU's time in a step. `busy` are percentages.

    Empty if the rate or `busy` is unknown, or if the GPU works nearly all the time.
    """
    known = [value for value in busy if value is not None]
    if not steps_per_second or not known:
        return ""
    percent = fmean(known)
    if percent >= SHORT_WORK_PERCENT:
        return ""
    step = 1 / steps_per_second
    works = step * percent / 100
    return f"A step takes {seconds(step)}, of which the GPU works {seconds(works)}"


def seconds(value: float) -> str:
    """Return a duration with three digits: `0.80 s`, `35.2 ms`."""
    if value < 0.1:
        return f"{number(1000 * value)} ms"
    return f"{number(value)} s"
