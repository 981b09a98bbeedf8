"""Identities of the GPUs of a fleet: keys, hosts and labels, from the labels of series."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any

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
    "exported_job",
    "exported_instance",
}
"""Labels with a field of their own, or of the exporter."""
_SHOWN_NAMES = {
    "GPU_I_PROFILE": "mig_profile",
    "DCGM_FI_DRIVER_VERSION": "driver_version",
}
_POD_LABELS = {"pod", "namespace", "container"}
_EXPORTED = "exported_"
_EXPORTER = re.compile(r"(nvidia-)?dcgm-exporter|gputop")
MOST_WORDS = 3
"""Most values to show for a label if a GPU has several, as with time-slicing."""
MOST_CHARACTERS = 200


def identify(rows: Mapping[str, Sequence[Labels]]) -> list[Gpu]:
    """Return the GPUs of a fleet in order, without readings, from the labels of each key."""
    workloads = set()
    for row in chain.from_iterable(rows.values()):
        if "exported_pod" in row:
            workloads.add(row.get("job"))
    gpus = [_identity(key, some, workloads) for key, some in rows.items()]
    return sorted(
        _with_clusters(gpus),
        key=lambda g: (natural_key(g.host), natural_key(g.index), g.key),
    )


def key_of(labels: Labels) -> str:
    """Return the key of the GPU of a series; "" if it has none."""
    uuid = labels.get("UUID") or labels.get("uuid", "")
    instance = labels.get("GPU_I_ID")
    return f"{uuid}/{instance}" if uuid and instance else uuid


def target_of(labels: Labels) -> tuple[str, str]:
    """Return job and instance of a scrape."""
    return labels.get("job", ""), labels.get("instance", "")


def _first(row: Labels, *names: str) -> str:
    """Return the first of these labels that is not empty, or ""."""
    return next(filter(None, map(row.get, names)), None) or ""


def _with_clusters(gpus: Sequence[Gpu]) -> Iterator[Gpu]:
    """Prefix the names of hosts with their cluster if several clusters have the same name."""
    clusters: dict[str, set[str]] = defaultdict(set)
    for gpu in gpus:
        clusters[gpu.host].add(_first(gpu.labels, *_CLUSTERS))
    for gpu in gpus:
        cluster = _first(gpu.labels, *_CLUSTERS)
        is_double = cluster and len(clusters[gpu.host] - {""}) > 1
        host = f"{cluster}/{gpu.host}" if is_double else gpu.host
        yield replace(gpu, host=host)


def _identity(
    key: str,
    rows: Sequence[Labels],
    workloads: set[str | None],
) -> Gpu:
    """Return a GPU from its series. `gputop exporter` takes precedence over the other exporter."""
    first = min(rows, key=lambda row: bool(row.get("UUID")))
    address = first.get("instance", "")
    host = _first(first, *_HOSTS) or address.rpartition(":")[0] or address
    index = _first(first, "gpu", "index")
    if instance := _first(first, "GPU_I_ID", "mig_index"):
        index = f"{index}:{instance}"
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
        host=host[:MOST_CHARACTERS],
        index=index,
        name=_first(first, "modelName", "name")[:MOST_CHARACTERS],
        labels=labels,
    )


def _joined(words: list[str]) -> str:
    """Return the value of a label, or the first few of several values."""
    if len(words) > MOST_WORDS:
        words[MOST_WORDS:] = ["…"]
    return ", ".join(words)[:MOST_CHARACTERS]


def _labels_of(row: Labels, workloads: set[str | None]) -> dict[str, str]:
    """Return labels under their original names, with the pod that uses the GPU.

    Without `honor_labels`, Prometheus replaces this pod by the exporter's pod and renames it to
    `exported_pod`.
    """
    of_exporter = row.get("job") in workloads or _EXPORTER.match(
        row.get("pod", "")
    )
    hidden = _IDENTITY | _POD_LABELS if of_exporter else _IDENTITY
    found = {
        _SHOWN_NAMES.get(name, name): value
        for name, value in row.items()
        if value and name not in hidden
    }
    for name in [*found]:
        if name.startswith(_EXPORTED):
            found[name.removeprefix(_EXPORTED)] = found.pop(name)
    return found


def labels_to_group_by(gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """Return labels that differ between GPUs. Labels of the most GPUs come first."""
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


@cache
def natural_key(text: str) -> tuple[Any, ...]:
    """Return a sort key for natural order: node2 before node10."""
    # int() rejects more than 4,300 digits.
    parts: list[Any] = re.split(r"([0-9]{1,4000})", text)
    parts[1::2] = map(int, parts[1::2])
    return tuple(parts)
