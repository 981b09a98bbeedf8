"""What the reader of a stream asks of its sampler while it runs: lines of JSON, the other way.

`{"interval": 2.0}` is another interval, `{"gpm": true}` whether GPM is sampled. After
`{"acknowledge": true}` the reader acknowledges samples by their time and tells its own clock,
`{"received": 1763726400.123, "clock": 5000.0}`, and gets no more than it keeps up with. What a
sampler does not know, or cannot read, it leaves alone: its reader may be of a later gputop.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable
from typing import Any, Protocol

from gputop.bounds import LONGEST_INTERVAL, SHORTEST_INTERVAL


class Steered(Protocol):
    """A sampler, as far as it can be steered."""

    def set_interval(self, seconds: float) -> None: ...

    def set_gpm(self, *, wanted: bool) -> None: ...


class Acknowledged(Protocol):
    """The sending side's window of samples that are not acknowledged."""

    def open(self) -> None: ...

    def received(self, time: float, clock: float) -> None: ...


def request(**wanted: Any) -> bytes:
    """A line for the sampler."""
    return json.dumps(wanted).encode() + b"\n"


def obey(sampler: Steered, window: Acknowledged, lines: Iterable[bytes]) -> None:
    """Does what the lines ask for, up to their end."""
    for line in lines:
        wanted: Any = None
        with contextlib.suppress(ValueError, RecursionError):
            wanted = json.loads(line)
        if not isinstance(wanted, dict):
            continue
        interval, gpm = _number(wanted.get("interval")), wanted.get("gpm")
        if interval is not None and interval > 0:
            sampler.set_interval(min(LONGEST_INTERVAL, max(SHORTEST_INTERVAL, interval)))
        if isinstance(gpm, bool):
            sampler.set_gpm(wanted=gpm)
        if wanted.get("acknowledge") is True:
            window.open()
        time, clock = _number(wanted.get("received")), _number(wanted.get("clock"))
        if time is not None and clock is not None:
            window.received(time, clock)


def _number(value: Any) -> float | None:
    """Return a finite number as it is; true is none here."""
    return value if type(value) in (int, float) and abs(value) < math.inf else None
