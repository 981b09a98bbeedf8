"""Parse answers of Prometheus into numbers by GPU, and labels into the identities of GPUs.

What cannot be read is missing.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from sys import intern
from typing import Any, NamedTuple

from gputop.agent.words import CLOCK_EVENT_BITS
from gputop.fleet.model import Gpu
from gputop.fleet.queries import ANY, LIMITS, NAMES, READING_OF, TIMES
from gputop.schema.limits import STRING_CHARACTERS

Labels = Mapping[str, str]

_HOSTS = ("Hostname", "hostname", "host", "kubernetes_node", "node", "nodename")
"""Labels that name the host, the best first. Otherwise it is the address of the target.

dcgm-exporter had `Hostname` until 2026, and has `hostname` since.
"""
_CLUSTERS = ("cluster", "cluster_name", "k8s_cluster", "datacenter", "site", "region")
"""Labels that distinguish hosts with the same name; the first one present counts."""
_IDENTITY = {
    *("UUID", "uuid", "gpu", "index", "Hostname", "hostname", "host"),
    *("modelName", "name", "parent"),
    *("GPU_I_ID", "mig_index", "gpu_instance", "compute_instance", "__name__"),
}
"""Labels with a field of their own."""
_SHOWN_NAMES = {
    "GPU_I_PROFILE": "mig_profile",
    "DCGM_FI_DRIVER_VERSION": "driver_version",
}
_POD_LABELS = ("pod", "namespace", "container")
_EXPORTED = "exported_"
_EXPORTER = re.compile(r"(nvidia-)?dcgm-exporter|gputop")
MOST_WORDS = 3
"""Most values shown of a label if a GPU has several, as with time-slicing."""
MOST_CHARACTERS = 200
MOST_XID = 99_999
KeyOf = Callable[[Mapping[str, str]], str]
Values = dict[str, float]
Checked = dict[str, float | None]
"""Numbers by name or key; None for an implausible one."""
Moments = dict[float, dict[str, float]]
NOT_READ = (TypeError, KeyError, ValueError, IndexError, AttributeError, OverflowError)


class VectorRow(NamedTuple):
    """Series of an instant query."""

    labels: Mapping[str, str]
    value: float
    time: float
    """Time of the evaluation by the server's clock."""


SETTLE_SECONDS = 5.0
"""Seconds behind the server's clock at which a refresh is evaluated.

A sample has the time at which its scrape began, and arrives once the scrape has ended and, with
remote write, was sent. After this delay, queries of one refresh see the same samples.
"""


class RefreshMoment(NamedTuple):
    """Time of a refresh by the server's clock."""

    now: float
    at: float
    """Time for which all its queries are evaluated."""


def moment_of(data: Any) -> RefreshMoment | None:
    """Return the moment of a refresh from the answer to `queries.CLOCK`; None if it has none.

    If the server itself evaluates for an earlier time, that time counts.
    """
    row = next(rows_of(result_of(data, "vector") or []), None)
    if row is None or not TIMES[0] <= row.value <= TIMES[1]:
        return None
    # The API takes milliseconds; the same float everywhere makes readings of one moment equal.
    return RefreshMoment(row.time, round(min(row.value, row.time - SETTLE_SECONDS), 3))


def result_of(data: Any, kind: str) -> list[Any] | None:
    """Return the series of an answer, or None unless it is of that kind (`vector`, `matrix`)."""
    if not isinstance(data, dict) or data.get("resultType") != kind:
        return None
    found = data.get("result")
    return found if isinstance(found, list) else None


def rows_of(result: list[Any]) -> Iterator[VectorRow]:
    """Yield the series with a finite number."""
    for each in result:
        for time, value in _numbers(
            each.get("value") if isinstance(each, dict) else None
        ):
            yield VectorRow(labels_of(each), value, time)


def values_by(
    result: list[Any], key_of: KeyOf, limits: tuple[float, float] = ANY
) -> Checked:
    """Return the number of each GPU, preferring `gputop exporter` to dcgm-exporter.

    NaN and infinity are left out. A number beyond the limits is None.
    """
    found: Checked = {}
    ours: Checked = {}
    low, high = limits
    isfinite = math.isfinite
    for each in result:
        try:
            labels = each["metric"]
            value = float(each["value"][1])
            # Most series have only this label, which then is the key.
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
    """Return the memory used, or None if it is more than the total, as exporters round both."""
    return None if used is None or (total is not None and used > 1.1 * total) else used


