"""`gputop stream` as others run it: what it writes, and when it ends."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from gputop.agent import sender
from gputop.agent.problem import Problem
from gputop.agent.snapshot import DriverState, Host, Inventory, Record, Sample, Source
from gputop.schema.decode import decode
from gputop.stream.launch import module_command

INTERVAL = 0.25
COMMAND = [*module_command("gputop"), "stream", "--demo", "--interval", f"{INTERVAL}"]
BOUND = 60.0


@pytest.fixture
def start() -> Iterator[Any]:
    """Starts the stream; kills what a test leaves."""
    running: list[subprocess.Popen[bytes]] = []

    def popen(*arguments: str, stdin: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
        running.append(
            subprocess.Popen(
                [*COMMAND, *arguments], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        )
        return running[-1]

    yield popen
    for process in running:
        with process:
            process.kill()


def first_line(process: subprocess.Popen[bytes]) -> Record:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], BOUND)[0]
    return decode(process.stdout.readline())


def records(output: bytes) -> list[Record]:
    return [decode(line) for line in output.splitlines()]


def test_so_many_samples_and_no_more(start: Any) -> None:
    process = start("--count", "3", stdin=subprocess.DEVNULL)
    output, errors = process.communicate(timeout=BOUND)
    assert (process.returncode, errors) == (0, b"")
    assert output.endswith(b"\n")
    inventory, *samples = records(output)
    assert isinstance(inventory, Inventory)
    assert inventory.source is Source.SIMULATED
    settled = [s for s in samples if isinstance(s, Sample) and s.devices]
    assert len(settled) == 3


def inventory(state: DriverState) -> Inventory:
    problem = Problem("a", "b", "c") if state is DriverState.UNAVAILABLE else None
    return Inventory(1.0, "host", Source.NVML, state, 1.0, problem=problem)


@pytest.mark.parametrize("state", [DriverState.OK, DriverState.UNAVAILABLE])
def test_counted_samples_are_those_of_a_driver_that_has_answered(state: DriverState) -> None:
    starting, settled = inventory(DriverState.STARTING), inventory(state)
    early, one, two = (Sample(time, Host()) for time in (1.0, 2.0, 3.0))
    prepared = (starting, early, early, settled, one, settled, two, two)
    found = tuple(sender.counted(prepared, 2))
    assert found == (starting, settled, one, settled, two)


def test_all_is_written_however_little_a_pipe_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    received = bytearray()

    def little(descriptor: int, data: bytes) -> int:
        received.extend(data[:1000])
        return len(data[:1000])

    monkeypatch.setattr(os, "write", little)
    data = bytes(range(256)) * 100
    sender.write_all(1, data)
    assert received == data


@pytest.mark.parametrize("where", ["start", "read"])
def test_a_fault_in_a_thread_ends_it(where: str) -> None:
    """Or the driver would be starting, or the device silent, for ever and nobody knew why."""
    program = f"""if True:
        from gputop.agent import simulated
        from gputop.agent import sender
        from gputop.stream.launch import StreamOptions
        def fail(*_, **__): raise RuntimeError("a fault")
        driver, reader = simulated.SimulatedDriver, simulated.SimulatedReader
        setattr(*{{"start": (driver, "readers"), "read": (reader, "read")}}[{where!r}], fail)
        sender.run(StreamOptions(0.25, demo=True))
    """
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=BOUND,
    )
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1] == "RuntimeError: a fault"
