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
from gputop.agent.process_limit import process_limit_problem, says_process_limit
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
"""Lines per second of a child process; one that writes more has to wait."""

LONG_LIFE_SECONDS = 10.0
"""Seconds that a crashing child never lives: its first records come before it asks the driver. One
that sent no record does not count, as it may have taken long to fail."""
STEP_SECONDS = 0.5
"""Seconds for each step of ending a child: end of file, SIGTERM, SIGKILL."""
PRINTED_CHARACTERS = 80
"""Characters that are shown of what was printed before the first record."""
RECORD_STARTS = (b'{"type":"inventory"', b'{"type":"sample"')
PROMPT_SECONDS = 7.0
"""Seconds without a record after a prompt, which waits for an answer that never comes."""
PROMPT_ENDS = b" :?>$#%"
"""Last characters of prompts. What sets the title of a window ends otherwise."""
CRASHES = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV}
"""Signals that native code ends with. It is the driver's, except for Python's own."""


class Interruption(NamedTuple):
    """A break of the stream, or an unreadable line of it. The stream continues by itself."""

    problem: Problem
    left_out: bool = False
    """True for an unreadable line, after which the child runs on."""
    retry_seconds: float = 0.0
    status: int | None = None
    """Exit status of a child that ended, negative for a signal."""
    errors: str = ""
    printed: str = ""
    """What came in place of the first record, if that never came."""


class Patience(NamedTuple):
    """Seconds to wait for a child."""

    start: float = 10.0
    """Wait for its first record: it may be an interpreter on a slow file system."""
    first_pause: float = 0.2
    """Wait between its end and its restart, doubled while its lives are short. A start takes a
    quarter of a second of a core: a child that crashes at each start uses a tenth of it."""
    longest_pause: float = 2.0


class StreamChild:
    """A child that writes a stream. It ends when its standard input, held open here, closes."""

    def __init__(
        self,
        arguments: Sequence[str],
        interval: float,
        process: subprocess.Popen[bytes] | None = None,
        patience: Patience = Patience(),  # noqa: B008 - it cannot change
        first_input: bytes = b"",
    ) -> None:
        """Watch a child with these arguments; `process` is one that was started already.

        `first_input` is what the child reads before requests.
        """
        self._arguments = list(arguments)
        self._limit = _limit(interval)
        self._process = process
        self._patience = patience
        self._first_input = first_input
        self._input: asyncio.WriteTransport | None = None
        self._spoke = False
        """True if it has sent a record."""
        self._sent: list[int] = []
        """Signals that were sent from here to end it."""
        self._errors = Tail()
        self._printed = b""
        """Last line before the first record, perhaps without its end."""
        self._wanted: dict[str, Any] = {}

    @property
    def printed(self) -> str:
        """What came before the first record, at most `PRINTED_CHARACTERS`; empty once that is here.

        Over `ssh`, that is what a start-up file of the shell prints.
        """
        if self._spoke:
            return ""
        text = self._printed.decode(errors="replace").strip()
        return visible(text[-PRINTED_CHARACTERS:])

    def ask(self, **wanted: Any) -> None:
        """Request settings of the child, which has `--control`, and of its successors.

        They are `interval`, `gpm`, `next`, which lets it send only samples that were asked for with
        `ask_next`, except for the first, and the `loads` of simulated devices.
        """
        before = self._wanted
        changed = {k: v for k, v in wanted.items() if before.get(k) != v}
        self._wanted = before | changed
        if "interval" in changed:
            self._limit = _limit(changed["interval"])
        if changed:
            self._send(changed)

    def ask_next(self) -> None:
        """Request the next sample of a child that was asked for `next`."""
        self._send({"next": True})

    def _send(self, wanted: dict[str, Any]) -> None:
        # Without an input, it is sent once the child has one.
        if self._input is not None and not self._input.is_closing():
            self._input.write(json.dumps(wanted).encode() + b"\n")

    def spawn(self) -> None:
        """Start the child. This needs no event loop, so it can start before the screen."""
        self._process = launch(self._arguments)
        self._spoke = False
        self._sent = []
        self._printed = b""

    async def records(self) -> AsyncGenerator[Record | Interruption]:
        """Yield what the child sends, forever, and an `Interruption` whenever it is restarted."""
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
                why = "it said nothing for too long"
            except (OSError, DecodeError) as error:
                why = str(error)
                self._printed = b""  # the error says more
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
        """Return why the child ended by itself."""
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
                        raise DecodeError(f"{why}, the last one: {error}") from None
                    yield Interruption(self._unreadable(error), left_out=True)
                else:
                    self._spoke = True
                    unreadable = 0
                    yield record
                # A flood of lines must not keep the event loop from anything else.
                await asyncio.sleep(1 / LINES_PER_SECOND)

    async def _lines(self) -> AsyncGenerator[bytes]:
        """Yield the lines of the child, which gets its first input and the requests so far."""
        assert self._process is not None
        async with connected(self._process, self._errors) as (self._input, output):
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
        """Return the seconds that the child may be silent now, after the start of a line."""
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
        """End the child within three steps, whatever it does."""
        process = self._process
        if process is None:
            return
        self._input = None
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        # A child that has not begun, such as a connecting `ssh`, does not read its input yet.
        first = None if self._spoke else SIGTERM
        for number in (first, SIGTERM, SIGKILL):
            if number is not None and process.poll() is None:
                self._sent.append(number)
                process.send_signal(number)
            if await ends_within(process, STEP_SECONDS):
                break
        # Not before: a caller that is cancelled in the middle calls this again.
        self._process = None


