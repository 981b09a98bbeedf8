"""Simulated stress tests for `--demo`: what a worker would send, without a process or a device."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gputop.bench.events import Done, Event, Hello, Planned, Progress, Result, Verified
from gputop.bench.plan.datasheet_peaks import by_formula
from gputop.bench.plan.kinds import DTYPES
from gputop.bench.run.session import Session
from gputop.bench.run.supervision import SupervisedRun
from gputop.sources import simulated as model
from gputop.sources.simulated import SimulatedLoad

if TYPE_CHECKING:
    from gputop.bench.plan.request import Request
    from gputop.bench.run.supervision import Ending, Take
    from gputop.bench.run.trace import Trace
    from gputop.schema.snapshot import Inventory, Sample

WINDOW_SECONDS, FIRST_SECONDS = 0.2, 2.0
"""Length of a window; in the first seconds half of it."""
START_SECONDS = 0.4
SHARE_OF_PEAK, NOISE = 0.78, 0.003
SIMULATED = "simulated"


@dataclass
class Simulation:
    """Supervises simulated runs by the samples of the dashboard, and has the devices loaded."""

    celsius: Callable[[str], float]
    """Returns the temperature of a device now, by its UUID."""
    publish: Callable[[Mapping[str, tuple[float, float]]], object]
    """Tells the sampler which devices are under load, since when, and how warm they were."""
    _loads: dict[str, tuple[float, float]] = field(default_factory=dict)
    _runs: list[SupervisedRun] = field(default_factory=list)

    def session(self, request: Request, *, waits: bool = False) -> SimulatedSession:
        """Return a session that simulates a request."""
        return SimulatedSession(request, self, waits=waits)

    @contextlib.contextmanager
    def load(self, uuid: str) -> Iterator[SimulatedLoad]:
        """Put a device under load."""
        self._loads[uuid] = (time.monotonic(), self.celsius(uuid))
        self.publish(dict(self._loads))
        try:
            yield SimulatedLoad(*self._loads[uuid])
        finally:
            del self._loads[uuid]
            self.publish(dict(self._loads))

    async def follow(self, session: Session, trace: Trace, ending: Ending, take: Take) -> None:
        """Follow a session as a `Supervisor` does."""
        run = SupervisedRun(session, trace, ending)
        self._runs.append(run)
        try:
            await run.follow(take)
        finally:
            self._runs.remove(run)
            run.set_deadline(None)

    def check_sample(self, inventory: Inventory, sample: Sample) -> None:
        """Check a sample of the dashboard's stream."""
        for run in self._runs:
            run.check_sample(inventory, sample)


class SimulatedSession(Session):
    """A session whose events are made here, at the pace of a real worker's."""

    def __init__(self, request: Request, simulation: Simulation, *, waits: bool) -> None:
        super().__init__(request, waits=waits)
        self._simulation, self._stopped = simulation, ""
        self._go, self._stop = asyncio.Event(), asyncio.Event()
        if not waits:
            self._go.set()

    def begin(self) -> None:
        self._go.set()

    async def stop(self, by: str = "user") -> None:
        self._stopped = self._stopped or by
        self.kill()

    def kill(self) -> None:
        self._go.set()
        self._stop.set()

    async def events(self) -> AsyncGenerator[Event]:
        request, target = self._request, self._request.target
        n = request.size or DTYPES[request.dtype].auto_size
        pid, started_at = model.STRESS_PID + (target.index or 0), time.time()
        await asyncio.sleep(START_SECONDS)
        yield Hello(SIMULATED, SIMULATED, target.name, 1, pid)
        await asyncio.sleep(START_SECONDS)
        yield Planned(n, n, n, request.dtype, request.dtype, SIMULATED, SIMULATED, 0.0, SIMULATED)
        await self._go.wait()
        products, checks, last, peak = 0.0, 1, 0.0, 0.0
        noise = random.Random(target.uuid)  # noqa: S311 - a picture, not a secret
        with self._simulation.load(target.uuid or "") as load:
            while not (last and self._stop.is_set()) and last < request.seconds:
                length = WINDOW_SECONDS / (1 + (last < FIRST_SECONDS))
                await asyncio.sleep(min(length, request.seconds - last))
                now = min(time.monotonic() - load.began, request.seconds)
                rate = self._rate(load.at(load.began + (last + now) / 2).sm_clock_mhz)
                rate *= noise.gauss(1, NOISE)
                peak, products = max(peak, rate), products + rate * (now - last) * 1e12 / (2 * n**3)
                yield Progress(now, now - last, int(products), rate, rate)
                if int(now) > int(last):
                    checks += 1
                    yield Verified(checks, 0, checks - 1)
                last = now
        mean = products * 2 * n**3 / 1e12 / last
        name, dtype, by = target.name, request.dtype, self._stopped or "time"
        yield Done(
            Result(
                *(name, target.uuid, dtype, n, n, n, mean, peak, None, None, mean, last),
                *(int(products), 0, checks, by, SIMULATED, None, SIMULATED, SIMULATED, started_at),
                *(checks - 1, request.kind),
            )
        )

    def _rate(self, clock_mhz: float) -> float:
        chip = (model.COMPUTE_CAPABILITY, model.SM_COUNT, clock_mhz, self._request.dtype)
        return SHARE_OF_PEAK * (by_formula(*chip, name=model.NAME) or clock_mhz / 30)
