import asyncio
import contextlib
import errno
import gc
import itertools
import os
import resource
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from gputop.agent.device import Absence, Device
from gputop.agent.lines import to_line
from gputop.agent.problem import Problem
from gputop.agent.process_limit import process_limit_problem, says_process_limit
from gputop.agent.snapshot import DriverState, Host, Inventory, Record, Sample, Source
from gputop.agent.times import silence_limit
from gputop.stream import child as module
from gputop.stream.child import (
    Interruption,
    Patience,
    Snapshot,
    StreamChild,
    StreamError,
    first_snapshot,
    one_snapshot,
    snapshots,
)
from gputop.stream.launch import StreamOptions, launch
from tests.streams import PreparedStream

BOUND = 60.0
"""Seconds after which something that a test waits for counts as hung."""
INVENTORY = Inventory(1.0, "host", Source.NVML, DriverState.OK, 1.0)
STARTING = replace(INVENTORY, driver_state=DriverState.STARTING)
SAMPLE = Sample(2.0, Host())

PRELUDE = f"""
import os, signal, sys
def say(text): os.write(1, text.encode() + b"\\n")
def until_the_end(): sys.stdin.read()
INVENTORY, SAMPLE = {to_line(INVENTORY)!r}, {to_line(SAMPLE)!r}
"""


Spawn = Callable[..., StreamChild]
Received = Record | Interruption


def arguments(program: str) -> list[str]:
    return [sys.executable, "-c", f"{PRELUDE}\n{program}"]