def xids_of(result: list[Any], key_of: KeyOf) -> dict[str, tuple[int, float | None]]:
    """Return the last Xid of each GPU and its time, which only `gputop exporter` reports."""
    found: dict[str, tuple[float, int]] = {}
    for row in rows_of(result):
        key, code = key_of(row.labels), row.labels.get("code")
        if code is None:
            when, number = -1.0, int(row.value)
        elif code.isascii() and code.isdecimal() and len(code) < 6:
            when, number = row.value, int(code)
        else:
            continue
        if (
            key
            and 0 < number <= MOST_XID
            and found.get(key, (-2.0, 0))[0] < when <= TIMES[1]
        ):
            found[key] = when, number
    return {
        key: (code, None if when < 0 else when) for key, (when, code) in found.items()
    }


def readings_of(result: list[Any], key_of: KeyOf) -> dict[str, Checked]:
    """Return the readings by GPU from an answer with many metrics, ours preferred."""
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
    """Return a sort key: our metrics first, then those of DCGM in order of preference."""
    return "UUID" in labels, _ORDER.get(labels.get("__name__", ""), 0)


_ORDER = {name: place for place, name in enumerate(READING_OF)}
_READINGS = {name: reading for reading, names in NAMES.items() for name in names}


def readings_over_time(result: list[Any], key_of: KeyOf) -> dict[str, Moments]:
    """Return the readings of each GPU by time from the answer to a range query, ours preferred."""
    found: dict[str, Moments] = defaultdict(lambda: defaultdict(dict))
    ranked = [(labels_of(each), each) for each in result]
    for labels, each in sorted(ranked, key=lambda pair: _rank(pair[0]), reverse=True):
        name = labels.get("__name__", "")
        reading = _READINGS.get(name)
        if reading is None:
            continue
        _, factor = READING_OF.get(name, (reading, 1.0))
        if "reason" in labels:
            factor = CLOCK_EVENT_BITS.get(labels["reason"], 0)
        moments = found[key_of(labels)]
        points = each.get("values") if isinstance(each, dict) else None
        for time, value in _numbers(*points) if isinstance(points, list) else ():
            number = value * factor
            if plausible(reading, number) is not None:
                if "reason" in labels or "state" in labels:  # a series of each word
                    number = float(int(number) | int(moments[time].get(reading, 0)))
                moments[time][reading] = number
    return found


def _numbers(*points: Any) -> Iterator[tuple[float, float]]:
    for point in points:
        try:
            time, value = float(point[0]), float(point[1])
        except NOT_READ:
            continue
        if math.isfinite(value) and TIMES[0] <= time <= TIMES[1]:
            yield time, value


def labels_of(each: Any) -> Mapping[str, str]:
    """Return the labels of a series that are text."""
    labels = each.get("metric") if isinstance(each, dict) else None
    if not isinstance(labels, dict):
        return {}
    most = STRING_CHARACTERS
    return {
        name[:most]: value[:most]
        for name, value in labels.items()
        if isinstance(value, str)
    }


def target_of(labels: Labels) -> tuple[str, str]:
    """Return job and instance of a scrape."""
    return labels.get("job", ""), labels.get("instance", "")


class Identities:
    """All GPUs of a fleet in order, without readings, and the key of the GPU of each series."""

    def __init__(self, rows: Iterable[Labels] = ()) -> None:
        rows = [row for row in rows if row.get("UUID") or row.get("uuid")]
        self._aliases = {
            row["uuid"]: alias for row in rows if (alias := _dcgm_key(row))
        }
        found: dict[str, list[Labels]] = defaultdict(list)
        for row in rows:
            found[self.key_of(row)].append(row)
        workloads = {row.get("job") for row in rows if "exported_pod" in row}
        identities = _with_clusters(
            [_identity(key, every, workloads) for key, every in found.items()]
        )
        identities.sort(
            key=lambda gpu: (natural_key(gpu.host), natural_key(gpu.index), gpu.key)
        )
        self.all: Mapping[str, Gpu] = {
            identity.key: identity for identity in identities
        }
        self.targets = {each.key: target_of(each.labels) for each in identities}
        self.label_names = _differing_labels(identities)
        self.simulated = any("simulated" in identity.labels for identity in identities)

    def key_of(self, labels: Labels) -> str:
        """Return the key of the GPU of a series; "" if it has none."""
        uuid = labels.get("UUID")
        if uuid:
            instance = labels.get("GPU_I_ID")
            return f"{uuid}/{instance}" if instance else uuid
        key = labels.get("uuid", "")
        return self._aliases.get(key, key)


