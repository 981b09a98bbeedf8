"""Comparison of two results: the faster one and the reason, and a table of all that differs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from gputop.bench.events import Result
from gputop.bench.plan.kinds import kind_of
from gputop.bench.results.columns import COLUMNS, shape
from gputop.bench.results.compare import FEWEST_RUNS, LEAST_LIMIT, last_runs
from gputop.bench.results.measures import percent_below, rate_text, score
from gputop.bench.results.page import Block, Heading, Sentence
from gputop.bench.results.statistics import scatter_limit
from gputop.bench.results.tables import TextTable, layout_of
from gputop.text import ABSENT, moment, percentage, quantity, rounded, visible

LEFT_OUT = {"WHEN", "KIND", "TYPE", "SIZE", "TIME", "BEST ROW"}
"""Titles of columns of the history that are in the heading, in the settings, or of no use here."""
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
    """Return the answer first, then a table of the settings and figures that differ.

    The scatter of equal runs is estimated from the like runs among the `known` results.
    """
    tests = _differences(_test(before), _test(after))
    names = ", ".join(name for name, *_ in tests)
    said = Sentence(
        f"These are different tests: they differ in {names}.", "warn"
    )
    if not tests:
        said = answer(before, after, known)
    figures = _differences(_figures(before), _figures(after))
    page: list[Block] = [
        said,
        Heading(f"{_when(before)}, then {_when(after)}"),
    ]
    if tests or figures:
        page.append(TextTable([["", "before", "then"], *tests, *figures]))
    return page


def _differences(
    before: Mapping[str, str], after: Mapping[str, str]
) -> list[list[str]]:
    """Return the name and both texts of everything that differs."""
    rows = []
    for name in {**before, **after}:
        pair = [each.get(name, ABSENT) for each in (before, after)]
        if pair[0] != pair[1]:
            rows.append([name, *pair])
    return rows


def _test(result: Result) -> dict[str, str]:
    """Return the settings that define a test. Speeds of different tests are not compared."""
    kind = kind_of(result.kind)
    settings = {
        "kind": result.kind,
        "data type": result.dtype,
        "accumulation": result.accumulate,
        "data": result.data,
        "threads": result.threads,
    }
    if not kind.has_rows:
        settings["size"] = shape(result)
    if not kind.finds_shape:  # each search finds its own
        settings["layout"] = result.layout
    return {
        name: visible(str(value or ABSENT), 60)
        for name, value in settings.items()
    }


def _figures(result: Result) -> dict[str, str]:
    """Return the texts of a result in the columns of the history, and the rates of its rows."""
    figures = {}
    for column in COLUMNS:
        if column.title not in LEFT_OUT:
            figures[column.title] = column.text(result)
    figures["POWER LIMIT"] = quantity(
        result.known_conditions.power_limit_watts, " W"
    )
    layout = layout_of(result.kind)
    for row in result.points:
        place = f"{row.series}, {layout.size_text(row)}"
        figures[place] = rate_text(row)
    return figures


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
