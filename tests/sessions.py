"""A stress test whose events are known, in the place of a worker."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Callable
from typing import Any

from gputop.bench.events import Done, Event, Hello, Planned, Point, Progress, Result
from gputop.bench.plan.request import Request
from gputop.bench.run.device_run import DeviceRun
from gputop.bench.run.device_runner import DeviceRunner

RESULT = Result(
    device="AMD EPYC 9654",
    device_uuid=None,
    dtype="float32",
    m=1024,
    n=1024,
    k=1024,
    tflops_mean=0.305,
    tflops_peak=0.35,
    tflops_sustained=None,
    droop_percent=None,
    tflops_device=None,
    seconds=2.0,
    iterations=300,
    wrong_elements=0,
    checks=3,
    stopped="time",
    torch_version="2.13.0",
    cuda_version=None,
    python="/venv/bin/python",
    method="torch.mm",
    started_at=1_763_640_000.0,
)
PLANNED = Planned(1024, 1024, 1024, "float32", "float32", "row-major", "random normal", 1e-6, "mm")
EVENTS = (
    Hello("3.11.7", "2.13.0", "AMD EPYC 9654", 2, 4242),
    PLANNED,
    *(Progress(0.2 * n, 0.2, 30 * n, 0.3 + 0.01 * (n % 4)) for n in range(1, 11)),
    Done(RESULT),
)


SIZES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)


def sweep_points(dtype: str, tflops: float, launch_seconds: float) -> tuple[Point, ...]:
    """Of a device of that throughput, which takes so long to begin with a product."""
    found = []
    for n in SIZES:
        seconds = launch_seconds + 2 * n**3 / (tflops * 1e12)
        rate = 2 * n**3 / seconds / 1e12
        found.append(Point(dtype, n, {"tflops": rate, "seconds": seconds}, (n, n, n)))
    return tuple(found)


STEPS = {"7B": (4096, 0.41), "70B": (4096, 0.52)}
COPIES = {
    "device to device": 3.9e12,
    "host to device, pageable": 1.2e10,
    "device to host, pageable": 9.1e9,
    "host to device, pinned": 5.41e10,
    "device to host, pinned": 5.3e10,
}
POINTS: dict[str, tuple[Point, ...]] = {
    "sweep": (*sweep_points("float32", 0.31, 1e-6), *sweep_points("float64", 0.15, 1.1e-6)),
    "step": tuple(
        Point(
            name,
            tokens,
            {"tflops": rate, "tokens_per_second": 1e5 * rate, "seconds": tokens / rate / 1e5},
        )
        for name, (tokens, rate) in STEPS.items()
    ),
    "copy": tuple(
        Point(way, 1 << power, {"bytes_per_second": rate * share, "seconds": 1e-3})
        for power, share in ((20, 0.2), (24, 0.7), (28, 0.97), (30, 1.0))
        for way, rate in COPIES.items()
    ),
    "peak": tuple(
        Point(
            f"B column-major{', confirmed' if m % 3 == 0 else ''}",
            round(m ** (1 / 3) * 100, 1),
            {"tflops": 0.2 + m / 9000, "seconds": 1e-2},
            (m, 512, 1024),
        )
        for m in range(256, 2048, 128)
    ),
    "collective": tuple(
        Point(
            series,
            1 << power,
            {
                "bytes_per_second": factor * rate,
                "algorithm_bytes_per_second": rate,
                "seconds": (1 << power) / rate,
                "p99_seconds": 1.2 * (1 << power) / rate,
                "wrong": 0,
            },
        )
        for power, rate in ((10, 5e7), (20, 3.1e10), (30, 2.6e11))
        for series, factor in (
            ("all-reduce", 1.75),
            ("all-gather", 0.875),
            ("reduce-scatter", 0.875),
        )
    ),
}
NOTES = {
    "sweep": ("float32: no size from 6144 on, the time was up",),
    "step": ("70B: left out, it needs 61.2 GiB, and 30.1 GiB may be used",),
    "copy": (),
    "collective": (),
    "peak": ("the best of 14 shapes and layouts is 1920×512×1024: 0.413 TFLOP/s",),
}


def table_result(kind: str, **changes: Any) -> Result:
    points: tuple[Point, ...] = changes.get("points", POINTS[kind])
    best = max(points, key=lambda point: point.values.get("tflops", 0.0))
    m, n, k = best.shape or (0, 0, 0)
    figures: dict[str, Any] = {
        "kind": kind,
        "points": points,
        "notes": NOTES[kind],
        "tflops_mean": None,
        "tflops_peak": best.values.get("tflops"),
        "m": m,
        "n": n,
        "k": k,
        "dtype": {
            "sweep": ",".join(dict.fromkeys(point.series for point in points)),
            "copy": "bytes",
        }.get(kind, "float32"),
    }
    return dataclasses.replace(RESULT, **(figures | changes))


def table_events(kind: str, rows: int | None = None) -> tuple[Any, ...]:
    """A run of that kind; with `rows`, as it is after so many of them."""
    points = POINTS[kind]
    plan = dataclasses.replace(PLANNED, m=4096, n=4096, k=4096, rows=len(points))
    begun = (EVENTS[0], plan, *points[:rows])
    return begun if rows is not None else (*begun, Done(table_result(kind)))


class Session:
    """A real worker of one device, whose events are read one by one."""

    def __init__(self, request: Request) -> None:
        self.device = DeviceRun(request)
        self.runner = DeviceRunner(request, self.device)
        self.stop, self.kill = self.runner.stop, self.runner.kill

    async def events(self) -> AsyncGenerator[Event]:
        said: asyncio.Queue[Event | None] = asyncio.Queue()

        def add(event: Event) -> None:
            self.device.add_event(event)
            said.put_nowait(event)

        running = asyncio.create_task(self.runner.run(add))
        running.add_done_callback(lambda _: said.put_nowait(None))
        try:
            while (event := await said.get()) is not None:
                yield event
            running.result()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def heard(self) -> list[Event]:
        """Return all events. To import torch takes long where others need the disk."""
        async with asyncio.timeout(120), contextlib.aclosing(self.events()) as events:
            return [event async for event in events]


class PreparedSession:
    """What `DeviceRunner` is to the dashboard; a subclass for each test keeps what was asked."""

    requests: list[Request]
    to_send: tuple[Any, ...] = EVENTS

    def __init__(self, request: Request, device: DeviceRun, *, waits: bool = False) -> None:
        self.requests.append(request)
        self.later = 0.001 * len(self.requests)
        """Seconds by which this one began later than what was before."""

    def begin(self) -> None:
        """It waits for nobody."""

    async def run(self, add: Callable[[Event], object]) -> None:
        async for event in self.events():
            add(event)

    async def events(self) -> AsyncGenerator[Any]:
        for event in self.to_send:
            if isinstance(event, Done):
                begun = event.result.started_at + self.later
                yield Done(dataclasses.replace(event.result, started_at=begun))
            else:
                yield event

    async def stop(self, by: str = "user") -> None:
        """It has ended already."""

    def kill(self) -> None:
        """There is no worker."""


class EndlessSession(PreparedSession):
    """Runs until it is stopped; what it says until then ends with its own end."""

    def __init__(self, request: Request, device: DeviceRun, *, waits: bool = False) -> None:
        super().__init__(request, device, waits=waits)
        self._stopped = asyncio.Event()
        self._by = ""

    async def events(self) -> AsyncGenerator[Any]:
        *before, last = self.to_send
        for event in before:
            yield event
        await self._stopped.wait()
        yield Done(dataclasses.replace(last.result, stopped=self._by))

    async def stop(self, by: str = "user") -> None:
        self._by = by
        self._stopped.set()
