"""Conversion of frozen dataclasses into plain JSON values, and back with every type checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from gputop.bounds import ITEMS, STRING_CHARACTERS
from gputop.compat import StrEnum

LONGEST = 300
"""Most characters of an error message, which may quote a whole line."""
LIMIT = 1 << 63
"""Bound of every number."""


class DecodeError(ValueError):
    """JSON that does not fit the schema. The message says where and why, and is cut."""

    def __init__(self, message: str) -> None:
        super().__init__(message if len(message) <= LONGEST else f"{message[:LONGEST]}…")


def to_json(record: Any) -> dict[str, Any]:
    """Return a dataclass as plain JSON values, without empty `SELDOM` fields, floats rounded."""
    values = {name: getattr(record, name) for name in record.__dataclass_fields__}
    kept = (n for n, value in values.items() if n not in SELDOM or value or value in ("", 0))
    return {name: _plain(values[name]) for name in kept}


def rounded(value: float) -> float:
    """Return a number as it is sent. Whoever makes samples rounds: to look again is quick."""
    return round(value, 3)


SELDOM = {
    *("absent", "check", "devices_left_out", "echo_seconds"),
    *("machine", "machines", "problem", "unlisted_gpus", "unmasked"),
}
"""Fields that are left out if they are empty."""


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, int)):  # most are
        return value
    if isinstance(value, float):
        return rounded(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return to_json(value)


T = TypeVar("T")
Convert = Callable[[Any], Any]
"""Function that checks and converts a value; raises `DecodeError`."""


def from_json(cls: type[T], document: Any) -> T:
    """Return a `cls` made of plain JSON values; raises `DecodeError`, which names the field."""
    if not isinstance(document, dict):
        raise DecodeError(f"{cls.__name__}: expected an object")
    return _record(cls, document)


def _record(cls: type[T], document: Any) -> T:
    if not isinstance(document, dict):
        raise DecodeError("expected an object")
    values = {}
    for name, plain, convert, required in _decoded(cast("Any", cls)):
        value: Any = document.get(name, dataclasses.MISSING)
        kind: Any = value.__class__
        if kind in plain and (kind is NoneType or -LIMIT < value < LIMIT):  # most are
            values[name] = value
        elif value is not dataclasses.MISSING:
            try:
                values[name] = convert(_cut(value))
            except DecodeError as error:
                raise DecodeError(f"{name}: {error}") from None
        elif required:
            raise DecodeError(f"{name}: missing")
    return cls(**values)


def _cut(value: Any) -> Any:
    """Cut a long text: the name of a process or container must not hide everything else."""
    is_long = isinstance(value, str) and len(value) > STRING_CHARACTERS
    return f"{value[: STRING_CHARACTERS - 1]}…" if is_long else value


@cache
def _decoded(cls: Any) -> tuple[tuple[str, set[type], Convert, bool], ...]:
    """Return each field's name, types that are taken as they are, conversion, and if it must be."""
    hints, found = get_type_hints(cls), []
    for each in dataclasses.fields(cls):
        hint, required = hints[each.name], each.default is each.default_factory  # both missing
        kinds = get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)
        plain = {bool, int, float, NoneType}.intersection(kinds)
        found.append((each.name, plain, _conversion(hint), required))
    return tuple(found)


def _conversion(hint: Any) -> Convert:
    """Return the function that checks and converts a value of that type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        (convert,) = (_conversion(a) for a in arguments if a is not NoneType)
        return lambda value: None if value is None else convert(value)
    if hint in (str, bool, int):
        return lambda value: _expect(value, hint)
    if hint is float:
        return _number
    if origin in (tuple, Sequence):
        of_item = _conversion(arguments[0])
        return lambda items: tuple(map(of_item, _expect(items, list)))
    if origin is Mapping:
        of_value = _conversion(arguments[1])
        return lambda table: {key: of_value(v) for key, v in _expect(table, dict).items()}
    if dataclasses.is_dataclass(hint):
        return lambda value: _record(cast("Any", hint), value)
    return _word(hint)


def _word(enum: type[StrEnum]) -> Convert:
    def of(value: Any) -> StrEnum:
        word = _expect(value, str)
        try:
            return enum(word)
        except ValueError:
            raise DecodeError(f"unknown word {value!r}") from None

    return of


def _number(value: Any) -> float:
    number = value if value.__class__ is float else float(_expect(value, (int, float)))
    if not -LIMIT < number < LIMIT:  # the largest integers become the limit itself
        raise DecodeError("out of range")
    return number


def _expect(value: Any, kind: type | tuple[type, ...]) -> Any:
    # bool is an int to Python and not to JSON.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise DecodeError(f"unexpected {type(value).__name__}")
    if isinstance(value, (list, dict)):
        if len(value) > ITEMS:
            raise DecodeError(f"more than {ITEMS:,} items")
    # "1e999" is JSON, and infinite. A number so large that a sum becomes infinite is no reading.
    elif isinstance(value, (int, float)) and not -LIMIT < value < LIMIT:
        raise DecodeError("out of range")
    return value
