"""Reads the stream of a child process: starts it, watches it, and starts it again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import AsyncGenerator, Iterable
from dataclasses import replace
from signal import SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV, SIGTERM
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol, SupportsIndex

from gputop.bounds import LINE_BYTES, LINES_PER_SECOND, UNREADABLE_LINES
from gputop.exits import signal_name
from gputop.frozen import dataclass
from gputop.problem import Problem
from gputop.schema.codec import DecodeError
from gputop.schema.device import DeviceState, silence_limit
from gputop.schema.snapshot import DriverState, Inventory, NewerSchemaError, Record, Sample, decode
from gputop.stream.control import request
from gputop.stream.launch import command, launch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

START_SECONDS = 10.0
"""How long a child may take to say its first word: an interpreter on a slow file system."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 2.0
"""Between a child's death and its next life; doubled while they are short. A start takes a quarter
of a second of a core: one that crashes at each start uses a tenth of it."""
LONG_LIFE_SECONDS = 10.0
"""What a child that crashes never reaches: its first records come before it asks the driver."""
SECOND_LOOK_SECONDS = 0.5
ANSWER_SECONDS = 15.0
"""How long the driver may take to answer, or be found to be missing."""
STEP_SECONDS = 0.5
"""How long each step of ending a child may take: end of file, SIGTERM, SIGKILL."""
BURST_LINES = 100
"""Lines that may come at once; the rate counts over so many."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """The stream broke off, or a part of it could not be read; it goes on by itself."""

    problem: Problem
    left_out: bool = False
    """Whether it is a line that could not be read, and the child runs on."""
    retry_seconds: float = 0.0
    """Until the child is started again."""
    status: int | None = None
    """The exit status of a child that ended, negative for a signal."""
    errors: str = ""
    """The end of what it wrote to its standard error."""


class Patience(NamedTuple):
    """How long one waits for a child: seconds."""

    start: float
    """For its first record."""
    first_pause: float
    longest_pause: float


class StreamError(Exception):
    """No snapshot is to be had; `problem` says it to the user."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


