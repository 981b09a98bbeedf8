"""NVML's field values: one call returns many, each with a return code. Readings consist of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gputop.agent.device import Absence
from gputop.agent.lines import rounded
from gputop.agent.nvml.bindings import nvml, read_field
from gputop.agent.nvml.query import Clock
from gputop.agent.nvml.values import UNAVAILABLE, absence_or_lost, total


class FieldKey(NamedTuple):
    """A field. `scope` is the link for fields that exist once per link."""

    field: int
    scope: int = 0


FieldValues = Mapping[FieldKey, Any]
"""The number of each field, or an `Absence`."""

_MEMBERS: Mapping[int, str] = {
    nvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    nvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    nvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    nvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}


def number_of(value: Any, kind: int) -> Any:
    """Return the number in an `nvmlValue_t` of that type, or None for an unknown type."""
    member = _MEMBERS.get(kind)
    return None if member is None else getattr(value, member)


class Asked(NamedTuple):
    """Time of a request for fields. Their values are from between these monotonic times."""

    began: float
    ended: float


class FieldReading:
    """One or more readings that are computed from fields."""

    names: str

    def keys(self, found: FieldValues) -> Iterable[FieldKey]:
        """Return the fields that the readings need, given the values so far."""
        raise NotImplementedError

    def values(self, found: FieldValues, asked: Asked) -> Sequence[Any]:
        """Return a value or an `Absence` for each name."""
        raise NotImplementedError


class FieldBatch:
    """A source of several readings. One call reads their fields, another the dependent fields."""

    def __init__(self, clock: Clock, *parts: FieldReading) -> None:
        self.names = " ".join(part.names for part in parts)
        self._clock = clock
        self._parts = parts

    def __call__(self, handle: Any) -> tuple[Any, ...]:
        began = self._clock()
        found: dict[FieldKey, Any] = {}
        while wanted := self._missing(found):
            answers = nvml.nvmlDeviceGetFieldValues(handle, wanted)
            found.update(zip(wanted, map(_value, answers)))
        asked = Asked(began, self._clock())
        values: list[Any] = []
        for part in self._parts:
            values += part.values(found, asked)
        return tuple(values)

    def _missing(self, found: FieldValues) -> list[FieldKey]:
        """Return the fields that are still needed, each once."""
        wanted: dict[FieldKey, None] = {}
        for part in self._parts:
            for key in part.keys(found):
                if key not in found:
                    wanted[key] = None
        return [*wanted]


def _value(answer: Any) -> Any:
    code = read_field(answer, "nvmlReturn")
    # The field is newer than the driver.
    if code == nvml.NVML_ERROR_INVALID_ARGUMENT:
        return Absence.NOT_SUPPORTED
    if code != nvml.NVML_SUCCESS:
        return absence_or_lost(code)
    value = read_field(answer, "value")
    number = number_of(value, read_field(answer, "valueType"))
    if number is None:
        return Absence.ERROR
    if number in UNAVAILABLE:
        return Absence.NOT_SUPPORTED
    if not math.isfinite(number):
        return Absence.ERROR
    return number


class FirstField(FieldReading):
    """A reading from the first of these fields that the device supports, converted by `convert`."""

    def __init__(
        self,
        name: str,
        *fields: int,
        convert: Callable[[Any], Any] | None = None,
    ) -> None:
        self.names = name
        self._keys = [FieldKey(number) for number in fields]
        self._convert = convert

    def keys(self, found: FieldValues) -> Iterable[FieldKey]:  # noqa: ARG002 - a `FieldReading`
        return self._keys

    def values(self, found: FieldValues, asked: Asked) -> Sequence[Any]:  # noqa: ARG002
        value = self._value(found)
        if self._convert is not None and not isinstance(value, Absence):
            value = self._convert(value)
        return (value,)

    def _value(self, found: FieldValues) -> Any:
        for key in self._keys:
            if found[key] is not Absence.NOT_SUPPORTED:
                return found[key]
        return Absence.NOT_SUPPORTED


def signed(number: int) -> int:
    """Return a negative number that a driver sent as an unsigned one of 32 or 64 bits."""
    bits = 64 if number >> 32 else 32
    if number >> (bits - 1) == 1:
        return number - (1 << bits)
    return number


class FieldSum(FirstField):
    """A reading that is the sum of fields. It is missing if one of them is."""

    def _value(self, found: FieldValues) -> Any:
        return total(*(found[key] for key in self._keys))


class Durations(FieldReading):
    """A reading by cause: seconds from nanosecond counters, from the first field that is supported.

    A counter that runs faster than the clock does not count time. From then on, it is an error.
    """

    def __init__(
        self, name: str, fields: Mapping[str, tuple[int, ...]]
    ) -> None:
        self.names = name
        self._fields = {
            cause: FirstField(cause, *numbers)
            for cause, numbers in fields.items()
        }
        self._keys: list[FieldKey] = []
        for numbers in fields.values():
            self._keys += map(FieldKey, numbers)
        self._before: dict[str, tuple[float, float]] = {}
        """Time and seconds of the last value of each cause."""
        self._credit: dict[str, float] = {}
        """Seconds by which each cause may still run ahead; negative if it has run too fast."""

    def keys(self, found: FieldValues) -> Iterable[FieldKey]:  # noqa: ARG002
        return self._keys

    def values(self, found: FieldValues, asked: Asked) -> Sequence[Any]:
        """Return the seconds by cause. If there are none, return the most specific reason."""
        sound: dict[str, float] = {}
        reasons = []
        for cause, field in self._fields.items():
            (counted,) = field.values(found, asked)
            if isinstance(counted, Absence):
                reasons.append(counted)
            elif self._counts_time(cause, counted / 1e9, asked):
                sound[cause] = rounded(counted / 1e9)
            else:
                reasons.append(Absence.ERROR)
        return (sound or first_reason(reasons),)

    def _counts_time(
        self,
        cause: str,
        seconds: float,
        asked: Asked,
    ) -> bool:
        credit = self._credit.get(cause, SLACK)
        # The value is at least as new as the start of its request.
        since, before = self._before.get(cause, (asked.ended, seconds))
        self._before[cause] = (asked.began, seconds)
        if credit >= 0:
            credit = min(
                SLACK,
                credit + asked.ended - since - max(0.0, seconds - before),
            )
        self._credit[cause] = credit
        return credit >= 0


SLACK = 2.0
"""Seconds by which a counter may run ahead, because it is updated before or after the read."""


def first_reason(values: Iterable[Any]) -> Absence:
    """Return why these values are missing. A temporary reason comes before a permanent one."""
    for value in values:
        if isinstance(value, Absence) and value is not Absence.NOT_SUPPORTED:
            return value
    return Absence.NOT_SUPPORTED
