"""Frozen dataclasses as plain JSON values, and back again with every type checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

LONGEST = 300
"""Characters of a message: what it quotes may be as long as a line."""


class DecodeError(ValueError):
    """JSON that is not what the schema says; the message says where and why, and not all of it."""

    def __init__(self, message: str) -> None:
        super().__init__(message if len(message) <= LONGEST else f"{message[:LONGEST]}…")


def to_json(record: Any) -> dict[str, Any]:
    """A dataclass as plain JSON values: what is seldom there left out, floats rounded."""
    names, all_of, seldom = _fields(record.__class__)
    document = {
        name: value if type(value) in _PLAIN else _plain(value)
        for name, value in zip(names, all_of(record), strict=True)
    }
    for name in seldom:
        if not document[name] and document[name] != "":
            del document[name]
    return document


SELDOM = {"absent", "check", "machine", "machines"}
"""Left out where they are empty."""
_PLAIN = {int, str, bool, NoneType}
"""What most values are: a sample has thousands."""


@cache
def _fields(cls: Any) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]], list[str]]:
    """Their names, what gets them all at once, and which of them are seldom there."""
    names = tuple(f.name for f in dataclasses.fields(cls))
    get = attrgetter(*names)
    seldom = [name for name in names if name in SELDOM]
    return names, get if len(names) > 1 else lambda record: (get(record),), seldom


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is float:
        return round(value, 3)
    if kind is tuple:
        return [each if type(each) in _PLAIN else _plain(each) for each in value]
    if kind is dict or isinstance(value, Mapping):
        return {key: each if type(each) in _PLAIN else _plain(each) for key, each in value.items()}
    return to_json(value) if hasattr(kind, "__dataclass_fields__") else value


T = TypeVar("T")


def from_json(cls: type[T], document: Any, at: str = "") -> T:
    """The dataclass `cls` from plain JSON values; raises `DecodeError` naming the field."""
    if not isinstance(document, dict):
        raise DecodeError(f"{at.removesuffix('.') or cls.__name__}: expected an object")
    values = {}
    for name, convert, required in _converters(cast("Any", cls)):
        if name in document:
            values[name] = convert(document[name], f"{at}{name}")
        elif required:
            raise DecodeError(f"{at}{name}: missing")
    return cls(**values)


LIMIT = 1 << 63
"""Every number is smaller than that."""
Converter = Callable[[Any, str], Any]


@cache
def _converters(cls: Any) -> tuple[tuple[str, Converter, bool], ...]:
    hints = get_type_hints(cls)
    return tuple(
        (
            f.name,
            _converter(hints[f.name]),
            f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING,
        )
        for f in dataclasses.fields(cls)
    )


def _converter(hint: Any) -> Converter:
    """The check and conversion for one type hint of the schema."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        (inner,) = (_converter(a) for a in arguments if a is not NoneType)
        return lambda value, at: None if value is None else inner(value, at)
    if origin is tuple:
        item = _converter(arguments[0])
        return lambda value, at: tuple(
            item(each, f"{at}[{n}]") for n, each in enumerate(_expect(value, list, at))
        )
    if origin is Mapping:
        item = _converter(arguments[1])
        return lambda value, at: {
            key: item(each, f"{at}.{key}") for key, each in _expect(value, dict, at).items()
        }
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return lambda value, at: from_json(hint, value, f"{at}.")
    if issubclass(hint, StrEnum):
        return lambda value, at: _word(hint, value, at)
    if hint is float:
        return _number
    return lambda value, at: _expect(value, hint, at)


def _number(value: Any, at: str) -> float:
    number = float(_expect(value, (int, float), at))
    # "1e999" is JSON, and infinite; a reading so large that a sum of them is infinite is none.
    if not abs(number) < LIMIT:
        raise DecodeError(f"{at}: out of range")
    return number


def _expect(value: Any, kind: type | tuple[type, ...], at: str) -> Any:
    # bool is an int to Python and not to JSON.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise DecodeError(f"{at}: unexpected {type(value).__name__}")
    if isinstance(value, int) and abs(value) >= LIMIT:
        raise DecodeError(f"{at}: out of range")
    return value


def _word(enum: type[StrEnum], value: Any, at: str) -> StrEnum:
    try:
        return enum(_expect(value, str, at))
    except ValueError as error:
        if isinstance(error, DecodeError):
            raise
        raise DecodeError(f"{at}: unknown word {value!r}") from None