@pytest.fixture
async def spawn() -> AsyncIterator[Spawn]:
    """Makes children of small programs; afterwards none of them is left."""
    children: list[StreamChild] = []

    def make(program: str, interval: float = 1.0) -> StreamChild:
        children.append(StreamChild(arguments(program), interval))
        return children[-1]

    yield make
    for child in children:
        await child.close()


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between a child's lives, which are not waited for."""
    seconds: list[float] = []
    usual = asyncio.sleep

    async def sleep(delay: float) -> None:
        if delay >= 0.1:  # else it only gives way
            seconds.append(delay)
        await usual(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return seconds


async def first(child: StreamChild, number: int) -> list[Received]:
    received: list[Received] = []
    async with asyncio.timeout(BOUND), contextlib.aclosing(child.records()) as records:
        async for record in records:
            received.append(record)
            if len(received) == number:
                break
    return received


def pid_of(child: StreamChild) -> int:
    assert child._process is not None
    return child._process.pid


def why(received: Received) -> str:
    assert isinstance(received, Interruption)
    assert received.problem.what == "The sampler stopped"
    return received.problem.why


async def test_a_killed_child_is_started_again_and_told_again(
    spawn: Spawn, pauses: list[float]
) -> None:
    child = spawn("say(INVENTORY if '0.25' in sys.stdin.readline() else SAMPLE); until_the_end()")
    child.ask(interval=0.25)
    async with asyncio.timeout(BOUND), contextlib.aclosing(child.records()) as records:
        assert await anext(records) == INVENTORY
        pid = pid_of(child)
        os.kill(pid, signal.SIGKILL)
        assert why(await anext(records)) == "it was ended by SIGKILL"
        assert await anext(records) == INVENTORY
        assert pid_of(child) != pid
    assert pauses == [Patience().first_pause]


async def test_lines_that_cannot_be_read_are_left_out(spawn: Spawn) -> None:
    program = """
say(INVENTORY)
say("garbage"); os.write(1, b"\\xff\\0\\n"); say('{"type":"sample"}'); say("")
say(SAMPLE)
until_the_end()
"""
    inventory, *broken, sample = await first(spawn(program), 6)
    assert (inventory, sample) == (INVENTORY, SAMPLE)
    for each in broken:
        assert isinstance(each, Interruption)
        assert each.problem.what == "A line of the stream cannot be read"
    assert isinstance(broken[2], Interruption)
    assert broken[2].problem.why == "Object missing required field `time`"


async def test_a_child_that_writes_only_what_cannot_be_read_is_ended(spawn: Spawn) -> None:
    program = "say(INVENTORY); os.write(1, b'x\\n' * 1000); until_the_end()"
    *_, last, end = await first(spawn(program), 1001)
    assert isinstance(last, Interruption)
    assert last.left_out
    assert why(end).startswith("it wrote 1,000 lines in a row that cannot be read, the last one: ")


@pytest.mark.parametrize(("seconds", "expected"), [(9.9, [0.2, 0.4]), (10.0, [0.2, 0.2])])
async def test_a_long_life_makes_the_next_pause_short_again(
    spawn: Spawn,
    pauses: list[float],
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    expected: list[float],
) -> None:
    clock = itertools.count(0.0, seconds)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    await first(spawn("say(SAMPLE)"), 6)
    assert pauses == expected


@pytest.mark.parametrize(
    "printed", [b"\x1b]0;ada@gpu-1: ~\x07", b"$", b"\xff\x00", b'{"type":"sample",{"type":"motd"}']
)
async def test_a_record_is_found_behind_what_was_printed_without_a_newline(
    spawn: Spawn, printed: bytes
) -> None:
    """Also later: a job that a start-up file left in the background may print at any time."""
    program = f"os.write(1, {printed!r}); say(INVENTORY); os.write(1, {printed!r}); say(SAMPLE)"
    assert await first(spawn(program), 2) == [INVENTORY, SAMPLE]


async def test_what_is_printed_before_the_first_record_is_shown(spawn: Spawn) -> None:
    child = spawn(
        "say('Welcome'); say('\\x1b[1mChoose:'); os.write(1, b'y' * 99 + b'> '); sys.exit()"
    )
    *lines, end = await first(child, 3)
    for line in lines:
        assert isinstance(line, Interruption)
        assert line.left_out
        assert "was printed first" in line.problem.why
    assert isinstance(end, Interruption)
    assert end.printed == child.printed == "y" * 79 + ">", "the end of the last line"


@pytest.mark.parametrize("printed", ["", "os.write(1, b'Choose: '); "])
async def test_a_child_that_never_says_a_word(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch, printed: str
) -> None:
    monkeypatch.setattr(module, "PROMPT_SECONDS", 0.2)
    child = spawn(f"{printed}until_the_end()")
    child._patience = Patience(start=10 * BOUND if printed else 0.2)
    (silence,) = await first(child, 1)
    assert why(silence) == "it sent nothing for too long"


async def test_a_child_that_falls_silent(spawn: Spawn) -> None:
    child = spawn("say(INVENTORY); until_the_end()")
    child._patience = Patience(start=10 * BOUND)
    assert child._limit == silence_limit(1.0) + 2.0  # or a device that hangs would end the stream
    child._limit = 0.2
    inventory, silence = await first(child, 2)
    assert inventory == INVENTORY
    assert why(silence) == "it sent nothing for too long"


async def test_a_line_without_end(spawn: Spawn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_BYTES", 1 << 20)
    program = """
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
say(INVENTORY)
while True: os.write(1, b"x" * 65536)
"""
    inventory, endless = await first(spawn(program), 2)
    assert inventory == INVENTORY
    assert why(endless) == "a line of it is longer than 1 MiB"


async def test_a_child_that_cannot_be_started_is_tried_again(pauses: list[float]) -> None:
    child = StreamChild(["/no/such/interpreter"], 1.0)
    deaths = await first(child, 7)
    assert all("No such file" in why(death) for death in deaths)
    assert pauses == [0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


async def test_a_child_that_can_start_no_threads_says_which_limit_to_raise(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    died = 'say(SAMPLE); raise RuntimeError("can\'t start new thread")'
    _, death = await first(spawn(died), 2)
    assert isinstance(death, Interruption)
    assert death.problem == process_limit_problem("The sampler stopped")
    assert module._stopped(death) == death.problem, "another try would not help"
    assert not says_process_limit(OSError(errno.ENOENT, os.strerror(errno.EAGAIN)))
    for limit, shown in ((resource.RLIM_INFINITY, "unlimited"), (64, "64")):
        monkeypatch.setattr(resource, "getrlimit", Mock(return_value=(limit, limit)))
        assert f"(`ulimit -u`: {shown})" in process_limit_problem("").why


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS])
async def test_a_crash_of_native_code_is_named_with_its_remedy(
    spawn: Spawn, number: signal.Signals
) -> None:
    _, death = await first(spawn(f"say(SAMPLE); os.kill(os.getpid(), {int(number)})"), 2)
    assert isinstance(death, Interruption)
    assert death.problem.what == "The NVIDIA library crashed"
    assert number.name in death.problem.why
    assert "reinstall or update the driver" in death.problem.remedy
    assert death.problem.check == "nvml"
    assert death.status == -number


IGNORING = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("say(SAMPLE); until_the_end()", 0),
        ("say(SAMPLE)\nwhile True: signal.pause()", -signal.SIGTERM),
        (f"{IGNORING}; say(SAMPLE)\nwhile True: signal.pause()", -signal.SIGKILL),
    ],
    ids=["end of file", "SIGTERM", "SIGKILL"],
)
async def test_close_leaves_no_process(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch, program: str, status: int
) -> None:
    monkeypatch.setattr(module, "STEP_SECONDS", 0.1 if status else BOUND)
    child = spawn(program)
    async with contextlib.aclosing(child.records()) as records:
        assert await anext(records) == SAMPLE
        process = child._process
    assert process is not None
    send = process.send_signal

    def send_and_wait(number: int) -> None:
        send(number)
        if number == -status:
            process.wait(BOUND)  # on a busy machine it takes its time to die

    monkeypatch.setattr(process, "send_signal", send_and_wait)
    await child.close()
    assert process.returncode == status
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


