"""Simulated stress tests for `--demo`: their events, and the load of their devices."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Iterator, Mapping
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
from gputop.bench.run.device_runner import DeviceRunner

if TYPE_CHECKING:
    from gputop.agent.snapshot import Inventory, Sample
    from gputop.bench.plan.request import Request
    from gputop.bench.run.device_run import DeviceRun

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
        """Set `celsius`, which returns the current temperature of a device by its UUID.

        `publish` is called with the start and the first temperature of each device under load.
        """
        self._celsius, self._publish = celsius, publish
        self._loads: dict[str, tuple[float, float]] = {}
        self._devices: list[DeviceRun] = []
        """Runs of the devices under load."""

    def runner(
        self, request: Request, device: DeviceRun, *, waits: bool = False
    ) -> SimulatedRunner:
        """Return the runner that simulates a request."""
        return SimulatedRunner(request, device, self, waits=waits)

    @contextlib.contextmanager
    def load(self, device: DeviceRun) -> Iterator[SimulatedLoad]:
        """Put the device of a run under load."""
        uuid = device.request.target.uuid or ""
        self._loads[uuid] = (time.monotonic(), self._celsius(uuid))
        self._devices.append(device)
        self._publish(dict(self._loads))
        try:
            yield SimulatedLoad(*self._loads[uuid])
        finally:
            self._devices.remove(device)
            del self._loads[uuid]
            self._publish(dict(self._loads))

    def add_sample(self, inventory: Inventory, sample: Sample) -> None:
        """Add a sample of the simulated stream to all runs."""
        for device in self._devices:
            device.add_event(inventory)
            device.add_event(sample)


class SimulatedRunner(DeviceRunner):
    """Creates the events of a device itself, as often as a real worker sends them."""

    def __init__(
        self,
        request: Request,
        device: DeviceRun,
        simulation: Simulation,
        *,
        waits: bool,
    ) -> None:
        super().__init__(request, device, waits=waits)
        self._simulation = simulation

    async def run(self, add: Callable[[Event], object]) -> None:
        request, target = self._request, self._request.target
        n = request.size or DTYPES[request.dtype].auto_size
        pid, started_at = model.STRESS_PID + (target.index or 0), time.time()
        await asyncio.sleep(STEP_SECONDS)
        add(Hello(SIMULATED, SIMULATED, target.name, 1, pid))
        await asyncio.sleep(STEP_SECONDS)
        dtype = request.dtype
        plan = Planned(
            n, n, n, dtype, dtype, SIMULATED, SIMULATED, 0.0, SIMULATED
        )
        add(plan)  # all devices are here at the same time
        products, checks, last, peak = 0.0, 1, 0.0, 0.0
        noise = random.Random(target.uuid)  # noqa: S311 - a picture, not a secret
        with self._simulation.load(self._device) as load:
            while (
                not (last and self._stopping.is_set())
                and last < request.seconds
            ):
                length = WINDOW_SECONDS / (1 + (last < FIRST_SECONDS))
                await asyncio.sleep(min(length, request.seconds - last))
                now = min(time.monotonic() - load.began, request.seconds)
                rate = self._rate(
                    load.at(load.began + (last + now) / 2).sm_clock_mhz
                )
                rate *= noise.gauss(1, NOISE)
                peak, products = (
                    max(peak, rate),
                    products + rate * (now - last) * 1e12 / (2 * n**3),
                )
                window = now - last
                add(Progress(now, window, int(products), rate, rate))
                if int(now) > int(last):
                    checks += 1
                    add(Verified(checks, 0, checks - 1))
                last = now
        mean = products * 2 * n**3 / 1e12 / last
        name, by = target.name, self._stopped_by or "time"
        result = Result(
            device=name,
            device_uuid=target.uuid,
            dtype=dtype,
            m=n,
            n=n,
            k=n,
            tflops_mean=mean,
            tflops_peak=peak,
            tflops_sustained=None,
            droop_percent=None,
            tflops_device=mean,
            seconds=last,
            iterations=int(products),
            wrong_elements=0,
            checks=checks,
            stopped=by,
            torch_version=SIMULATED,
            cuda_version=None,
            python=SIMULATED,
            method=SIMULATED,
            started_at=started_at,
            verified_products=checks - 1,
            kind=request.kind,
            device_index=target.index,
        )
        add(Done(result))

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
