"""Several devices under stress whose events are known: what each says, by its number."""

import asyncio
import dataclasses
from collections.abc import AsyncGenerator
from typing import Any

from gputop.bench.events import (
    Conditions,
    Done,
    Failed,
    Hello,
    Planned,
    Point,
    Progress,
    Result,
    Verified,
)
from gputop.bench.plan import target_choice
from gputop.bench.plan.request import Request, Target
from gputop.bench.run.device_run import DeviceRun
from gputop.bench.run.run import Run
from tests.sessions import PLANNED, RESULT, PreparedSession, table_events
from tests.streams import inventory, sample

GPUS = target_choice.targets(inventory(8), sample(8, []))[:8]
PLAN = dataclasses.replace(PLANNED, m=8192, n=8192, k=8192, dtype="bfloat16", rows=0)
SECONDS = 60.0
WINDOW = 0.5


def mean(target: Target) -> float:
    """TFLOP/s: every one a little less than the one before, and the fourth clearly."""
    index = target.index or 0
    return 700.0 - 4 * index - (50 if index == 3 else 0)


def result(target: Target, **changes: Any) -> Result:
    rate = mean(target)
    known: dict[str, Any] = {
        "device": target.name,
        "device_uuid": target.uuid,
        "dtype": "bfloat16",
        "m": 8192,
        "n": 8192,
        "k": 8192,
        "tflops_mean": rate,
        "tflops_peak": 1.08 * rate,
        "droop_percent": 7.5,
        "seconds": SECONDS,
        "conditions": Conditions(
            power_watts_mean=690.0 - (target.index or 0),
            temperature_celsius_max=70 + (target.index or 0),
            sm_clock_mhz_mean=1700.0,
            percent_of_peak={"datasheet dense": rate / 9.9},
        ),
    }
    return dataclasses.replace(RESULT, **(known | changes))


def begun(target: Target, until: float) -> list[Any]:
    found: list[Any] = [Hello("3.11.7", "2.13.0", target.name, 2, 4242), PLAN]
    for n in range(1, int(until / WINDOW) + 1):
        warm = 1 + 0.08 * 0.8**n + 0.004 * ((7 * n) % 5 - 2) / 2
        found.append(Progress(n * WINDOW, WINDOW, 10 * n, mean(target) * warm))
    return [*found, Verified(3, 0)]


def whole(target: Target) -> list[Any]:
    return [*begun(target, SECONDS), Done(result(target))]


def table(kind: str, target: Target) -> list[Any]:
    """A run that is a table: the devices differ, as they do."""
    factor = mean(target) / 700
    *found, last = table_events(kind)
    rows = []
    for n, event in enumerate(found):
        if isinstance(event, Point):
            values = {name: value * factor for name, value in event.values.items()}
            found[n] = dataclasses.replace(event, values=values)
            rows.append(found[n])
    made = {"device": target.name, "device_uuid": target.uuid, "points": tuple(rows)}
    return [*found, Done(dataclasses.replace(last.result, **made))]


def group(count: int, until: float | None = None, kind: str = "soak") -> Run:
    targets = GPUS[:count]
    made = Run([Request(target, "bfloat16", None, SECONDS, kind=kind) for target in targets])
    for target in targets:
        events = whole(target) if until is None else begun(target, until)
        for event in table(kind, target) if made.is_table else events:
            made.add_event(target, event)
    return made


class Scripted(PreparedSession):
    """Says what the script has for its device, and goes on until it is stopped."""

    script: dict[str | None, list[Any]]
    lingers: bool = False
    """True if workers do not end by themselves after they have said their last."""

    def __init__(self, request: Request, device: DeviceRun, *, waits: bool = False) -> None:
        super().__init__(request, device, waits=waits)
        self._target, self._waits = request.target, waits
        self._stopped, self._begun = asyncio.Event(), asyncio.Event()
        self._by = ""

    def begin(self) -> None:
        self._begun.set()

    async def events(self) -> AsyncGenerator[Any]:
        target = self._target
        for event in self.script.get(target.number, whole(target)):
            yield event
            if isinstance(event, Done | Failed):
                if self.lingers:
                    await asyncio.Event().wait()
                return
            if isinstance(event, Planned) and self._waits:
                await self._begun.wait()
            await asyncio.sleep(0)
        await self._stopped.wait()
        yield Done(result(target, stopped=self._by, seconds=5.0))

    async def stop(self, by: str = "user") -> None:
        self._by = by
        self._stopped.set()
