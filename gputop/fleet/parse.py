"""What Prometheus answers, as numbers by GPU: what cannot be read is missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from gputop.bounds import STRING_CHARACTERS
from gputop.fleet.queries import ANY, LIMITS, READING_OF, TIMES, Limits

MOST_XID = 99_999
KeyOf = Callable[[Mapping[str, str]], str]
Values = dict[str, float]
Checked = dict[str, float | None]
"""Numbers by name or key; None for one that is not plausible."""
NOT_READ = (TypeError, KeyError, ValueError, IndexError, AttributeError, OverflowError)


class Row(NamedTuple):
    """A series of an instant query."""

    labels: Mapping[str, str]
    value: float
    time: float
    """When it was evaluated, by the server's clock."""


SETTLE_SECONDS = 5.0
"""How far behind the server's clock a refresh is evaluated.

A sample is dated by when its scrape began, and is there when that has ended and, over remote write,
has been sent. Later than this, queries of one refresh hardly see what the ones before did not.
"""


class Moment(NamedTuple):
    """When a refresh is, by the server's clock."""

    now: float
    at: float
    """For which time all of its queries are evaluated."""


def moment_of(data: Any) -> Moment | None:
    """Return the moment of a refresh from the answer to `queries.CLOCK`; None if it has none.

    The time for which the server evaluates by itself counts where it is further back.
    """
    row = next(rows_of(result_of(data, "vector") or []), None)
    if row is None or not TIMES[0] <= row.value <= TIMES[1]:
        return None
    # The API takes milliseconds; the same float everywhere makes readings of one moment equal.
    return Moment(row.time, round(min(row.value, row.time - SETTLE_SECONDS), 3))


def result_of(data: Any, kind: str) -> list[Any] | None:
    """The series of an answer of that kind (`vector`, `matrix`); None where it is another."""
    if not isinstance(data, dict) or data.get("resultType") != kind:
        return None
    found = data.get("result")
    return found if isinstance(found, list) else None


def rows_of(result: list[Any]) -> Iterator[Row]:
    """Yield the series that have a number: NaN and infinity are none."""
    for each in result:
        for time, value in _numbers(each.get("value") if isinstance(each, dict) else None):
            yield Row(labels_of(each), value, time)


def values_by(result: list[Any], key_of: KeyOf, limits: Limits = ANY) -> Checked:
    """Return the number of each GPU: of two exporters that of `gputop exporter`.

    NaN and infinity are none, and one beyond the limits is None.
    """
    found: Checked = {}
    ours: Checked = {}
    low, high = limits
    isfinite = math.isfinite
    for each in result:
        try:
            labels = each["metric"]
            value = float(each["value"][1])
            # Most series have this label alone, which is the key then.
            key = (len(labels) == 1 and labels.get("UUID")) or key_of(labels)
            if key and isfinite(value):
                kept = value if low <= value <= high else None
                (found if "UUID" in labels else ours).setdefault(key, kept)
        except NOT_READ:
            continue
    found.update(ours)
    return found


def plausible(reading: str, value: float) -> float | None:
    """Return the value if it is within the limits of its reading, else None."""
    low, high = LIMITS.get(reading, ANY)
    return value if low <= value <= high else None


def used_of(used: float | None, total: float | None) -> float | None:
    """Return the memory used, or None if it cannot be so much: both are rounded, by exporters."""
    return None if used is None or (total is not None and used > 1.1 * total) else used


def xids_of(result: list[Any], key_of: KeyOf) -> dict[str, tuple[int, float | None]]:
    """Return the last code of each GPU, and when it was, which only `gputop exporter` says."""
    found: dict[str, tuple[float, int]] = {}
    for row in rows_of(result):
        key, code = key_of(row.labels), row.labels.get("code")
        if code is None:
            when, number = -1.0, int(row.value)
        elif code.isascii() and code.isdecimal() and len(code) < 6:
            when, number = row.value, int(code)
        else:
            continue
        if key and 0 < number <= MOST_XID and found.get(key, (-2.0, 0))[0] < when <= TIMES[1]:
            found[key] = when, number
    return {key: (code, None if when < 0 else when) for key, (when, code) in found.items()}


def states_of(result: list[Any], key_of: KeyOf) -> dict[str, str]:
    """The state of those GPUs whose state is not `ok`."""
    return {key_of(row.labels): row.labels.get("state", "") for row in rows_of(result)}


def targets_of(result: list[Any]) -> set[tuple[str, str]]:
    """Job and instance of each of the series."""
    return {(row.labels.get("job", ""), row.labels.get("instance", "")) for row in rows_of(result)}


def readings_of(result: list[Any], key_of: KeyOf) -> dict[str, Checked]:
    """Of an answer with many metrics: by GPU the readings that they are. Ours come first."""
    found: dict[str, Checked] = {}
    rows = sorted(rows_of(result), key=lambda row: _rank(row.labels))
    for row in rows:
        known = READING_OF.get(row.labels.get("__name__", ""))
        if known is not None:
            values = found.setdefault(key_of(row.labels), {})
            values.setdefault(known[0], plausible(known[0], row.value * known[1]))
    for values in found.values():
        if "memory_used_bytes" in values:
            total = values.get("memory_total_bytes")
            values["memory_used_bytes"] = used_of(values["memory_used_bytes"], total)
    return found


def _rank(labels: Mapping[str, str]) -> tuple[bool, int]:
    """Ours first; of DCGM's those that come first among what is called so."""
    return "UUID" in labels, _ORDER.get(labels.get("__name__", ""), 0)


_ORDER = {name: place for place, name in enumerate(READING_OF)}


def series_by(result: list[Any], key_of: KeyOf) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Of a range query: by GPU and reading, its numbers with their times."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    ranked = [(labels_of(each), each) for each in result]
    for labels, each in sorted(ranked, key=lambda pair: _rank(pair[0])):
        known = READING_OF.get(labels.get("__name__", ""))
        if known is None or (key_of(labels), known[0]) in found:
            continue
        points = ((at, plausible(known[0], value * known[1])) for at, value in points_of(each))
        found[key_of(labels), known[0]] = [(at, each) for at, each in points if each is not None]
    return found


def points_of(each: Any) -> Iterator[tuple[float, float]]:
    """Yield the times and numbers of a series of a range query."""
    values = each.get("values") if isinstance(each, dict) else None
    return _numbers(*values) if isinstance(values, list) else iter(())


def _numbers(*points: Any) -> Iterator[tuple[float, float]]:
    for point in points:
        try:
            time, value = float(point[0]), float(point[1])
        except NOT_READ:
            continue
        if math.isfinite(value) and TIMES[0] <= time <= TIMES[1]:
            yield time, value


def labels_of(each: Any) -> Mapping[str, str]:
    """Those of a series: text, as all of Prometheus are."""
    labels = each.get("metric") if isinstance(each, dict) else None
    if not isinstance(labels, dict):
        return {}
    most = STRING_CHARACTERS
    return {name[:most]: value[:most] for name, value in labels.items() if isinstance(value, str)}
