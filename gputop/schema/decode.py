"""Decode records from lines and from plain JSON values. msgspec checks all types."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec

from gputop.agent.snapshot import SCHEMA, Inventory, Record, Sample
from gputop.schema.limits import OBJECTS, DecodeError, check, cut_lists

T = TypeVar("T")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
"""An escaped surrogate. A single one represents a byte that is not UTF-8; msgspec rejects it."""


class NewerSchemaError(DecodeError):
    """The stream comes from a later gputop, with an incompatible schema."""


class Head(msgspec.Struct):
    """Fields of a line that are needed to choose its decoder."""

    type: Literal["inventory", "sample"]
    schema: Any = SCHEMA


_head = msgspec.json.Decoder(Head)
_DECODERS: Mapping[str, msgspec.json.Decoder[Any]] = {
    "inventory": msgspec.json.Decoder(Inventory),
    "sample": msgspec.json.Decoder(Sample),
}


def decode(line: str | bytes) -> Record:
    """Return the record of a line. Unknown fields are ignored.

    Raises `DecodeError` with one line that says where the data is wrong.
    """
    data = (
        line.encode(errors="surrogatepass") if isinstance(line, str) else line
    )
    if data.count(b"{") > OBJECTS:
        raise DecodeError(f"more than {OBJECTS:,} objects")
    head = _parse(data, _head)
    if isinstance(head.schema, int) and head.schema > SCHEMA:
        raise NewerSchemaError(
            f"the stream has schema {head.schema}, this gputop reads up to {SCHEMA}: "
            "upgrade this gputop"
        )
    record: Record = _parse(data, _DECODERS[head.type])
    record = cut_lists(record)
    check(record)
    return record


def from_plain(cls: type[T], document: Any) -> T:
    """Return an instance of `cls` from plain JSON values. Unknown fields are ignored.

    Raises `DecodeError` with one line that says where the data is wrong.
    """
    try:
        record = msgspec.convert(document, cls)
    except ValueError as error:
        raise DecodeError(str(error)) from None
    check(record)
    return record


def _parse(line: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        if _SURROGATE.search(line):
            return msgspec.convert(json.loads(line.decode()), decoder.type)
        return decoder.decode(line)
    except (ValueError, RecursionError) as error:
        raise DecodeError(str(error)) from None
