"""NVML's field values: many in one call, each with its return code, and readings made of them."""

from __future__ import annotations

import ctypes
import itertools
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from gputop.schema.codec import rounded
from gputop.schema.device import Absence
from gputop.sources.nvml.query import (
    AGAIN,
    UNAVAILABLE,
    Clock,
    absence_or_lost,
    call_directly,
    nvml,
    total,
)


class FieldKey(NamedTuple):
    """A field. `scope` is the link, for fields that exist once per link."""

    field: int
    scope: int = 0


FieldValues = Mapping[FieldKey, Any]
"""The number of each field, or an `Absence`."""

_ROW = struct.Struct("IIqqIi8s")
"""`nvmlFieldValue_t`: field, scope, time, latency, type, return code, and a number of any type."""
VALUE_TYPES: Mapping[int, str] = {
    nvml.NVML_VALUE_TYPE_DOUBLE: "d",
    nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "I",
    nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "Q",
    nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "Q",
    nvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "q",
    nvml.NVML_VALUE_TYPE_SIGNED_INT: "i",
    nvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "H",
}
"""Code of `struct` by type of a number in eight bytes."""


class Asked(NamedTuple):
    """When fields were asked for: their values are from between these monotonic times."""

    began: float
    ended: float


class FieldReading(Protocol):
    """One or more readings made of fields."""

    names: str

    def wanted(self, found: FieldValues) -> Iterator[FieldKey]:
        """Yield the fields that it needs, given the values so far."""
        ...

    def values(self, found: FieldValues, handle: Any, asked: Asked) -> Sequence[Any]:
        """Return a value or an `Absence` for each name."""
        ...


class FieldBatch:
    """A source of several readings: their fields in one call, and dependent fields in another.

    It belongs to one device, and remembers which fields that lacks. It asks for one again `AGAIN`
    seconds later: so long does a field stay away that was "not supported" for a moment.
    """

    def __init__(self, clock: Clock, *parts: FieldReading) -> None:
        self.names = " ".join(part.names for part in parts)
        self._clock = clock
        self._parts = parts
        self._missing: dict[FieldKey, float] = {}
        """When the device was found to lack each."""

    def __call__(self, handle: Any) -> tuple[Any, ...]:
        now = self._clock()
        self._missing = {key: since for key, since in self._missing.items() if now - since < AGAIN}
        found: dict[FieldKey, Any] = dict.fromkeys(self._missing, Absence.NOT_SUPPORTED)
        while wanted := self._wanted(found):
            for key, value in zip(wanted, fetch(handle, wanted), strict=True):
                found[key] = value
                if value is Absence.NOT_SUPPORTED:
                    self._missing[key] = now
        asked = Asked(now, self._clock())
        return tuple([value for part in self._parts for value in part.values(found, handle, asked)])

    def _wanted(self, found: FieldValues) -> tuple[FieldKey, ...]:
        keys = itertools.chain.from_iterable(part.wanted(found) for part in self._parts)
        return tuple(key for key in dict.fromkeys(keys) if key not in found)


def fetch(handle: Any, keys: tuple[FieldKey, ...]) -> list[Any]:
    """Return the number of each field, or an `Absence`. Raises `NVMLError`."""
    if not keys:
        return []
    question = b"".join(_ROW.pack(*key, 0, 0, 0, 0, b"") for key in keys)
    room = (ctypes.c_char * len(question)).from_buffer_copy(question)
    call_directly("nvmlDeviceGetFieldValues", handle, len(keys), room)
    return [_value(kind, code, raw) for *_, kind, code, raw in _ROW.iter_unpack(room.raw)]


def _value(kind: int, code: int, raw: bytes) -> Any:
    if code == nvml.NVML_ERROR_INVALID_ARGUMENT:  # a field newer than the driver
        return Absence.NOT_SUPPORTED
    if code != nvml.NVML_SUCCESS:
        return absence_or_lost(code)
    if kind not in VALUE_TYPES:
        return Absence.ERROR
    (number,) = struct.unpack_from(VALUE_TYPES[kind], raw)
    if number in UNAVAILABLE:
        return Absence.NOT_SUPPORTED
    return number if math.isfinite(number) else Absence.ERROR