def _with_clusters(identities: Sequence[Gpu]) -> list[Gpu]:
    """Add the cluster before the name of hosts that several clusters have."""
    clusters: dict[str, set[str]] = defaultdict(set)
    for identity in identities:
        clusters[identity.host].add(_cluster(identity))
    several = {host for host, found in clusters.items() if len(found - {""}) > 1}
    return [
        replace(identity, host=intern(f"{_cluster(identity)}/{identity.host}"))
        if identity.host in several and _cluster(identity)
        else identity
        for identity in identities
    ]


def _cluster(identity: Gpu) -> str:
    return next(
        (identity.labels[name] for name in _CLUSTERS if name in identity.labels), ""
    )


def _dcgm_key(row: Labels) -> str | None:
    """Return the key of a MIG instance as DCGM has it, by its GPU; None if it is not one."""
    if row.get("UUID") or not row.get("parent") or not row.get("gpu_instance"):
        return None
    if row.get("compute_instance", "0") != "0":  # DCGM does not know these
        return None
    return f"{row['parent']}/{row['gpu_instance']}"


def _identity(key: str, rows: Sequence[Labels], workloads: set[str | None]) -> Gpu:
    own = [row for row in rows if not row.get("UUID")]
    first = own[0] if own else rows[0]
    host = next((first[name] for name in _HOSTS if first.get(name)), None)
    host = (
        host
        or first.get("instance", "").rpartition(":")[0]
        or first.get("instance", "")
    )
    number = first.get("gpu") or first.get("index") or ""
    instance = first.get("GPU_I_ID") or first.get("mig_index")
    labels: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        for name, value in _labels_of_row(row, workloads).items():
            labels[name].add(value)
    return Gpu(
        key=key,
        uuid=first.get("UUID") or first["uuid"],
        host=intern(host[:MOST_CHARACTERS]),
        index=f"{number}:{instance}" if instance else number,
        name=intern(
            (first.get("modelName") or first.get("name") or "")[:MOST_CHARACTERS]
        ),
        labels={name: _joined(name, values, first) for name, values in labels.items()},
    )


def _joined(name: str, values: Iterable[str], first: Labels) -> str:
    """Return the value of a label, or the first few of several."""
    words = sorted(values)
    if len(words) == 1:
        return intern(words[0][:MOST_CHARACTERS])
    if name in ("job", "instance"):  # of two exporters, the target of the preferred one
        return first.get(name, words[0])
    more = ", …" if len(words) > MOST_WORDS else ""
    return intern((", ".join(words[:MOST_WORDS]) + more)[:MOST_CHARACTERS])


def _labels_of_row(row: Labels, workloads: set[str | None]) -> dict[str, str]:
    """Return labels under their original names, with the pod that uses the GPU.

    Without `honor_labels`, Prometheus replaces that pod by the pod of the exporter and renames it
    to `exported_pod`.
    """
    found = {
        _SHOWN_NAMES.get(name, name): value
        for name, value in row.items()
        if value and name not in _IDENTITY and not name.startswith(_EXPORTED)
    }
    if row.get("job") in workloads or _EXPORTER.match(row.get("pod", "")):
        for name in _POD_LABELS:
            found.pop(name, None)
    for name, value in row.items():
        shown = name.removeprefix(_EXPORTED)
        if value and shown not in (name, "job", "instance"):
            found[shown] = value
    return found


def _differing_labels(identities: Sequence[Gpu]) -> tuple[str, ...]:
    """Return labels that GPUs can be grouped by, those of the most GPUs first."""
    counts = Counter(chain.from_iterable(identity.labels for identity in identities))
    differ = [
        name
        for name, count in counts.items()
        if count < len(identities)
        or len({identity.labels[name] for identity in identities}) > 1
    ]
    return tuple(sorted(differ, key=lambda name: (-counts[name], name)))


@lru_cache(1 << 16)
def natural_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key for natural order: node2 before node10."""
    parts = re.findall(
        r"[0-9]{1,4000}|[^0-9]+", text
    )  # int() refuses over 4,300 digits
    return tuple(
        (0, int(p), "") if p.isdecimal() and p.isascii() else (1, 0, p) for p in parts
    )
