"""Make records of lines and of plain JSON values. msgspec checks all types."""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import msgspec

from gputop.agent.snapshot import SCHEMA, Inventory, Record, Sample
from gputop.schema.limits import OBJECTS, DecodeError, check, cut_lists

T = TypeVar("T")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
"""A surrogate. msgspec refuses a single one, which stands for a byte that is not UTF-8."""


class NewerSchemaError(DecodeError):
    """The stream is of a later gputop, whose words may have other meanings."""


class _Head(msgspec.Struct):
    """The fields by which a line is decoded."""

    type: str
    schema: Any = SCHEMA


_decode_head = msgspec.json.Decoder(_Head).decode
_decode_inventory = msgspec.json.Decoder(Inventory).decode
_decode_sample = msgspec.json.Decoder(Sample).decode


def decode(line: str | bytes) -> Record:
    """Return the record of a line. Unknown fields are ignored.

    Raises `DecodeError`, whose message is one line that says where the line is wrong.
    """
    try:
        data = line.encode() if isinstance(line, str) else line
        record = cut_lists(_record(data))
    except DecodeError:
        raise
    except (ValueError, RecursionError) as error:
        raise DecodeError(str(error)) from None
    check(record)
    return record


def from_plain(cls: type[T], document: Any) -> T:
    """Return the dataclass of plain JSON values. Unknown fields are ignored.

    Raises `DecodeError`, whose message is one line that says where the values are wrong.
    """
    try:
        record = msgspec.convert(document, cls)
    except ValueError as error:
        raise DecodeError(str(error)) from None
    check(record)
    return record


def _record(data: bytes) -> Record:
    if data.count(b"{") > OBJECTS:
        raise DecodeError(f"more than {OBJECTS:,} objects")
    if _SURROGATE.search(data):
        document = json.loads(data)
        cls = _class_of(msgspec.convert(document, _Head))
        return msgspec.convert(document, cls)
    if _class_of(_decode_head(data)) is Inventory:
        return _decode_inventory(data)
    return _decode_sample(data)


def _class_of(head: _Head) -> type[Record]:
    if head.type == "sample":
        return Sample
    if head.type != "inventory":
        raise DecodeError(f"unknown type {head.type!r}")
    if isinstance(head.schema, int) and head.schema > SCHEMA:
        raise NewerSchemaError(
            f"the stream has schema {head.schema}, this gputop reads up to {SCHEMA}: "
            "upgrade this gputop"
        )
    return Inventory
