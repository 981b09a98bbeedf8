"""Supervision of devices under test: ends a run that would harm one. Also simulated tests.

It runs in a thread with a stream of its own. A blocked terminal holds up the event loop that draws
on it, and a paused or slow dashboard has no current samples: limits must not depend on those.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from gputop.agent import simulated as model
from gputop.agent.device import DeviceState
from gputop.agent.simulated import SimulatedLoad
from gputop.agent.snapshot import Inventory, Sample
from gputop.bench.events import (
    UNWATCHED,
    Done,
    Event,
    Hello,
    Planned,
    Progress,
    Result,
    Verified,
)
from gputop.bench.plan import peaks
from gputop.bench.plan.kinds import DTYPES
from gputop.bench.plan.peaks import by_formula
from gputop.bench.run.session import Session
from gputop.stream.child import StreamChild
from gputop.stream.launch import StreamOptions

if TYPE_CHECKING:
    from typing import Self

    from gputop.bench.plan.request import Request
    from gputop.bench.run.trace import Trace

    Ending = Callable[["RunLimit"], None]
    """Called with the limit that ends the run."""
    Take = Callable[[Event], None]

INTERVAL_SECONDS = 1.0
START_SECONDS = 30.0
"""Timeout of the device's first answer: a driver may take long to start."""
SILENCE_SECONDS = 20.0
"""Longest silence of a device: enough to restart a sampler."""
HELD_UP_SECONDS = 3.0
"""Time from a limit until the worker is killed: longer than a stop takes."""


@dataclass(frozen=True, slots=True)
class RunLimit:
    """Reason why a run is ended early. `by` becomes the result's `stopped`."""

    by: str
    """`limit` for too hot, `silent` for a device that does not answer, `unwatched` for an error."""
    title: str
    why: str


def open_stream() -> StreamChild:
    """Return the stream for the supervision."""
    # With `control` it leaves out GPM, which costs the device something.
    return StreamChild(
        StreamOptions(INTERVAL_SECONDS, control=True).command, INTERVAL_SECONDS
    )


def _call_in(
    loop: asyncio.AbstractEventLoop, call: Callable[..., object], *arguments: object
) -> None:
    with contextlib.suppress(
        RuntimeError
    ):  # the loop has ended, and thread or run with it
        loop.call_soon_threadsafe(call, *arguments)


class Supervision(Protocol):
    """Supervises the devices of runs."""

    async def follow(
        self, session: Session, trace: Trace, ending: Ending, take: Take
    ) -> None:
        """Call `take` with the session's events while its device is supervised.

        `trace` receives events and samples, and gives the result its conditions. `ending` is called
        with a limit, which stops the session, or kills it if its event loop is held up.
        """


class Supervisor:
    """The thread and its stream, for all runs under way.

    Create it in a running event loop, which gets its callbacks.
    """

    def __init__(self) -> None:
        self._stream = open_stream()
        self._wards: list[SupervisedRun] = []
        self._wanted = asyncio.Event()
        self._inside, self._executor = asyncio.new_event_loop(), ThreadPoolExecutor(1)
        self._inside.set_default_executor(self._executor)
        self._do = partial(_call_in, self._inside)
        self._tell = partial(_call_in, asyncio.get_running_loop())
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the thread without waiting for it."""
        self._do(self._stop)

    async def follow(
        self, session: Session, trace: Trace, ending: Ending, take: Take
    ) -> None:
        """Call `take` with the session's events while its device is supervised."""
        ward = SupervisedRun(session, trace, ending, self._tell)
        self._do(self._add, ward)
        try:
            await ward.follow(take)
        finally:
            self._do(self._remove, ward)

    # What follows is the thread's.

    def _stop(self) -> None:
        self._reading.cancel()

    def _run(self) -> None:
        self._reading = self._inside.create_task(self._read())
        try:
            with contextlib.suppress(asyncio.CancelledError):
                self._inside.run_until_complete(self._reading)
        finally:  # outside of the task, whose end may not cut it short
            # A Python that ends starts no more threads; the stream then ends as its pipes close.
            with contextlib.suppress(RuntimeError):
                self._inside.run_until_complete(self._stream.close())
            # The loop's own way starts a thread, which may crash a program that is about to end.
            self._executor.shutdown()
            self._inside.close()

    async def _read(self) -> None:
        await self._wanted.wait()
        try:
            await self._take_all()
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody watches any more
            why = f"{type(error).__name__}: {error}"
            for ward in self._wards:
                ward.end(RunLimit(UNWATCHED, "Not watched", why))
            await asyncio.Future()  # until it is cancelled: the wards have timers

    async def _take_all(self) -> None:
        inventory: Inventory | None = None
        async with contextlib.aclosing(self._stream.records()) as records:
            async for record in records:
                if isinstance(record, Inventory):
                    inventory = record
                elif isinstance(record, Sample) and inventory is not None:
                    for ward in self._wards:
                        ward.check_sample(inventory, record)

    def _add(self, ward: SupervisedRun) -> None:
        self._wards.append(ward)
        ward.set_deadline(START_SECONDS)
        self._wanted.set()

    def _remove(self, ward: SupervisedRun) -> None:
        self._wards.remove(ward)
        ward.set_deadline(None)


