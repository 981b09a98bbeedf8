"""Read the stream of a child process: start it, watch it, restart it, and take snapshots of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from signal import SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV, SIGTERM
from typing import Any, NamedTuple

from gputop.agent.device import Absence, DeviceState
from gputop.agent.problem import Problem, ProblemError
from gputop.agent.process_limit import (
    process_limit_problem,
    says_process_limit,
)
from gputop.agent.snapshot import DriverState, Inventory, Record, Sample
from gputop.agent.times import IDENTIFY_SECONDS, silence_limit
from gputop.console import signal_name
from gputop.schema.decode import NewerSchemaError, decode
from gputop.schema.limits import LINE_BYTES, DecodeError
from gputop.stream.launch import StreamOptions, launch
from gputop.stream.pipes import Tail, connected, ends_within, read_within
from gputop.stream.ssh import STARTUP_FILE
from gputop.text import visible

UNREADABLE_LINES = 1000
"""Consecutive unreadable lines after which a child process is ended."""
LINES_PER_SECOND = 500
"""Maximum number of lines per second that are read from a child."""

LONG_LIFE_SECONDS = 10.0
"""Shortest run that resets the restart pause. A child that crashes in the driver ends earlier. Only
a child that sent a record counts as having run, because a failed start can take long."""
STEP_SECONDS = 0.5
"""Seconds for each step of ending a child: end of file, SIGTERM, SIGKILL."""
PRINTED_CHARACTERS = 80
"""Maximum number of characters shown of output before the first record."""
RECORD_STARTS = (b'{"type":"inventory"', b'{"type":"sample"')
PROMPT_SECONDS = 7.0
"""Seconds to wait for a record after a prompt. Nobody can answer the prompt."""
PROMPT_ENDS = b" :?>$#%"
"""Last characters of prompts. The escape sequence of a window's title ends differently."""
CRASHES = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV}
"""Signals of crashes in native code. The only native code besides Python's is the driver's."""


class Interruption(NamedTuple):
    """An interruption of the stream, or an unreadable line. The stream continues by itself."""

    problem: Problem
    left_out: bool = False
    """True for an unreadable line. The child keeps running."""
    retry_seconds: float = 0.0
    status: int | None = None
    """Exit status of the child if it ended, negative for a signal."""
    errors: str = ""
    printed: str = ""
    """Output of a child that sent no record."""


class Patience(NamedTuple):
    """Seconds to wait for a child."""

    start: float = 10.0
    """Wait for the first record. Python may be on a slow file system."""
    first_pause: float = 0.2
    """Wait before a restart, doubled after each short run. A start takes 0.25 s of CPU time, so a
    child that crashes at each start uses a tenth of a core."""
    longest_pause: float = 2.0


