"""Who and where each GPU is: from the labels of its series, of either exporter. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from sys import intern

Labels = Mapping[str, str]

_HOSTS = ("Hostname", "host", "kubernetes_node", "node", "nodename")
"""Who says on which host it is, the best first; else it is the target's address."""
_CLUSTERS = ("cluster", "cluster_name", "k8s_cluster", "datacenter", "site", "region")
"""What tells hosts of one name apart, the first that is there."""
_IDENTITY = {
    *("UUID", "uuid", "gpu", "index", "Hostname", "host", "modelName", "name", "parent"),
    *("GPU_I_ID", "mig_index", "gpu_instance", "compute_instance", "__name__"),
}
"""Labels that have a field of their own."""
_CALLED = {"GPU_I_PROFILE": "mig_profile", "DCGM_FI_DRIVER_VERSION": "driver_version"}
_OF_POD = ("pod", "namespace", "container")
_EXPORTED = "exported_"
_EXPORTER = re.compile(r"(nvidia-)?dcgm-exporter|gputop")
MOST_WORDS = 3
"""Values of one label that are named, where a GPU has several: as with time-slicing."""
MOST_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Place:
    """A GPU without its readings."""

    key: str
    uuid: str
    host: str
    index: str
    name: str
    labels: Labels = field(default_factory=dict)

    @property
    def target(self) -> tuple[str, str]:
        """The job and the instance of its scrape."""
        return self.labels.get("job", ""), self.labels.get("instance", "")


class Places:
    """All of a fleet, in their order; and by which key a series has its GPU."""

    def __init__(self, rows: Iterable[Labels] = (), before: Places | None = None) -> None:
        """`before` is what most of it is the same as."""
        rows = [row for row in rows if row.get("UUID") or row.get("uuid")]
        self._aliases = {row["uuid"]: alias for row in rows if (alias := _as_dcgm(row))}
        self.twins = _has_twins(rows)
        found: dict[str, list[Labels]] = defaultdict(list)
        for row in rows:
            found[self.key_of(row)].append(row)
        workloads = {row.get("job") for row in rows if "exported_pod" in row}
        self._rows: Mapping[str, list[Labels]] = found
        self._workloads = workloads
        made = [
            (before and before.unchanged(key, every, workloads)) or _place(key, every, workloads)
            for key, every in found.items()
        ]
        self._made = {place.key: place for place in made}
        """As their own labels have them, whatever others are called."""
        places = _told_apart(made)
        places.sort(key=lambda place: (natural(place.host), natural(place.index), place.key))
        self.all: Mapping[str, Place] = {place.key: place for place in places}
        self.targets = {place.key: place.target for place in places}
        self.label_names = _differing(places)
        self.simulated = any("simulated" in place.labels for place in places)

    def unchanged(self, key: str, rows: list[Labels], workloads: set[str | None]) -> Place | None:
        """Its place, where it is made of the same."""
        same = self._rows.get(key) == rows and self._workloads == workloads
        return self._made[key] if same else None

    def key_of(self, labels: Labels) -> str:
        """The key of the GPU that a series is of; "" where it does not say."""
        uuid = labels.get("UUID")
        if uuid:
            instance = labels.get("GPU_I_ID")
            key = f"{uuid}/{instance}" if instance else uuid
            host = labels.get("Hostname") if self.twins else None
        else:
            key = labels.get("uuid", "")
            key = self._aliases.get(key, key)
            host = labels.get("host") if self.twins else None
        return f"{key}@{host}" if host else key


def _told_apart(places: Sequence[Place]) -> list[Place]:
    """With its cluster before the name of a host, where several clusters have one of that name."""
    clusters: dict[str, set[str]] = defaultdict(set)
    for place in places:
        clusters[place.host].add(_cluster(place))
    several = {host for host, found in clusters.items() if len(found - {""}) > 1}
    return [
        replace(place, host=intern(f"{_cluster(place)}/{place.host}"))
        if place.host in several and _cluster(place)
        else place
        for place in places
    ]


def _cluster(place: Place) -> str:
    return next((place.labels[name] for name in _CLUSTERS if name in place.labels), "")


def _as_dcgm(row: Labels) -> str | None:
    """The key of a MIG instance as DCGM has it: by its GPU; None of what is none."""
    if row.get("UUID") or not row.get("parent") or not row.get("gpu_instance"):
        return None
    if row.get("compute_instance", "0") != "0":  # DCGM knows none of these
        return None
    return f"{row['parent']}/{row['gpu_instance']}"


