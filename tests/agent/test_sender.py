import json
import os
import select
import subprocess
import sys
from typing import Any
from unittest.mock import Mock, call

import pytest

from gputop.agent import sender
from gputop.agent.interface import ReplacedError
from gputop.agent.problem import Problem
from gputop.agent.snapshot import DriverState, Host, Inventory, Sample, Source


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
    write, poll = Mock(side_effect=[2, BlockingIOError, 3, 1]), Mock()
    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(select, "poll", poll)
    sender.write_all(7, b"abcdef")
    assert [bytes(each.args[1]) for each in write.mock_calls] == [b"abcdef", *[b"cdef"] * 2, b"f"]
    assert poll.mock_calls == [call(), call().register(7, select.POLLOUT), call().poll()]


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ({"interval": 2.0}, [call.set_interval(2.0)]),
        ({"interval": 2, "gpm": True}, [call.set_interval(2), call.set_gpm(wanted=True)]),
        ({"interval": 0.01}, [call.set_interval(0.25)]),
        ({"interval": 1e9}, [call.set_interval(60.0)]),
        (b'{"interval": 1e999}', []),
        ({"interval": 0}, []),
        (b'{"interval": NaN}', []),
        ({"interval": "1"}, []),
        ({"interval": True}, []),
        ({"gpm": 1, "later": 2}, []),
        ({"loads": {"GPU-0": [0.5, 60]}}, [call.simulate({"GPU-0": [0.5, 60]})]),
        ({"loads": 1}, []),
        ({"next": True}, [call.ask()]),
        ({"next": 1}, []),
        (b"[]", []),
        (b"{", []),
    ],
)
def test_requests(line: Any, asked: list[Any]) -> None:
    recorder = Mock()
    said = line if isinstance(line, bytes) else json.dumps(line).encode()
    sender.handle_requests(recorder, recorder, [said])
    assert recorder.mock_calls == asked


def test_it_ends_when_the_other_end_of_its_input_closes() -> None:
    program = """if True:
        from gputop.agent import options, sender
        sender.run(options.AgentOptions(0.25, demo=True))
    """
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline()
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("where", "fault", "status", "said"),
    [
        ("start", RuntimeError("a fault"), 1, "RuntimeError: a fault"),
        ("read", RuntimeError("a fault"), 1, "RuntimeError: a fault"),
        ("read", ReplacedError("The driver is new"), 1, "The driver is new. Start it again."),
        ("read", RuntimeError("can't start new thread"), 3, "of the container's cgroup, or end"),
    ],
)
def test_a_fault_in_a_thread_ends_it(where: str, fault: Exception, status: int, said: str) -> None:
    """Or the driver would be starting, or the device silent, for ever and nobody knew why."""
    program = f"""if True:
        from gputop.agent import simulated
        from gputop.agent import sender
        from gputop.agent.interface import ReplacedError
        from gputop.stream.launch import StreamOptions
        def fail(*_, **__): raise {fault!r}
        driver, reader = simulated.SimulatedDriver, simulated.SimulatedReader
        setattr(*{{"start": (driver, "readers"), "read": (reader, "read")}}[{where!r}], fail)
        sender.run(StreamOptions(0.25, demo=True))
    """
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert done.returncode == status
    assert said in done.stderr.decode().splitlines()[-1]
