"""Simulated stress tests for `--demo`: their events, and the load of their devices."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.agent import simulated as model
from gputop.agent.simulated import SimulatedLoad
from gputop.bench.events import (
    Done,
    Event,
    Hello,
    Planned,
    Progress,
    Result,
    Verified,
)
from gputop.bench.plan.kinds import DTYPES
from gputop.bench.plan.peaks import by_formula
from gputop.bench.run.session import Session

if TYPE_CHECKING:
    from gputop.agent.snapshot import Inventory, Sample
    from gputop.bench.plan.request import Request

WINDOW_SECONDS, FIRST_SECONDS = 0.2, 2.0
"""Length of a window; in the first seconds half of it."""
STEP_SECONDS = 0.4
SHARE_OF_PEAK, NOISE = 0.78, 0.003
SIMULATED = "simulated"


class Simulation:
    """Makes simulated runs, and has their devices loaded in the simulated stream."""

    def __init__(
        self,
        celsius: Callable[[str], float],
        publish: Callable[[Mapping[str, tuple[float, float]]], object],
    ) -> None:
        """Set what returns the temperature of a device now, by its UUID.

        `publish` is called with the devices under load, since when, and how warm they were.
        """
        self._celsius, self._publish = celsius, publish
        self._loads: dict[str, tuple[float, float]] = {}
        self._runs: list[SimulatedSession] = []

    def session(
        self, request: Request, *, waits: bool = False
    ) -> SimulatedSession:
        """Return a session that simulates a request."""
        return SimulatedSession(request, self, waits=waits)

    @contextlib.contextmanager
    def load(
        self, session: SimulatedSession, uuid: str
    ) -> Iterator[SimulatedLoad]:
        """Put a session's device under load."""
        self._loads[uuid] = (time.monotonic(), self._celsius(uuid))
        self._runs.append(session)
        self._publish(dict(self._loads))
        try:
            yield SimulatedLoad(*self._loads[uuid])
        finally:
            self._runs.remove(session)
            del self._loads[uuid]
            self._publish(dict(self._loads))

    def add_sample(self, inventory: Inventory, sample: Sample) -> None:
        """Pass on a sample of the simulated stream to all runs."""
        for session in self._runs:
            session.records += (inventory, sample)


class SimulatedSession(Session):
    """A session whose events are made here, at the pace of a real worker's."""

    def __init__(
        self, request: Request, simulation: Simulation, *, waits: bool
    ) -> None:
        super().__init__(request, waits=waits)
        self._simulation, self._go = simulation, asyncio.Event()
        self.records: list[Inventory | Sample] = []
        """Records of the device that have not been sent as events yet."""
        if not waits:
            self._go.set()

    def begin(self) -> None:
        self._go.set()

    async def stop(self, by: str = "user") -> None:
        self._go.set()
        await super().stop(by)

    def kill(self) -> None:
        self._go.set()
        super().kill()

    async def events(self) -> AsyncGenerator[Event]:
        request, target = self._request, self._request.target
        n = request.size or DTYPES[request.dtype].auto_size
        pid, started_at = model.STRESS_PID + (target.index or 0), time.time()
        await asyncio.sleep(STEP_SECONDS)
        yield Hello(SIMULATED, SIMULATED, target.name, 1, pid)
        await asyncio.sleep(STEP_SECONDS)
        dtype = request.dtype
        plan = Planned(
            n, n, n, dtype, dtype, SIMULATED, SIMULATED, 0.0, SIMULATED
        )
        waits = not self._go.is_set()
        yield replace(plan, waits=waits)
        await self._go.wait()
        if waits:
            yield plan
        products, checks, last, peak = 0.0, 1, 0.0, 0.0
        noise = random.Random(target.uuid)  # noqa: S311 - a picture, not a secret
        with self._simulation.load(self, target.uuid or "") as load:
            while (
                not (last and self._stopping.is_set())
                and last < request.seconds
            ):
                length = WINDOW_SECONDS / (1 + (last < FIRST_SECONDS))
                await asyncio.sleep(min(length, request.seconds - last))
                while self.records:
                    yield self.records.pop(0)
                now = min(time.monotonic() - load.began, request.seconds)
                rate = self._rate(
                    load.at(load.began + (last + now) / 2).sm_clock_mhz
                )
                rate *= noise.gauss(1, NOISE)
                peak, products = (
                    max(peak, rate),
                    products + rate * (now - last) * 1e12 / (2 * n**3),
                )
                yield Progress(now, now - last, int(products), rate, rate)
                if int(now) > int(last):
                    checks += 1
                    yield Verified(checks, 0, checks - 1)
                last = now
        mean = products * 2 * n**3 / 1e12 / last
        name, by = target.name, self._stopped_by or "time"
        yield Done(
            Result(
                *(
                    name,
                    target.uuid,
                    dtype,
                    n,
                    n,
                    n,
                    mean,
                    peak,
                    None,
                    None,
                    mean,
                    last,
                ),
                *(
                    int(products),
                    0,
                    checks,
                    by,
                    SIMULATED,
                    None,
                    SIMULATED,
                    SIMULATED,
                    started_at,
                ),
                verified_products=checks - 1,
                kind=request.kind,
                device_index=target.index,
            )
        )

    def _rate(self, clock_mhz: float) -> float:
        chip = (
            model.COMPUTE_CAPABILITY,
            model.SM_COUNT,
            clock_mhz,
            self._request.dtype,
        )
        return SHARE_OF_PEAK * (
            by_formula(*chip, name=model.NAME) or clock_mhz / 30
        )
