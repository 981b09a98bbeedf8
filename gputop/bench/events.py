"""What a stress test says: the worker's events as frozen dataclasses, and the result of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gputop.problem import Problem


KINDS = ("soak", "sweep", "latency", "peak", "copy", "pairs")
"""What a run can be: one shape for a duration, or a table of `Point`s."""


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
    rows: int = 0
    """Of a run that is a table, at most; 0 for one that is not."""
    largest_size: int | None = None
    """The largest N that fits in the device's memory."""
    expected_seconds: float | None = None


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
class Point:
    """One row of a run that is a table: a shape of a sweep, a direction of a copy."""

    series: str
    """What it belongs to: `float32`, `eager`, `host to device, pinned`."""
    x: float
    """What it is drawn over: N, or bytes."""
    values: Mapping[str, float]
    """By name, with the unit that this ends in: `tflops`, `seconds`, `bytes_per_second`."""
    shape: tuple[int, ...] = ()
    """m, n, k of a product."""


@dataclass(frozen=True, slots=True)
class Verified:
    """Checks so far, and elements that were wrong in them."""

    checks: int
    wrong_elements: int


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the device was like during a run, of its readings; absent ones are None."""

    driver_version: str | None = None
    pci_device_id: str | None = None
    power_watts_mean: float | None = None
    power_limit_watts: float | None = None
    sm_clock_mhz_mean: float | None = None
    sm_clock_max_mhz: float | None = None
    temperature_celsius_max: float | None = None
    heat_limit: str | None = None
    """Where heat would have ended the run, such as `84°C (slowdown at 87°C)`; None for a CPU."""
    energy_joules: float | None = None
    """By the device's own counter."""
    tflop_per_joule: float | None = None
    clock_event_seconds: Mapping[str, float] = field(default_factory=dict)
    """How long each clock event reason was seen."""
    percent_of_peak: Mapping[str, float] = field(default_factory=dict)
    """By the denominator's name, `datasheet dense` or `formula at the live clock`: of the mean,
    of a table of its best row, of copies of their bandwidth within the device."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a result compares with the best earlier run like it: the verdict as it was given."""

    under_percent: float | None = None
    """Percent under that run, negative above it; None where there was none to compare with."""
    slower: str | None = None
    """The warning, if the result was noticeably slower."""


@dataclass(frozen=True, slots=True)
class Result:
    """A run that has ended. Throughput is in TFLOP/s, 2·m·n·k FLOP a product."""

    device: str
    device_uuid: str | None
    dtype: str
    m: int
    n: int
    k: int
    tflops_mean: float | None
    """None for a run that makes no products, as is the peak."""
    tflops_peak: float | None
    """Of the best window, by device events on a GPU; of a table, of its best row."""
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
    """By whom: `time`, `user`, `limit` where the device was too hot, `silent` where nothing was
    heard of it any more."""
    torch_version: str
    cuda_version: str | None
    python: str
    """The path of the interpreter."""
    method: str
    started_at: float
    """Unix seconds."""
    verified_products: int | None = None
    """Of the iterations, those that were compared; None for results of older versions."""
    kind: str = "soak"
    """One of `KINDS`."""
    points: tuple[Point, ...] = ()
    """The rows of a run that is a table; m, n, k and the peak are of the best of them."""
    notes: tuple[str, ...] = ()
    """To be read with it: what was left out and why, and what the rows say in words."""
    time_to_steady_seconds: float | None = None
    """Until the throughput stayed within 2 % of the sustained one."""
    context_bytes: int | None = None
    """Device memory of the CUDA context, measured; the next two are what torch holds beyond it."""
    cache_bytes: int | None = None
    """Reserved by torch's allocator and free."""
    tensor_bytes: int | None = None
    conditions: Conditions | None = None
    """What the device was like meanwhile; None where nothing was known of it."""
    accumulate: str | None = None
    """This and the next three as in the plan: the method, apart from its text."""
    layout: str | None = None
    data: str | None = None
    threads: int | None = None
    """Of a CPU."""
    host: str | None = None
    """The machine that the device is in; None for results of older versions, of this machine."""
    comparison: Comparison | None = field(default=None, compare=False)
    """Made when the result is kept, and never again; None before that."""


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a run that measured something."""

    result: Result


@dataclass(frozen=True, slots=True)
class Failed:
    """The end of a run that did not; `status` is the exit status that it deserves."""

    problem: Problem
    status: int


Event = Hello | Planned | Progress | Point | Verified | Done | Failed

EVENTS: dict[str, type[Hello | Planned | Progress | Point | Verified]] = {
    "hello": Hello,
    "plan": Planned,
    "sample": Progress,
    "point": Point,
    "verify": Verified,
}
"""By the name that the worker gives them."""
