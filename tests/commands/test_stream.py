import asyncio
import dataclasses
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gputop.agent.lines import to_line
from gputop.agent.snapshot import Machine, MachineState, Record
from gputop.commands.stream import Remarks, _write_merged
from gputop.stream.launch import StreamOptions
from gputop.text import moment
from tests import streams
from tests.commands.conftest import merged
from tests.driver import FakeDevice, FakeDriver
from tests.e2e.shipped import GPUTOP, run
from tests.streams import NO_DRIVER

BOUND = 60.0


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
        [*GPUTOP, "stream"],
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


def test_a_recording_becomes_csv(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    records: list[Record] = [streams.inventory(2), *[streams.sample(2)] * 3]
    file.write_text("".join(f"{to_line(each)}\n" for each in records))
    words = ["stream", "--replay", file, "--format", "csv", "--query", "index"]
    assert run(*words, "--count", "2").stdout.split() == ["index", "0", "1", "0", "1"]
    file.write_text(f'{file.read_text()}{{"damaged')
    done = run(*words)
    assert done.stdout.split() == ["index", *["0", "1"] * 3]
    last = moment(streams.NOW, "%Y-%m-%d %H:%M:%S")
    assert done.stderr == f"gputop: {file}: damaged at line 5; played up to {last}\n"
    assert run("status", "--replay", file).stderr == done.stderr


def test_samples_of_several_hosts_count_once_each_has_answered() -> None:
    connecting = dataclasses.replace(streams.sample(0), machines=(Machine("a"), Machine("b")))
    sample = streams.sample(1)
    hosts = merged(streams.inventory(1), connecting, sample, sample, sample)
    written: list[Record] = []
    asyncio.run(_write_merged(hosts, StreamOptions(1.0, count=2, gpm=False), written.append))
    assert written == [streams.inventory(1), sample, sample]
    hosts.ask.assert_called_once_with(gpm=False)
    hosts.close.assert_awaited_once()


def test_csv_without_devices_says_why_once() -> None:
    ended = run("stream", "--format", "csv", "--count", "1")
    assert (ended.returncode, ended.stdout) == (3, "")
    (why,) = ended.stderr.splitlines()
    assert "No NVIDIA driver" in why


def test_csv_names_the_problem_of_each_host_once(capsys: pytest.CaptureFixture[str]) -> None:
    hosts = (Machine("a", MachineState.AWAY, problem=NO_DRIVER), Machine("b", problem=NO_DRIVER))
    sample = dataclasses.replace(streams.sample(0), machines=hosts)
    written: list[Record] = []
    remarks = Remarks(written.append)
    for each in (sample, sample):
        remarks.write(each)
    said = [f"gputop: {NO_DRIVER}.", f"gputop: b: {NO_DRIVER}."]
    assert (capsys.readouterr().err.splitlines(), written) == (said, [sample, sample])
