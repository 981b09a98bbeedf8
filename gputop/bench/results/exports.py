"""Results as JSON, and the results for `--history`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import asdict

from gputop.agent.selection import has_id, is_address
from gputop.bench.events import Result
from gputop.bench.results import store


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
