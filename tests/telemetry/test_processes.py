"""What processes use, and who is one of the Multi-Process Service's, through the fake driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pynvml
import pytest

from gputop.telemetry import nvml_processes
from gputop.telemetry.nvml import Reader, start
from gputop.telemetry.nvml_processes import merge, process_questions
from gputop.telemetry.snapshot import Absence, ProcessKind
from tests.driver import (
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    NO_DATA,
    NO_PERMISSION,
    NOT_FOUND,
    NOT_SUPPORTED,
    TIMEOUT,
    UNKNOWN,
    FakeDevice,
    FakeDriver,
    FakeProcess,
    FakeUsage,
    loaded,
)
from tests.telemetry.test_nvml import Clock

if TYPE_CHECKING:
    from gputop.telemetry.reading import GpuProcess, Reading

pytestmark = pytest.mark.driver

NEWER = "nvmlDeviceGetProcessesUtilizationInfo"
OLDER = "nvmlDeviceGetProcessUtilization"
INSUFFICIENT_SIZE = 7
MPS = "nvmlDeviceGetMPSComputeRunningProcesses"
LARGEST_PID = 4_194_304
"""Of Linux; of NVML it is any number of 32 bits."""


def read(driver: FakeDriver, device: FakeDevice) -> Reading:
    driver.write(device)
    start()
    return Reader(0).read(gpm=False)[0]


def usage(process: GpuProcess) -> tuple[int | None, ...]:
    return (
        process.sm_utilization_percent,
        process.memory_utilization_percent,
        process.encoder_utilization_percent,
        process.decoder_utilization_percent,
    )


def used(driver: FakeDriver, *rows: FakeUsage, pids: tuple[int, ...] = (7,)) -> list[object]:
    """What the processes of these pids used, where the driver has these rows."""
    processes = tuple(FakeProcess(pid) for pid in pids)
    reading = read(driver, FakeDevice(processes=processes, usage=rows))
    assert {process.utilization_absence for process in reading.processes} == {None}
    return [usage(process) for process in reading.processes]


@pytest.fixture(params=["newer", "older"])
def either(request: pytest.FixtureRequest, nvml: FakeDriver) -> FakeDriver:
    """The fake driver, with each of the calls that it may have."""
    if request.param == "older":
        nvml.change_machine(fail={NEWER: FUNCTION_NOT_FOUND})
    return nvml


def test_what_each_process_uses(either: FakeDriver) -> None:
    rows = FakeUsage(11, 55, 44, 33, 22), FakeUsage(13, 1, 2, 3, 4)
    found = used(either, *rows, pids=(11, 12, 13))
    assert found == [(55, 44, 33, 22), (0, 0, 0, 0), (1, 2, 3, 4)]


def test_the_newest_row_of_a_process_counts(either: FakeDriver) -> None:
    rows = [FakeUsage(7, percent, age_ms=age) for percent, age in ((10, 600), (20, 100), (30, 300))]
    assert used(either, *rows) == [(20, 0, 0, 0)]


def test_what_was_long_ago_is_not_now(either: FakeDriver) -> None:
    assert used(either, FakeUsage(7, 95, age_ms=60_000)) == [(0, 0, 0, 0)]
    # The driver may have one row a second.
    assert used(either, FakeUsage(7, 95, age_ms=1_000)) == [(95, 0, 0, 0)]


@pytest.mark.parametrize(
    "garbage",
    [
        FakeUsage(7, 101),
        FakeUsage(7, 50, memory_percent=3_000_000_000),
        FakeUsage(7, 50, encoder_percent=0xFFFFFFFF),
        FakeUsage(7, 50, decoder_percent=200),
        FakeUsage(7, 99, age_ms=-3_600_000),
        FakeUsage(7, 99, age_ms=1_700_000_000_000),  # never filled in: the epoch
        FakeUsage(0, 99),
        FakeUsage(4242, 99),
        FakeUsage(0xFFFFFFFF, 99),
    ],
)
def test_rows_that_make_no_sense_are_left_out(either: FakeDriver, garbage: FakeUsage) -> None:
    assert used(either, garbage) == [(0, 0, 0, 0)]
    assert used(either, garbage, FakeUsage(7, 12, age_ms=500), garbage) == [(12, 0, 0, 0)]


def test_a_hundred_rows_of_garbage(either: FakeDriver) -> None:
    rows = [FakeUsage(7 * n, 0xFFFFFFFF - n, n, n, n, age_ms=-n) for n in range(100)]
    assert used(either, *rows) == [(0, 0, 0, 0)]


def test_nothing_from_before_makes_later_rows_older(nvml: FakeDriver) -> None:
    """A time far ahead, taken for the newest that was seen, would hide all that is to come."""
    nvml.write(FakeDevice(processes=(FakeProcess(7),), usage=(FakeUsage(7, 9, age_ms=-900_000),)))
    start()
    clock = Clock()
    reader = Reader(0, clock=clock)
    assert usage(reader.read(gpm=False)[0].processes[0]) == (0, 0, 0, 0)
    nvml.change(0, usage=(FakeUsage(7, 60),))
    clock.seconds += 1.0
    assert usage(reader.read(gpm=False)[0].processes[0]) == (60, 0, 0, 0)
    nvml.change(0, usage=())
    clock.seconds += 1.0
    assert usage(reader.read(gpm=False)[0].processes[0]) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("code", "absence"),
    [
        (NOT_FOUND, None),
        (NOT_SUPPORTED, Absence.NOT_SUPPORTED),
        (FUNCTION_NOT_FOUND, Absence.NOT_SUPPORTED),
        (NO_PERMISSION, Absence.NO_PERMISSION),
        (TIMEOUT, Absence.TIMED_OUT),
        (NO_DATA, Absence.NO_DATA_YET),
        (INSUFFICIENT_SIZE, Absence.ERROR),
        (UNKNOWN, Absence.ERROR),
    ],
)
def test_why_it_is_not_known(nvml: FakeDriver, code: int, absence: Absence | None) -> None:
    processes = (FakeProcess(7, sm_percent=50), FakeProcess(8, "graphics"))
    reading = read(nvml, FakeDevice(processes=processes, fail={NEWER: code, OLDER: code}))
    assert [process.pid for process in reading.processes] == [7, 8]
    for process in reading.processes:
        assert process.utilization_absence == absence
        assert usage(process) == ((0,) * 4 if absence is None else (None,) * 4)
        assert process.memory_used_bytes == 1 << 30
        assert process.absence is None
    assert "processes" not in reading.sample.absent


def test_an_empty_answer_that_nvidia_ml_py_takes_for_an_error() -> None:
    rows = [pynvml.c_nvmlProcessInfo_t(pid=5, usedGpuMemory=1)]
    ((process,), missing) = merge(rows, 0, 0, 0)
    assert (usage(process), process.utilization_absence, missing) == ((0, 0, 0, 0), None, None)


def test_a_loss_is_known_from_it(nvml: FakeDriver) -> None:
    reading = read(nvml, FakeDevice(fail={NEWER: GPU_IS_LOST}))
    assert reading.sample.absent["processes"] is Absence.LOST


def test_the_older_call_where_there_is_no_other(
    build_driver: Callable[..., Path], tmp_path: Path
) -> None:
    older = FakeDriver(tmp_path, build_driver(NEWER))
    with loaded(older):
        assert used(older, FakeUsage(7, 31)) == [(31, 0, 0, 0)]
        assert older.calls()[OLDER] == 2  # how many there are, and which


def test_the_older_call_is_not_asked_beside_the_other(nvml: FakeDriver) -> None:
    assert used(nvml, FakeUsage(7, 31)) == [(31, 0, 0, 0)]
    assert OLDER not in nvml.calls()


def test_a_row_that_comes_between_the_two_calls_for_them() -> None:
    answers = iter([pynvml.NVMLError(INSUFFICIENT_SIZE), ["row"]])

    def call(handle: object, since: int) -> object:
        answer = next(answers)
        if isinstance(answer, pynvml.NVMLError):
            raise answer
        return answer

    assert nvml_processes._rows(call, None, 0) == ["row"]


def test_pids_of_every_size(either: FakeDriver) -> None:
    pids = (0, 1, LARGEST_PID, (1 << 31) + 5, (1 << 32) - 1)
    rows = [FakeUsage(pid, n) for n, pid in enumerate(pids, 1)]
    assert used(either, *rows, pids=pids) == [(n, 0, 0, 0) for n in range(1, 6)]


def kinds(reading: Reading) -> dict[int, ProcessKind]:
    return {process.pid: process.kind for process in reading.processes}


def test_clients_of_the_multi_process_service(nvml: FakeDriver) -> None:
    processes = (
        FakeProcess(1, "mps", 100),
        FakeProcess(2, "mps", 200),
        FakeProcess(2, "compute", 250),
        FakeProcess(3, "compute"),
        FakeProcess(4, "compute"),
        FakeProcess(4, "graphics"),
        FakeProcess(4, "mps", None),
        FakeProcess(5, "mps", None),
    )
    reading = read(nvml, FakeDevice(processes=processes, usage=(FakeUsage(2, 70),)))
    assert kinds(reading) == {
        1: ProcessKind.MPS,
        2: ProcessKind.MPS,
        3: ProcessKind.COMPUTE,
        4: ProcessKind.MPS,
        5: ProcessKind.MPS,
    }
    memory = [process.memory_used_bytes for process in reading.processes]
    assert memory == [100, 250, 1 << 30, 1 << 30, None]
    assert reading.processes[4].absence is Absence.NOT_SUPPORTED
    assert usage(reading.processes[1]) == (70, 0, 0, 0)


@pytest.mark.parametrize(
    ("code", "missing"),
    [
        (NOT_FOUND, None),
        (NOT_SUPPORTED, None),
        (FUNCTION_NOT_FOUND, None),
        (NO_PERMISSION, Absence.NO_PERMISSION),
        (UNKNOWN, Absence.ERROR),
    ],
)
def test_a_list_of_them_that_fails(nvml: FakeDriver, code: int, missing: Absence | None) -> None:
    fail = {f"{MPS}_{version}": code for version in ("v2", "v3")}
    processes = (FakeProcess(1, "mps"), FakeProcess(2))
    reading = read(nvml, FakeDevice(processes=processes, fail=fail))
    assert kinds(reading) == {2: ProcessKind.COMPUTE}
    assert reading.sample.absent.get("processes") == missing
    assert reading.sample.absent.get("memory_attributed_bytes") == missing


def test_version_2_of_the_list_where_there_is_no_other(nvml: FakeDriver) -> None:
    device = FakeDevice(processes=(FakeProcess(1, "mps"),), fail={f"{MPS}_v3": FUNCTION_NOT_FOUND})
    assert kinds(read(nvml, device)) == {1: ProcessKind.MPS}


def test_they_are_all_asked_for_at_the_same_moments() -> None:
    questions = process_questions((580, 95))
    assert len(questions) == 4
    assert len({question.seconds for question in questions}) == 1


def test_the_stream_has_what_they_use(driver: FakeDriver) -> None:
    """With pids that no process of this machine has, which must not trouble whoever looks."""
    pids = (0, os.getpid(), (1 << 31) + 5, (1 << 32) - 1)
    driver.write(
        FakeDevice(
            processes=tuple(FakeProcess(pid, "mps") for pid in pids),
            usage=tuple(FakeUsage(pid, 10 + n, n) for n, pid in enumerate(pids)),
        ),
        FakeDevice(processes=(FakeProcess(os.getpid()),), fail={NEWER: 3, OLDER: 3}),
    )
    done = subprocess.run(
        [sys.executable, "-m", "gputop", "stream", "--count", "1"],
        env={**os.environ, **driver.environment()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=60,
    )
    *mps, other = json.loads(done.stdout.splitlines()[-1])["processes"]
    names = ("pid", "kind", "sm_utilization_percent", "memory_utilization_percent")
    assert [[row[name] for name in names] for row in mps] == [
        [pid, "mps", 10 + n, n] for n, pid in sorted(enumerate(pids), key=lambda item: item[1])
    ]
    assert other["sm_utilization_percent"] is None
    assert other["absent"]["sm_utilization_percent"] == "not_supported"
    assert other["absent"]["decoder_utilization_percent"] == "not_supported"
