"""The worker of one device: found interpreter, start, events and end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import platform
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop import __version__
from gputop.agent.problem import Problem, ProblemError
from gputop.agent.process_limit import (
    process_limit_problem,
    says_process_limit,
)
from gputop.bench.events import (
    UNWATCHED,
    Done,
    Event,
    Failed,
    Hello,
    Result,
    RunLimit,
    Verified,
)
from gputop.bench.plan import request as plan
from gputop.bench.plan.kinds import KINDS
from gputop.bench.run.worker_launch import STEP_SECONDS, Launcher, Worker
from gputop.bench.run.worker_order import prepare_seconds, worker_request
from gputop.bench.worker.errors import less
from gputop.bench.worker.events import (
    EVENT_START,
    EVENTS,
    DeviceRecord,
    WorkerDone,
    WorkerFailed,
)
from gputop.bench.worker.request import GO, STOP
from gputop.console import (
    COULD_NOT_RUN,
    DEGRADED,
    FAULT,
    INTERRUPTED,
    signal_name,
)
from gputop.schema.decode import decode, from_plain
from gputop.text import count, visible

if TYPE_CHECKING:
    from gputop.bench.plan.request import Request, Target
    from gputop.bench.run.device_run import DeviceRun

HELLO_SECONDS = 60.0
"""Timeout of the worker's start: importing torch over a network may be slow."""
MARGIN_SECONDS = 10.0
STOP_SECONDS = 0.4
"""Time from the stop message to SIGTERM. The worker needs half of it."""
SECOND_LOOK_SECONDS = 0.5
PRINTED_BYTES, PRINTED_CHARACTERS = 1 << 16, 100
"""Most bytes that the interpreter may print before `hello`, and the characters that are shown."""
EVENTS_AT_ONCE, EVENTS_PER_SECOND = 1000, 200
"""Most events of a worker in a burst, and per second. A worker sends far fewer."""