class SupervisedRun:
    """A run whose device is supervised. The thread calls everything but `follow`."""

    def __init__(
        self,
        session: Session,
        trace: Trace,
        ending: Ending,
        tell: Callable[..., None] = lambda call, *arguments: call(*arguments),
    ) -> None:
        """Set `tell` to a function that calls another one in the session's event loop."""
        self._session, self._trace, self._ending, self._tell = (
            session,
            trace,
            ending,
            tell,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False
        self._stops: list[asyncio.Task[None]] = []

    async def follow(self, take: Take) -> None:
        """Call `take` with the session's events, the result with its conditions from the trace."""
        async with contextlib.aclosing(self._session.events()) as received:
            async for event in received:
                self._trace.add_event(event)
                if isinstance(event, Done):
                    take(Done(self._trace.completed(event.result)))
                else:
                    take(event)
        await asyncio.gather(*self._stops)

    def check_sample(self, inventory: Inventory, sample: Sample) -> None:
        """Check a sample, and end the run if a limit is reached."""
        if self._ended:
            return
        target = self._trace.target
        self._tell(self._trace.add_sample, inventory, sample)
        if why := peaks.reached_limit(target, inventory, sample):
            self.end(RunLimit("limit", "Too hot", why))
            return
        readings = sample.device(target.gpu_uuid or "")
        if readings is None or readings.age_seconds is None:
            return
        if readings.state is DeviceState.OK:
            self.set_deadline(SILENCE_SECONDS)

    def set_deadline(self, seconds: float | None) -> None:
        """End the run unless the device answers within that time; None removes the deadline."""
        if self._timer is not None:
            self._timer.cancel()
        if seconds is not None and self._trace.target.uuid is not None:
            why = f"it did not answer for {seconds:.0f} s"
            limit = RunLimit("silent", "Not watched", why)
            self._timer = asyncio.get_running_loop().call_later(
                seconds, self.end, limit
            )

    def end(self, limit: RunLimit) -> None:
        """End the run, and kill its worker if that takes too long."""
        if self._ended:
            return
        self._ended = True
        self.set_deadline(None)
        self._tell(self._stop, limit)
        kill = self._session.kill
        self._timer = asyncio.get_running_loop().call_later(HELD_UP_SECONDS, kill)

    def _stop(self, limit: RunLimit) -> None:
        self._ending(limit)
        self._stops.append(asyncio.create_task(self._session.stop(limit.by)))


WINDOW_SECONDS, FIRST_SECONDS = 0.2, 2.0
"""Length of a window; in the first seconds half of it."""
STEP_SECONDS = 0.4
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

    async def follow(
        self, session: Session, trace: Trace, ending: Ending, take: Take
    ) -> None:
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

    def __init__(
        self, request: Request, simulation: Simulation, *, waits: bool
    ) -> None:
        super().__init__(request, waits=waits)
        self._simulation, self._go = simulation, asyncio.Event()
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
        yield Planned(
            n, n, n, request.dtype, request.dtype, SIMULATED, SIMULATED, 0.0, SIMULATED
        )
        await self._go.wait()
        products, checks, last, peak = 0.0, 1, 0.0, 0.0
        noise = random.Random(target.uuid)  # noqa: S311 - a picture, not a secret
        with self._simulation.load(target.uuid or "") as load:
            while not (last and self._stopping.is_set()) and last < request.seconds:
                length = WINDOW_SECONDS / (1 + (last < FIRST_SECONDS))
                await asyncio.sleep(min(length, request.seconds - last))
                now = min(time.monotonic() - load.began, request.seconds)
                rate = self._rate(load.at(load.began + (last + now) / 2).sm_clock_mhz)
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
        name, dtype, by = target.name, request.dtype, self._stopped_by or "time"
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
                *(checks - 1, request.kind),
            )
        )

    def _rate(self, clock_mhz: float) -> float:
        chip = (
            model.COMPUTE_CAPABILITY,
            model.SM_COUNT,
            clock_mhz,
            self._request.dtype,
        )
        return SHARE_OF_PEAK * (by_formula(*chip, name=model.NAME) or clock_mhz / 30)
