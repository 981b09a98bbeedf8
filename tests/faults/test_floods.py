"""More than anybody needs: hosts, workers and recordings that never end or are far too large."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gzip
import json
import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Self

import pytest

from gputop.agent.device import DeviceSample
from gputop.agent.lines import to_line
from gputop.agent.problem import Problem
from gputop.agent.snapshot import EVENTS, Event, Host, Machine, Process, ProcessKind, Record, Sample
from gputop.bench.cluster.messages import Ended, Output
from gputop.bench.cluster.run import WORKER_LINES, LentGpu
from gputop.bench.events import Event as WorkerEvent
from gputop.bench.events import Failed, Progress
from gputop.bench.plan.request import Request
from gputop.health.causes import find_causes, title_of
from gputop.schema import limits
from gputop.schema.decode import decode
from gputop.schema.limits import DecodeError
from gputop.stream.child import UNREADABLE_LINES, Interruption, StreamChild
from gputop.stream.merge import MachineStream
from gputop.stream.ssh import explain_absence
from gputop.ui.telemetry import Telemetry
from tests import recordings, streams
from tests.bench.workers import CPU, fake_interpreter
from tests.e2e.shipped import GPUTOP, NO_DRIVER, SOON, dashboard, see
from tests.fake_ssh import FakeSsh
from tests.sessions import Session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.terminal import Terminal

BOUND = 60.0
"""Seconds after which something that a test waits for counts as hung."""
TINY = to_line(Sample(1.0, Host()))
NOW = streams.NOW
BEGIN: list[Record] = [streams.inventory(2), streams.sample(2)]


# Turns of the event loop.


class Turns:
    """How often everything else could have had its turn."""

    count = seen = 0
    starved = 0
    """Things that came without a turn since the one before."""

    def came(self) -> None:
        """Notes that something came."""
        self.starved += self.count == self.seen
        self.seen = self.count

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._go_on())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _go_on(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def child(program: str) -> AsyncIterator[StreamChild]:
    made = StreamChild([sys.executable, "-c", f"import os, sys\n{program}"], 1.0)
    try:
        async with asyncio.timeout(BOUND):
            yield made
    finally:
        await made.close()


async def first(stream: StreamChild, number: int) -> list[Record | Interruption]:
    received: list[Record | Interruption] = []
    async with contextlib.aclosing(stream.records()) as records:
        async for record in records:
            received.append(record)
            if len(received) == number:
                break
    return received


@pytest.mark.daily(1)
@pytest.mark.parametrize("line", [TINY, "{}"], ids=["samples", "objects"])
async def test_keys_have_their_turn_between_the_lines_of_a_host(line: str) -> None:
    """Lines that are there already do not have to be waited for: nothing else could run."""
    program = f"while True: os.write(1, {(line + chr(10)).encode()!r} * 1000)"
    async with (
        child(program) as flooding,
        Turns() as turns,
        contextlib.aclosing(flooding.records()) as records,
    ):
        for _ in range(500):
            await anext(records)
            turns.came()
    assert turns.starved == 0


async def test_a_child_that_writes_nothing_readable_is_ended() -> None:
    async with child("while True: os.write(1, b'{}\\n' * 1000)") as flooding:
        *left_out, last = await first(flooding, UNREADABLE_LINES)
    assert all(isinstance(each, Interruption) and each.left_out for each in left_out)
    assert isinstance(last, Interruption)
    assert not last.left_out
    assert last.problem.why == (
        "it wrote 1,000 lines in a row that cannot be read, "
        "the last one: Object missing required field `type`"
    )
    said = str(explain_absence("gpu-1", last))
    assert said.startswith(
        "gpu-1 is unreachable: it wrote 1,000 lines in a row that cannot be read"
    )
    assert said.endswith("`ssh gpu-1` may say more")


async def test_keys_have_their_turn_between_the_events_of_a_worker(tmp_path: Path) -> None:
    hello = {"event": "hello", "python": "3", "torch_version": "9", "device_name": "a CPU"}
    window = {"event": "sample", "elapsed_seconds": 1, "window_seconds": 1, "iterations": 1}
    lines = [hello | {"threads": 1, "pid": 1}, *[window | {"tflops": 1}] * 5000]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    body = f"import os, sys\nos.write(1, {text.encode()!r})\nsys.stdin.read()\n"
    session = Session(Request(CPU, "float32", 256, 1.0, fake_interpreter(tmp_path, body)))
    events: list[WorkerEvent] = []
    async with (
        asyncio.timeout(BOUND),
        Turns() as turns,
        contextlib.aclosing(session.events()) as said,
    ):
        async for event in said:
            events.append(event)
            if isinstance(event, Progress):
                turns.came()
    assert sum(isinstance(event, Progress) for event in events) >= 900
    assert turns.starved == 0
    assert isinstance(events[-1], Failed)
    assert str(events[-1].problem) == (
        "The stress test's worker sends too much: more than 200 events a second. "
        "Choose another interpreter with --python"
    )


async def test_what_a_worker_on_a_node_says_does_not_pile_up() -> None:
    post = LentGpu(7, lambda _: None)
    post.known.set()
    for _ in range(2 * WORKER_LINES):
        post.handle(Output(7, "x"))
    post.handle(Ended(7, 0, ""))
    said = [await post.readline() for _ in range(WORKER_LINES + 1)]
    assert said[-2:] == [b"x", b""]


# What a record may have.


def too_many(name: str, number: int) -> Record:
    """A record with so many of them."""
    made: dict[str, Any] = {
        "devices": tuple(DeviceSample(f"GPU-{n}") for n in range(number)),
        "machines": tuple(Machine(f"m{n}") for n in range(number)),
        "processes": tuple(Process(n, "GPU-0", ProcessKind.COMPUTE) for n in range(number)),
        "events": tuple(Event(float(n), None, "xid", n) for n in range(number)),
    }
    return dataclasses.replace(Sample(1.0, Host()), **{name: made[name]})


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("devices", limits.DEVICES),
        ("machines", limits.DEVICES),
        ("processes", limits.PROCESSES),
        ("events", EVENTS),
    ],
)
def test_what_is_over_a_bound_is_left_out_and_named(name: str, most: int) -> None:
    as_many = too_many(name, most)
    assert decode(to_line(as_many)) == as_many
    more = decode(to_line(too_many(name, most + 5)))
    assert len(getattr(more, name)) == most
    assert more.problem == Problem(
        "Not everything is shown",
        f"it sends {most + 5:,} {name} where {most:,} are taken",
        "Check that machine: no real one has this many",
    )
    assert decode(to_line(more)) == more
    if isinstance(more, Sample) and name == "events":
        assert [event.code for event in more.events[:: most - 1]] == [5, most + 4]


@pytest.mark.parametrize(
    "host", [{"load_average": [0] * 9000}, {"absent": {f"{n}": "lost" for n in range(9000)}}]
)
def test_long_lists_are_refused(host: dict[str, Any]) -> None:
    with pytest.raises(DecodeError, match=r"^more than 8,192 items in a list$"):
        decode(json.dumps({"type": "sample", "time": 1, "host": host}))


def test_long_texts_are_refused() -> None:
    longest = "x" * limits.STRING_CHARACTERS
    inventory = streams.inventory(hostname=longest)
    assert decode(to_line(inventory)) == inventory
    with pytest.raises(DecodeError, match=r"^text of more than 16,384 characters: xxx"):
        decode(to_line(streams.inventory(hostname=f"{longest}x")))


def machine(*records: Record | Interruption) -> MachineStream:
    made = MachineStream("far", 0.0)
    for record in records:
        made.add_record(record, 1.0, NOW)
    return made


PROBLEM = Problem("Not everything is shown", "it sends 2,000 devices", "Check what runs there")
UNREAD = Problem("A line of the stream cannot be read", "hostname: longer", "It was left out")


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_host_whose_lines_cannot_be_read_says_so_after_a_while(before: int) -> None:
    records = BEGIN[:before]
    made = machine(*records, Interruption(UNREAD, left_out=True))
    assert made.machine(2.0).problem is None  # what a shell prints at the start is no problem
    assert made.machine(9.0).problem == UNREAD
    made.add_record(streams.inventory(2), 9.0, NOW)
    made.add_record(streams.sample(2), 9.0, NOW)
    assert made.machine(20.0).problem is None


def test_the_dashboard_of_one_machine_names_what_was_left_out() -> None:
    telemetry = Telemetry(lambda: 0.0)
    telemetry.receive(streams.inventory(2))
    telemetry.receive(dataclasses.replace(streams.sample(2), problem=PROBLEM))
    assert [title_of(cause) for cause in find_causes(telemetry.findings)] == [
        "Host node07: shown only in part, it sends 2,000 devices"
    ]
    telemetry.receive(streams.sample(2))
    assert list(telemetry.findings) == []


# Recordings.


def written(path: Path, *parts: bytes) -> Path:
    """A recording of an inventory and three samples, and then that."""
    samples = [dataclasses.replace(streams.sample(1), time=NOW + n) for n in range(3)]
    records: list[Record] = [streams.inventory(1), *samples]
    good = "".join(f"{to_line(each)}\n" for each in records).encode()
    with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as file:
        for part in (good, *parts):
            file.write(part)
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
@pytest.mark.parametrize(
    "flood",
    [b"\n" * 5000, b"{}\n" * 5000, b"\0" * (16 << 20)],
    ids=["newlines", "objects", "zeros"],
)
def test_a_recording_is_not_read_on_where_nothing_is_in_it(
    tmp_path: Path, name: str, flood: bytes
) -> None:
    recording = recordings.scanned(written(tmp_path / name, flood, TINY.encode()))
    assert len([*recording.records()]) == 4
    assert (len(recording.positions), recording.is_scanned) == (3, True)
    assert recording.ending is not None
    assert recording.ending.startswith("damaged at line 5; ")


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/urandom", "/dev/stdin", "pipe"])
def test_what_never_ends_is_refused(tmp_path: Path, path: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["/usr/bin/yes", "{}"], stdout=subprocess.PIPE) as endless:
        done = subprocess.run(
            [*GPUTOP, "status", "--replay", path],
            env={**os.environ, **NO_DRIVER},
            stdin=endless.stdout,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=BOUND,
        )
        endless.kill()
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"gputop: error: {path} cannot be played: it is not a file. Make one")


# The shipped command.


def leave_after_keys(terminal: Terminal) -> None:
    """Keys are answered, and `q` leaves."""
    for _ in range(2):
        terminal.send("2")
        terminal.wait_for("Tab Form")
        terminal.send("1")
        terminal.wait_for(lambda t: "Tab Form" not in t.text)
    terminal.send("q")
    assert terminal.wait(SOON) == 0
    terminal.wait_until_gone(SOON)


def flooding(folder: Path, begin: list[Record], then: bytes) -> Terminal:
    """The dashboard of a host that sends this, and then that for ever."""
    (folder / "begin").write_text("".join(f"{to_line(each)}\n" for each in begin))
    (folder / "then").write_bytes(then)
    program = f"""
import os, sys
def put(file):
    view = memoryview(open({str(folder)!r} + "/" + file, "rb").read())
    while view: view = view[os.write(1, view):]
put("begin")
while True: put("then")
"""
    words = shlex.join([sys.executable, "-S", "-c", program])
    env = {**NO_DRIVER, "PATH": FakeSsh(folder).path}
    return dashboard("--host", "far", "--remote-command", words, env=env)


def test_keys_are_answered_while_a_host_floods(tmp_path: Path) -> None:
    with flooding(tmp_path, BEGIN, f"{to_line(streams.sample(2))}\n".encode() * 2000) as terminal:
        see(terminal, "2 GPUs")
        leave_after_keys(terminal)
