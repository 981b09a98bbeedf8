import asyncio
import contextlib
import dataclasses
import gzip
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from gputop.agent.device import DeviceSample
from gputop.agent.lines import to_line
from gputop.agent.problem import Problem
from gputop.agent.snapshot import Event, Host, Machine, Process, ProcessKind, Record, Sample
from gputop.bench.cluster.messages import Ended, Output
from gputop.bench.cluster.run import WORKER_LINES, LentGpu
from gputop.bench.events import Failed, Progress
from gputop.bench.plan.request import Request
from gputop.health.causes import find_causes, title_of
from gputop.schema.decode import decode
from gputop.schema.limits import DecodeError
from gputop.stream.child import UNREADABLE_LINES, Interruption, StreamChild
from gputop.stream.merge import MachineStream
from gputop.stream.ssh import explain_absence
from gputop.ui.telemetry import Telemetry
from tests import recordings, streams
from tests.bench.workers import CPU, fake_interpreter
from tests.e2e.shipped import NO_DRIVER, SOON, dashboard, see
from tests.fake_ssh import FakeSsh
from tests.sessions import Session

BOUND = 60.0
TINY = to_line(Sample(1.0, Host()))
NOW = streams.NOW
BEGIN: list[Record] = [streams.inventory(2), streams.sample(2)]


async def test_a_child_that_writes_nothing_readable_is_ended() -> None:
    program = "import os\nwhile True: os.write(1, b'{}\\n' * 1000)"
    flooding = StreamChild([sys.executable, "-c", program], 1.0)
    received: list[Record | Interruption] = []
    async with asyncio.timeout(BOUND), contextlib.aclosing(flooding.records()) as records:
        async for record in records:
            received.append(record)
            if len(received) == UNREADABLE_LINES:
                break
    await flooding.close()
    *left_out, last = received
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


async def test_a_worker_that_sends_too_much_is_ended(tmp_path: Path) -> None:
    hello = {"event": "hello", "python": "3", "torch_version": "9", "device_name": "a CPU"}
    window = {"event": "sample", "elapsed_seconds": 1, "window_seconds": 1, "iterations": 1}
    lines = [hello | {"threads": 1, "pid": 1}, *[window | {"tflops": 1}] * 5000]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    body = f"import os, sys\nos.write(1, {text.encode()!r})\nsys.stdin.read()\n"
    session = Session(Request(CPU, "float32", 256, 1.0, fake_interpreter(tmp_path, body)))
    async with asyncio.timeout(BOUND):
        events = [event async for event in session.events()]
    assert sum(isinstance(event, Progress) for event in events) >= 900
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


def too_many(name: str, number: int) -> Record:
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
        ("devices", 1024),
        ("machines", 1024),
        ("processes", 8192),
        ("events", 1000),
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


PROBLEM = Problem("Not everything is shown", "it sends 2,000 devices", "Check what runs there")
UNREAD = Problem("A line of the stream cannot be read", "hostname: longer", "It was left out")


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_host_whose_lines_cannot_be_read_says_so_after_a_while(before: int) -> None:
    made = MachineStream("far", 0.0)
    for record in (*BEGIN[:before], Interruption(UNREAD, left_out=True)):
        made.add_record(record, 1.0, NOW)
    assert made.machine(2.0).problem is None  # what a shell prints at the start is no problem
    assert made.machine(9.0).problem == UNREAD
    for record in BEGIN:
        made.add_record(record, 9.0, NOW)
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


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
@pytest.mark.parametrize(
    "flood",
    [b"\n" * 5000, b"{}\n" * 5000, b"\0" * (16 << 20)],
    ids=["newlines", "objects", "zeros"],
)
def test_a_recording_is_not_read_on_where_nothing_is_in_it(
    tmp_path: Path, name: str, flood: bytes
) -> None:
    path = recordings.make(tmp_path / name, 3)
    with gzip.open(path, "ab") if path.suffix == ".gz" else path.open("ab") as file:
        file.write(flood + TINY.encode())
    recording = recordings.scanned(path)
    assert len([*recording.records()]) == 4
    assert (len(recording.positions), recording.is_scanned) == (3, True)
    assert recording.ending is not None
    assert recording.ending.startswith("damaged at line 5; ")


FLOOD = """\
import os, sys
begin, then = (line.encode() for line in sys.argv[1:3])
def put(view):
    while view: view = view[os.write(1, view):]
put(begin)
while True: put(memoryview(then * 2000))
"""


def test_keys_are_answered_while_a_host_floods(tmp_path: Path) -> None:
    inventory, sample = (f"{to_line(each)}\n" for each in BEGIN)
    words = shlex.join([sys.executable, "-S", "-c", FLOOD, inventory, sample])
    env = {**NO_DRIVER, "PATH": FakeSsh(tmp_path).path}
    with dashboard("--host", "far", "--remote-command", words, env=env) as terminal:
        see(terminal, "2 GPUs")
        for _ in range(2):
            terminal.send("2")
            see(terminal, "Tab Form")
            terminal.send("1")
            see(terminal, without=("Tab Form",))
        terminal.send("q")
        assert terminal.wait(SOON) == 0
        terminal.wait_until_gone(SOON)