class StreamChild:
    """A child process that writes a stream. It ends when its standard input closes."""

    def __init__(
        self,
        arguments: Sequence[str],
        interval: float,
        process: subprocess.Popen[bytes] | None = None,
        patience: Patience = Patience(),  # noqa: B008 - it cannot change
        first_input: bytes = b"",
    ) -> None:
        """Watch a child with these arguments, or `process` if it was started already.

        `first_input` is sent to the child before any request.
        """
        self._arguments = list(arguments)
        self._limit = _limit(interval)
        self._process = process
        self._patience = patience
        self._first_input = first_input
        self._input: asyncio.WriteTransport | None = None
        self._spoke = False
        """True if the child has sent a record."""
        self._sent: list[int] = []
        """Signals that this object sent to end the child."""
        self._errors = Tail()
        self._printed = b""
        """Last line before the first record. It may be incomplete."""
        self._wanted: dict[str, Any] = {}

    @property
    def printed(self) -> str:
        """Last output before the first record, at most `PRINTED_CHARACTERS`; empty after it.

        Over `ssh`, a start-up file of the shell may print such output.
        """
        if self._spoke:
            return ""
        text = self._printed.decode(errors="replace").strip()
        return visible(text[-PRINTED_CHARACTERS:])

    def ask(self, **wanted: Any) -> None:
        """Request settings of the child, started with `--control`, and of its restarts.

        The settings are `interval`, `gpm`, `next` (send the first sample, then one for each
        `ask_next`), and `loads` of simulated devices.
        """
        before = self._wanted
        changed = {k: v for k, v in wanted.items() if before.get(k) != v}
        self._wanted = before | changed
        if "interval" in changed:
            self._limit = _limit(changed["interval"])
        if changed:
            self._send(changed)

    def ask_next(self) -> None:
        """Request the next sample. The setting `next` must be on."""
        self._send({"next": True})

    def _send(self, wanted: dict[str, Any]) -> None:
        # Before the input is connected, do nothing: `_lines` sends all settings then.
        if self._input is not None and not self._input.is_closing():
            self._input.write(json.dumps(wanted).encode() + b"\n")

    def spawn(self) -> None:
        """Start the child. This needs no event loop, so it is possible before the screen starts."""
        self._process = launch(self._arguments)
        self._spoke = False
        self._sent = []
        self._printed = b""

    async def records(self) -> AsyncGenerator[Record | Interruption]:
        """Yield records forever, and an `Interruption` for each bad line and each restart."""
        pause = self._patience.first_pause
        while True:
            began = time.monotonic()
            self._errors = Tail()
            why = None
            try:
                if self._process is None:
                    self.spawn()
                async with contextlib.aclosing(self._read()) as received:
                    async for record in received:
                        yield record
            except TimeoutError:
                why = "it sent nothing for too long"
            except (OSError, DecodeError) as error:
                why = str(error)
                # The decoder's error is more precise than this output.
                self._printed = b""
            process = self._process
            await self.close()
            status = process.returncode if process is not None else None
            if why is None:
                why = self._last_words(status)
            if self._spoke and time.monotonic() - began >= LONG_LIFE_SECONDS:
                pause = self._patience.first_pause
            yield Interruption(
                _stop_problem(why, status),
                retry_seconds=pause,
                status=status,
                errors=self._errors.text,
                printed=self.printed,
            )
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._patience.longest_pause)

    def _last_words(self, status: int | None) -> str:
        """Return the signal that ended the child, or else its last error line."""
        if status is not None and status < 0 and -status not in self._sent:
            return f"it was ended by {signal_name(status)}"
        lines = self._errors.text.splitlines()
        return lines[-1] if lines else "it ended"

    async def _read(self) -> AsyncGenerator[Record | Interruption]:
        unreadable = 0
        async with contextlib.aclosing(self._lines()) as lines:
            async for line in lines:
                try:
                    record = _record_in(line)
                except NewerSchemaError:
                    raise
                except DecodeError as error:
                    unreadable += 1
                    if unreadable == UNREADABLE_LINES:
                        why = f"it wrote {UNREADABLE_LINES:,} lines in a row that cannot be read"
                        raise DecodeError(
                            f"{why}, the last one: {error}"
                        ) from None
                    yield Interruption(self._unreadable(error), left_out=True)
                else:
                    self._spoke = True
                    unreadable = 0
                    yield record
                # Limit the rate, so that many lines cannot block the event loop.
                await asyncio.sleep(1 / LINES_PER_SECOND)

    async def _lines(self) -> AsyncGenerator[bytes]:
        """Send the first input and the current settings, then yield the child's lines."""
        assert self._process is not None
        async with connected(self._process, self._errors) as (
            self._input,
            output,
        ):
            if self._first_input:
                self._input.write(self._first_input)
            if self._wanted:
                self._send(self._wanted)
            start = bytearray()
            while data := await read_within(output, self._silence(start)):
                start += data
                if b"\n" in data:
                    *lines, start = start.split(b"\n")
                    for line in lines:
                        self._note_printed(line)
                        yield bytes(line)
                if len(start) > LINE_BYTES:
                    limit = f"{LINE_BYTES >> 20} MiB"
                    raise DecodeError(f"a line of it is longer than {limit}")
                self._note_printed(start)

    def _silence(self, line: bytearray) -> float:
        """Return how many seconds the child may be silent. `line` is its last, incomplete line."""
        if self._spoke:
            return self._limit
        if line and line[-1] in PROMPT_ENDS:
            return min(PROMPT_SECONDS, self._patience.start)
        return self._patience.start

    def _note_printed(self, line: bytes | bytearray) -> None:
        if not self._spoke and line.strip():
            self._printed = bytes(line[-4 * PRINTED_CHARACTERS :])

    def _unreadable(self, error: DecodeError) -> Problem:
        if self._spoke:
            what = "A line of the stream cannot be read"
            return Problem(what, str(error), "It was left out")
        why = f"'{self.printed}' was printed first"
        return Problem("No reading has come yet", why, STARTUP_FILE)

    async def close(self) -> None:
        """End the child in three steps: close its pipes, send SIGTERM, send SIGKILL."""
        process = self._process
        if process is None:
            return
        self._input = None
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        # A child without a record, such as a connecting `ssh`, may not read its input yet.
        first = None if self._spoke else SIGTERM
        for number in (first, SIGTERM, SIGKILL):
            if number is not None and process.poll() is None:
                self._sent.append(number)
                process.send_signal(number)
            if await ends_within(process, STEP_SECONDS):
                break
        # Only now: after a cancelled call, the next call must still end the process.
        self._process = None


def _record_in(line: bytes) -> Record:
    """Return the record of a line. Text without a newline may precede the record.

    For example, a shell's start-up file may print the escape sequence of a window's title. Raises
    `DecodeError`.
    """
    try:
        return decode(line)
    except NewerSchemaError:
        raise
    except DecodeError:
        start = max(map(line.rfind, RECORD_STARTS))
        if start <= 0:
            raise
    return decode(line[start:])


