"""What the reader of a stream asks for while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
from typing import Any

from gputop.agent.device import Absence
from gputop.agent.snapshot import Inventory, Sample
from gputop.schema.decode import decode
from gputop.stream.child import StreamChild
from gputop.stream.launch import StreamOptions

BOUND = 20.0


def request(**wanted: Any) -> bytes:
    return json.dumps(wanted).encode() + b"\n"


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
