"""Results as JSON and CSV, and the results for `--history`."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime

from gputop.agent.selection import has_id, is_address
from gputop.bench.events import Conditions, Result
from gputop.bench.results import store
from gputop.text import ABSENT, csv_field, visible

NESTED = ("points", "conditions", "comparison", "verdict")
"""Fields of a result without a column of their own."""


def kept_results(device: str | None) -> list[Result]:
    """Return all kept results, or those of one device (from `parse_device`), newest first.

    Raise `ProblemError` if the results cannot be read, and `ValueError` for an unknown device.
    """
    if device is not None and (device[0].isdigit() or is_address(device)):
        device = _uuid_of(device)
    found = []
    for result in store.recent():
        uuid = result.device_uuid or ""
        if device == "cpu":
            fits = not uuid
        else:
            fits = device is None or uuid.lower().startswith(device.lower())
        if fits:
            found.append(result)
    return found


def _uuid_of(label: str) -> str:
    from gputop.stream.child import StreamError, one_snapshot

    try:
        inventory, _ = asyncio.run(one_snapshot(identified=True))
    except StreamError as error:
        raise ValueError(f"{error}. Or name the device by its UUID") from None
    for device in inventory.devices:
        if has_id(device, label):
            return device.uuid
    raise ValueError(f"There is no device {label} now. Name it by its UUID")


def documents(results: Iterable[Result]) -> str:
    """Return a JSON list of the results."""
    return json.dumps(
        [asdict(result) for result in results], indent=2, allow_nan=False
    )


def as_csv(results: Sequence[Result]) -> str:
    """Return a heading and a line per result. Names end in units; times are ISO 8601 in UTC."""
    names = [f.name for f in fields(Result) if f.name not in NESTED]
    conditions = [f.name for f in fields(Conditions)]
    rows = []
    for result in results:
        row = {name: getattr(result, name) for name in names}
        row |= {
            name: getattr(result.conditions, name, None) for name in conditions
        }
        row["started_at"] = _iso(result.started_at)
        row["under_earlier_percent"] = result.known_comparison.under_percent
        row["verdict"] = result.verdict and result.verdict.state
        rows.append(row)
    return _csv(
        [*names, *conditions, "under_earlier_percent", "verdict"], rows
    )


def _iso(stamp: float) -> str:
    try:
        return datetime.fromtimestamp(stamp, UTC).isoformat()
    except (ValueError, OverflowError, OSError):  # out of range
        return ABSENT


def points_csv(result: Result) -> str:
    """Return the rows of a table: `series`, `x`, `shape`, and the names of its values."""
    names: dict[str, None] = {}
    rows = []
    for point in result.points:
        names |= dict.fromkeys(point.values)
        shape = "x".join(map(str, point.shape))
        place = {"series": point.series, "x": point.x, "shape": shape}
        rows.append({**place, **point.values})
    return _csv(["series", "x", "shape", *names], rows)


def _csv(names: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    listing = io.StringIO()
    writer = csv.writer(listing, lineterminator="\n")
    writer.writerow(map(_field, names))
    for row in rows:
        writer.writerow([_field(row.get(name)) for name in names])
    return listing.getvalue().removesuffix("\n")


def _field(value: object) -> object:
    if isinstance(value, Mapping):
        pairs = []
        for key, each in value.items():
            shown = each if isinstance(each, tuple) else f"{each:g}"
            pairs.append(f"{key}={shown}")
        value = "; ".join(pairs)
    elif isinstance(value, tuple):
        value = "; ".join(map(str, value))
    return csv_field(visible(value)) if isinstance(value, str) else value
