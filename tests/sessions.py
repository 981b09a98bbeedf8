"""A stress test whose events are known, in the place of a worker."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

from gputop.bench.events import Done, Hello, Planned, Progress, Result

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from gputop.bench.plan import Request

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
PLANNED = Planned(
    1024, 1024, 1024, "float32", "float32", "row-major", "random normal", 50, 5, 1 << 24, 1e-6, "mm"
)
EVENTS = (
    Hello("3.11.7", "2.13.0", "AMD EPYC 9654", 2, 4242),
    PLANNED,
    *(Progress(0.2 * n, 0.2, 30 * n, 0.3 + 0.01 * (n % 4)) for n in range(1, 11)),
    Done(RESULT),
)


class PreparedSession:
    """What `Session` is to the dashboard; a subclass for each test keeps what was asked."""

    requests: list[Request]
    to_send: tuple[Any, ...] = EVENTS

    def __init__(self, request: Request) -> None:
        self.requests.append(request)

    async def events(self) -> AsyncGenerator[Any]:
        for event in self.to_send:
            yield event

    async def stop(self, by: str = "user") -> None:
        """It has ended already."""

    def kill(self) -> None:
        """There is no worker."""


class EndlessSession(PreparedSession):
    """Runs until it is stopped."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._stopped = asyncio.Event()
        self._by = ""

    async def events(self) -> AsyncGenerator[Any]:
        for event in EVENTS[:-1]:
            yield event
        await self._stopped.wait()
        yield Done(dataclasses.replace(RESULT, stopped=self._by))

    async def stop(self, by: str = "user") -> None:
        """Ends it."""
        self._by = by
        self._stopped.set()
