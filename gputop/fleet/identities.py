"""Identities of the GPUs of a fleet: keys, hosts and labels, from the labels of series."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from sys import intern

from gputop.fleet.model import Gpu

Labels = Mapping[str, str]

_HOSTS = (
    "Hostname",
    "hostname",
    "host",
    "kubernetes_node",
    "node",
    "nodename",
)
"""Labels that name the host, best first. Without them, it is the address of the target.

dcgm-exporter had `Hostname` until 2026, and has had `hostname` since then.
"""
_CLUSTERS = (
    "cluster",
    "cluster_name",
    "k8s_cluster",
    "datacenter",
    "site",
    "region",
)
"""Labels that distinguish hosts with the same name. The first present label counts."""
_IDENTITY = {
    "UUID",
    "uuid",
    "gpu",
    "index",
    "Hostname",
    "hostname",
    "host",
    "modelName",
    "name",
    "parent",
    "GPU_I_ID",
    "mig_index",
    "gpu_instance",
    "compute_instance",
    "__name__",
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
"""Most values to show for a label if a GPU has several, as with time-slicing."""
MOST_CHARACTERS = 200


class Identities:
    """All GPUs of a fleet in order, without readings, and the key of the GPU of each series."""

    def __init__(self, rows: Sequence[Labels] = ()) -> None:
        self._aliases = {row.get("uuid", ""): _dcgm_key(row) for row in rows}
        """DCGM's keys of MIG instances, by the UUID that `gputop exporter` reports."""
        grouped: dict[str, list[Labels]] = defaultdict(list)
        workloads = set()
        for row in rows:
            grouped[self.key_of(row)].append(row)
            if "exported_pod" in row:
                workloads.add(row.get("job"))
        grouped.pop("", None)
        gpus = [
            _identity(key, some, workloads) for key, some in grouped.items()
        ]
        self.all: Mapping[str, Gpu] = {
            gpu.key: gpu
            for gpu in sorted(
                _with_clusters(gpus),
                key=lambda g: (
                    natural_key(g.host),
                    natural_key(g.index),
                    g.key,
                ),
            )
        }
        self.label_names = _differing_labels(gpus)

    def key_of(self, labels: Labels) -> str:
        """Return the key of the GPU of a series; "" if it has none."""
        own = labels.get("uuid", "")
        uuid = labels.get("UUID") or self._aliases.get(own) or own
        instance = labels.get("GPU_I_ID")
        return f"{uuid}/{instance}" if uuid and instance else uuid


def _dcgm_key(row: Labels) -> str:
    """Return the key of a MIG instance from its GPU, or "". DCGM has no compute instances."""
    is_known = row.get("compute_instance", "0") == "0" and row.get(
        "gpu_instance"
    )
    return (
        f"{row['parent']}/{row['gpu_instance']}"
        if is_known and "parent" in row
        else ""
    )


def target_of(labels: Labels) -> tuple[str, str]:
    """Return job and instance of a scrape."""
    return labels.get("job", ""), labels.get("instance", "")


def _first(row: Labels, *names: str) -> str:
    """Return the first of these labels that is not empty, or ""."""
    return next(filter(None, map(row.get, names)), None) or ""


def _with_clusters(gpus: Sequence[Gpu]) -> list[Gpu]:
    """Prefix the names of hosts with their cluster if several clusters have the same name."""
    clusters: dict[str, set[str]] = defaultdict(set)
    for gpu in gpus:
        clusters[gpu.host].add(_first(gpu.labels, *_CLUSTERS))
    named = []
    for gpu in gpus:
        cluster = _first(gpu.labels, *_CLUSTERS)
        is_double = cluster and len(clusters[gpu.host] - {""}) > 1
        host = intern(f"{cluster}/{gpu.host}") if is_double else gpu.host
        named.append(replace(gpu, host=host))
    return named


def _identity(
    key: str,
    rows: Sequence[Labels],
    workloads: set[str | None],
) -> Gpu:
    """Return a GPU from its series. `gputop exporter` takes precedence over the other exporter."""
    first = next((row for row in rows if not row.get("UUID")), rows[0])
    address = first.get("instance", "")
    host = _first(first, *_HOSTS) or address.rpartition(":")[0] or address
    index = _first(first, "gpu", "index")
    instance = _first(first, "GPU_I_ID", "mig_index")
    values: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        for name, value in _labels_of(row, workloads).items():
            values[name].add(value)
    labels = {name: _joined(sorted(words)) for name, words in values.items()}
    # These name the target of the preferred exporter.
    for name in ("job", "instance"):
        if name in first:
            labels[name] = first[name]
    return Gpu(
        key=key,
        uuid=_first(first, "UUID", "uuid"),
        host=intern(host[:MOST_CHARACTERS]),
        index=f"{index}:{instance}" if instance else index,
        name=intern(_first(first, "modelName", "name")[:MOST_CHARACTERS]),
        labels=labels,
    )


def _joined(words: list[str]) -> str:
    """Return the value of a label, or the first few of several values."""
    more = ", …" if len(words) > MOST_WORDS else ""
    return intern((", ".join(words[:MOST_WORDS]) + more)[:MOST_CHARACTERS])


def _labels_of(row: Labels, workloads: set[str | None]) -> dict[str, str]:
    """Return labels under their original names, with the pod that uses the GPU.

    Without `honor_labels`, Prometheus replaces this pod by the exporter's pod and renames it to
    `exported_pod`.
    """
    of_exporter = row.get("job") in workloads or _EXPORTER.match(
        row.get("pod", "")
    )
    found = {
        _SHOWN_NAMES.get(name, name): value
        for name, value in row.items()
        if value
        and name not in _IDENTITY
        and not name.startswith(_EXPORTED)
        and not (of_exporter and name in _POD_LABELS)
    }
    for name, value in row.items():
        shown = name.removeprefix(_EXPORTED)
        if value and shown not in (name, "job", "instance"):
            found[shown] = value
    return found


def _differing_labels(gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """Return labels to group GPUs by. Labels of the most GPUs come first."""
    values: dict[str, Counter[str]] = defaultdict(Counter)
    for gpu in gpus:
        for name, value in gpu.labels.items():
            values[name][value] += 1
    ranked = sorted(
        (-counts.total(), name)
        for name, counts in values.items()
        if counts.total() < len(gpus) or len(counts) > 1
    )
    return tuple(name for _, name in ranked)


@lru_cache(1 << 16)
def natural_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key for natural order: node2 before node10."""
    # int() rejects more than 4,300 digits.
    parts = re.findall(r"([0-9]{1,4000})|([^0-9]+)", text)
    return tuple((0, int(n), "") if n else (1, 0, word) for n, word in parts)
