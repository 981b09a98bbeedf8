"""Statistics of a run's windows: droop, sustained throughput, and intervals. Pure.

A window is a pair of its length in seconds and its mean rate. Windows come in order of time, from
the first timed product on.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gputop.bench.events import Result

Window = tuple[float, float]
"""Seconds, and the mean rate in them."""

DROOP_SECONDS = 10.0
"""Shortest run with a droop."""
LARGE_DROOP = 10.0
"""Percent that the droop is more than, with confidence, to need a reason. An interval wider than
that says nothing."""
BURST_SECONDS = 2.0
"""Longest time from the first product that counts as the burst."""
FEWEST_BLOCKS = 8
"""Least blocks of windows that show how much their means scatter."""
SHOWN_Z, INTERVAL_Z = 3.3, 2.6
"""Normal quantiles for one of about five looks: all of them together are to be wrong in less than
1 % of the runs, and 5 %."""
NEGLIGIBLE = 1e-6
"""Relative scatter that rates have at least: a clock counts whole ticks."""
STEADY = 0.02
"""Largest relative distance from the sustained throughput of a steady device."""
STEADY_SECONDS = 1.0
"""Seconds whose mean decides about steadiness: a single window is too noisy."""
DIP_SECONDS = 5.0
"""Length of the blocks of which the slowest one is a dip."""
FEWEST_DIP_BLOCKS = 4
MEAN_BLOCKS = 20
"""Blocks whose scatter gives the interval of the mean."""
MEAN_Z = 2.1
"""Normal quantile of that interval: by simulation it covers noise that is correlated over two of 60
seconds in 93 % or more of the runs."""
LEAST_INDEPENDENT = 4.0
"""Least number of independent blocks for an interval of the mean."""
MAD_TO_SIGMA = 1.4826
"""Standard deviation of a normal distribution per median absolute deviation."""


@dataclass(frozen=True, slots=True)
class Droop:
    """Decrease from the burst, which begins with the first product, to the second half."""

    percent: float
    """Percent of the burst; 0 unless it is more than the noise of the second half."""
    low: float
    high: float
    """Bounds of an interval with at least 95 % confidence. `low` is above 0 if a droop is shown."""
    burst: float


def with_statistics(
    result: Result, first: Sequence[Window], windows: Sequence[Window]
) -> Result:
    """Return the result of a run with its statistics, as far as the run is long enough.

    `first` are the windows of its first two seconds. In a long run `windows` may be joined with
    their neighbours. The interval is that of the result's mean: it is lower than that of the
    windows where the device waited for the host between them.
    """
    if len(windows) < FEWEST_BLOCKS:
        return result
    ordered = sorted(rate for _, rate in windows)
    mean, whole = result.tflops_mean, mean_rate(windows)
    share = mean / whole if mean and whole else 1.0
    bounds = mean_interval(windows)
    result = replace(
        result,
        tflops_mean_interval=bounds and (bounds[0] * share, bounds[1] * share),
        dip_percent=deepest_dip(windows),
        tflops_p5=percentile(ordered, 5),
        tflops_p95=percentile(ordered, 95),
    )
    late = second_half(windows)
    total = math.fsum(seconds for seconds, _ in windows)
    if total < DROOP_SECONDS or len(late) < FEWEST_BLOCKS or not first:
        return result
    sustained, found = mean_rate(late), droop(first, late)
    return replace(
        result,
        tflops_burst=found.burst,
        tflops_sustained=sustained,
        droop_percent=found.percent,
        droop_interval_percent=(found.low, found.high),
        time_to_steady_seconds=time_to_steady(windows, sustained),
    )


def mean_rate(windows: Sequence[Window]) -> float:
    """Return the mean over time."""
    seconds = math.fsum(length for length, _ in windows)
    return (
        math.fsum(length * rate for length, rate in windows) / seconds
        if seconds
        else 0.0
    )


def second_half(windows: Sequence[Window]) -> list[Window]:
    """Return the windows that begin in the second half of the time."""
    left = math.fsum(seconds for seconds, _ in windows) / 2
    for n, (seconds, _) in enumerate(windows):
        if left <= 1e-9:
            return list(windows[n:])
        left -= seconds
    return []


def droop(first: Sequence[Window], late: Sequence[Window]) -> Droop:
    """Compare the burst with the second half.

    How long a burst lasts is not known: the means from the first product over lengths that double
    are each compared with the scatter of means of that length in the second half, which accounts
    for noise that is correlated. The most significant of them is the burst.
    """
    sustained, looks = mean_rate(late), []
    for doublings in range(len(first).bit_length()):
        begun = first[: 2**doublings]
        length = math.fsum(seconds for seconds, _ in begun)
        above = mean_rate(begun) - sustained
        error, freedom = _scatter(late, length)
        error = max(error, NEGLIGIBLE * abs(sustained) or NEGLIGIBLE)
        significance = above / error / _student(SHOWN_Z, freedom)
        looks.append((significance, above + sustained, error, freedom))
    strongest = max(looks, key=lambda look: look[0])
    shown = strongest[0] > 1
    _, burst, error, freedom = strongest if shown else looks[-1]
    if burst <= 0:
        return Droop(0.0, 0.0, 0.0, burst)
    percent = 100 * (1 - sustained / burst)
    half = 100 * error * _student(INTERVAL_Z, freedom) / burst
    low, high = percent - half, percent + half
    if shown:
        return Droop(percent, low, high, burst)
    return Droop(0.0, min(low, 0.0), max(high, 0.0), burst)


def _scatter(late: Sequence[Window], length: float) -> tuple[float, float]:
    """Return the standard error of a mean over `length` against that of `late`, and its freedom.

    Blocks that depend on each other count as fewer independent ones.
    """
    total = math.fsum(seconds for seconds, _ in late)
    means = [
        mean_rate(block) for block in _blocks(late, min(length, total / FEWEST_BLOCKS))
    ]
    each, independent = total / len(means), _independent(means)
    # A part of a window scatters more than the window.
    sigma = statistics.stdev(means) * math.sqrt(max(1.0, each / length))
    return sigma * math.sqrt(1 + min(1.0, length / each) / independent), independent - 1


def _independent(means: Sequence[float]) -> float:
    """Return how many independent blocks say as much as these."""
    alike = max(0.0, _autocorrelation(means))
    alike = min(
        0.95, alike + (1 + 3 * alike) / len(means)
    )  # which few blocks underestimate
    return max(2.0, len(means) * (1 - alike) / (1 + alike))


def _blocks(windows: Sequence[Window], length: float) -> Iterator[list[Window]]:
    """Yield blocks of windows of at least about that many seconds, without the rest."""
    block, held = list[Window](), 0.0
    for window in windows:
        block.append(window)
        held += window[0]
        if held > length * 0.99:
            yield block
            block, held = [], 0.0


def _autocorrelation(values: Sequence[float]) -> float:
    middle = statistics.fmean(values)
    apart = [value - middle for value in values]
    squares = math.fsum(each * each for each in apart)
    products = math.fsum(a * b for a, b in itertools.pairwise(apart))
    return products / squares if squares else 0.0


def _student(z: float, freedom: float) -> float:
    """Return the quantile of Student's distribution that belongs to one of the normal one.

    It is the expansion of Abramowitz and Stegun, 26.7.5.
    """
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return math.fsum(term / freedom**power for power, term in enumerate(terms))


def time_to_steady(windows: Sequence[Window], sustained: float) -> float | None:
    """Return the seconds until the rate stayed within 2 % of `sustained`, or None.

    What comes first is what a cold device does; one that still leaves in the last half is not
    steady.
    """
    steady_from = elapsed = 0.0
    for block in _blocks(windows, STEADY_SECONDS):
        for seconds, _ in block:
            elapsed += seconds
        if abs(mean_rate(block) - sustained) > STEADY * sustained:
            steady_from = elapsed
    total = math.fsum(seconds for seconds, _ in windows)
    return steady_from if steady_from <= total / 2 else None


def deepest_dip(windows: Sequence[Window]) -> float | None:
    """Return how far the slowest block of 5 s is below the median block, in percent.

    It is None for a run with too few blocks. They are counted from both ends, as one from the begin
    may miss the last seconds.
    """
    both = *_blocks(windows, DIP_SECONDS), *_blocks(windows[::-1], DIP_SECONDS)
    if len(both) < 2 * FEWEST_DIP_BLOCKS:
        return None
    means = [mean_rate(block) for block in both]
    middle = statistics.median(means)
    return 100 * (1 - min(means) / middle) if middle > 0 else None


def mean_interval(windows: Sequence[Window]) -> tuple[float, float] | None:
    """Return a 95 % interval of the mean by the scatter of blocks, within the windows' rates.

    It is None if the blocks are so alike that too few of them are independent.
    """
    total = math.fsum(seconds for seconds, _ in windows)
    means = [mean_rate(block) for block in _blocks(windows, total / MEAN_BLOCKS)]
    independent = _independent(means)
    if independent < LEAST_INDEPENDENT:
        return None
    # Blocks that depend on each other scatter less than independent ones.
    sigma = statistics.stdev(means) * math.sqrt(
        (1 - 1 / len(means)) / (1 - 1 / independent)
    )
    half = _student(MEAN_Z, independent - 1) * sigma / math.sqrt(independent)
    middle, rates = mean_rate(windows), [rate for _, rate in windows]
    return max(min(rates), middle - half), min(max(rates), middle + half)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return a percentile of sorted values, linear between the nearest two."""
    at = (len(ordered) - 1) * percent / 100
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


def robust_sigma(values: Sequence[float]) -> float:
    """Return the standard deviation of most values: 1.4826 times their median deviation."""
    middle = statistics.median(values)
    return MAD_TO_SIGMA * statistics.median(abs(value - middle) for value in values)