def _record_in(line: bytes) -> Record:
    """Return the record of a line, also behind text that was printed without a newline.

    A start-up file of a shell may print the sequence that sets a window's title. Raises
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
    """Return why a child ended, from its last words and its exit status."""
    what = "The sampler stopped"
    if says_process_limit(why):
        return process_limit_problem(what)
    if status is not None and -status in CRASHES:
        return Problem(
            "The NVIDIA library crashed",
            f"it took the sampler with it ({signal_name(status)})",
            "The sampler is started again. If it goes on, reinstall or update the driver",
            "nvml",
        )
    return Problem(what, why, "It is being started again")


def _limit(interval: float) -> float:
    """Return the seconds that a child may be silent."""
    return silence_limit(interval) + 2.0


MOST_SNAPSHOTS = 4
"""Most snapshots that are taken for values that need two readings. Half a second apart, the third
has the rates of counters, which are read every 0.8 s."""
ANSWER_SECONDS = 15.0
"""Seconds for the driver to answer, or be found missing."""


class StreamError(ProblemError):
    """No snapshot is available."""


class Snapshot(NamedTuple):
    """A sample, and the inventory that holds for it."""

    inventory: Inventory
    sample: Sample

    @property
    def problem(self) -> Problem | None:
        """The problem of the driver, or else what was left out of the sample."""
        return self.inventory.problem or self.sample.problem


def _stopped(interruption: Interruption) -> Problem:
    problem = interruption.problem
    if says_process_limit(problem.why):
        return problem
    return replace(problem, remedy="Try again, or see what `gputop stream` says")


async def snapshots(
    stream: StreamChild,
    timeout_seconds: float = ANSWER_SECONDS,
    explain: Callable[[Interruption], Problem] = _stopped,
) -> AsyncGenerator[Snapshot | Interruption]:
    """Yield samples with their inventories, from when the driver answered or was found missing.

    Raises `StreamError` if neither happens in time, or the stream breaks off before; `explain`
    says why it broke off. Later interruptions are yielded. Closes the stream.
    """
    inventory: Inventory | None = None
    deadline: float | None = asyncio.get_running_loop().time() + timeout_seconds
    try:
        async with contextlib.aclosing(stream.records()) as records:
            while True:
                # Not around the yield: a time limit is for one task.
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
            f"it said nothing within {timeout_seconds:g} s",
            "Look for Xid errors in `dmesg`; the machine may need a reboot",
        )
    )


async def one_snapshot(
    *,
    complete: bool = False,
    timeout_seconds: float = ANSWER_SECONDS,
    identified: bool = False,
) -> Snapshot:
    """Return the first snapshot of a new sampler. Raises `StreamError` if there is none in time.

    With `complete`, the first in which every device has answered, or does not respond. With
    `identified`, the first in which the UUIDs are known, or `IDENTIFY_SECONDS` are over.
    """
    options = StreamOptions(0.5)
    child = StreamChild(options.command, options.interval)
    return await first_snapshot(
        child, timeout_seconds, complete=complete, identified=identified
    )


def awaits_identity(inventory: Inventory) -> bool:
    """Return True if a device has not been identified yet."""
    return any(d.absent.get("uuid") is Absence.NO_DATA_YET for d in inventory.devices)


async def first_snapshot(
    stream: StreamChild,
    timeout_seconds: float,
    explain: Callable[[Interruption], Problem] = _stopped,
    *,
    complete: bool,
    identified: bool = False,
    waits: Callable[[Snapshot], bool] = lambda _: False,
) -> Snapshot:
    """Return the first of `snapshots` that is `complete` and `identified`, as `one_snapshot`.

    While `waits` is true for it, a later one is returned, up to the `MOST_SNAPSHOTS`th.
    """
    end = time.monotonic() + IDENTIFY_SECONDS if identified else 0.0
    seen: Snapshot | None = None
    taken = 0
    async with contextlib.aclosing(
        snapshots(stream, timeout_seconds, explain)
    ) as found:
        async for each in found:
            if isinstance(each, Interruption):
                if seen is not None:
                    return seen
                continue
            devices = each.sample.devices
            missing = any(
                d.state is DeviceState.OK and d.age_seconds is None for d in devices
            )
            unidentified = time.monotonic() < end and awaits_identity(each.inventory)
            if (complete and missing) or unidentified:
                continue
            seen = each
            taken += 1
            if taken == MOST_SNAPSHOTS or not waits(each):
                return each
    raise AssertionError("the snapshots of a child have no end")
