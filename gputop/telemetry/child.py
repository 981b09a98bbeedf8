"""Reads the stream of a child process: starts it, watches it, and starts it again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Any

from gputop.telemetry.codec import DecodeError
from gputop.telemetry.control import request
from gputop.telemetry.snapshot import (
    DeviceState,
    DriverState,
    Inventory,
    Problem,
    Record,
    Sample,
    decode,
    silence_limit,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST_LINE_BYTES = 64 << 20
START_SECONDS = 10.0
"""How long a child may take to say its first word: an interpreter on a slow file system."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 10.0
"""Between a child's death and its next life; doubled while they are short."""
LONG_LIFE_SECONDS = 10.0
"""What a child that crashes never reaches: its first records come before it asks the driver."""
SECOND_LOOK_SECONDS = 0.5
STEP_SECONDS = 0.5
"""How long each step of ending a child may take: end of file, SIGTERM, SIGKILL."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """The stream broke off, or a part of it could not be read; it goes on by itself."""

    problem: Problem


class StreamError(Exception):
    """No snapshot is to be had; `problem` says it to the user."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def command(
    *,
    interval: float,
    count: int | None = None,
    demo: bool = False,
    gpm: bool = True,
    control: bool = False,
) -> list[str]:
    """The command line of this gputop's own `stream`, whatever is on the PATH."""
    # -P: a file named psutil.py in the working directory is not the one that is meant.
    arguments = [sys.executable, "-P", "-m", "gputop", "stream", "--interval", f"{interval:g}"]
    if count is not None:
        arguments += ["--count", str(count)]
    if demo:
        arguments.append("--demo")
    if control or not gpm:  # who can ask for GPM will do so when it is shown
        arguments.append("--no-gpm")
    return [*arguments, "--control"] if control else arguments


class StreamChild:
    """A child that writes a stream. Its standard input is held open: its end is the child's."""

    def __init__(self, arguments: Sequence[str], interval: float) -> None:
        self._arguments = list(arguments)
        self._limit = _limit(interval)
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = _Tail()
        self._wanted: dict[str, Any] = {}

    def ask(self, **wanted: Any) -> None:
        """Asks the child, which has `--control`, and those after it: `interval`, `gpm`."""
        changed = {name: value for name, value in wanted.items() if self._wanted.get(name) != value}
        self._wanted |= changed
        if "interval" in changed:
            self._limit = _limit(changed["interval"])
        if changed:
            self._send(changed)

    def _send(self, wanted: dict[str, Any]) -> None:
        if self._process is not None and self._process.stdin is not None:
            # One that does not listen is about to be ended, and the next one is told.
            with contextlib.suppress(OSError):
                os.write(self._process.stdin.fileno(), request(**wanted))

    def spawn(self) -> None:
        """Starts the child. Needs no event loop: it can start before the screen does."""
        self._process = subprocess.Popen(
            self._arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl+C in the terminal is for the dashboard
        )
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        if self._wanted:
            self._send(self._wanted)

    async def records(self) -> AsyncGenerator[Record | Interruption]:
        """What the child sends, for ever; an `Interruption` where it has to be started again."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            began = time.monotonic()
            try:
                if self._process is None:
                    self.spawn()
                async with contextlib.aclosing(self._read()) as received:
                    async for record in received:
                        yield record
                why = self._errors.last_line or "it ended"
            except TimeoutError:
                why = "it said nothing for too long"
            except OSError as error:
                why = str(error)
            except ValueError:
                why = f"a line of it is longer than {LONGEST_LINE_BYTES >> 20} MiB"
            await self.close()
            if time.monotonic() - began >= LONG_LIFE_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            yield Interruption(Problem("The sampler stopped", why, "It is being started again"))
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _read(self) -> AsyncGenerator[Record | Interruption]:
        process = self._process
        assert process is not None
        loop = asyncio.get_running_loop()
        self._errors = _Tail()
        reader = asyncio.StreamReader(LONGEST_LINE_BYTES)
        errors, _ = await loop.connect_read_pipe(lambda: self._errors, process.stderr)
        lines, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), process.stdout
        )
        limit = START_SECONDS
        try:
            while line := await _line_within(reader, limit):
                limit = self._limit
                try:
                    yield decode(line)
                except DecodeError as error:
                    what = "A line of the stream cannot be read"
                    yield Interruption(Problem(what, str(error), "It was left out"))
        finally:
            lines.close()
            errors.close()

    async def close(self) -> None:
        """Ends the child within three steps, however it feels about it."""
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout, process.stderr):
            _close(pipe)
        for step in (None, process.terminate, process.kill):
            if step is not None:
                step()
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(process.wait, STEP_SECONDS)
                return


def _limit(interval: float) -> float:
    """How long a child may say nothing between two lines."""
    return silence_limit(interval) + 2.0


async def _line_within(reader: asyncio.StreamReader, seconds: float) -> bytes:
    """The next line, b"" at the end; raises `TimeoutError`.

    Where this process was suspended the time is up at once, and the line is there: a second look.
    """
    try:
        return await asyncio.wait_for(reader.readline(), seconds)
    except TimeoutError:
        return await asyncio.wait_for(reader.readline(), SECOND_LOOK_SECONDS)


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
    def last_line(self) -> str:
        lines = self._data.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


async def one_snapshot(
    *, demo: bool = False, complete: bool = False, timeout_seconds: float = 15.0
) -> tuple[Inventory, Sample]:
    """The first sample with its inventory, once the driver answered or was found to be missing.

    With `complete`, the first in which every device has answered, or does not respond. Raises
    `StreamError` where it does not come in time.
    """
    interval = 0.5
    count = None if complete else 1
    child = StreamChild(command(interval=interval, count=count, demo=demo), interval)
    inventory: Inventory | None = None
    try:
        async with asyncio.timeout(timeout_seconds):
            async with contextlib.aclosing(child.records()) as records:
                async for record in records:
                    if isinstance(record, Interruption):
                        remedy = "Try again, or see what `gputop stream` says"
                        raise StreamError(replace(record.problem, remedy=remedy))
                    if isinstance(record, Inventory):
                        inventory = record
                    elif (
                        inventory
                        and inventory.driver_state is not DriverState.STARTING
                        and not (complete and _waits(record))
                    ):
                        return inventory, record
    except TimeoutError:
        pass
    finally:
        await child.close()
    raise StreamError(
        Problem(
            "The NVIDIA driver does not answer",
            f"it said nothing within {timeout_seconds:g} s",
            "Look for Xid errors in `dmesg`; a reboot may be needed",
        )
    )


def _waits(sample: Sample) -> bool:
    """Whether a device may yet answer for the first time."""
    states = ((each.state, each.age_seconds) for each in sample.devices)
    return any(state is DeviceState.OK and age is None for state, age in states)
