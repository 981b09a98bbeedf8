"""Verdict about the links of a GPU, from its copies to the host and to other GPUs. Pure."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping

from gputop.bench.events import DEGRADED, NOT_JUDGED, OK, Result
from gputop.bench.results.advice import Judged, it, number
from gputop.bench.results.measures import measured, percent_below
from gputop.bench.results.statistics import robust_sigma
from gputop.text import percentage, visible

LINK = re.compile(r"(.+): (write to|read from|both directions with) (.+)")
"""Name of a row of copies between two GPUs."""
ALIKE = 0.05
"""Largest relative scatter of links of one type, such as all links of an NVSwitch."""
LEAST_OF_LINK = 0.5
"""Least share of a healthy PCIe link's bandwidth that pinned copies reach."""


def has_links(result: Result) -> bool:
    """Return True if a GPU copied to or from another one."""
    return any(map(LINK.fullmatch, measured(result)))


def judge_links(
    result: Result,
    like: Iterable[Result],
    tolerance: float,
) -> Judged:
    """Compare the links of a GPU with the links of all GPUs, for each direction."""
    mine, slow = _rates_of_links([result]), list[str]()
    here = [result, *(each for each in like if each.host == result.host)]
    for way, links in _rates_of_links(here).items():
        best: dict[str, float] = {}
        for (gpu, _), rate in links.items():
            best[gpu] = max(rate, best.get(gpu, 0.0))
        behind = {gpu: _under_others(best, gpu) for gpu in best}
        middle = statistics.median(links.values())
        alike = robust_sigma([*links.values()]) <= ALIKE * middle
        for (gpu, peer), rate in mine.get(way, {}).items():
            if behind[gpu] > tolerance:
                slow.append(
                    f"{way} all other GPUs {percentage(behind[gpu], digits=1)}"
                )
                break
            under = percent_below(rate, middle)
            # Ignore links to a GPU that is itself slow.
            if (
                alike
                and under > tolerance
                and behind.get(peer, 0.0) <= tolerance
            ):
                slow.append(
                    f"{way} {visible(peer, 40)} {percentage(under, digits=1)}"
                )
    if slow:
        why = f"{'; '.join(slow)} under the other links, more than {tolerance:g} %"
        check = f"nvidia-smi nvlink --status -i {number(result)}"
        said = (
            f"Slow link to other GPUs: {why}. Check its links with `{check}`."
        )
        return Judged(DEGRADED, why, said)
    return Judged(OK, "its links are as fast as those of the others")


def _under_others(rates: Mapping[str, float], one: str) -> float:
    others = [rate for each, rate in rates.items() if each != one]
    return (
        percent_below(rates[one], statistics.median(others)) if others else 0.0
    )


def _rates_of_links(
    results: Iterable[Result],
) -> dict[str, dict[tuple[str, str], float]]:
    """Return bytes per second by direction, then by GPU and peer."""
    found: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    for each in results:
        for name, rate in measured(each).items():
            if known := LINK.fullmatch(name):
                gpu, way, peer = known.groups()
                found[way][gpu, peer] = rate
    return found


def judge_pcie(result: Result, others: Iterable[Result]) -> Judged:
    most = result.known_conditions.pcie_bytes_per_second
    pinned = []
    for name, rate in measured(result).items():
        if name.endswith(", pinned"):
            pinned.append(rate)
    if not most or not pinned:
        return Judged(
            NOT_JUDGED, "the greatest speed of its link is not known"
        )
    why = f"pinned copies at {min(pinned) / 1e9:.1f} of {most / 1e9:.1f} GB/s"
    if min(pinned) >= LEAST_OF_LINK * most:
        return Judged(OK, why)
    if any(each.host == result.host for each in others):
        return Judged(
            NOT_JUDGED,
            f"{why}, and other GPUs that copied at once may share the link",
        )
    said = (
        f"Slow PCIe link: {why}. "
        f"Check that the slot of {it(result)} has all its lanes, and reseat the card."
    )
    return Judged(DEGRADED, why, said)
