"""A codec of msgspec for one class of records: several times as fast as `codec`, and as strict.

It reads and writes what gputop itself sends. For anything else it returns None, and then `codec`
does the work, or says what is wrong. It does not round: whoever makes samples has done that. A
float that is no number becomes null. Loading it takes 20 ms, so that is done when there is time.
Without msgspec, importing it raises ImportError.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from gputop.bounds import ITEMS, STRING_CHARACTERS
from gputop.schema.codec import LIMIT, SELDOM

DIGITS = 2000
"""Digits in a row, half of those of an integer that Python refuses to read, in an unknown field."""
_UNUSUAL = re.compile(r"[^ -~]+")
"""Characters that JSON in ASCII has escapes for. Outside of strings there are none."""
_EMPTY = re.compile(rb',"(?:%s)":(?:null|\[\]|\{\})' % "|".join(sorted(SELDOM)).encode())
"""A field that `codec` leaves out. In a string its quotes would have backslashes."""
_NUMBER = re.compile(rb"[0-9]{%d}" % DIGITS)

T = TypeVar("T")
hints_of: Callable[[Any], dict[str, Any]] = cache(get_type_hints)


class FastCodec(Generic[T]):
    """Reads and writes lines of the type `name`, whose records are of the class `cls`."""

    def __init__(self, cls: type[T], name: str, bounds: Mapping[str, int]) -> None:
        """`bounds` are the most items of tuples in the record itself."""
        self._make = cls
        self._values = attrgetter(*hints_of(cls))
        self._write = msgspec.json.Encoder().encode
        self._begin = f'{{"type":"{name}",'.encode()
        with _bounded_annotations(cls):
            line = _line_of(cls, bounds, tag_field="type", tag=name)
            self._read = msgspec.json.Decoder(line).decode

    def encode(self, record: T) -> str | None:
        """Return the line of a record whose floats are rounded, or None."""
        try:
            line = self._begin + self._write(record)[1:]
        except (TypeError, ValueError, OverflowError):  # surrogates, a mapping that is no dict
            return None
        text = _EMPTY.sub(b"", line).decode()
        if text.isascii() and "\x7f" not in text:
            return text
        return _UNUSUAL.sub(lambda found: json.dumps(found[0])[1:-1], text)

    def decode(self, line: bytes) -> T | None:
        """Return the record of the line, or None if it is not one that gputop would write."""
        if not line.startswith(self._begin) or not line.isascii():
            return None
        if any(_NUMBER.match(line, at) for at in range(0, len(line), DIGITS)):
            return None
        try:
            return self._make(*self._values(self._read(line)))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None


def _line_of(cls: Any, bounds: Mapping[str, int], **tag: Any) -> Any:
    """Return a class of msgspec for a line with such a record, whose type is checked."""
    hints = {name: _bounded(hint, bounds.get(name, ITEMS)) for name, hint in hints_of(cls).items()}
    none = dataclasses.MISSING
    kept = [
        (f.name, hints[f.name], msgspec.NODEFAULT if f.default is none else f.default)
        for f in dataclasses.fields(cls)
    ]
    return msgspec.defstruct("Line", kept, **tag)


@contextlib.contextmanager
def _bounded_annotations(cls: Any) -> Iterator[None]:
    """Give the classes of records in a record annotations with bounds, for msgspec to read.

    They cannot stand there from the start: they are msgspec's own.
    """
    plain = {each: each.__annotations__ for each in _records_in(cls)}
    for each in plain:
        each.__annotations__ = {name: _bounded(hint) for name, hint in hints_of(each).items()}
    try:
        yield
    finally:
        for each, annotations in plain.items():
            each.__annotations__ = annotations


def _records_in(hint: Any) -> set[Any]:
    """Return the classes of records that a value of that type may have in it."""
    inner = get_args(hint)
    found = set()
    if dataclasses.is_dataclass(hint):
        found, inner = {hint}, tuple(hints_of(hint).values())
    return found.union(*map(_records_in, inner))


_SCALARS = {
    int: Meta(ge=1 - LIMIT, le=LIMIT - 1),
    float: Meta(gt=-float(LIMIT), lt=float(LIMIT)),
    str: Meta(max_length=STRING_CHARACTERS),
}


def _bounded(hint: Any, most: int = ITEMS, *, is_item: bool = False) -> Any:
    """Return the type with the bounds of `codec`, which cuts long strings but for items."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        return Union[tuple(_bounded(each, most, is_item=is_item) for each in arguments)]  # noqa: UP007
    if origin in (tuple, Mapping):
        items = tuple(a if a is ... else _bounded(a, is_item=True) for a in arguments)
        return Annotated[origin[items], Meta(max_length=most)]
    if hint not in _SCALARS or (is_item and hint is str):
        return hint
    return Annotated[hint, _SCALARS[hint]]
