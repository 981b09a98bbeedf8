"""The real worker on the fake CUDA, and what its parent makes of it."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from gputop.bench.events import Done, Event, Failed, Planned, Point, Progress, Result, Verified
from gputop.bench.plan import target_choice
from gputop.bench.plan.request import Request, Target
from gputop.bench.run.run import Run
from gputop.bench.run.runner import Runner
from tests.bench.workers import broken_worker, fake_interpreter
from tests.fake_cuda.settings import Fault, Settings
from tests.sessions import Session
from tests.streams import device

ROOT = Path(__file__).parents[2]
GIB = 1 << 30
MACHINE = Settings(memory_gib=4)
"""A GPU whose memory the host has."""
SMALL = (
    "step.BLOCKS, burn.COPIED_BYTES['cuda'] = step.SCALED, 1 << 20\n"
    "backends.Cuda.rest_seconds = 0.0\n"
)
"""Work that a CPU can do: the blocks of `step` for CPUs, small copies of `burn`, and no pause."""


def with_faults(*faults: Fault, settings: Settings = MACHINE) -> Settings:
    return replace(settings, faults=faults)


def fake_cuda(settings: Settings, fault: str = "") -> str:
    """Return a fault of `broken_worker` that gives the worker a fake CUDA, before another fault."""
    return (
        f"import os, sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        f"os.environ.update({settings.environment()!r})\n"
        f"from tests.fake_cuda import install\ninstall.install()\n{SMALL}{fault}"
    )


def target(settings: Settings = MACHINE, number: int = 0) -> Target:
    """Return a GPU as NVML would describe it."""
    uuid, free = device(number).uuid, int(settings.memory_gib * GIB)
    return Target("cuda", uuid, number, settings.name, settings.capability, free)


@dataclass(frozen=True)
class Heard:
    events: list[Event] = field(default_factory=list)

    @property
    def last(self) -> Event:
        return self.events[-1]

    @property
    def result(self) -> Result:
        assert isinstance(self.last, Done), self.last
        return self.last.result

    @property
    def failed(self) -> Failed:
        assert isinstance(self.last, Failed), self.last
        return self.last

    @property
    def plan(self) -> Planned:
        return next(event for event in self.events if isinstance(event, Planned))

    @property
    def samples(self) -> list[Progress]:
        return [event for event in self.events if isinstance(event, Progress)]

    @property
    def rows(self) -> list[Point]:
        return [event for event in self.events if isinstance(event, Point)]

    def series(self) -> list[str]:
        """Return the names of the rows, each once."""
        return list(dict.fromkeys(row.series for row in self.rows))


async def together(requests: list[Request]) -> list[Heard]:
    heard = {request.target: Heard() for request in requests}

    def take(which: Target, event: Event) -> None:
        heard[which].events.append(event)

    async with asyncio.timeout(100):
        await Runner(Run(target_choice.with_peers(requests))).follow(take)
    return list(heard.values())


class Runs:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def request(
        self,
        kind: str,
        dtype: str = "bfloat16",
        size: int | None = None,
        seconds: float = 0.5,
        *,
        settings: Settings = MACHINE,
        fault: str = "",
        number: int = 0,
    ) -> Request:
        """Return a request for the worker on a fake CUDA. Data types are separated by commas."""
        python = fake_interpreter(self._folder, broken_worker(fake_cuda(settings, fault)))
        dtypes = dtype.split(",")
        asked = Request(target(settings, number), dtypes[0], size, seconds, python, kind)
        return replace(asked, further_dtypes=tuple(dtypes[1:]))

    async def run(
        self,
        kind: str = "soak",
        dtype: str = "bfloat16",
        size: int | None = 256,
        seconds: float = 0.5,
        *,
        settings: Settings = MACHINE,
        fault: str = "",
        hear: Callable[[Event, Session], None] | None = None,
        **changes: object,
    ) -> Heard:
        """Run it to its end. `hear` is called with each event; `changes` are of the request."""
        asked = self.request(kind, dtype, size, seconds, settings=settings, fault=fault)
        session = Session(replace(asked, **changes))  # type: ignore[arg-type]
        heard = Heard()
        async with asyncio.timeout(100), contextlib.aclosing(session.events()) as events:
            async for event in events:
                heard.events.append(event)
                if hear is not None:
                    hear(event, session)
        return heard

    async def together(
        self,
        kind: str,
        count: int,
        seconds: float,
        *,
        settings: Settings = MACHINE,
        fault: str = "",
    ) -> list[Heard]:
        requests = [
            self.request(kind, seconds=seconds, settings=settings, fault=fault, number=number)
            for number in range(count)
        ]
        return await together(requests)


def in_the_middle(
    file: Path, until: Callable[[Verified], bool] | None = None
) -> Callable[[Event, Session], None]:
    """Let the faults of that file happen from the first sample or row on.

    The run is stopped once `until` is true of a check. The first three checks after the faults
    began do not count: their products may be older.
    """
    stops: list[asyncio.Task[None]] = []
    checks = 0

    def hear(event: Event, session: Session) -> None:
        nonlocal checks
        if isinstance(event, Progress | Point):
            file.touch()
        if until is None or stops or not isinstance(event, Verified) or not file.exists():
            return
        checks += 1
        if checks > 3 and until(event):
            stops.append(asyncio.create_task(session.stop()))

    return hear


def is_wrong(check: Verified) -> bool:
    return check.wrong_elements > 0


def from_the_plan_on(file: Path) -> str:
    """Return a fault by which the faults of that file happen once the plan was sent."""
    return f"""
from pathlib import Path
send_plan = main.WorkerRun.planned
def planned(self, *arguments, **options):
    send_plan(self, *arguments, **options)
    Path({str(file)!r}).touch()
main.WorkerRun.planned = planned
"""
