"""Run the worker from the request to the last event."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import select
import sys
import termios
import threading
import time
from array import array
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

from .backends import Cpu, open_cuda
from .burn import burn
from .collective import collective
from .copies import copy
from .environment import (
    bind_near,
    cublas_version,
    end_with_parent,
    unset_changing,
)
from .errors import RunError, explain, hangs, in_words, not_ready
from .events import (
    NO_SHAPE,
    DeviceRecord,
    Hello,
    Planned,
    Progress,
    RunLimit,
    Verified,
    WorkerDone,
    WorkerFailed,
    to_line,
)
from .guard import Guard
from .loads import pulse, soak
from .memory import memory
from .request import GO, STOP, WorkerRequest
from .shapes import peak, sweep
from .step import step
from .throughput import SoakTotals, TableTotals

HANG_SECONDS = 60.0
"""Time without progress after which a run is stuck, beyond the longest time of its current work."""
PREPARE_SECONDS = 60.0
"""Longest import of torch, perhaps from a network file system, beyond `HANG_SECONDS`."""
WATCH_SECONDS = 0.5
STOP_SECONDS = 0.2
"""Time for the current product to end after a stop, before the process ends."""


class WorkerRun:
    """The state of a run. The first thread that ends the run writes its last event."""

    def __init__(self, fd: int, request: WorkerRequest) -> None:
        self.request = request
        self.halt = threading.Event()
        self.halted_by = "time"
        self.totals: SoakTotals | TableTotals = SoakTotals()
        self.notes: list[str] = []
        """Notes of the result: omitted rows with the reasons, and conclusions from the rows."""
        self.failure: Exception | None = None
        """First error of a row. If the table has no rows, the run fails with it."""
        self._fd = fd
        self._guard: Guard | None = None
        self._go = threading.Event()
        self._line = threading.Lock()
        self._ending = threading.Lock()
        self._stuck = not_ready(request)
        """Error that ends the run if it makes no progress."""
        # The first product may take as long as the run.
        self.working(PREPARE_SECONDS + request.seconds)

    def working(self, longest: float | None = None) -> None:
        """Note progress. `longest` are the seconds of the work from now on; by default as before.

        Every event but those of the guard is progress, too.
        """
        if longest is not None:
            self._longest = longest
        self._due = time.monotonic() + HANG_SECONDS + self._longest

    def send(self, event: object) -> None:
        """Write one of `events.EVENTS`.

        While the parent does not read, samples and readings are dropped before the pipe is full.
        So the last event still fits, and no write blocks.
        """
        line = to_line(event)
        may_drop = isinstance(event, DROPPED)
        if not isinstance(event, DeviceRecord):
            self.working()
        with self._line:
            if may_drop and _unread_bytes(self._fd) > MOST_UNREAD_BYTES:
                return
            while line:
                line = line[os.write(self._fd, line) :]

    def guard(self) -> None:
        """Start the guard: a thread that ends the run if the device gets too hot."""
        folders = self.request.agent_folders
        if folders is None:
            return
        uuid, part_of = self.request.gpu_uuid, self.request.part_of
        self._guard = Guard(uuid, folders, part_of, self.send, self.end_by)
        threading.Thread(
            target=self._guard.run,
            name="guard",
            daemon=True,
        ).start()

    def end_by(self, limit: RunLimit) -> None:
        """End the run by a limit."""
        if not self.halt.is_set():
            self.send(limit)
            self.stop(limit.by)

    def stop(self, by: str) -> NoReturn:
        """End the run after the current product, or after `STOP_SECONDS` if it is a long one."""
        self.halted_by = by
        self.halt.set()
        self._go.set()
        time.sleep(STOP_SECONDS)
        self.end()

    def planned(
        self, shape: tuple[int, int, int] = NO_SHAPE, **fields: Any
    ) -> None:
        """Send the plan and wait for the other devices, if there are any.

        The parent sends `go` to all workers once each is ready or has ended.
        """
        usual = {
            "relative_error": 0.0,
            "expected_seconds": self.request.seconds,
        }
        plan = Planned(*shape, **{**usual, **fields})
        if self.request.waits:
            self.send(replace(plan, waits=True))
            self.working(math.inf)  # the other workers have their own limits
            self._go.wait()
        self._stuck = hangs(self.request)
        self.working(0.0)
        self.send(plan)

    def verified(
        self,
        wrong: int,
        products: int,
        checks: int = 1,
    ) -> None:
        """Count a check of `products` products, and send the totals."""
        self.totals.checks += checks
        self.totals.wrong += wrong
        self.totals.verified += products
        totals = self.totals
        self.send(Verified(totals.checks, totals.wrong, totals.verified))

    def end(self, error: RunError | None = None) -> NoReturn:
        """Write the last event, an error or the measured figures, and end the process at once."""
        # Never released, so a second caller blocks until exit
        self._ending.acquire()
        try:
            self.send(self._last_event(error))
        finally:
            # sys.exit would tear torch down, which takes too long.
            os._exit(0)

    def _last_event(self, error: RunError | None) -> WorkerDone | WorkerFailed:
        totals = self.totals
        if error is not None:
            words = error.kind, error.what, error.why, error.remedy
            return WorkerFailed(*words, totals.checks, totals.wrong)
        return WorkerDone(self.halted_by, totals.figures(), tuple(self.notes))

    @property
    def has_rows(self) -> bool:
        """True if the run is a table that has rows."""
        return isinstance(self.totals, TableTotals) and self.totals.rows > 0

    def fail(self, error: RunError) -> NoReturn:
        """End with an error, or as done with a note if a table has rows and the device is healthy.

        A rank always ends with the error, so that the other ranks do not wait for it.
        """
        if (
            self.has_rows
            and error.kind not in ("hang", "died")
            and not self.request.ranks
        ):
            self.notes.append(f"the run ended early, {in_words(error)}")
            self.end()
        self.end(error)

    def watch(self, received: bytes) -> None:
        """Wait for `stop`, a missed deadline or the parent's end. This is a thread's body."""
        overdue = None
        while not self.halt.is_set():
            if select.select([0], [], [], WATCH_SECONDS)[0]:
                data = os.read(0, 4096)
                if not data:
                    # The parent has ended, so no process reads a last event.
                    os._exit(1)
                received += data
            if STOP in received:
                self.stop("user")
            if GO in received:
                self._go.set()
            late = self._overdue()
            # Act on the second overdue check, in case this process was
            # suspended in between.
            if late is not None and late is overdue:
                if isinstance(late, RunLimit):
                    self.end_by(late)
                else:
                    self.fail(late)
            overdue = late

    def _overdue(self) -> RunError | RunLimit | None:
        """Return the end of a run that is stuck, or whose device does not answer, else None."""
        now = time.monotonic()
        if now > self._due:
            return self._stuck
        if self._guard is not None:
            due, limit = self._guard.answer_due
            if now > due:
                return limit
        return None


DROPPED = (Progress, Verified, DeviceRecord)
"""Events that are dropped while the parent does not read."""
MOST_UNREAD_BYTES = 1 << 15
"""Unread bytes from which events are dropped: half of a pipe's capacity."""


