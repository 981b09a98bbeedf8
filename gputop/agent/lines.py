"""Write records as lines of JSON."""

from __future__ import annotations

import json
from dataclasses import fields
from functools import cache
from math import isfinite
from typing import Any

from gputop.agent.snapshot import Inventory, Record

LEFT_OUT_IF_EMPTY = {
    "absent",
    "check",
    "cpu_core_max_samples_percent",
    "cpu_samples_percent",
    "devices_left_out",
    "machine",
    "machines",
    "problem",
    "unlisted_gpus",
    "unmasked",
    "waited_seconds",
}
"""Fields that most records do not use. They are left out if they are None, `()` or `{}`."""


def to_line(record: Record) -> str:
    """Return a record as one line of JSON, without the newline."""
    kind = "inventory" if isinstance(record, Inventory) else "sample"
    return _json({"type": kind, **_values(record)})


def to_plain(record: Any) -> dict[str, Any]:
    """Return any dataclass as plain JSON values, as in a line of the stream."""
    plain: dict[str, Any] = json.loads(_json(record))
    return plain


def rounded(value: float) -> float:
    """Return a number with the three decimals that are sent."""
    return round(value, 3)


def _json(value: Any) -> str:
    return json.dumps(
        value,
        default=_values,
        separators=(",", ":"),
        allow_nan=False,
    )


def _values(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as JSON values, with nested dataclasses as they are."""
    values = {}
    for name in field_names(record.__class__):
        value = getattr(record, name)
        if not value and name in LEFT_OUT_IF_EMPTY and value not in ("", 0):
            continue
        if value.__class__ in (float, tuple, dict):
            value = json_value(value)
        values[name] = value
    return values


@cache
def field_names(cls: Any) -> tuple[str, ...]:
    """Return the names of a dataclass's fields."""
    return tuple(field.name for field in fields(cls))


def json_value(value: Any) -> Any:
    """Return a value with its numbers rounded, and None for numbers that JSON cannot express."""
    if isinstance(value, float):
        return rounded(value) if isfinite(value) else None
    if isinstance(value, tuple):
        return [json_value(item) for item in value]
    if isinstance(value, dict):
        return {key: json_value(item) for key, item in value.items()}
    return value
