"""Results from a file that `gputop bench --json` wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gputop.bench.events import Result
from gputop.files import read_at_once
from gputop.schema.decode import from_plain
from gputop.schema.limits import DecodeError

MOST_BYTES = 256 << 20


def read(file: str) -> list[Result]:
    """Return the results in a file; raise `ValueError` with the reason if it is unusable.

    Devices that could not be tested have no result and are left out.
    """
    try:
        text = read_at_once(Path(file), MOST_BYTES)
    except OSError as error:
        why = error.strerror or str(error)
        raise ValueError(why[:1].lower() + why[1:]) from None
    if not text.strip():
        raise ValueError("it is empty, as after a run without a result")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"it is not a complete JSON document ({error})"
        ) from None
    return [
        _result(each) for each in _documents(document) if "problem" not in each
    ]


def _documents(document: Any) -> Iterator[dict[str, Any]]:
    """Yield the documents of devices: a file has one, a list, or those of a cluster."""
    if isinstance(document, dict) and isinstance(
        document.get("results"), list
    ):
        document = document["results"]
    documents = document if isinstance(document, list) else [document]
    for each in documents:
        if not isinstance(each, dict) or "device" not in each:
            raise ValueError("it is not a result of `gputop bench --json`")
        yield each


def _result(document: dict[str, Any]) -> Result:
    known = {
        name: value for name, value in document.items() if name != "place"
    }
    try:
        return from_plain(Result, known)
    except (DecodeError, RecursionError) as error:
        raise ValueError(f"it is not a complete result ({error})") from None
