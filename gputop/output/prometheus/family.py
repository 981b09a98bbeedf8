"""A metric of Prometheus with its series, whoever's names it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gputop.text import visible

if TYPE_CHECKING:
    from gputop.schema.snapshot import Device, DeviceSample, Process

Kind = Literal["gauge", "counter", "unknown"]
Labels = Mapping[str, str]
Part = tuple[Labels, float]
"""A number, with the labels that tell it from others."""
Parts = Callable[[Any], Iterable[Part]]
"""The numbers of one reading."""


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its series; no two have the same labels."""

    name: str
    """As it stands in a query, `_total` included."""
    help: str
    kind: Kind
    series: tuple[Part, ...]


class Read(NamedTuple):
    """A device with its readings, and the labels of its series."""

    device: Device
    sample: DeviceSample
    labels: Labels


def family(name: str, about: str, series: Iterable[Part], kind: Kind | None = None) -> Family:
    """Of series with the same labels the first stays; what ends in `_total` is a counter."""
    kind = kind or ("counter" if name.endswith("_total") else "gauge")
    unique: dict[frozenset[tuple[str, str]], Part] = {}
    for part in series:
        unique.setdefault(frozenset(part[0].items()), part)
    return Family(name, about, kind, tuple(unique.values()))


def series_of(
    records: Iterable[tuple[Labels, DeviceSample | Process]], name: str, parts: Parts
) -> Iterator[Part]:
    """The numbers of that field, of those records that have it."""
    present = (
        (labels, getattr(record, name)) for labels, record in records if name not in record.absent
    )
    return chain.from_iterable(
        (({**labels, **more}, number) for more, number in parts(value))
        for labels, value in present
        if value is not None
    )


def word(text: str, limit: int = 200) -> str:
    """Foreign text as the value of a label."""
    return visible(text, limit)


def plain(value: float) -> Iterator[Part]:
    """The reading as it is."""
    yield {}, float(value)


def ratio(percent: float) -> Iterator[Part]:
    """A percentage as a share, 1 for 100 %."""
    yield {}, round(percent / 100, 6)
