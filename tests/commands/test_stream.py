"""Where a stream goes: what a signal may interrupt, and what it may not."""

import os
import signal
import subprocess
from typing import Any

import pytest

from gputop.agent.snapshot import Record
from gputop.commands.stream import SIGNALS, Remarks, whole_records
from gputop.stream.launch import module_command
from tests import streams
from tests.driver import FakeDevice, FakeDriver
from tests.e2e.shipped import run

STREAM = [*module_command("gputop"), "stream"]
BOUND = 60.0


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_waits_for_the_record_and_a_second_one_does_not(
    number: signal.Signals, times: int
) -> None:
    written: list[Record] = []
    before = signal.getsignal(number)

    def write(record: Record) -> None:
        for _ in range(times):
            os.kill(os.getpid(), number)
        written.append(record)

    sample = streams.sample(1)
    with pytest.raises(KeyboardInterrupt), whole_records(write) as whole:
        whole(sample)
    assert written == [sample][: 2 - times]
    assert signal.getsignal(number) == before


CRASHES: dict[str, dict[str, Any]] = {
    "at its start": {"init_crash": True},
    "at a reading": {"crash": ("nvmlDeviceGetPowerUsage",)},
}


@pytest.mark.driver
@pytest.mark.parametrize("when", CRASHES)
def test_a_driver_that_crashes_is_said_in_one_line(when: str, driver: FakeDriver) -> None:
    driver.write(FakeDevice(), **CRASHES[when])
    done = run("stream", "--count", "3", env=driver.environment())
    assert done.returncode == -signal.SIGSEGV
    assert done.stderr == (
        "gputop: error: The NVIDIA library crashed: this process ended with it (segmentation "
        "fault). Start it again. If this repeats, reinstall or update the driver.\n"
    )


@pytest.mark.driver
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_at_another_end_nothing_is_said_and_nobody_is_left(
    number: signal.Signals, driver: FakeDriver
) -> None:
    driver.write(FakeDevice())
    process = subprocess.Popen(
        STREAM,
        env={**os.environ, **driver.environment()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    os.killpg(process.pid, number)  # as Ctrl+C does
    # Standard error ends with the last process that has it.
    _, said = process.communicate(timeout=BOUND)
    assert b"Traceback" not in said
    assert b"crashed" not in said


def test_whether_there_are_devices_is_known_from_the_samples() -> None:
    written: list[Record] = []
    remarks = Remarks(written.append)
    for record, has_devices in (
        (streams.inventory(1), False),  # nothing was read yet
        (streams.sample(0), False),
        (streams.sample(1), True),
        (streams.sample(0), True),
    ):
        remarks.write(record)
        assert remarks.has_devices is has_devices
        assert written[-1] is record
