"""A metric of Prometheus with its series, and what makes series of a reading.

Metrics are named after https://prometheus.io/docs/practices/naming, in base units: ratios from 0
to 1, hertz, bytes, watts, joules, seconds, degrees Celsius; counters end in `_total`.
"""

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
Convert = Callable[[Any], float]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its series. No two of them have the same labels."""

    name: str
    """The name in a query, with `_total`."""
    help: str
    kind: Kind
    series: tuple[Part, ...]


class LabelledDevice(NamedTuple):
    """A device with its readings, and the labels of its series."""

    device: Device
    sample: DeviceSample
    labels: Labels


def family(name: str, about: str, series: Iterable[Part], kind: Kind | None = None) -> Family:
    """Make a family; of series with the same labels keep the first. `_total` means a counter."""
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
    """Yield the numbers of the field `name` of those records that have a value."""
    for labels, record in records:
        value = getattr(record, name)
        if value is not None and name not in record.absent:
            yield from (({**labels, **more}, number) for more, number in parts(value))


def label_value(text: str, limit: int = 200) -> str:
    """Return foreign text as the value of a label."""
    return visible(text, limit)


_BASE_UNITS: Mapping[str, Convert] = {
    "percent": lambda percent: round(percent / 100, 6),
    "mhz": lambda mhz: mhz * 1e6,
}
_DCGM_UNITS: Mapping[str, Convert] = {
    "bytes": lambda value: float(value >> 20),
    "joules": lambda joules: round(joules * 1000, 0),
}


def base_unit(reading: Reading) -> Convert:
    """Return what converts a number of this reading into the base unit of Prometheus."""
    return _BASE_UNITS.get(reading.unit, float)


def dcgm_unit(field: str, reading: Reading) -> Convert:
    """Return what converts a reading into the unit of this field of DCGM, such as MiB or mJ."""
    if reading.unit == "percent" and field.startswith("PROF_"):
        return base_unit(reading)
    return _DCGM_UNITS.get(reading.unit, float)


def parts_of(reading: Reading) -> Callable[[Any], Iterator[Part]]:
    """Return what yields the numbers of a value of this reading, in base units.

    Each known word is a series: 1 if it applies, else 0. Words of later drivers have a series while
    they apply. Items of a list that are None have none.
    """
    convert, label, known = base_unit(reading), reading.part_label, reading.words or ()

    def words(value: str | tuple[str, ...]) -> Iterator[Part]:
        current = (value,) if isinstance(value, str) else value
        for name in dict.fromkeys((*known, *current)):
            yield {label: label_value(name)}, float(name in current)

    def numbers(value: Any) -> Iterator[Part]:
        if isinstance(value, Mapping):
            yield from (({label: label_value(name)}, number) for name, number in value.items())
        elif isinstance(value, tuple):
            each = enumerate(value)
            yield from (({label: str(n)}, convert(part)) for n, part in each if part is not None)
        else:
            yield {}, convert(value)

    return words if known else numbers
