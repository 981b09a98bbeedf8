"""NVML's field values: many in one call, each with its return code, and readings made of them."""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import struct
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from gputop.schema.codec import rounded
from gputop.schema.device import Absence
from gputop.sources.nvml.query import AGAIN, UNAVAILABLE, Clock, absence_of, call_directly, nvml


class FieldKey(NamedTuple):
    """A field. `scope` is the link, for fields that exist once per link."""

    field: int
    scope: int = 0


class FieldValue(NamedTuple):
    """A field's value, and the bits in which the driver counts it."""

    number: Any
    bits: int = 64


FieldValues = Mapping[FieldKey, FieldValue | Absence]

_ROW = struct.Struct("IIqqIiQ")
"""`nvmlFieldValue_t`: field, scope, time, latency, type, return code, and a number of any type."""


def _as(code: str) -> Callable[[int], Any]:
    """Return a function that decodes the number in eight bytes, of that code of `struct`."""
    begins = struct.Struct(code).unpack_from
    return lambda raw: begins(raw.to_bytes(8, sys.byteorder))[0]


VALUE_TYPES: Mapping[int, tuple[Callable[[int], Any], int]] = {
    nvml.NVML_VALUE_TYPE_DOUBLE: (_as("d"), 64),
    nvml.NVML_VALUE_TYPE_UNSIGNED_INT: (_as("I"), 32),
    nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: (int, 64),
    nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: (int, 64),
    nvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: (_as("q"), 64),
    nvml.NVML_VALUE_TYPE_SIGNED_INT: (_as("i"), 32),
    nvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: (_as("H"), 16),
}
"""Decoder of each type's bytes in a union, and the bits in which the driver counts it."""


class FieldReading(Protocol):
    """One or more readings made of fields."""

    names: str

    def prepare(self) -> Hashable:
        """Prepare for a request; return what `wanted` depends on beside the device's answers.

        While that is the same, `wanted` is seldom called.
        """
        return None

    def wanted(self, found: FieldValues) -> Iterator[FieldKey]:
        """Yield the fields that it needs, given the values so far."""
        ...

    def values(self, found: FieldValues, handle: Any) -> Sequence[Any]:
        """Return a value or an `Absence` for each name."""
        ...


class _Plan(NamedTuple):
    """What one call asks for, as long as the device has just these fields."""

    keys: tuple[FieldKey, ...]
    missing: Mapping[FieldKey, Absence]
    until: float


class FieldBatch:
    """A source of several readings: their fields in one call, and dependent fields in another.

    It belongs to one device: it remembers which fields that has and lacks. It finds that out anew
    when the device no longer has one of them, and at the latest `AGAIN` seconds after it lacked
    one: so long does a field stay away that was "not supported" for a moment.
    """

    def __init__(self, clock: Clock, *parts: FieldReading) -> None:
        self.names = " ".join(part.names for part in parts)
        self._clock = clock
        self._parts = parts
        self._missing: dict[FieldKey, float] = {}
        """When the device was found to lack each."""
        self._plans: dict[Hashable, _Plan] = {}

    def __call__(self, handle: Any) -> tuple[Any, ...]:
        shape = tuple([part.prepare() for part in self._parts])
        found = self._planned(handle, shape)
        if found is None:
            found = self._explored(handle, shape)
        return tuple([value for part in self._parts for value in part.values(found, handle)])

    def _planned(self, handle: Any, shape: Hashable) -> FieldValues | None:
        """Return the values in one call, or None if nobody knows which, or one is gone."""
        plan = self._plans.get(shape)
        if plan is None or self._clock() >= plan.until:
            return None
        values = fetch(handle, plan.keys)
        if Absence.NOT_SUPPORTED in values:
            return None
        return {**plan.missing, **dict(zip(plan.keys, values, strict=True))}

    def _explored(self, handle: Any, shape: Hashable) -> FieldValues:
        """Return the values in as many calls as it takes, and remember what was there."""
        now = self._clock()
        self._missing = {key: since for key, since in self._missing.items() if now - since < AGAIN}
        found: dict[FieldKey, FieldValue | Absence] = dict.fromkeys(
            self._missing, Absence.NOT_SUPPORTED
        )
        while wanted := self._wanted(found):
            for key, value in zip(wanted, fetch(handle, wanted), strict=True):
                found[key] = value
                if value is Absence.NOT_SUPPORTED:
                    self._missing[key] = now
        keys = tuple(key for key in found if key not in self._missing)
        until = min(self._missing.values(), default=math.inf) + AGAIN
        missing = dict.fromkeys(self._missing, Absence.NOT_SUPPORTED)
        self._plans[shape] = _Plan(keys, missing, until)
        return found

    def _wanted(self, found: FieldValues) -> tuple[FieldKey, ...]:
        keys = itertools.chain.from_iterable(part.wanted(found) for part in self._parts)
        return tuple(key for key in dict.fromkeys(keys) if key not in found)