class StreamChild:
    """A child that writes a stream. Its standard input is held open: its end is the child's."""

    def __init__(
        self,
        arguments: Sequence[str],
        interval: float,
        process: subprocess.Popen[bytes] | None = None,
        patience: Patience | None = None,
    ) -> None:
        """Of one that has been started already with these arguments, `process` is it."""
        self._arguments = list(arguments)
        self._limit = _limit(interval)
        self._process = process
        self._patience = patience or Patience(
            START_SECONDS, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS
        )
        self._spoke = False
        """Whether a record has come of it."""
        self._sent: list[int] = []
        """The signals that it was ended with from here."""
        self._errors = _Tail()
        self._wanted: dict[str, Any] = {}

    def ask(self, **wanted: Any) -> None:
        """Asks the child, which has `--control`, and those after it.

        For `interval`, `gpm`, and to wait for each sample to be acknowledged: `acknowledge`.
        """
        changed = {name: value for name, value in wanted.items() if self._wanted.get(name) != value}
        self._wanted |= changed
        if "interval" in changed:
            self._limit = _limit(changed["interval"])
        if changed:
            self._send(changed)

    def acknowledge(self, record: Record, clock: float) -> None:
        """Tells the child that the record arrived, and the time by our clock."""
        self._send({"received": record.time, "clock": clock})

    def _send(self, wanted: dict[str, Any]) -> None:
        listens = self._process.stdin if self._process is not None else None
        # One that does not listen is about to be ended, or is just being: the next one is told.
        if listens is not None and not listens.closed:
            with contextlib.suppress(OSError):
                os.write(listens.fileno(), request(**wanted))

    def spawn(self) -> None:
        """Starts the child. Needs no event loop: it can start before the screen does."""
        self._process, self._spoke, self._sent = launch(self._arguments), False, []
        if self._wanted:
            self._send(self._wanted)

    async def records(self) -> AsyncGenerator[Record | Interruption]:
        """What the child sends, for ever; an `Interruption` where it has to be started again."""
        pause = self._patience.first_pause
        while True:
            spoke_at: float | None = None
            self._errors = _Tail()
            try:
                if self._process is None:
                    self.spawn()
                async with contextlib.aclosing(self._read()) as received:
                    async for record in received:
                        spoke_at = spoke_at or time.monotonic()
                        yield record
                why = None
            except TimeoutError:
                why = "it said nothing for too long"
            except (OSError, DecodeError) as error:
                why = str(error)
            except ValueError:
                why = f"a line of it is longer than {LINE_BYTES >> 20} MiB"
            process = self._process
            await self.close()
            status = process.returncode if process is not None else None
            if why is None:
                why = self._errors.last_line or "it ended"
                if status is not None and status < 0 and -status not in self._sent:
                    why = f"it was ended by {signal_name(status)}"
            # One that never spoke may have taken long to fail: that is no life.
            if spoke_at is not None and time.monotonic() - spoke_at >= LONG_LIFE_SECONDS:
                pause = self._patience.first_pause
            problem = Problem("The sampler stopped", why, "It is being started again")
            problem = _crash(status) or problem
            yield Interruption(
                problem, retry_seconds=pause, status=status, errors=self._errors.text
            )
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._patience.longest_pause)

    async def _read(self) -> AsyncGenerator[Record | Interruption]:
        process = self._process
        assert process is not None
        loop = asyncio.get_running_loop()
        reader, unreadable = _Lines(LINE_BYTES), 0
        burst, due = 0, loop.time()
        errors, _ = await loop.connect_read_pipe(lambda: self._errors, process.stderr)
        lines, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), process.stdout
        )
        limit = self._patience.start
        try:
            while line := await _line_within(reader, limit):
                try:
                    record = decode(line)
                except NewerSchemaError:
                    raise
                except DecodeError as error:
                    unreadable += 1
                    if unreadable == UNREADABLE_LINES:
                        why = f"it wrote {UNREADABLE_LINES:,} lines in a row that cannot be read"
                        raise DecodeError(f"{why}, the last one: {error}") from None
                    what = "A line of the stream cannot be read"
                    yield Interruption(Problem(what, str(error), "It was left out"), left_out=True)
                else:
                    self._spoke, unreadable = True, 0
                    limit = self._limit  # what a shell says before it is no record
                    yield record
                # A line that is there already lets nothing else, such as a key, have its turn.
                burst = (burst + 1) % BURST_LINES
                await asyncio.sleep(0 if burst else max(0.0, due - loop.time()))
                due = due if burst else loop.time() + BURST_LINES / LINES_PER_SECOND
        finally:
            lines.close()
            errors.close()

    async def close(self) -> None:
        """Ends the child within three steps, however it feels about it."""
        process = self._process
        if process is None:
            return
        for pipe in (process.stdin, process.stdout, process.stderr):
            _close(pipe)
        # One that has not begun does not look at its input yet: an `ssh` that connects.
        first = None if self._spoke else SIGTERM
        for number in (first, SIGTERM, SIGKILL):
            if number is not None and process.poll() is None:
                self._sent.append(number)
                process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(process.wait, STEP_SECONDS)
                break
        # Not before: who is cancelled in the middle of it closes it again, and all is done then.
        self._process = None


_CRASHES = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV}


def _crash(status: int | None) -> Problem | None:
    """What native code did to a child: all that it runs but Python's own is the driver's."""
    if status is None or -status not in _CRASHES:
        return None
    return Problem(
        "The NVIDIA library crashed",
        f"it took the sampler with it ({signal_name(status)})",
        "The sampler is started again. If it goes on, reinstall or update the driver",
        "nvml",
    )


def _limit(interval: float) -> float:
    """How long a child may say nothing between two lines."""
    return silence_limit(interval) + 2.0