def _has_twins(rows: Iterable[Labels]) -> bool:
    """Whether one UUID is on several hosts, as of machines that were cloned."""
    for uuid_label, host_label in (("UUID", "Hostname"), ("uuid", "host")):
        hosts: dict[str, str] = {}
        for row in rows:
            uuid, host = row.get(uuid_label), row.get(host_label)
            if uuid and host and hosts.setdefault(uuid, host) != host:
                return True
    return False


def _place(key: str, rows: Sequence[Labels], workloads: set[str | None]) -> Place:
    own = [row for row in rows if not row.get("UUID")]
    first = own[0] if own else rows[0]
    host = next((first[name] for name in _HOSTS if first.get(name)), None)
    host = host or first.get("instance", "").rpartition(":")[0] or first.get("instance", "")
    number = first.get("gpu") or first.get("index") or ""
    instance = first.get("GPU_I_ID") or first.get("mig_index")
    return Place(
        key=key,
        uuid=first.get("UUID") or first["uuid"],
        host=intern(host[:MOST_CHARACTERS]),
        index=f"{number}:{instance}" if instance else number,
        name=intern((first.get("modelName") or first.get("name") or "")[:MOST_CHARACTERS]),
        labels=_together(rows, first, workloads),
    )


def _together(rows: Sequence[Labels], first: Labels, workloads: set[str | None]) -> dict[str, str]:
    """The labels of all of its series; of several values the few that can be told."""
    if len(rows) == 1:
        found = _where(first, workloads)
        return {name: intern(value[:MOST_CHARACTERS]) for name, value in found.items()}
    every: dict[str, dict[str, None]] = defaultdict(dict)
    for row in rows:
        for name, value in _where(row, workloads).items():
            every[name][value] = None
    return {name: _joined(name, values, first) for name, values in every.items()}


def _joined(name: str, values: Iterable[str], first: Labels) -> str:
    words = sorted(values)
    if len(words) == 1:
        return intern(words[0][:MOST_CHARACTERS])
    if name in ("job", "instance"):  # of two exporters: the target of the one that is believed
        return first.get(name, words[0])
    more = ", …" if len(words) > MOST_WORDS else ""
    return intern((", ".join(words[:MOST_WORDS]) + more)[:MOST_CHARACTERS])


def _where(row: Labels, workloads: set[str | None]) -> dict[str, str]:
    """Labels under the names that they were given, and of pods those that use the GPU.

    Without `honor_labels` Prometheus puts the exporter's own pod in their place, and theirs is
    `exported_pod`.
    """
    own, exported = _names(tuple(row))
    found = {called: value for name, called in own if (value := row[name])}
    of_exporter = row.get("job") in workloads or _EXPORTER.match(row.get("pod", "")) is not None
    if of_exporter:
        for name in _OF_POD:
            found.pop(name, None)
    found.update((called, value) for name, called in exported if (value := row[name]))
    return found


@lru_cache(1 << 8)
def _names(labels: tuple[str, ...]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Which labels are told, and as what: of the series itself, and of what Prometheus renamed."""
    own = [
        (name, _CALLED.get(name, name))
        for name in labels
        if name not in _IDENTITY and not name.startswith(_EXPORTED)
    ]
    exported = [
        (name, name.removeprefix(_EXPORTED))
        for name in labels
        if name.startswith(_EXPORTED) and name not in ("exported_job", "exported_instance")
    ]
    return own, exported


def _differing(places: Sequence[Place]) -> tuple[str, ...]:
    """Names of labels that can be grouped by: those that most GPUs have first."""
    counts = Counter(chain.from_iterable(place.labels for place in places))
    differ = [
        name
        for name, count in counts.items()
        if count < len(places) or len({place.labels[name] for place in places}) > 1
    ]
    return tuple(sorted(differ, key=lambda name: (-counts[name], name)))


@lru_cache(1 << 16)
def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """By which names stand in the order that people expect: node2 before node10."""
    parts = re.findall(r"[0-9]{1,4000}|[^0-9]+", text)  # int() refuses over 4,300 digits
    return tuple((0, int(p), "") if p.isdecimal() and p.isascii() else (1, 0, p) for p in parts)
