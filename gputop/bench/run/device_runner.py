"""The worker of one device: found interpreter, start, events and end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.agent.problem import Problem, ProblemError
from gputop.bench.events import Done, Event, Failed, RunLimit
from gputop.bench.plan import request as plan
from gputop.bench.run.worker_end import (
    ANOTHER_PYTHON,
    NoResultError,
    exit_problem,
    failure,
    garbage,
    no_answer,
    result_of,
    stopped_early,
    with_wrong_elements,
)
from gputop.bench.run.worker_launch import STEP_SECONDS, Launcher, Worker
from gputop.bench.run.worker_order import worker_request
from gputop.bench.worker.events import (
    EVENT_START,
    EVENTS,
    DeviceRecord,
    WorkerDone,
    WorkerFailed,
)
from gputop.bench.worker.request import GO, STOP
from gputop.console import COULD_NOT_RUN
from gputop.schema.decode import decode, from_plain
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.bench.plan.request import Request
    from gputop.bench.run.device_run import DeviceRun

SILENT_SECONDS = 60.0
"""Longest silence of a worker. Its guard sends readings from the start, so only a frozen process is
silent for so long; a worker notices itself that its device hangs."""
STOP_SECONDS = 0.4
"""Time from the stop message to SIGTERM. The worker needs half of it."""
SECOND_LOOK_SECONDS = 0.5
PRINTED_BYTES, PRINTED_CHARACTERS = 1 << 16, 100
"""Most bytes that the interpreter may print before `hello`, and the characters that are shown."""
EVENTS_AT_ONCE, EVENTS_PER_SECOND = 1000, 200
"""Most events of a worker in a burst, and per second. A worker sends far fewer."""


class DeviceRunner:
    """Runs the worker of one device, once. The `DeviceRun` has the state of the run.

    With `waits` the worker prepares, and starts at `begin`, so that several start together.
    """

    def __init__(
        self,
        request: Request,
        device: DeviceRun,
        *,
        waits: bool = False,
        launcher: Launcher | None = None,
    ) -> None:
        self._request, self._device = request, device
        self._launcher = launcher or Launcher()
        self._waits = waits
        self._worker: Worker | None = None
        self._stopping = asyncio.Event()
        self._started_at = 0.0
        self._stopped_by: str | None = None
        self._said_its_last = False
        self._said = 0
        self._printed = ""
        """Start of what the interpreter printed before `hello`."""
        self._printed_bytes = 0

    async def run(self, add: Callable[[Event], object]) -> None:
        """Run the worker. `add` adds each event to the `DeviceRun`.

        The last event is a `Done` or a `Failed`, and comes before the worker has ended. No worker
        is left afterwards.
        """
        try:
            await self._run(add)
        except NoResultError as end:
            failed = Failed(end.problem, end.status)
            verified = self._device.verified
            add(with_wrong_elements(failed, verified))
        except ProblemError as error:
            add(Failed(error.problem, COULD_NOT_RUN))
        finally:
            if self._worker is not None:
                try:
                    if self._said_its_last:  # so it is about to end
                        await self._worker.ended(STOP_SECONDS)
                finally:
                    await self._worker.close()

    async def _run(self, add: Callable[[Event], object]) -> None:
        python = await self._prepared()
        worker = await self._start(python)
        while True:
            line = await self._line(worker)
            if self._device.hello is None:
                line = self._without_output(line)
                if not line:
                    continue
            event = self._event(line, python)
            add(event)
            if isinstance(event, Done | Failed):
                return
            if isinstance(event, RunLimit):
                self._stopped_by = self._stopped_by or event.by
                self._stopping.set()
            self._count()
            # Yield to the event loop; a ready line would not.
            await asyncio.sleep(0)

    def begin(self) -> None:
        """Begin the planned run of a worker that waits."""
        if self._worker is not None:
            self._worker.write(GO)

    async def stop(self, by: str = "user") -> None:
        """End the run, within half a second if the worker responds.

        `by` becomes the result's `stopped`. The first call counts.
        """
        self._stopped_by = self._stopped_by or by
        self._stopping.set()
        worker = self._worker
        if worker is None or worker.status is not None:
            return
        if self._device.hello is not None:
            worker.write(STOP)
            if await worker.ended(STOP_SECONDS):
                return
        for step in (signal.SIGTERM, signal.SIGKILL):
            worker.signal(step)
            if await worker.ended(STEP_SECONDS):
                return

    @property
    def was_stuck(self) -> bool:
        """True if the worker was killed after it had started."""
        killed = self._worker is not None and self._worker.status in (
            None,
            -signal.SIGKILL,
        )
        return killed and self._device.hello is not None

    def kill(self) -> None:
        """Kill the worker without a result, for exits that cannot wait."""
        self._stopped_by = self._stopped_by or "user"
        self._stopping.set()
        if self._worker is not None:
            self._worker.signal(signal.SIGKILL)

    async def _prepared(self) -> str:
        problem = plan.check_request(self._request)
        if problem is not None:
            raise NoResultError(problem)
        finding = asyncio.create_task(
            self._launcher.find_python(self._request)
        )
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait(
                (finding, stopping), return_when=asyncio.FIRST_COMPLETED
            )
            if self._stopping.is_set():
                raise stopped_early(self._stopped_by)
            return await finding
        finally:
            for task in (finding, stopping):
                task.cancel()
            await asyncio.gather(finding, stopping, return_exceptions=True)

    async def _start(self, python: str) -> Worker:
        self._started_at = time.time()
        folders = self._launcher.agent_folders
        asked = worker_request(self._request, folders, waits=self._waits)
        order = asked.to_line()
        self._worker = worker = await self._launcher.start(
            python, self._request, order
        )
        # The stop came while the process was starting.
        if self._stopping.is_set():
            worker.signal(signal.SIGKILL)
        return worker

    async def _line(self, worker: Worker) -> bytes:
        """Return the next line; raise `NoResultError` if it is late, too long, or missing."""
        try:
            line = await self._next_line(worker)
        except TimeoutError:
            raise no_answer(
                self._device, SILENT_SECONDS, self._after_output
            ) from None
        except ValueError:
            raise garbage(b"a line without an end") from None
        if line.endswith(b"\n"):
            return line
        # A line without an end is incomplete. The usual cause is too little
        # memory, which is not a fault of the device.
        if self._stopped_by is not None:
            raise stopped_early(self._stopped_by)
        problem = worker.lost
        if problem is None:
            await worker.ended(STEP_SECONDS)
            errors = await worker.errors()
            problem = exit_problem(
                self._request,
                self._device,
                worker.status,
                errors,
                self._after_output,
            )
        raise NoResultError(problem)

    def _without_output(self, line: bytes) -> bytes:
        """Return the event in a line from before `hello`, or b"" if there is none.

        The interpreter may print something when it starts (by a `sitecustomize`, a `.pth` file, or
        the activation of an environment), also without a newline. Raise `NoResultError` if the
        output is too long.
        """
        output, start, event = line.rpartition(EVENT_START)
        if not start:
            output, event = line, b""
        self._printed_bytes += len(output)
        if self._printed_bytes > PRINTED_BYTES:
            raise garbage(output)
        text = visible(
            output.decode(errors="replace").strip(), PRINTED_CHARACTERS
        )
        self._printed = self._printed or text
        return start + event

    async def _next_line(self, worker: Worker) -> bytes:
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(worker.readline(), SILENT_SECONDS)
        # If this process was suspended, the time is over, but the line may be ready.
        return await asyncio.wait_for(worker.readline(), SECOND_LOOK_SECONDS)

    def _event(self, line: bytes, python: str) -> Event:
        try:
            document = json.loads(line)
            event = from_plain(EVENTS[document["event"]], document)
            if isinstance(event, DeviceRecord):
                return decode(json.dumps(event.record))
            if isinstance(event, WorkerDone):
                self._said_its_last = True
                return Done(
                    result_of(
                        self._with_output(event),
                        self._request,
                        self._device,
                        self._stopped_by,
                        host=self._launcher.host,
                        python=python,
                        started_at=self._started_at,
                    )
                )
            if isinstance(event, WorkerFailed):
                self._said_its_last = True
                return failure(event, self._device, self._stopped_by)
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise garbage(line) from error
        found: Event = event
        return found

    def _count(self) -> None:
        self._said += 1
        seconds = time.time() - self._started_at
        if self._said > EVENTS_AT_ONCE + EVENTS_PER_SECOND * seconds:
            what = "The stress test's worker sends too much"
            why = f"more than {EVENTS_PER_SECOND} events a second"
            raise NoResultError(Problem(what, why, ANOTHER_PYTHON))

    def _with_output(self, done: WorkerDone) -> WorkerDone:
        """Return the end of a run with a note about the interpreter's output."""
        if not self._printed:
            return done
        note = f"the interpreter printed before the run: {self._printed}"
        return replace(done, notes=(*done.notes, note))

    @property
    def _after_output(self) -> str:
        """Output of the interpreter in place of `hello`, as the end of a sentence."""
        if self._device.hello is not None or not self._printed:
            return ""
        return f", after it printed '{self._printed}'"