def _rows(handle: Any, keys: tuple[FieldKey, ...]) -> bytes:
    """Return the rows of those fields as the driver writes them. Raises `NVMLError`."""
    question = _question(keys)
    room = (ctypes.c_char * len(question)).from_buffer_copy(question)
    call_directly("nvmlDeviceGetFieldValues", handle, len(keys), room)
    return room.raw


@functools.lru_cache(maxsize=64)
def _question(keys: tuple[FieldKey, ...]) -> bytes:
    return b"".join(_ROW.pack(*key, 0, 0, 0, 0, 0) for key in keys)


def fetch(handle: Any, keys: tuple[FieldKey, ...]) -> list[FieldValue | Absence]:
    if not keys:
        return []
    rows = _ROW.iter_unpack(_rows(handle, keys))
    return [_value(kind, code, raw) for _, _, _, _, kind, code, raw in rows]


def _value(kind: int, code: int, raw: int) -> FieldValue | Absence:
    if code == nvml.NVML_ERROR_GPU_IS_LOST:
        raise nvml.NVMLError(code)
    if code == nvml.NVML_ERROR_INVALID_ARGUMENT:  # a field newer than the driver
        return Absence.NOT_SUPPORTED
    if code != nvml.NVML_SUCCESS:
        return absence_of(code)
    if kind not in VALUE_TYPES:
        return Absence.ERROR
    convert, bits = VALUE_TYPES[kind]
    number = convert(raw)
    if number in UNAVAILABLE:
        return Absence.NOT_SUPPORTED
    return FieldValue(number, bits) if math.isfinite(number) else Absence.ERROR


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

    def values(self, found: FieldValues, handle: Any) -> Sequence[Any]:  # noqa: ARG002 - a `FieldReading`
        for key in self._keys:
            value = found[key]
            if value is not Absence.NOT_SUPPORTED:
                break
        if isinstance(value, Absence):
            return (value,)
        return (self._convert(value.number) if self._convert else value.number,)


def signed(number: int) -> int:
    """Return a negative number that a driver sent as an unsigned one of 32 or 64 bits."""
    bits = 64 if number >> 32 else 32
    return number - (1 << bits) if number >> (bits - 1) == 1 else number


class FieldSum(FirstField):
    """A reading that is the sum of fields, missing if one of them is."""

    def wanted(self, found: FieldValues) -> Iterator[FieldKey]:  # noqa: ARG002 - a `FieldReading`
        yield from self._keys

    def values(self, found: FieldValues, handle: Any) -> Sequence[Any]:  # noqa: ARG002 - a `FieldReading`
        total = 0
        for key in self._keys:
            value = found[key]
            if isinstance(value, Absence):
                return (value,)
            total += value.number
        return (total,)


class Durations(FieldReading):
    """A reading by cause: seconds from nanosecond counters, each the first that the device has.

    A counter that runs faster than the clock does not count time, and is an error from then on.
    """

    def __init__(self, name: str, clock: Clock, fields: Mapping[str, tuple[int, ...]]) -> None:
        self.names = name
        self._clock = clock
        self._fields = {cause: FirstField(cause, *numbers) for cause, numbers in fields.items()}
        self._asked = 0.0
        self._before: dict[str, tuple[float, float]] = {}
        """That time, and the seconds, of the last values by cause."""
        self._credit: dict[str, float] = {}
        """Seconds by which each may still run ahead; negative if it has run too fast."""

    def prepare(self) -> None:
        """Note the time: none of the values is older."""
        self._asked = self._clock()

    def wanted(self, found: FieldValues) -> Iterator[FieldKey]:
        for field in self._fields.values():
            yield from field.wanted(found)

    def values(self, found: FieldValues, handle: Any) -> Sequence[Any]:
        """Return the seconds by cause; without any, the most specific reason."""
        rows = {cause: field.values(found, handle)[0] for cause, field in self._fields.items()}
        sound = {}
        for cause, row in rows.items():
            if isinstance(row, Absence):
                continue
            if self._counts_time(cause, row / 1e9):
                sound[cause] = rounded(row / 1e9)
            else:
                rows[cause] = Absence.ERROR
        return (sound or first_reason(rows.values()),)

    def _counts_time(self, cause: str, seconds: float) -> bool:
        now, credit = self._clock(), self._credit.get(cause, SLACK)
        asked, before = self._before.get(cause, (now, seconds))
        self._before[cause] = (self._asked, seconds)
        if credit >= 0:
            credit = min(SLACK, credit + now - asked - max(0.0, seconds - before))
        self._credit[cause] = credit
        return credit >= 0


SLACK = 2.0
"""Seconds by which a counter may run ahead, since it is not updated and read at the same time."""


def first_reason(values: Any) -> Absence:
    """Return why these are missing: a temporary reason before a permanent one."""
    reasons = [value for value in values if isinstance(value, Absence)]
    passing = (reason for reason in reasons if reason is not Absence.NOT_SUPPORTED)
    return next(passing, Absence.NOT_SUPPORTED)