@pytest.mark.parametrize(
    ("says", "waits_for", "time"),
    [
        ("say(one); say(two); say(three); until_the_end()", 3.0, 3.0),
        ("[say(one) for _ in range(4)]; say(two); until_the_end()", 2.0, 1.0),
        ("say(one); say(two)", 3.0, 2.0),
    ],
    ids=["until it is there", "not for ever", "an end"],
)
async def test_a_snapshot_is_waited_for(
    says: str, waits_for: float, time: float, spawn: Spawn
) -> None:
    samples = ", ".join(repr(to_line(Sample(at, Host()))) for at in (1.0, 2.0, 3.0))
    child = spawn(f"one, two, three = {samples}; say(INVENTORY); {says}")
    found = await first_snapshot(
        snapshots(child, BOUND), complete=True, waits=lambda each: each.sample.time < waits_for
    )
    assert found.sample.time == time


@pytest.mark.parametrize("identified", [False, True])
async def test_devices_are_identified_if_they_have_to_be(identified: bool) -> None:
    unknown = Device(0, "unknown:0", "unknown", absent={"uuid": Absence.NO_DATA_YET})

    async def taken() -> AsyncGenerator[Snapshot]:
        yield Snapshot(replace(INVENTORY, devices=(unknown,)), SAMPLE)
        yield Snapshot(INVENTORY, SAMPLE)

    found = await first_snapshot(taken(), identified=identified)
    assert (found.inventory is INVENTORY) == identified


async def test_one_snapshot_of_a_driver_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamOptions, "command", property(lambda _: arguments("until_the_end()")))
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with pytest.raises(StreamError, match=r"does not answer: it sent nothing within 0\.2 s\. "):
        await one_snapshot(timeout_seconds=0.2)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208


def test_the_kernel_ends_a_child_whose_parent_has_ended() -> None:
    code = """if True:
        import ctypes, sys
        from gputop.stream.launch import end_with_parent
        end_with_parent()
        number = ctypes.c_int()
        ctypes.CDLL(None).prctl(2, ctypes.byref(number))
        sys.exit(number.value)
    """
    process = launch([sys.executable, "-c", code])
    process.communicate(timeout=BOUND)
    assert process.returncode == signal.SIGKILL


BROKEN = Interruption(Problem("It stopped", "it ended", "gputop is restarting it"))


async def test_snapshots_go_on_after_the_time_for_the_first_one() -> None:
    stream = PreparedStream(STARTING, SAMPLE, INVENTORY, SAMPLE)
    later: list[Record | Interruption] = [BROKEN, STARTING, SAMPLE]
    taken = snapshots(stream, 0.1)  # type: ignore[arg-type]
    async with asyncio.timeout(BOUND), contextlib.aclosing(taken) as found:
        assert await anext(found) == (INVENTORY, SAMPLE)
        for n, record in enumerate(later):
            asyncio.get_running_loop().call_later(0.2 + n / 100, stream.send, record)
        assert await anext(found) == BROKEN
        assert await anext(found) == (STARTING, SAMPLE)
        assert not stream.closed
    assert stream.closed
