"""Conversion of frozen dataclasses into plain JSON values, and back with every type checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from gputop.bounds import ITEMS, STRING_CHARACTERS

LONGEST = 300
"""Most characters of an error message, which may quote a whole line."""
LIMIT = 1 << 63
"""Bound of every number."""


class DecodeError(ValueError):
    """JSON that does not fit the schema. The message says where and why, and is cut."""

    def __init__(self, what: str, at: str = "") -> None:
        """`at` is the path of the value, such as `devices[3].uuid`."""
        self._what, self._at = what, at
        message = f"{at}: {what}" if at else what
        super().__init__(message if len(message) <= LONGEST else f"{message[:LONGEST]}…")

    def under(self, step: str) -> DecodeError:
        """Return the error with a path that starts one step further out."""
        dot = "." if self._at and not self._at.startswith("[") else ""
        return DecodeError(self._what, f"{step}{dot}{self._at}")


def to_json(record: Any) -> dict[str, Any]:
    """Return a dataclass as plain JSON values, without empty `SELDOM` fields, floats rounded."""
    names, all_of, others, seldom = _fields(record.__class__)
    document = dict(zip(names, all_of(record), strict=True))
    for name in seldom:
        if not document[name] and document[name] not in ("", 0):
            del document[name]
    for name in others:
        value = document.get(name)
        if value is not None:
            document[name] = _plain(value)
    return document


SELDOM = {"absent", "check", "echo_seconds", "machine", "machines", "problem", "unmasked"}
"""Fields that are left out if they are empty."""
_PLAIN = {int, str, bool, NoneType}
"""Types of most values, which need no conversion. A sample has thousands."""
_PLAINLY = {f"{kind}{more}" for kind in ("int", "str", "bool") for more in ("", " | None")}
"""Annotations of fields with such values only."""


@cache
def _fields(
    cls: Any,
) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]], list[str], list[str]]:
    """Return names, a getter of all values, names to convert, and names that may be left out."""
    fields = dataclasses.fields(cls)
    names = tuple(f.name for f in fields)
    get = attrgetter(*names)
    others = [f.name for f in fields if f.type not in _PLAINLY]
    seldom = [name for name in names if name in SELDOM]
    return names, get if len(names) > 1 else lambda record: (get(record),), others, seldom


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is float:
        return round(value, 3)
    if kind is tuple:
        return [each if type(each) in _PLAIN else _plain(each) for each in value]
    if isinstance(value, str):
        return value
    if hasattr(kind, "__dataclass_fields__"):
        return to_json(value)
    if isinstance(value, Mapping):
        return {key: each if type(each) in _PLAIN else _plain(each) for key, each in value.items()}
    return value


T = TypeVar("T")
Convert = Callable[[Any], Any]
"""Function that checks and converts a value; raises `DecodeError`."""
_NOT_THERE = object()
_NUMBERS = {int, float}


class _Field(NamedTuple):
    """How a field of a dataclass is decoded."""

    name: str
    kinds: frozenset[type]
    """Types that need no conversion; numbers are checked against the limit."""
    convert: Convert
    """Conversion of all other types."""
    required: bool


def from_json(cls: type[T], document: Any) -> T:
    """Return a `cls` made of plain JSON values; raises `DecodeError`, which names the field."""
    if not isinstance(document, dict):
        raise DecodeError("expected an object", cls.__name__)
    return _record(cls, document)


def _record(cls: type[T], document: Any) -> T:
    if not isinstance(document, dict):
        raise DecodeError("expected an object")
    values = {}
    for name, kinds, convert, required in _decoded(cast("Any", cls)):
        value: Any = document.get(name, _NOT_THERE)
        kind: Any = value.__class__
        if kind is str and len(value) > STRING_CHARACTERS:
            # Not refused: the name of a process or container must not hide everything else.
            value = f"{value[: STRING_CHARACTERS - 1]}…"
        if kind in kinds and (kind not in _NUMBERS or -LIMIT < value < LIMIT):
            values[name] = value
        elif value is not _NOT_THERE:
            try:
                values[name] = convert(value)
            except DecodeError as error:
                raise error.under(name) from None
        elif required:
            raise DecodeError("missing", name)
    return cls(**values)


@cache
def _decoded(cls: Any) -> tuple[_Field, ...]:
    hints = get_type_hints(cls)
    return tuple(
        _Field(
            f.name,
            *_conversion(hints[f.name]),
            f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING,
        )
        for f in dataclasses.fields(cls)
    )


def _conversion(hint: Any) -> tuple[frozenset[type], Convert]:
    """Return types that need no conversion, and the conversion of the others, for a type hint."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        ((kinds, convert),) = (_conversion(a) for a in arguments if a is not NoneType)
        return kinds | {NoneType}, convert
    if hint in (str, bool, int):
        return frozenset([hint]), lambda value: _expect(value, hint)
    if hint is float:
        return frozenset([float]), _number
    return frozenset(), _converter(hint, origin, arguments)


def _converter(hint: Any, origin: Any, arguments: tuple[Any, ...]) -> Convert:
    if origin is tuple:
        return _tuple(_item(arguments[0]))
    if origin is Mapping:
        return _mapping(_item(arguments[1]))
    if dataclasses.is_dataclass(hint):
        return lambda value: _record(cast("Any", hint), value)
    return _word(hint)


def _item(hint: Any) -> Convert:
    kinds, convert = _conversion(hint)
    plain = kinds - _NUMBERS
    return lambda value: value if value.__class__ in plain else convert(value)


def _tuple(convert: Convert) -> Convert:
    return lambda value: tuple(_all(convert, enumerate(_expect(value, list)), "[{}]").values())


def _mapping(convert: Convert) -> Convert:
    return lambda value: _all(convert, _expect(value, dict).items(), "{}")


def _all(convert: Convert, items: Iterable[tuple[Any, Any]], step: str) -> dict[Any, Any]:
    found = {}
    for key, value in items:
        try:
            found[key] = convert(value)
        except DecodeError as error:
            raise error.under(step.format(key)) from None
    return found


def _word(enum: type[StrEnum]) -> Convert:
    words: dict[str, StrEnum] = {member.value: member for member in enum}

    def of(value: Any) -> StrEnum:
        known = words.get(_expect(value, str))
        try:
            return known or enum(value)
        except ValueError:
            raise DecodeError(f"unknown word {value!r}") from None

    return of


def _number(value: Any) -> float:
    number = float(_expect(value, (int, float)))
    if not -LIMIT < number < LIMIT:  # the largest integers become the limit itself
        raise DecodeError("out of range")
    return number


def _expect(value: Any, kind: type | tuple[type, ...]) -> Any:
    # bool is an int to Python and not to JSON.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise DecodeError(f"unexpected {type(value).__name__}")
    if isinstance(value, (list, dict)) and len(value) > ITEMS:
        raise DecodeError(f"more than {ITEMS:,} items")
    # "1e999" is JSON, and infinite. A number so large that a sum becomes infinite is no reading.
    if isinstance(value, (int, float)) and not -LIMIT < value < LIMIT:
        raise DecodeError("out of range")
    return value