def _stop_problem(why: str, status: int | None) -> Problem:
    """Return the problem of an ended child, based on the reason `why` and the exit status."""
    what = "The sampler stopped"
    if says_process_limit(why):
        return process_limit_problem(what)
    if status is not None and -status in CRASHES:
        return Problem(
            "The NVIDIA library crashed",
            f"the sampler ended with it ({signal_name(status)})",
            "The sampler restarts. If this repeats, reinstall or update the driver",
            "nvml",
        )
    return Problem(what, why, "gputop is restarting it")


def _limit(interval: float) -> float:
    """Return the seconds that a child may be silent."""
    return silence_limit(interval) + 2.0


MOST_SNAPSHOTS = 4
"""Maximum number of snapshots to take for values that need two readings. At an interval of 0.5 s,
the third snapshot has the rates of counters, which are read every 0.8 s."""
ANSWER_SECONDS = 15.0
"""Seconds to wait for the driver to answer, or for the error that it is missing."""


class StreamError(ProblemError):
    """No snapshot is available."""


class Snapshot(NamedTuple):
    """A sample, and the inventory that holds for it."""

    inventory: Inventory
    sample: Sample

    @property
    def problem(self) -> Problem | None:
        """The problem of the inventory, or else of the sample."""
        return self.inventory.problem or self.sample.problem


def _stopped(interruption: Interruption) -> Problem:
    problem = interruption.problem
    if says_process_limit(problem.why):
        return problem
    return replace(
        problem, remedy="Try again, or see what `gputop stream` says"
    )


async def snapshots(
    stream: StreamChild,
    timeout_seconds: float = ANSWER_SECONDS,
    explain: Callable[[Interruption], Problem] = _stopped,
) -> AsyncGenerator[Snapshot | Interruption]:
    """Yield snapshots, starting when the driver has answered or is known to be missing.

    Raises `StreamError` if that takes too long, or if the stream ends before; `explain` returns the
    reason. Later interruptions are yielded. Closes the stream at the end.
    """
    inventory: Inventory | None = None
    deadline: float | None = (
        asyncio.get_running_loop().time() + timeout_seconds
    )
    try:
        async with contextlib.aclosing(stream.records()) as records:
            while True:
                # A timeout belongs to one task, so it must not span the yield.
                async with asyncio.timeout_at(deadline):
                    record = await anext(records)
                if isinstance(record, Inventory):
                    inventory = record
                    continue
                if isinstance(record, Interruption):
                    if deadline is None:
                        yield record
                    elif not record.left_out:
                        raise StreamError(explain(record))
                    continue
                if inventory is None:
                    continue
                if inventory.driver_state is not DriverState.STARTING:
                    deadline = None
                if deadline is None:
                    yield Snapshot(inventory, record)
    except TimeoutError:
        pass
    finally:
        await stream.close()
    raise StreamError(
        Problem(
            "The NVIDIA driver does not answer",
            f"it sent nothing within {timeout_seconds:g} s",
            "Look for Xid errors in `dmesg`; the machine may need a reboot",
        )
    )


async def one_snapshot(
    *,
    complete: bool = False,
    timeout_seconds: float = ANSWER_SECONDS,
    identified: bool = False,
) -> Snapshot:
    """Return the first snapshot of a new sampler. Raises `StreamError` if it takes too long."""
    options = StreamOptions(0.5)
    child = StreamChild(options.command, options.interval)
    found = snapshots(child, timeout_seconds)
    return await first_snapshot(
        found, complete=complete, identified=identified
    )


def awaits_identity(inventory: Inventory) -> bool:
    """Return True if a device has not been identified yet."""
    return any(
        d.absent.get("uuid") is Absence.NO_DATA_YET for d in inventory.devices
    )


def awaits_answer(sample: Sample) -> bool:
    """Return True if a device has neither answered yet nor been silent for too long."""
    for device in sample.devices:
        if device.state is DeviceState.OK and device.age_seconds is None:
            return True
    return False


async def first_snapshot(
    found: AsyncGenerator[Snapshot | Interruption],
    *,
    complete: bool = False,
    identified: bool = False,
    waits: Callable[[Snapshot], bool] = lambda _: False,
) -> Snapshot:
    """Return the first of these snapshots, and close their stream.

    With `complete`, wait until each device has answered or is known not to respond. With
    `identified`, wait for the UUIDs, at most `IDENTIFY_SECONDS`. While `waits` returns true for a
    snapshot, take another one, up to `MOST_SNAPSHOTS`.
    """
    end = time.monotonic() + IDENTIFY_SECONDS if identified else 0.0
    seen: Snapshot | None = None
    taken = 0
    async with contextlib.aclosing(found):
        async for each in found:
            if isinstance(each, Interruption):
                if seen is not None:
                    break
                continue
            if complete and awaits_answer(each.sample):
                continue
            if time.monotonic() < end and awaits_identity(each.inventory):
                continue
            seen = each
            taken += 1
            if taken == MOST_SNAPSHOTS or not waits(each):
                break
    # A stream without a snapshot raises `StreamError`.
    assert seen is not None
    return seen
