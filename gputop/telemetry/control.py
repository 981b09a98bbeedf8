"""What the reader of a stream asks of its sampler while it runs: lines of JSON, the other way.

`{"interval": 2.0}` is another interval, `{"gpm": true}` whether GPM is sampled. What a sampler does
not know, or cannot read, it leaves alone: its reader may be of a later gputop.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable
from typing import Any, Protocol

SHORTEST_INTERVAL, LONGEST_INTERVAL = 0.25, 60.0
"""Seconds between samples."""


class Steered(Protocol):
    """A sampler, as far as it can be steered."""

    def set_interval(self, seconds: float) -> None: ...

    def set_gpm(self, *, wanted: bool) -> None: ...


def request(**wanted: Any) -> bytes:
    """A line for the sampler."""
    return json.dumps(wanted).encode() + b"\n"


def obey(sampler: Steered, lines: Iterable[bytes]) -> None:
    """Does what the lines ask for, up to their end."""
    for line in lines:
        wanted: Any = None
        with contextlib.suppress(ValueError, RecursionError):
            wanted = json.loads(line)
        if not isinstance(wanted, dict):
            continue
        interval: Any = wanted.get("interval")
        gpm = wanted.get("gpm")
        if type(interval) in (int, float) and 0 < interval < math.inf:  # true is no number here
            sampler.set_interval(min(LONGEST_INTERVAL, max(SHORTEST_INTERVAL, interval)))
        if isinstance(gpm, bool):
            sampler.set_gpm(wanted=gpm)
