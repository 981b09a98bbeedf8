"""What a stress test says: the worker's events as frozen dataclasses, and the result of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gputop.telemetry.snapshot import Problem


@dataclass(frozen=True, slots=True)
class Hello:
    """The worker runs and has its device."""

    python: str
    torch_version: str
    device_name: str
    threads: int
    pid: int
    cuda_version: str | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """What will be run: all that the numbers have to be read with."""

    m: int
    n: int
    k: int
    dtype: str
    accumulate: str
    layout: str
    data: str
    warmup_products: int
    products_per_batch: int
    need_bytes: int
    relative_error: float
    """Of the first product against float64, in a corner of it."""
    method: str
    product_seconds: float = 0.0
    """Of one product, the median of the warm-up."""
    patience_seconds: float = 60.0
    """A device that ends nothing for longer is taken for hung."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One window of the run; `elapsed_seconds` and `iterations` are of the run so far."""

    elapsed_seconds: float
    window_seconds: float
    iterations: int
    tflops: float
    """Of this window: by device events on a GPU, by wall time on a CPU."""
    tflops_device: float | None = None
    """By device events; None on a CPU."""


@dataclass(frozen=True, slots=True)
class Verified:
    """Checks so far, and elements that were wrong in them."""

    checks: int
    wrong_elements: int


@dataclass(frozen=True, slots=True)
class Result:
    """A run that has ended. Throughput is in TFLOP/s, 2·m·n·k FLOP a product."""

    device: str
    device_uuid: str | None
    dtype: str
    m: int
    n: int
    k: int
    tflops_mean: float
    tflops_peak: float
    """Of the best window, by device events on a GPU."""
    tflops_sustained: float | None
    """Mean of the last half; None for a run that is too short for it."""
    droop_percent: float | None
    """How far sustained is below peak."""
    tflops_device: float | None
    """Mean by device events; a gap to `tflops_mean` means that the host was in the way."""
    seconds: float
    """Timed: without preparation, and on a CPU without checks."""
    iterations: int
    wrong_elements: int
    checks: int
    stopped: str
    """By whom: `time`, `user`, or `limit` where the device was too hot."""
    torch_version: str
    cuda_version: str | None
    python: str
    """The path of the interpreter."""
    method: str
    started_at: float
    """Unix seconds."""
    verified_products: int | None = None
    """Of the iterations, those that were compared; None for results of older versions."""


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a run that measured something."""

    result: Result


@dataclass(frozen=True, slots=True)
class Failed:
    """The end of a run that did not; `status` is the exit status that it deserves."""

    problem: Problem
    status: int


Event = Hello | Planned | Progress | Verified | Done | Failed

EVENTS: dict[str, type[Hello | Planned | Progress | Verified]] = {
    "hello": Hello,
    "plan": Planned,
    "sample": Progress,
    "verify": Verified,
}
"""By the name that the worker gives them."""
