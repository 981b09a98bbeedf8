"""Comparison of two results: the faster one and the reason, and the facts that differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from gputop.bench.events import DEGRADED, FAULTY, NOT_JUDGED, OK, Result
from gputop.bench.plan.kinds import kind_of
from gputop.bench.results.columns import shape
from gputop.bench.results.compare import FEWEST_RUNS, LEAST_LIMIT, last_runs
from gputop.bench.results.measures import percent_below, rate_text, score
from gputop.bench.results.page import (
    Block,
    Facts,
    Heading,
    Sentence,
    result_page,
)
from gputop.bench.results.statistics import scatter_limit
from gputop.bench.results.tables import layout_of
from gputop.text import ABSENT, moment, percentage, quantity, rounded, visible

TEST = (
    "kind",
    "data type",
    "size",
    "accumulate",
    "layout",
    "data",
    "threads",
)
"""Names of the facts that define a test. Speeds of different tests are not compared."""
VARYING = ("method", "of usual")
"""Names of facts that differ between equal runs, and say nothing more than others."""
STATES = tuple(f"{each}: " for each in (OK, DEGRADED, FAULTY, NOT_JUDGED))
"""Beginnings of the parts of a verdict."""
OTHER_PERCENT = 1.0
"""Least difference of a condition, in percent, that explains a difference in speed."""
LOWER = (
    ("sm_clock_mhz_mean", "clock", "MHz"),
    ("power_limit_watts", "power limit", "W"),
)
"""Conditions that make a device slower if they are lower: names, labels and units."""
OTHER_HEAT = 3.0
"""Least difference of temperatures in °C that is mentioned."""


def comparison_page(
    before: Result, after: Result, known: Sequence[Result] = ()
) -> list[Block]:
    """Return the answer first, then all facts of both results that differ.

    The scatter of equal runs is estimated from the like runs among the `known` results.
    """
    was, now = facts_of(before), facts_of(after)
    rows = []
    for name in {**was, **now}:
        pair = was.get(name, ABSENT), now.get(name, ABSENT)
        if name not in VARYING and _differ(*pair):
            rows.append((name, ", then ".join(pair)))
    tests = [name for name in TEST if was.get(name) != now.get(name)]
    said = Sentence(
        f"These are different tests: they differ in {', '.join(tests)}.",
        "warn",
    )
    if not tests:
        said = answer(before, after, known)
    title = f"{_when(before)}, then {_when(after)}"
    return [said, Heading(title), Facts("", rows)]


def _differ(was: str, now: str) -> bool:
    """Return True for two texts, but not for two parts of a verdict with the same state."""
    for state in STATES:
        if was.startswith(state) and now.startswith(state):
            return False
    return was != now


def facts_of(result: Result) -> Mapping[str, str]:
    """Return all facts of a result by name, and the rates of its rows."""
    kind = kind_of(result.kind)
    facts = [("kind", result.kind), ("data type", result.dtype)]
    if not kind.has_rows:
        facts.append(("size", shape(result)))
    for block in result_page(result):
        if isinstance(block, Facts):
            facts += block.rows
    layout = layout_of(result.kind)
    for row in result.points:
        place = f"{row.series}, {layout.size_text(row)}"
        facts.append((place, rate_text(row)))
    found: dict[str, str] = {}
    for name, text in facts:
        # Some have several lines, such as the notes.
        found[name] = f"{found[name]}; {text}" if name in found else text
    if kind.finds_shape:  # each search finds its own
        found.pop("layout", None)
    return found


def answer(
    before: Result, after: Result, known: Sequence[Result] = ()
) -> Sentence:
    """Return a sentence about the faster result and the reasons, or `The same within 1 %.`"""
    one, other = score(before), score(after)
    if not one or not other:
        return Sentence("They have no speed to compare.")
    slow, fast = (before, after) if one < other else (after, before)
    percent = percent_below(min(one, other), max(one, other))
    if percent <= _noise((before, after), known):
        return Sentence(
            f"The same within {max(1, math.ceil(percent))} %.", "good"
        )
    slow_name, fast_name = _names(slow, fast, after)
    why = ", ".join(_reasons(slow, fast)) or "no reason is known"
    share = percentage(percent)
    return Sentence(
        f"{slow_name} is {share} slower than {fast_name}: {why}.", "warn"
    )


def _noise(pair: Sequence[Result], known: Sequence[Result]) -> float:
    """Return the largest expected difference between equal runs, in percent."""
    like = [last_runs(each, known) for each in pair]
    scores = [score(each) or 0.0 for each in max(like, key=len)]
    if len(scores) < FEWEST_RUNS:
        return LEAST_LIMIT
    return 100 * scatter_limit(scores) / max(scores)


def _names(
    slow: Result,
    fast: Result,
    after: Result,
) -> tuple[str, str]:
    """Return the names of two runs in a sentence: by device, or by order for the same device."""
    if (slow.device_uuid, slow.host) == (fast.device_uuid, fast.host):
        names = "The second run", "the first"
        return names if slow is after else ("The first run", "the second")
    return _device(slow, fast), _device(fast, slow)


def _device(result: Result, other: Result) -> str:
    """Return a name of a device that distinguishes it from the other device."""
    name = visible(result.device, 60)
    if (
        result.device_index is not None
        and result.device_index != other.device_index
    ):
        name = f"GPU {result.device_index}"
    if result.host and result.host != other.host:
        name += f" on {visible(result.host, 60)}"
    return name


def _reasons(slow: Result, fast: Result) -> Iterator[str]:
    """Yield the conditions that may explain a difference, with the figures of both."""
    one, other = slow.known_conditions, fast.known_conditions
    for name, label, unit in LOWER:
        low, high = getattr(one, name), getattr(other, name)
        if low and high and percent_below(low, high) >= OTHER_PERCENT:
            yield f"lower {label} ({rounded(low)} and {rounded(high)} {unit})"
    mine, its = one.temperature_celsius_max, other.temperature_celsius_max
    if mine is not None and its is not None:
        both = f"both at {quantity(mine, '°C')}"
        word = "hotter" if mine > its else "cooler"
        differ = f"{word} ({rounded(mine)} and {quantity(its, '°C')})"
        yield both if abs(mine - its) < OTHER_HEAT else differ
    if one.other_load:
        yield f"used by {visible(one.other_load[0], 60)}"
    versions = {
        "torch": (slow.torch_version, fast.torch_version),
        "driver": (one.driver_version, other.driver_version),
    }
    for name, (version, its_version) in versions.items():
        if version != its_version:
            both = f"{visible(version or ABSENT)} and {visible(its_version or ABSENT)}"
            yield f"another {name} ({both})"


def _when(result: Result) -> str:
    where = f" on {visible(result.host, 60)}" if result.host else ""
    when = moment(result.started_at, "%d %b %Y %H:%M")
    return f"{visible(result.device, 60)}{where}, {when}"