def _unread_bytes(pipe: int) -> int:
    """Return the unread bytes of a pipe, or 0 if it is not a pipe."""
    with contextlib.suppress(OSError):
        unread = array("i", [0])
        fcntl.ioctl(pipe, termios.FIONREAD, unread)
        return unread[0]
    return 0


def own_channel() -> int:
    """Return a private descriptor for events, and redirect torch's prints to standard error."""
    fd = os.dup(1)
    os.dup2(2, 1)
    return fd


def read_request() -> tuple[WorkerRequest, bytes]:
    """Return the request from the first line of standard input, and the bytes after that line."""
    received = b""
    while b"\n" not in received:
        data = os.read(0, 65536)
        if not data:
            os._exit(1)
        received += data
    line, _, rest = received.partition(b"\n")
    return WorkerRequest.from_line(line), rest


_KINDS = (
    soak,
    sweep,
    peak,
    step,
    copy,
    memory,
    pulse,
    burn,
    collective,
)
KINDS: dict[str, Callable[[Any, WorkerRun], None]] = {
    each.__name__: each for each in _KINDS
}


def measure(device: Any, run: WorkerRun) -> None:
    """Run the test. If it has no row because of an error, raise the first error."""
    KINDS[run.request.kind](device, run)
    if run.failure is not None and not run.has_rows:
        raise run.failure


def main() -> NoReturn:
    """Read the request, run it and end the process."""
    end_with_parent()
    fd = own_channel()
    request, rest = read_request()
    run = WorkerRun(fd, request)
    threading.Thread(
        target=run.watch,
        args=(rest,),
        daemon=True,
    ).start()
    run.guard()
    unset = unset_changing()
    device: Any = None
    bound_to = bind_near(request.pci_bus_id) if request.pci_bus_id else None
    try:
        import torch

        if request.device == "cpu":
            device = Cpu(torch, run.halt)
        else:
            device = open_cuda(torch, run.halt, request)
        cuda = device.place == "cuda"
        name = torch.cuda.get_device_name(0) if cuda else request.name
        hello = Hello(
            python=sys.version.split()[0],
            torch_version=str(torch.__version__),
            device_name=name,
            threads=torch.get_num_threads(),
            pid=os.getpid(),
            cuda_version=torch.version.cuda,
            unset=tuple(unset),
            bound_to=bound_to,
            cublas_version=cublas_version(),
        )
        run.send(hello)
        measure(device, run)
    except BaseException as error:  # noqa: BLE001 - reported to the parent
        run.fail(explain(error, device, request))
    run.end()
