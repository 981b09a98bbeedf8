"""What the reader of a stream asks of its sampler while it runs: lines of JSON, the other way.

`{"interval": 2.0}` is another interval, `{"gpm": true}` whether GPM is sampled. What a sampler does
not know, or cannot read, it leaves alone: its reader may be of a later gputop.
"""

from __future__ import annotations

import contextlib
import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gputop.telemetry.sampler import Sampler

SHORTEST_INTERVAL, LONGEST_INTERVAL = 0.25, 60.0
"""Seconds between samples."""


def request(**wanted: Any) -> bytes:
    """A line for the sampler."""
    return json.dumps(wanted).encode() + b"\n"


def obey(sampler: Sampler, lines: Iterable[bytes]) -> None:
    """Does what the lines ask for, up to their end."""
    for line in lines:
        wanted: Any = None
        with contextlib.suppress(ValueError, RecursionError):
            wanted = json.loads(line)
        if not isinstance(wanted, dict):
            continue
        interval, gpm = wanted.get("interval"), wanted.get("gpm")
        if isinstance(interval, (int, float)) and math.isfinite(interval):
            sampler.set_interval(min(LONGEST_INTERVAL, max(SHORTEST_INTERVAL, interval)))
        if isinstance(gpm, bool):
            sampler.set_gpm(wanted=gpm)
