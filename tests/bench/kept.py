from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from gputop.bench.events import Conditions, Point, Result
from gputop.bench.results.compare import comparable, compared
from tests.bench.workers import RESULT

CONDITIONS = Conditions(
    driver_version="580.65",
    pci_device_id="2335",
    power_watts_mean=690.0,
    power_limit_watts=700.0,
    sm_clock_mhz_mean=1515.0,
    temperature_celsius_max=67.0,
    energy_joules=41_000.0,
    clock_event_seconds={"sw_power_cap": 52.0},
    percent_of_peak={"datasheet dense": 78.1, "formula at the live clock": 99.0},
)
BASE = replace(
    RESULT,
    device="NVIDIA H200",
    device_uuid="GPU-4f2a1b3c",
    dtype="bfloat16",
    m=8192,
    n=8192,
    k=8192,
    tflops_mean=780.0,
    tflops_peak=812.0,
    seconds=60.0,
    torch_version="2.13.0",
    accumulate="float32",
    layout="A row-major, B column-major",
    data="random normal",
    conditions=CONDITIONS,
)
SWEEP = tuple(
    Point("float32", float(2**n), {"tflops": 0.1 * n, "seconds": 1e-5 * n}, (2**n,) * 3)
    for n in range(1, 12)
)
COPY = (
    Point("device to device", 2.0**30, {"bytes_per_second": 3.9e12}),
    Point("host to device, pinned", 2.0**30, {"bytes_per_second": 54e9}),
)


def soak(mean: float = 780.0, ago: float = 0.0, **changes: Any) -> Result:
    """A run of one shape, `ago` seconds before the others."""
    return replace(BASE, tflops_mean=mean, started_at=BASE.started_at - ago, **changes)


def table(kind: str, points: tuple[Point, ...], ago: float = 0.0, **changes: Any) -> Result:
    """A run that is a table."""
    changed: dict[str, Any] = {"tflops_mean": None, "tflops_peak": None} | changes
    return replace(BASE, kind=kind, points=points, started_at=BASE.started_at - ago, **changed)


def faster(points: tuple[Point, ...], factor: float) -> tuple[Point, ...]:
    """The same rows with other rates."""
    return tuple(
        replace(point, values={name: value * factor for name, value in point.values.items()})
        for point in points
    )


def with_comparisons(results: Iterable[Result], among: Iterable[Result]) -> list[Result]:
    """Return the results, each compared with those of `among` that are comparable."""
    others = [*among]
    return [
        compared(each, [other for other in others if comparable(other) == comparable(each)])
        for each in results
    ]
