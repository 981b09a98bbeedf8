"""What the reader of a stream asks for while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
from typing import Any

import pytest

from gputop.agent.device import Absence
from gputop.agent.sender import handle_requests
from gputop.agent.snapshot import Inventory, Sample
from gputop.agent.times import LONGEST_INTERVAL, SHORTEST_INTERVAL
from gputop.schema.decode import decode
from gputop.stream.child import StreamChild
from gputop.stream.launch import StreamOptions

BOUND = 20.0


def request(**wanted: Any) -> bytes:
    return json.dumps(wanted).encode() + b"\n"


class Recorder:
    def __init__(self) -> None:
        self.asked: list[Any] = []

    def set_interval(self, seconds: float) -> None:
        self.asked.append(seconds)

    def set_gpm(self, *, wanted: bool) -> None:
        self.asked.append(wanted)

    def ask(self) -> None:
        self.asked.append("next")


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        (request(interval=2.0), [2.0]),
        (request(interval=2, gpm=True), [2, True]),
        (request(gpm=False), [False]),
        (request(interval=0.01), [SHORTEST_INTERVAL]),
        (request(interval=1e9), [LONGEST_INTERVAL]),
        (b'{"interval": 1e999}', []),
        (b'{"interval": -1}', []),
        (b'{"interval": NaN}', []),
        (b'{"interval": "1"}', []),
        (b'{"interval": true}', []),
        (b'{"gpm": 1, "later": 2}', []),
        (request(next=True), ["next"]),
        (request(next=1), []),
        (b"[1]", []),
        (b"{", []),
        (b"", []),
    ],
)
def test_requests(line: bytes, asked: list[Any]) -> None:
    recorder: Any = Recorder()
    handle_requests(recorder, recorder, [line])
    assert recorder.asked == asked


def test_the_stream_obeys_and_ends_with_its_reader() -> None:
    process = subprocess.Popen(
        StreamOptions(60, demo=True, control=True).command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    seen: list[Inventory | Sample] = []

    def until(wanted: Any) -> None:
        assert process.stdout is not None
        while not seen or not wanted(seen[-1]):
            seen.append(decode(process.stdout.readline()))

    until(lambda record: isinstance(record, Sample) and record.devices)
    assert isinstance(seen[-1], Sample)
    assert seen[-1].devices[0].absent["tensor_active_percent"] is Absence.DISABLED
    process.stdin.write(request(interval=0.25, gpm=True))
    process.stdin.flush()
    # Otherwise this would take a minute.
    until(lambda record: isinstance(record, Inventory) and record.interval_seconds == 0.25)
    until(lambda record: isinstance(record, Sample) and record.devices[0].tensor_active_percent)
    process.stdin.close()
    assert process.wait(BOUND) == 0
    process.stdout.close()


async def test_a_child_that_is_started_again_is_told_again() -> None:
    child = StreamChild(StreamOptions(60, demo=True, control=True).command, 60)
    child.ask(interval=0.25)
    asked = 0
    async with asyncio.timeout(BOUND), contextlib.aclosing(child.records()) as records:
        async for record in records:
            if isinstance(record, Inventory) and record.interval_seconds == 0.25:
                asked += 1
                if asked == 2:
                    break
                assert child._process is not None
                child._process.send_signal(signal.SIGKILL)
    await child.close()
