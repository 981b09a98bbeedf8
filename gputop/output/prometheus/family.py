"""A metric of Prometheus with its series, whoever's names it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gputop.text import visible

if TYPE_CHECKING:
    from gputop.schema.catalogue import Reading
    from gputop.schema.device import Device, DeviceSample
    from gputop.schema.snapshot import Process

Kind = Literal["gauge", "counter", "unknown"]
Labels = Mapping[str, str]
Part = tuple[Labels, float]
"""A number, with the labels that tell it from others."""


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
    records: Iterable[tuple[Labels, DeviceSample | Process]],
    name: str,
    parts: Callable[[Any], Iterable[Part]],
) -> Iterator[Part]:
    """Yield the numbers of that field of those records that have it."""
    for labels, record in records:
        value = getattr(record, name)
        if value is not None and name not in record.absent:
            yield from (({**labels, **more}, number) for more, number in parts(value))


def word(text: str, limit: int = 200) -> str:
    """Return foreign text as the value of a label."""
    return visible(text, limit)


def base_unit(reading: Reading) -> Callable[[float], float]:
    """Return what converts a number of this reading into the base unit of Prometheus."""
    return {"percent": ratio, "mhz": _hertz}.get(reading.unit, float)


def ratio(percent: float) -> float:
    """Return a percentage as a share, 1 for 100 %."""
    return round(percent / 100, 6)


def _hertz(mhz: float) -> float:
    return mhz * 1e6


def parts_of(reading: Reading) -> Callable[[Any], Iterator[Part]]:
    """Return what yields the numbers of this reading, in base units.

    Each word that is known is a series: 1 where it holds, else 0. Words of later drivers are there
    while they hold. Of numbers in a list those that are None are missing.
    """
    convert, label, known = base_unit(reading), reading.part_label, reading.words or ()

    def words(value: str | tuple[str, ...]) -> Iterator[Part]:
        holding = (value,) if isinstance(value, str) else value
        for name in dict.fromkeys((*known, *holding)):
            yield {label: word(name)}, float(name in holding)

    def numbers(value: Any) -> Iterator[Part]:
        if isinstance(value, Mapping):
            yield from (({label: word(name)}, number) for name, number in value.items())
        elif isinstance(value, tuple):
            each = enumerate(value)
            yield from (({label: str(n)}, convert(part)) for n, part in each if part is not None)
        else:
            yield {}, convert(value)

    return words if known else numbers
