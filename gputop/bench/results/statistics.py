"""Statistics of a run's windows: droop, sustained throughput, and intervals. Pure.

A window is a pair of its length in seconds and its mean rate. Windows come in order of time, from
the first timed product on.
"""

from __future__ import annotations

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
"""Percent of droop that needs a reason. A wider interval is inconclusive."""
BURST_SECONDS = 2.0
"""Longest time from the first product that counts as the burst."""
FEWEST_BLOCKS = 8
"""Least blocks of windows for an estimate of the scatter of their means."""
SHOWN_DEVIATIONS = 4.0
"""Least distance of a burst above the rest, in standard deviations. It is large because several
lengths of the burst are tried."""
INTERVAL_DEVIATIONS = 3.0
"""Standard deviations, or standard errors of a mean, to each side of an interval. Two would be
enough for independent blocks, but neighbouring blocks are often alike."""
NEGLIGIBLE = 1e-6
"""Least relative scatter of rates, because clocks have a limited resolution."""
STEADY = 0.02
"""Largest relative distance from the sustained throughput of a steady device."""
STEADY_SECONDS = 1.0
"""Length of the blocks that decide about steadiness. A single window is too noisy."""
DIP_SECONDS = 5.0
"""Length of the blocks whose slowest one is the dip."""
FEWEST_DIP_BLOCKS = 4
MEAN_BLOCKS = 10
"""Number of blocks whose scatter determines the interval of the mean."""
MAD_TO_SIGMA = 1.4826
"""Standard deviation of a normal distribution per median absolute deviation."""


@dataclass(frozen=True, slots=True)
class Droop:
    """Decrease from the burst at the beginning of the run to the second half."""

    percent: float
    """Percent of the burst, or 0 if the decrease is within the noise of the second half."""
    low: float
    high: float
    """Bounds of an interval with at least 95 % confidence. `low` is above 0 if there is a droop."""
    burst: float


def with_statistics(result: Result, windows: Sequence[Window]) -> Result:
    """Return the result of a run with the statistics for which the run is long enough.

    In a long run neighbouring `windows` may be joined. The interval is about the result's mean.
    This mean is lower than the mean of the windows if the device waited for the host between them.
    """
    if len(windows) < FEWEST_BLOCKS:
        return result
    mean, whole = result.tflops_mean, mean_rate(windows)
    share = mean / whole if mean and whole else 1.0
    interval = mean_interval(windows)
    if interval is not None:
        interval = (interval[0] * share, interval[1] * share)
    result = replace(
        result,
        tflops_mean_interval=interval,
        dip_percent=deepest_dip(windows),
    )
    late = second_half(windows)
    total = total_seconds(windows)
    if total < DROOP_SECONDS or len(late) < FEWEST_BLOCKS:
        return result
    sustained, found = mean_rate(late), droop(burst_of(windows), late)
    return replace(
        result,
        tflops_burst=found.burst,
        tflops_sustained=sustained,
        droop_percent=found.percent,
        droop_interval_percent=(found.low, found.high),
        time_to_steady_seconds=time_to_steady(windows, sustained),
    )


def total_seconds(windows: Sequence[Window]) -> float:
    """Return the length of all windows together."""
    return math.fsum(seconds for seconds, _ in windows)


def mean_rate(windows: Sequence[Window]) -> float:
    """Return the mean over time."""
    if not total_seconds(windows):
        return 0.0
    seconds, rates = zip(*windows, strict=True)
    return statistics.fmean(rates, weights=seconds)


def burst_of(windows: Sequence[Window]) -> list[Window]:
    """Return the windows of the first two seconds, at least one."""
    burst, elapsed = list[Window](), 0.0
    for window in windows:
        elapsed += window[0]
        if burst and elapsed >= 1.01 * BURST_SECONDS:
            break
        burst.append(window)
    return burst


def second_half(windows: Sequence[Window]) -> list[Window]:
    """Return the windows that begin in the second half of the time."""
    left = total_seconds(windows) / 2
    for n, (seconds, _) in enumerate(windows):
        if left <= 1e-9:
            return list(windows[n:])
        left -= seconds
    return []


