"""Events of a worker as frozen dataclasses: the worker sends them, and its parent reads them.

An event is a JSON line with the fields of one class, and its name in `EVENTS` as `event`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

NO_SHAPE = (0, 0, 0)
"""m, n and k of a run without products of one shape."""


@dataclass(frozen=True)
class Hello:
    """The worker has started and opened its device."""

    python: str
    torch_version: str
    device_name: str
    threads: int
    pid: int
    cuda_version: str | None = None
    unset: tuple[str, ...] = ()
    """Variables that would have changed the figures, as `NAME=value`."""
    bound_to: str | None = None
    """Processors that the worker is bound to, or None if it is not bound."""
    cublas_version: str | None = None


@dataclass(frozen=True)
class Planned:
    """The plan of a run: everything needed to interpret its figures.

    A run that waits for other devices sends its plan a second time when it starts.
    """

    m: int
    n: int
    k: int
    dtype: str
    accumulate: str
    layout: str
    data: str
    relative_error: float
    """Error of a corner of the first product against float64."""
    method: str
    rows: int = 0
    """Most rows of a table, or 0."""
    expected_seconds: float | None = None
    waits: bool = False
    """True if the run now waits for other devices."""


@dataclass(frozen=True)
class Progress:
    """One window of the run. `elapsed_seconds` and `iterations` count from its start."""

    elapsed_seconds: float
    window_seconds: float
    iterations: int
    tflops: float = 0.0
    """Throughput of this window: by device events on a GPU, by wall time on a CPU."""
    tflops_device: float | None = None
    """Throughput by device events, or None on a CPU."""
    bytes_per_second: float | None = None
    """Bytes read and written, in a run that moves bytes."""

    @property
    def rate(self) -> float:
        """Throughput in the unit of the kind of run: TFLOP/s, or GB/s."""
        if self.bytes_per_second is None:
            return self.tflops
        return self.bytes_per_second / 1e9


@dataclass(frozen=True)
class Point:
    """One row of a table: a shape of a sweep, a direction of a copy."""

    series: str
    """Name of its series: `float32`, `eager`, `host to device, pinned`."""
    x: float
    """N, or bytes."""
    values: Mapping[str, float]
    """Values by name, which ends in the unit: `tflops`, `seconds`, `bytes_per_second`."""
    shape: tuple[int, ...] = ()
    """m, n, k of a product."""


@dataclass(frozen=True)
class Verified:
    """Checks so far, and their wrong elements."""

    checks: int
    wrong_elements: int
    products: int = 0
    """Compared iterations."""


@dataclass(frozen=True)
class RunLimit:
    """Reason why the guard ends a run early. `by` becomes the result's `stopped`."""

    by: str
    """`limit` for too hot, `silent` for a device that does not answer, `unwatched` for an error."""
    title: str
    why: str


@dataclass(frozen=True)
class DeviceRecord:
    """A record of the agent about the device under test."""

    record: Mapping[str, Any]
    """The agent's line as plain JSON values."""


@dataclass(frozen=True)
class Figures:
    """Counts and rates of a run. Rates that the kind of run does not have are None."""

    seconds: float
    """Timed seconds."""
    iterations: int
    checks: int
    verified_products: int
    """Products compared in the checks."""
    wrong_elements: int
    mismatches: Mapping[str, int] = field(default_factory=dict)
    """Products that differ from the first one, by the outcome of repeating them."""
    tflops_mean: float | None = None
    tflops_peak: float | None = None
    tflops_device: float | None = None
    """Mean by device events."""
    shape: tuple[int, int, int] | None = None
    """m, n, k of the best row of a table."""
    points: tuple[Point, ...] = ()
    """Rows of a run that sends none of its own: the patterns of a memory test."""


@dataclass(frozen=True)
class WorkerDone:
    """The end of a run with figures."""

    stopped: str
    """`time`, `user`, or the limit that ended the run."""
    figures: Figures
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkerFailed:
    """The end of a run with an error."""

    kind: str
    """`hang`, `died` and `wrong` are faults of the device."""
    what: str
    why: str
    remedy: str
    checks: int = 0
    wrong_elements: int = 0


EVENTS: Mapping[str, type[Any]] = {
    "hello": Hello,
    "plan": Planned,
    "sample": Progress,
    "point": Point,
    "verify": Verified,
    "limit": RunLimit,
    "record": DeviceRecord,
    "done": WorkerDone,
    "error": WorkerFailed,
}
"""Event classes by their names."""
NAMES = {cls: name for name, cls in EVENTS.items()}
EVENT_START = b'{"event": "'


def to_line(event: Any) -> bytes:
    """Return an event as a line of JSON."""
    named = {"event": NAMES[type(event)], **asdict(event)}
    return json.dumps(named, allow_nan=False).encode() + b"\n"
