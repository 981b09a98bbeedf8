"""`gputop stream` as others run it: what it writes, and when it ends."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gputop.agent import sender
from gputop.agent.problem import Problem
from gputop.agent.sampler import Sampler
from gputop.agent.snapshot import DriverState, Host, Inventory, Record, Sample, Source
from gputop.schema.decode import decode
from gputop.stream.launch import module_command
from tests.terminal import Terminal

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


def samples_of(process: subprocess.Popen[bytes]) -> Iterator[Sample]:
    """Its samples as they come."""
    while True:
        record = first_line(process)
        if isinstance(record, Sample) and record.devices:
            yield record


def test_a_stream_that_was_stopped_goes_on_with_its_interval(start: Any) -> None:
    """And does not say three times within 10 ms what it would have said meanwhile."""
    stopped, other = start(), start()
    samples, witness = samples_of(stopped), samples_of(other)
    next(samples)
    stopped.send_signal(signal.SIGSTOP)
    assert os.WIFSTOPPED(os.waitpid(stopped.pid, os.WUNTRACED)[1])
    since = time.time()
    while next(witness).time < since + 4.0:
        pass
    stopped.send_signal(signal.SIGCONT)
    late = (sample for sample in samples if sample.time > since)
    times = [next(late).time for _ in range(6)]
    # One that was in the making is followed by a fresh one; of the others none comes too soon.
    assert sum(each - times[0] < INTERVAL / 3 for each in times) <= 2, times


class Prepared(Sampler):
    """A sampler whose records are known."""

    def __init__(self, *prepared: Record) -> None:
        self._prepared = prepared

    def records(self) -> Iterator[Record]:
        yield from self._prepared
        raise AssertionError("more was asked for than was counted")


def inventory(state: DriverState) -> Inventory:
    problem = Problem("a", "b", "c") if state is DriverState.UNAVAILABLE else None
    return Inventory(1.0, "host", Source.NVML, state, 1.0, problem=problem)


@pytest.mark.parametrize("state", [DriverState.OK, DriverState.UNAVAILABLE])
def test_counted_samples_are_those_of_a_driver_that_has_answered(state: DriverState) -> None:
    starting, settled = inventory(DriverState.STARTING), inventory(state)
    early, one, two = (Sample(time, Host()) for time in (1.0, 2.0, 3.0))
    prepared = (starting, early, early, settled, one, settled, two)
    found = tuple(sender.counted(Prepared(*prepared).records(), 2))
    assert found == (starting, settled, one, settled, two)


def test_without_a_count_there_is_no_end() -> None:
    sample = Sample(2.0, Host())
    received = sender.counted(Prepared(inventory(DriverState.OK), *[sample] * 50).records(), None)
    assert len([next(received) for _ in range(51)]) == 51
    with pytest.raises(AssertionError):
        next(received)


def test_all_is_written_however_little_a_pipe_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    received = bytearray()

    def little(descriptor: int, data: bytes) -> int:
        received.extend(data[:1000])
        return len(data[:1000])

    monkeypatch.setattr(os, "write", little)
    data = bytes(range(256)) * 100
    sender.write_all(1, data)
    assert received == data


def test_a_pipe_that_does_not_block_is_waited_for() -> None:
    """As a shell's terminal is after a program that left it so."""
    end, beginning = os.pipe()
    os.set_blocking(beginning, False)
    data = os.urandom(1 << 20)
    with ThreadPoolExecutor(1) as other:
        writing = other.submit(sender.write_all, beginning, data)
        writing.add_done_callback(lambda _: os.close(beginning))
        while not writing.done() and select.select([], [beginning], [], 0)[1]:
            threading.Event().wait(0.001)  # until the pipe is full
        with open(end, "rb") as pipe:  # noqa: PTH123 - it is open already
            assert pipe.read() == data
        writing.result(BOUND)


def test_a_reader_that_has_enough(start: Any) -> None:
    """`gputop stream | head -1`."""
    process = start()
    assert isinstance(first_line(process), Inventory)
    process.stdout.close()
    assert process.wait(BOUND) == 0
    assert process.stderr.read() == b""