def droop(first: Sequence[Window], late: Sequence[Window]) -> Droop:
    """Compare the burst with the second half.

    The second half is cut into at least eight blocks as long as the burst. There is a droop if the
    burst is more than four standard deviations of the blocks' means above the overall mean. The
    interval is three of these standard deviations to each side.

    The length of the burst is unknown, so this tries doubling lengths, and takes the length with
    the most standard deviations. If there is no droop, the burst is the whole of `first`.
    """
    sustained = mean_rate(late)
    strongest, shown = 0.0, False
    for doublings in range(len(first).bit_length()):
        begun = first[: 2**doublings]
        rate, deviation = mean_rate(begun), _deviation(late, begun)
        deviations = (rate - sustained) / deviation
        shown = shown or deviations > SHOWN_DEVIATIONS
        if deviations > strongest or not shown:
            strongest, burst, noise = deviations, rate, deviation
    if burst <= 0:
        return Droop(0.0, 0.0, 0.0, burst)
    percent = 100 * (1 - sustained / burst)
    half = 100 * INTERVAL_DEVIATIONS * noise / burst
    low, high = percent - half, percent + half
    if shown:
        return Droop(percent, low, high, burst)
    return Droop(0.0, min(low, 0.0), max(high, 0.0), burst)


def _deviation(late: Sequence[Window], burst: Sequence[Window]) -> float:
    """Return the standard deviation of the means of blocks of `late` as long as `burst`."""
    total = total_seconds(late)
    length = total_seconds(burst)
    means = _block_means(late, min(length, total / FEWEST_BLOCKS))
    deviation = statistics.stdev(means)
    block = total / len(means)
    if length < block:  # a part of a window scatters more than the window
        deviation *= math.sqrt(block / length)
    return max(deviation, NEGLIGIBLE * abs(mean_rate(late)), NEGLIGIBLE)


def _blocks(
    windows: Sequence[Window], length: float
) -> Iterator[list[Window]]:
    """Yield blocks of windows of about `length` seconds, without the remaining windows."""
    block, held = list[Window](), 0.0
    for window in windows:
        block.append(window)
        held += window[0]
        if held > length * 0.99:
            yield block
            block, held = [], 0.0


def _block_means(windows: Sequence[Window], length: float) -> list[float]:
    """Return the means of blocks of about `length` seconds."""
    return [mean_rate(block) for block in _blocks(windows, length)]


def time_to_steady(
    windows: Sequence[Window], sustained: float
) -> float | None:
    """Return the seconds after which the rate stays within 2 % of `sustained`, or None.

    A run whose rate still leaves this range in its second half is not steady.
    """
    steady_from = elapsed = 0.0
    for block in _blocks(windows, STEADY_SECONDS):
        elapsed += total_seconds(block)
        if abs(mean_rate(block) - sustained) > STEADY * sustained:
            steady_from = elapsed
    total = total_seconds(windows)
    return steady_from if steady_from <= total / 2 else None


def deepest_dip(windows: Sequence[Window]) -> float | None:
    """Return the distance of the slowest block of 5 s below the median block, in percent.

    It is None for a run with too few blocks. Blocks are cut from both ends of the run, because
    blocks from the start may miss the last seconds.
    """
    means = _block_means(windows, DIP_SECONDS)
    means += _block_means(windows[::-1], DIP_SECONDS)
    if len(means) < 2 * FEWEST_DIP_BLOCKS:
        return None
    middle = statistics.median(means)
    return 100 * (1 - min(means) / middle) if middle > 0 else None


def mean_interval(windows: Sequence[Window]) -> tuple[float, float] | None:
    """Return an interval of the mean with about 95 % confidence, or None for too few windows.

    The run is cut into ten blocks. The interval is three standard errors of their means to each
    side, within the rates of the windows.
    """
    total = total_seconds(windows)
    means = _block_means(windows, total / MEAN_BLOCKS)
    if len(means) < FEWEST_BLOCKS:
        return None
    half = (
        INTERVAL_DEVIATIONS * statistics.stdev(means) / math.sqrt(len(means))
    )
    middle, rates = mean_rate(windows), [rate for _, rate in windows]
    return max(min(rates), middle - half), min(max(rates), middle + half)


def scatter_limit(values: Sequence[float]) -> float:
    """Return the largest distance of an equal run from the median of these runs.

    It is the range of the runs times a factor that is larger for few runs: 1.75 for four runs, and
    1.3 for ten.
    """
    return (1 + 3 / len(values)) * (max(values) - min(values))


def robust_sigma(values: Sequence[float]) -> float:
    """Return a robust standard deviation: 1.4826 times the median absolute deviation."""
    middle = statistics.median(values)
    return MAD_TO_SIGMA * statistics.median(
        abs(value - middle) for value in values
    )
