"""`gputop bench --history`: the results of earlier runs, as a table, CSV or JSON."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Literal

from gputop.bench.events import Conditions, Result
from gputop.bench.results.columns import fitting, under_percent
from gputop.bench.results.store import recent
from gputop.text import ABSENT, csv_field, visible

Form = Literal["table", "csv", "json"]
ROOM_FOR_ALL = 1 << 16
"""Cells, for what is no terminal."""


def text(device: str | None, form: Form, width: int | None = None) -> str:
    """All kept results, or those of one device (of `plan.parse_device`), newest first.

    A table is made to fit into `width` cells, where that is given.

    Raises `ResultsError` where they cannot be read, and `ValueError` for a device without a name.
    """
    if device is not None and device[0].isdigit():
        device = _uuid_of(device)
    found = [result for result in recent() if device is None or _is_of(result, device)]
    if form == "json":
        return documents(found)
    if form == "csv":
        return as_csv(found)
    if found:
        return table(found, width)
    return "No results" + (f" of {device}" if device else "")


def _is_of(result: Result, device: str) -> bool:
    if device == "cpu":
        return result.device_uuid is None
    return (result.device_uuid or "").lower().startswith(device.lower())


def _uuid_of(label: str) -> str:
    """Of an index: what it is the index of today."""
    from gputop.stream.snapshots import StreamError, one_snapshot

    try:
        inventory, _ = asyncio.run(one_snapshot())
    except StreamError as error:
        raise ValueError(f"{error}. Or name the device by its UUID") from None
    for device in inventory.devices:
        if device.label == label:
            return device.uuid
    raise ValueError(f"There is no device {label} now. Name it by its UUID")


def table(results: Sequence[Result], width: int | None = None) -> str:
    """The columns that have something in them, and room in `width` where there is one."""
    rows = [""] * (len(results) + 1)
    for column, cells in fitting(width or ROOM_FOR_ALL):
        texts = [column.text(each) for each in results]
        if all(text == ABSENT for text in texts):
            continue
        if width is not None:
            texts = [text if len(text) <= cells else f"{text[: cells - 1]}…" for text in texts]
        wide = max(map(len, (column.title, *texts)))
        for n, text in enumerate((column.title, *texts)):
            rows[n] += " " * bool(rows[n]) + (
                text.rjust(wide) if column.right else text.ljust(wide)
            )
    return "\n".join(row.rstrip() for row in rows)


def documents(results: Iterable[Result]) -> str:
    """A JSON list of the results, as they are kept."""
    return json.dumps([asdict(result) for result in results], indent=2, allow_nan=False)


def as_csv(results: Sequence[Result]) -> str:
    """One line a result under a heading: units are in the names, `started_at` is ISO 8601, UTC."""
    nested = ("points", "conditions", "comparison")
    names = [f.name for f in fields(Result) if f.name not in nested]
    conditions = [f.name for f in fields(Conditions)]
    rows = []
    for result in results:
        row = {name: getattr(result, name) for name in names}
        row |= {name: getattr(result.conditions, name, None) for name in conditions}
        row["started_at"] = _iso(result.started_at)
        row["under_best_percent"] = under_percent(result)
        rows.append(row)
    return _csv([*names, *conditions, "under_best_percent"], rows)


def _iso(stamp: float) -> str:
    try:
        return datetime.fromtimestamp(stamp, UTC).isoformat()
    except (ValueError, OverflowError, OSError):  # as the file has it
        return ABSENT


def points_csv(result: Result) -> str:
    """The rows of a run that is a table: `series`, `x`, `shape`, and the names of its values."""
    names = list(dict.fromkeys(name for point in result.points for name in point.values))
    rows = [
        {"series": point.series, "x": point.x, "shape": "x".join(map(str, point.shape))}
        | dict(point.values)
        for point in result.points
    ]
    return _csv(["series", "x", "shape", *names], rows)


def _csv(names: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_field, names))
    writer.writerows([_field(row.get(name)) for name in names] for row in rows)
    return text.getvalue().removesuffix("\n")


def _field(value: object) -> object:
    if isinstance(value, Mapping):
        value = "; ".join(f"{key}={each:g}" for key, each in value.items())
    elif isinstance(value, tuple):
        value = "; ".join(map(str, value))
    return csv_field(visible(value)) if isinstance(value, str) else value