class _Lines(asyncio.StreamReader):
    """Counts what it is fed: a line that is still coming, over a slow line, is no silence."""

    pieces = 0

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        self.pieces += 1
        super().feed_data(data)


async def _line_within(reader: _Lines, seconds: float) -> bytes:
    """The next line, b"" at the end; raises `TimeoutError` if nothing comes for that long.

    Where this process was suspended the time is up at once, and the line is there: a second look.
    """
    # Not wait_for: until Python 3.12 it may swallow that its task is cancelled when a line comes.
    before = -1
    while reader.pieces != before:
        before = reader.pieces
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await reader.readline()
    async with asyncio.timeout(SECOND_LOOK_SECONDS):
        return await reader.readline()


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        with contextlib.suppress(OSError):
            pipe.close()


class _Tail(asyncio.Protocol):
    """Keeps the end of what a child writes to its standard error."""

    KEPT_BYTES = 2000

    def __init__(self) -> None:
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data = (self._data + data)[-self.KEPT_BYTES :]

    @property
    def text(self) -> str:
        return self._data.decode(errors="replace").strip()

    @property
    def last_line(self) -> str:
        lines = self.text.splitlines()
        return lines[-1] if lines else ""


class Snapshot(NamedTuple):
    """A sample, and the inventory that holds for it."""

    inventory: Inventory
    sample: Sample


class Stream(Protocol):
    """Where records come from: a child, or what stands for one."""

    def records(self) -> AsyncGenerator[Record | Interruption]: ...

    async def close(self) -> None: ...


def _stopped(interruption: Interruption) -> Problem:
    return replace(interruption.problem, remedy="Try again, or see what `gputop stream` says")


async def snapshots(
    stream: Stream,
    timeout_seconds: float = ANSWER_SECONDS,
    explain: Callable[[Interruption], Problem] = _stopped,
) -> AsyncGenerator[Snapshot | Interruption]:
    """Samples with their inventories, from when the driver answered or was found to be missing.

    Raises `StreamError` where neither happens in time; `explain` says why the stream broke off.
    What breaks off later is yielded. Closes the stream.
    """
    inventory: Inventory | None = None
    begun = False
    try:
        async with asyncio.timeout(timeout_seconds) as limit:
            async with contextlib.aclosing(stream.records()) as records:
                async for record in records:
                    if isinstance(record, Inventory):
                        inventory = record
                    elif isinstance(record, Interruption):
                        if begun:
                            yield record
                        elif not record.left_out:
                            raise StreamError(explain(record))
                    elif inventory and (
                        begun or inventory.driver_state is not DriverState.STARTING
                    ):
                        begun = True
                        limit.reschedule(None)  # before the yield: it is this task's alone
                        yield Snapshot(inventory, record)
    except TimeoutError:
        pass
    finally:
        await stream.close()
    raise StreamError(
        Problem(
            "The NVIDIA driver does not answer",
            f"it said nothing within {timeout_seconds:g} s",
            "Look for Xid errors in `dmesg`; a reboot may be needed",
        )
    )


async def one_snapshot(
    *, demo: bool = False, complete: bool = False, timeout_seconds: float = ANSWER_SECONDS
) -> tuple[Inventory, Sample]:
    """The first of the snapshots; raises `StreamError` where there is none in time.

    With `complete`, the first in which every device has answered, or does not respond.
    """
    interval = 0.5
    count = None if complete else 1
    child = StreamChild(command(interval=interval, count=count, demo=demo), interval)
    async with contextlib.aclosing(snapshots(child, timeout_seconds)) as found:
        async for each in found:
            if isinstance(each, Snapshot) and not (complete and waits(each.sample)):
                return each
    raise AssertionError("the snapshots of a child have no end")


def waits(sample: Sample) -> bool:
    """Whether a device may yet answer for the first time."""
    states = ((each.state, each.age_seconds) for each in sample.devices)
    return any(state is DeviceState.OK and age is None for state, age in states)
