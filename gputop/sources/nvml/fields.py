"""NVML's field values: many in one call, each with its own return code."""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from gputop.schema.device import Absence
from gputop.sources.nvml.calls import check, function, nvml
from gputop.sources.nvml.question import AGAIN, UNAVAILABLE, absence_of

Clock = Callable[[], float]
"""Monotonic seconds, for whoever keeps something from one call to the next."""


class Key(NamedTuple):
    """A field: `scope` is the link for those that have one of each link."""

    field: int
    scope: int = 0


class Value(NamedTuple):
    """A field's value, and in how many bits the driver counts it."""

    number: Any
    bits: int = 64


Found = Mapping[Key, Value | Absence]

_ROW = struct.Struct("IIqqIiQ")
"""`nvmlFieldValue_t`: field, scope, time, latency, type, return code, and a number of any type."""


def _as(code: str) -> Callable[[int], Any]:
    """The number that begins with those eight bytes; the code is that of `struct`."""
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
"""What makes a number of its bytes in a union, and in how many bits the driver counts it."""


class Part(Protocol):
    """Readings made of fields."""

    @property
    def names(self) -> str: ...

    def wanted(self, found: Found) -> Iterator[Key]:
        """The fields that it needs, given what the driver has said so far."""
        ...

    def values(self, found: Found, handle: Any) -> Sequence[Any]:
        """One for each name, each perhaps an `Absence`."""
        ...


class Batch:
    """A source: all its parts' fields in one call, and in another one what follows from that.

    One device's: it remembers which fields the device does not have, and asks again after `AGAIN`.
    """

    def __init__(self, clock: Clock, *parts: Part) -> None:
        self.names = " ".join(part.names for part in parts)
        self._clock = clock
        self._parts = parts
        self._missing: dict[Key, float] = {}

    def __call__(self, handle: Any) -> tuple[Any, ...]:
        now = self._clock()
        self._missing = {key: since for key, since in self._missing.items() if now - since < AGAIN}
        found: dict[Key, Value | Absence] = dict.fromkeys(self._missing, Absence.NOT_SUPPORTED)
        while wanted := self._wanted(found):
            for key, value in zip(wanted, _fetch(handle, wanted), strict=True):
                found[key] = value
                if value is Absence.NOT_SUPPORTED:
                    self._missing[key] = now
        return tuple(value for part in self._parts for value in part.values(found, handle))

    def _wanted(self, found: Found) -> tuple[Key, ...]:
        keys = itertools.chain.from_iterable(part.wanted(found) for part in self._parts)
        return tuple(key for key in dict.fromkeys(keys) if key not in found)


def _rows(handle: Any, keys: tuple[Key, ...]) -> bytes:
    """What the driver says of those fields, as it writes it; raises `NVMLError`."""
    call = function("nvmlDeviceGetFieldValues")
    if call is None:
        return bytes(nvml.nvmlDeviceGetFieldValues(handle, keys))
    question = _question(keys)
    room = (ctypes.c_char * len(question)).from_buffer_copy(question)
    check(call(handle, len(keys), room))
    return room.raw


@functools.lru_cache(maxsize=64)
def _question(keys: tuple[Key, ...]) -> bytes:
    return b"".join(_ROW.pack(*key, 0, 0, 0, 0, 0) for key in keys)


def _fetch(handle: Any, keys: tuple[Key, ...]) -> Iterator[Value | Absence]:
    for *_, kind, code, raw in _ROW.iter_unpack(_rows(handle, keys)):
        if code == nvml.NVML_ERROR_GPU_IS_LOST:
            raise nvml.NVMLError(code)
        if code == nvml.NVML_ERROR_INVALID_ARGUMENT:  # a field that is newer than it
            yield Absence.NOT_SUPPORTED
        elif code != nvml.NVML_SUCCESS:
            yield absence_of(code)
        elif kind in VALUE_TYPES:
            convert, bits = VALUE_TYPES[kind]
            number = convert(raw)
            if number in UNAVAILABLE:
                yield Absence.NOT_SUPPORTED
            else:
                yield Value(number, bits) if math.isfinite(number) else Absence.ERROR
        else:
            yield Absence.ERROR