def first_value(found: FieldValues, keys: Iterable[FieldKey]) -> Any:
    """Return the number of the first of the fields that the device has, or why it is missing."""
    values = (found[key] for key in keys)
    return next((v for v in values if v is not Absence.NOT_SUPPORTED), Absence.NOT_SUPPORTED)


class FirstField(FieldReading):
    """A reading from the first of these fields that the device has, converted by `convert`."""

    def __init__(
        self, name: str, *fields: int, convert: Callable[[Any], Any] | None = None
    ) -> None:
        self.names = name
        self._keys = [FieldKey(number) for number in fields]
        self._convert = convert

    def wanted(self, found: FieldValues) -> Iterator[FieldKey]:
        for key in self._keys:
            yield key
            if found.get(key) is not Absence.NOT_SUPPORTED:
                return

    def values(self, found: FieldValues, handle: Any, asked: Asked) -> Sequence[Any]:  # noqa: ARG002 - a `FieldReading`
        value = first_value(found, self._keys)
        return (value if isinstance(value, Absence) or not self._convert else self._convert(value),)


def signed(number: int) -> int:
    """Return a negative number that a driver sent as an unsigned one of 32 or 64 bits."""
    bits = 64 if number >> 32 else 32
    return number - (1 << bits) if number >> (bits - 1) == 1 else number


class FieldSum(FirstField):
    """A reading that is the sum of fields, missing if one of them is."""

    def wanted(self, found: FieldValues) -> Iterator[FieldKey]:  # noqa: ARG002 - a `FieldReading`
        yield from self._keys

    def values(self, found: FieldValues, handle: Any, asked: Asked) -> Sequence[Any]:  # noqa: ARG002 - a `FieldReading`
        return (total(*(found[key] for key in self._keys)),)


class Durations(FieldReading):
    """A reading by cause: seconds from nanosecond counters, each the first that the device has.

    A counter that runs faster than the clock does not count time, and is an error from then on.
    """

    def __init__(self, name: str, fields: Mapping[str, tuple[int, ...]]) -> None:
        self.names = name
        self._fields = {cause: FirstField(cause, *numbers) for cause, numbers in fields.items()}
        self._before: dict[str, tuple[float, float]] = {}
        """When the last value of each cause was asked for, and its seconds."""
        self._credit: dict[str, float] = {}
        """Seconds by which each may still run ahead; negative if it has run too fast."""

    def wanted(self, found: FieldValues) -> Iterator[FieldKey]:
        for field in self._fields.values():
            yield from field.wanted(found)

    def values(self, found: FieldValues, handle: Any, asked: Asked) -> Sequence[Any]:
        """Return the seconds by cause; without any, the most specific reason."""
        rows = {
            cause: field.values(found, handle, asked)[0] for cause, field in self._fields.items()
        }
        sound = {}
        for cause, row in rows.items():
            if isinstance(row, Absence):
                continue
            if self._counts_time(cause, row / 1e9, asked):
                sound[cause] = rounded(row / 1e9)
            else:
                rows[cause] = Absence.ERROR
        return (sound or first_reason(rows.values()),)

    def _counts_time(self, cause: str, seconds: float, asked: Asked) -> bool:
        credit = self._credit.get(cause, SLACK)
        # None of the values is older than the time at which it was asked for.
        since, before = self._before.get(cause, (asked.ended, seconds))
        self._before[cause] = (asked.began, seconds)
        if credit >= 0:
            credit = min(SLACK, credit + asked.ended - since - max(0.0, seconds - before))
        self._credit[cause] = credit
        return credit >= 0


SLACK = 2.0
"""Seconds by which a counter may run ahead, since it is not updated and read at the same time."""


def first_reason(values: Any) -> Absence:
    """Return why these are missing: a temporary reason before a permanent one."""
    passing = (v for v in values if isinstance(v, Absence) and v is not Absence.NOT_SUPPORTED)
    return next(passing, Absence.NOT_SUPPORTED)