def test_the_end_of_its_input_is_the_end_of_it(start: Any) -> None:
    process = start()
    first_line(process)
    process.stdin.close()
    assert process.wait(BOUND) == 0
    assert process.stderr.read() == b""


@pytest.mark.parametrize("half", [True, False], ids=["half closed", "closed"])
def test_a_socket_has_an_end_too(start: Any, half: bool) -> None:
    """As some remote shells give it for standard input; what was sent stays unread in it."""
    ours, its = socket.socketpair()
    with ours, its:
        process = start(stdin=its.fileno())
        its.close()
        first_line(process)
        ours.sendall(b"unread")
        if half:
            ours.shutdown(socket.SHUT_WR)
        else:
            ours.close()
        assert process.wait(BOUND) == 0


def test_the_death_of_its_parent_is_the_end_of_it() -> None:
    """Killed, it can close nothing; the kernel does."""
    program = """if True:
        import subprocess, sys
        child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        child.stdout.readline()
        print(child.pid, flush=True)
        sys.stdin.read()
    """
    arguments = [sys.executable, "-c", program, *COMMAND]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    assert select.select([child], [], [], BOUND)[0]
    os.close(child)


def test_its_input_is_left_for_others() -> None:
    """A shell loop that reads lines keeps them."""
    reading, writing = os.pipe()
    os.write(writing, b"next line\n")
    done = subprocess.run(
        [*COMMAND, "--count", "1"], stdin=reading, capture_output=True, timeout=BOUND, check=True
    )
    assert records(done.stdout)
    assert os.read(reading, 100) == b"next line\n"
    os.close(reading)
    os.close(writing)


def test_a_pipe_that_nobody_holds_any_more_ends_nothing() -> None:
    """A shell loop over what a finished command wrote."""
    reading, writing = os.pipe()
    os.close(writing)
    done = subprocess.run(
        [*COMMAND, "--count", "3"], stdin=reading, capture_output=True, timeout=BOUND, check=True
    )
    os.close(reading)
    assert len(records(done.stdout)) >= 4


@pytest.mark.parametrize("redirection", ["</dev/null", "<&-", "</etc/passwd"])
def test_an_input_without_another_end_ends_nothing(redirection: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$@" {redirection}', "sh", *COMMAND, "--count", "3"],  # noqa: S607
        capture_output=True,
        timeout=BOUND,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(records(done.stdout)) >= 4


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it(start: Any, number: signal.Signals) -> None:
    process = start()
    first_line(process)
    process.send_signal(number)
    assert process.wait(BOUND) == -number
    assert process.stderr.read() == b""


def test_ctrl_c() -> None:
    with Terminal(COMMAND, columns=200) as terminal:
        # Of what was received, not of the screen: the first samples may already have pushed it out.
        terminal.wait_for(lambda _: b'"type":"inventory"' in terminal.raw, BOUND, "inventory")
        terminal.send("\x03")
        assert terminal.wait(BOUND) == 130
        assert b"Traceback" not in terminal.raw


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


def test_what_the_bindings_leave_is_collected_now_and_then() -> None:
    """Python would come by after hours: of a sample nearly nothing is in a circle."""
    program = """if True:
        import gc, weakref
        from gputop.agent import sender
        from gputop.stream.launch import StreamOptions
        class Circle: pass
        circle = Circle()
        circle.itself, ended = circle, weakref.ref(circle)
        gc.collect()  # from now on it is old
        del circle
        sender.COLLECTED = 2
        sender.run(StreamOptions(0.05, count=3, demo=True), lambda _: None)
        print(ended())
    """
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=BOUND, check=False
    )
    assert done.stdout.decode().strip() == "None", done.stderr.decode()


def test_a_full_disk() -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        done = subprocess.run(
            COMMAND, stdout=full, stderr=subprocess.PIPE, timeout=BOUND, check=False
        )
    assert done.returncode == 3
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("gputop: error: standard output cannot be written: No space left")