class Field:
    """A reading that is the first of these fields that the device has, as `convert` makes it."""

    def __init__(
        self, name: str, *fields: int, convert: Callable[[Any], Any] | None = None
    ) -> None:
        self.names = name
        self._keys = [Key(number) for number in fields]
        self._convert = convert

    def wanted(self, found: Found) -> Iterator[Key]:
        """The first one, and the others where those before them are not supported."""
        for key in self._keys:
            yield key
            if found.get(key) is not Absence.NOT_SUPPORTED:
                return

    def values(self, found: Found, handle: Any) -> Sequence[Any]:  # noqa: ARG002 - a `Part`
        """What the first one says that is supported."""
        value: Value | Absence = Absence.NOT_SUPPORTED
        for key in self.wanted(found):
            value = found[key]
        if isinstance(value, Absence):
            return (value,)
        return (self._convert(value.number) if self._convert else value.number,)


def signed(number: int) -> int:
    """The number below zero that a driver may send as an unsigned one of 32 or 64 bits."""
    bits = 64 if number >> 32 else 32
    return number - (1 << bits) if number >> (bits - 1) == 1 else number


class Sum:
    """A reading that is the sum of fields, and missing where one of them is."""

    def __init__(self, name: str, *fields: int) -> None:
        self.names = name
        self._keys = [Key(number) for number in fields]

    def wanted(self, found: Found) -> Iterator[Key]:  # noqa: ARG002 - a `Part`
        """All of them."""
        yield from self._keys

    def values(self, found: Found, handle: Any) -> Sequence[Any]:  # noqa: ARG002 - a `Part`
        """Their sum, or why the first that is missing is."""
        total = 0
        for key in self._keys:
            value = found[key]
            if isinstance(value, Absence):
                return (value,)
            total += value.number
        return (total,)


class Durations:
    """A reading by cause: the seconds of nanosecond counters, each the first that the device has.

    A counter that runs faster than the clock does not count time, and is an error from then on.
    """

    def __init__(self, name: str, clock: Clock, fields: Mapping[str, tuple[int, ...]]) -> None:
        self.names = name
        self._clock = clock
        self._fields = {cause: Field(cause, *numbers) for cause, numbers in fields.items()}
        self._asked: float | None = None
        """When the values to come were asked for: none of them is older."""
        self._before: dict[str, tuple[float, float]] = {}
        """That time, and the seconds, of the last values."""
        self._credit: dict[str, float] = {}
        """Seconds by which each may still run ahead; below zero it has run too fast."""

    def wanted(self, found: Found) -> Iterator[Key]:
        """Those of all causes."""
        if self._asked is None:
            self._asked = self._clock()
        for field in self._fields.values():
            yield from field.wanted(found)

    def values(self, found: Found, handle: Any) -> Sequence[Any]:
        """The seconds by cause; where there is none, the most telling reason."""
        rows = {cause: field.values(found, handle)[0] for cause, field in self._fields.items()}
        sound = {}
        for cause, row in rows.items():
            if isinstance(row, Absence):
                continue
            if self._counts_time(cause, row / 1e9):
                sound[cause] = row / 1e9
            else:
                rows[cause] = Absence.ERROR
        self._asked = None
        return (sound or first_reason(rows.values()),)

    def _counts_time(self, cause: str, seconds: float) -> bool:
        now, credit = self._clock(), self._credit.get(cause, SLACK)
        asked, before = self._before.get(cause, (now, seconds))
        self._before[cause] = (now if self._asked is None else self._asked, seconds)
        if credit >= 0:
            credit = min(SLACK, credit + now - asked - max(0.0, seconds - before))
        self._credit[cause] = credit
        return credit >= 0


SLACK = 2.0
"""Seconds by which a counter may run ahead: it is not counted on, and read, at the same moments."""


def first_reason(values: Any) -> Absence:
    """Why these are missing: a reason that may pass before one that stays."""
    reasons = [value for value in values if isinstance(value, Absence)]
    passing = (reason for reason in reasons if reason is not Absence.NOT_SUPPORTED)
    return next(passing, Absence.NOT_SUPPORTED)