class _NoResultError(ProblemError):
    """The end of a run without a result."""

    def __init__(self, problem: Problem, status: int = COULD_NOT_RUN) -> None:
        super().__init__(problem)
        self.status = status


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
        longest = (
            HELLO_SECONDS + prepare_seconds(request.seconds) + MARGIN_SECONDS
        )
        self._wait_seconds = longest if waits else 0.0
        """Longest time until other workers are ready."""
        self._worker: Worker | None = None
        self._stopping = asyncio.Event()
        self._started_at = 0.0
        self._due = 0.0
        self._silence = HELLO_SECONDS
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
        except _NoResultError as end:
            failed = Failed(end.problem, end.status)
            add(self._judged(failed, self._device.verified))
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
            self._await_next(event)
            self._count()
            # Yield to the event loop; a ready line would not.
            await asyncio.sleep(0)

    def begin(self) -> None:
        """Begin the planned run of a worker that waits."""
        self._wait_seconds = 0.0
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
        self._stopping.set()
        if self._worker is not None:
            self._worker.signal(signal.SIGKILL)

    async def _prepared(self) -> str:
        problem = plan.check_request(self._request)
        if problem is not None:
            raise _NoResultError(problem)
        finding = asyncio.create_task(
            self._launcher.find_python(self._request)
        )
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait(
                (finding, stopping), return_when=asyncio.FIRST_COMPLETED
            )
            if self._stopping.is_set():
                raise _stopped_early(self._stopped_by)
            return await finding
        finally:
            for task in (finding, stopping):
                task.cancel()
            await asyncio.gather(finding, stopping, return_exceptions=True)

    async def _start(self, python: str) -> Worker:
        self._started_at = time.time()
        folders = self._launcher.agent_folders
        asked = worker_request(self._request, self._wait_seconds, folders)
        order = asked.to_line()
        self._worker = worker = await self._launcher.start(
            python, self._request, order
        )
        self._await(HELLO_SECONDS)
        # The stop came while the process was starting.
        if self._stopping.is_set():
            worker.signal(signal.SIGKILL)
        return worker

    async def _line(self, worker: Worker) -> bytes:
        """Return the next line; raise `_NoResultError` if it is late, too long, or missing."""
        try:
            line = await self._next_line(worker)
        except TimeoutError:
            raise self._late() from None
        except ValueError:
            raise _garbage(b"a line without an end") from None
        if line.endswith(b"\n"):
            return line
        # A line without an end is incomplete. The usual cause is too little
        # memory, which is not a fault of the device.
        raise _NoResultError(await self._silent_end(worker), self._status)

    def _late(self) -> _NoResultError:
        """Return the end of a run whose worker has been silent for too long."""
        if self._device.hello is None:
            what = "The stress test's worker did not start"
            why = f"it did not answer within {HELLO_SECONDS:g} s{self._after_output}"
            remedy = "Check that `import torch` works in that Python, or choose another"
            return _NoResultError(Problem(what, why, remedy))
        what = "The stress test's worker did not end in time"
        remedy = "Look for Xid errors in `dmesg`"
        if self._device.planned is None:
            return _NoResultError(Problem(what, "it does not answer", remedy))
        why = f"it sent nothing for {self._silence:.0f} s in the middle of the run"
        return _NoResultError(Problem(what, why, remedy), FAULT)

    def _without_output(self, line: bytes) -> bytes:
        """Return the event in a line from before `hello`, or b"" if there is none.

        The interpreter may print something when it starts (by a `sitecustomize`, a `.pth` file, or
        the activation of an environment), also without a newline. Raise `_NoResultError` if the
        output is too long.
        """
        output, start, event = line.rpartition(EVENT_START)
        if not start:
            output, event = line, b""
        self._printed_bytes += len(output)
        if self._printed_bytes > PRINTED_BYTES:
            raise _garbage(output)
        text = visible(
            output.decode(errors="replace").strip(), PRINTED_CHARACTERS
        )
        self._printed = self._printed or text
        return start + event

    async def _next_line(self, worker: Worker) -> bytes:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._due):
                return await worker.readline()
        # If this process was suspended, the deadline has passed, but the line may be ready.
        return await asyncio.wait_for(worker.readline(), SECOND_LOOK_SECONDS)

    def _await(self, seconds: float) -> None:
        self._silence = seconds
        self._due = asyncio.get_running_loop().time() + seconds

    def _event(self, line: bytes, python: str) -> Event:
        try:
            document = json.loads(line)
            event = from_plain(EVENTS[document["event"]], document)
            if isinstance(event, DeviceRecord):
                return decode(json.dumps(event.record))
            if isinstance(event, WorkerDone):
                self._said_its_last = True
                return Done(self._result(event, python))
            if isinstance(event, WorkerFailed):
                self._said_its_last = True
                return self._failure(event)
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise _garbage(line) from error
        found: Event = event
        return found

    def _count(self) -> None:
        self._said += 1
        seconds = time.time() - self._started_at
        if self._said > EVENTS_AT_ONCE + EVENTS_PER_SECOND * seconds:
            what = "The stress test's worker sends too much"
            why = f"more than {EVENTS_PER_SECOND} events a second"
            raise _NoResultError(
                Problem(what, why, "Choose another interpreter with --python")
            )

    def _await_next(self, event: Event) -> None:
        """Set the deadline of the next event, after this one."""
        planned = self._device.planned
        if isinstance(event, RunLimit):
            self._stopped_by = self._stopped_by or event.by
            self._stopping.set()
        if planned is not None:
            # Longer than the worker's own deadline, because its error is more specific.
            patience = 1.25 * planned.patience_seconds
            self._await(max(patience, self._wait_seconds) + MARGIN_SECONDS)
        elif isinstance(event, Hello):
            preparing = prepare_seconds(self._request.seconds)
            self._await(preparing + MARGIN_SECONDS)

    def _result(self, done: WorkerDone, python: str) -> Result:
        hello, planned = self._device.hello, self._device.planned
        figures, request = done.figures, self._request
        rows = tuple(self._device.rows) or figures.points
        has_rows = KINDS[request.kind].has_rows
        measured = bool(rows) if has_rows else figures.iterations > 0
        if hello is None or planned is None or not measured:
            if self._stopping.is_set():
                raise _stopped_early(self._stopped_by)
            raise ValueError("a result without a run")
        target = request.target
        is_cuda = target.kind == "cuda"
        m, n, k = figures.shape or (planned.m, planned.n, planned.k)
        stopped, notes = done.stopped, done.notes
        if stopped == "user":
            stopped = self._stopped_by or stopped
        if self._printed:
            note = f"the interpreter printed before the run: {self._printed}"
            notes = (*notes, note)
        return Result(
            device=hello.device_name,
            device_uuid=target.uuid,
            device_index=_index(target),
            host=self._launcher.host or platform.node() or None,
            kind=request.kind,
            dtype=planned.dtype,
            m=m,
            n=n,
            k=k,
            accumulate=planned.accumulate,
            layout=planned.layout,
            data=planned.data,
            method=planned.method,
            verify="all" if request.verify_all else "some",
            threads=None if is_cuda else hello.threads,
            started_at=self._started_at,
            stopped=stopped,
            seconds=figures.seconds,
            iterations=figures.iterations,
            checks=figures.checks,
            verified_products=figures.verified_products,
            wrong_elements=figures.wrong_elements,
            mismatches=figures.mismatches,
            tflops_mean=figures.tflops_mean,
            tflops_peak=figures.tflops_peak,
            tflops_device=figures.tflops_device,
            # The windows of the run are judged later.
            tflops_sustained=None,
            droop_percent=None,
            points=rows,
            notes=notes,
            python=python,
            torch_version=hello.torch_version,
            cuda_version=hello.cuda_version if is_cuda else None,
            cublas_version=hello.cublas_version,
            unset=hello.unset,
            bound_to=hello.bound_to,
            gputop_version=__version__,
        )

    @property
    def _after_output(self) -> str:
        """Output of the interpreter in place of `hello`, as the end of a sentence."""
        if self._device.hello is not None or not self._printed:
            return ""
        return f", after it printed '{self._printed}'"

    @property
    def _status(self) -> int:
        if self._stopping.is_set():
            return stop_status(self._stopped_by)
        return COULD_NOT_RUN

    def _failure(self, error: WorkerFailed) -> Failed:
        what, why = visible(error.what), visible(error.why)
        problem = Problem(what, why, visible(error.remedy))
        # Other errors come from gputop, torch or the request.
        failed = error.kind in ("hang", "died", "wrong")
        if says_process_limit(why) and not failed:
            problem = process_limit_problem(what)
        end = Failed(problem, FAULT if failed else self._status)
        verified = self._device.verified
        if error.wrong_elements:
            verified = Verified(error.checks, error.wrong_elements)
        return self._judged(end, verified)

    def _judged(self, failed: Failed, verified: Verified | None) -> Failed:
        """Return the end of a run, with its wrong elements if there were any."""
        if verified is None or not verified.wrong_elements:
            return failed
        wrong = verified.wrong_elements
        elements = "1 element was" if wrong == 1 else f"{wrong} elements were"
        found = f"{elements} wrong in {count(verified.checks, 'check')}"
        if failed.status == FAULT or self._stopping.is_set():
            why = f"{failed.problem.why}; {found}"
            return Failed(replace(failed.problem, why=why), FAULT)
        why = f"{found}, and then the run ended early ({failed.problem.what}: {failed.problem.why})"
        remedy = "Do not train on it; run the test again to be sure"
        return Failed(
            Problem("The device computes wrong results", why, remedy), FAULT
        )

    async def _silent_end(self, worker: Worker) -> Problem:
        if self._stopping.is_set():
            return _stopped_early(self._stopped_by).problem
        if worker.lost is not None:
            return worker.lost
        await worker.ended(STEP_SECONDS)
        errors = await worker.errors()
        what = "The stress test's worker ended without a result"
        status = worker.status
        if status is None:
            return Problem(
                what, "it closed its output", "Try another torch with --python"
            )
        choose = "Check that `import torch` works in that Python, or choose another with --python"
        if status < 0:
            remedy = (
                choose
                if self._device.hello is None
                else "Look for the cause in `dmesg`"
            )
            if -status == signal.SIGKILL:  # nearly always by the OOM killer
                remedy = f"If memory ran out (`dmesg` says so), choose {less(self._request.kind)}"
            return Problem(
                what, f"it was ended by {signal_name(status)}", remedy
            )
        lines = visible(
            errors.decode(errors="replace").strip().replace("\n", "\0")
        )
        last = lines.rpartition("␀")[2].strip()
        if says_process_limit(last):
            return process_limit_problem(what)
        last = f", {last}" if last else self._after_output
        return Problem(what, f"exit status {status}{last}", choose)


def _index(target: Target) -> int | None:
    """Return the index that nvidia-smi shows for a whole GPU of this machine, or None."""
    is_whole = target.kind == "cuda" and target.mig_index is None
    return target.index if is_whole and target.host is None else None


def stop_status(by: str | None) -> int:
    """Return the exit status of a run without a result that was stopped by a limit or the user."""
    if by == UNWATCHED:
        return COULD_NOT_RUN
    return INTERRUPTED if by in (None, "user") else DEGRADED


def _stopped_early(by: str | None) -> _NoResultError:
    what, remedy = (
        "The stress test was stopped",
        "Start it again to have a result",
    )
    status = stop_status(by)
    if status == DEGRADED:
        what = "The stress test was ended by a limit"
        remedy = "Check the device, then start the test again"
    return _NoResultError(
        Problem(what, "no product had been timed yet", remedy), status
    )


def _garbage(line: bytes) -> _NoResultError:
    text = visible(line[:200].decode(errors="replace").strip())
    what = "The stress test's worker sent something that is not an event"
    return _NoResultError(
        Problem(what, text, "Choose another interpreter with --python")
    )
