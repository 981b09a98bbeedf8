import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from gputop.agent.device import Absence
from gputop.agent.interface import UTILIZATIONS, DeviceReading
from gputop.agent.snapshot import Process
from tests.agent.reader import OneDevice
from tests.driver import (
    FUNCTION_NOT_FOUND,
    NO_PERMISSION,
    NOT_FOUND,
    NOT_SUPPORTED,
    FakeDevice,
    FakeDriver,
    FakeProcess,
    FakeUsage,
)

pytestmark = pytest.mark.driver

NEWER = "nvmlDeviceGetProcessesUtilizationInfo"
OLDER = "nvmlDeviceGetProcessUtilization"
INSUFFICIENT_SIZE = 7
LARGEST_PID = 4_194_304
"""Of Linux; of NVML it is any number of 32 bits."""


def read(nvml: FakeDriver, device: FakeDevice) -> DeviceReading:
    return OneDevice(nvml, device).reading()


def usage(process: Process) -> tuple[int | None, ...]:
    return tuple(getattr(process, name) for name in UTILIZATIONS)


class Watched(OneDevice):
    """Processes of these pids, whose device has said so far that they used nothing.

    Time passes by the reader's clock, and by the driver's and the wall's as much.
    """

    def __init__(self, nvml: FakeDriver, patch: pytest.MonkeyPatch, *pids: int) -> None:
        super().__init__(nvml, FakeDevice(processes=tuple(FakeProcess(pid) for pid in pids)))
        self.began = self.clock.now
        really = time.time
        patch.setattr(time, "time", lambda: really() + self.clock.now - self.began)
        assert set(self.after()) == {(0, 0, 0, 0)}

    def after(self, *rows: FakeUsage, seconds: float = 2.0) -> list[tuple[int | None, ...]]:
        ms = round(1000 * (self.clock.now + seconds - self.began))
        rows = tuple(replace(row, age_ms=row.age_ms - ms) for row in rows)
        self.nvml.change(0, usage=rows)
        processes = self.reading(seconds).processes
        for process in processes:
            for name, value in zip(UTILIZATIONS, usage(process), strict=True):
                assert process.absent.get(name) is (Absence.ERROR if value is None else None)
        return [usage(process) for process in processes]


Watch = Callable[..., Watched]


@pytest.fixture(params=["newer", "older"])
def watch(
    request: pytest.FixtureRequest, nvml: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> Watch:
    if request.param == "older":
        nvml.change_machine(fail={NEWER: FUNCTION_NOT_FOUND})
    return partial(Watched, nvml, monkeypatch)


def test_what_each_process_uses(watch: Watch) -> None:
    watched = watch(11, 12, 13)
    found = watched.after(FakeUsage(11, 55, 44, 33, 22), FakeUsage(13, 1, 2, 3, 4))
    assert found == [(55, 44, 33, 22), (0, 0, 0, 0), (1, 2, 3, 4)]
    assert watched.after(FakeUsage(12, 9)) == [(0,) * 4, (9, 0, 0, 0), (0,) * 4]
    assert set(watched.after(seconds=2.0)) == {(0, 0, 0, 0)}


def test_the_newest_row_of_a_process_counts(watch: Watch) -> None:
    rows = [FakeUsage(7, percent, age_ms=age) for percent, age in ((10, 600), (20, 100), (30, 300))]
    assert watch(7).after(*rows) == [(20, 0, 0, 0)]


def test_the_first_answer_goes_back_too_far(nvml: FakeDriver) -> None:
    reading = read(nvml, FakeDevice(processes=(FakeProcess(7),), usage=(FakeUsage(7, 95),)))
    assert usage(reading.processes[0]) == (None, None, None, None)
    assert reading.processes[0].absent["sm_utilization_percent"] is Absence.NO_DATA_YET


def test_an_impossible_percentage_is_missing_and_the_others_are_not(watch: Watch) -> None:
    watched = watch(7, 8, 9)
    rows = (FakeUsage(7, 101), FakeUsage(8, 50, 20, 0xFFFFFFFF, 200), FakeUsage(9, 12))
    found = [(None, 0, 0, 0), (50, 20, None, None), (12, 0, 0, 0)]
    assert watched.after(*rows) == found
    assert watched.after(FakeUsage(7, 30)) == [(30, 0, 0, 0), (0,) * 4, (0,) * 4]


def test_rows_from_before_are_left_out(watch: Watch) -> None:
    watched = watch(7)
    watched.after(FakeUsage(7, 60))
    old = FakeUsage(7, 95, age_ms=60_000)
    assert watched.after(old) == [(0, 0, 0, 0)]
    assert watched.after(old, FakeUsage(7, 5)) == [(5, 0, 0, 0)]
    ahead = FakeUsage(7, 95, age_ms=-2900)
    assert watched.after(ahead, FakeUsage(7, 6)) == [(6, 0, 0, 0)]


@pytest.mark.parametrize(
    ("code", "absence"),
    [
        (NOT_FOUND, None),
        (NOT_SUPPORTED, Absence.NOT_SUPPORTED),
        (NO_PERMISSION, Absence.NO_PERMISSION),
        (INSUFFICIENT_SIZE, Absence.ERROR),
    ],
)
def test_why_it_is_not_known(nvml: FakeDriver, code: int, absence: Absence | None) -> None:
    processes = (FakeProcess(7, sm_percent=50), FakeProcess(8, "graphics"))
    reading = read(nvml, FakeDevice(processes=processes, fail={NEWER: code, OLDER: code}))
    assert [process.pid for process in reading.processes] == [7, 8]
    for process in reading.processes:
        assert process.absent.get("sm_utilization_percent") == absence
        assert usage(process) == ((0,) * 4 if absence is None else (None,) * 4)
        assert process.memory_used_bytes == 1 << 30
        assert "memory_used_bytes" not in process.absent
    assert "processes" not in reading.sample.absent


def test_a_process_in_several_lists_is_one(nvml: FakeDriver) -> None:
    processes = (
        FakeProcess(7, "graphics", 10),
        FakeProcess(6, "compute", 200),
        FakeProcess(6, "graphics", 210),
        FakeProcess(1, "mps", 100),
        FakeProcess(2, "mps", 200),
        FakeProcess(2, "compute", 250),
        FakeProcess(3, "compute"),
        FakeProcess(4, "compute"),
        FakeProcess(4, "graphics", None),
        FakeProcess(4, "mps", None),
        FakeProcess(5, "mps", None),
    )
    reading = read(nvml, FakeDevice(processes=processes))
    found = [(each.pid, each.kind.value, each.memory_used_bytes) for each in reading.processes]
    assert found == [
        (1, "mps", 100),
        (2, "mps", 250),
        (3, "compute", 1 << 30),
        (4, "mps", 1 << 30),
        (5, "mps", None),
        (6, "compute+graphics", 210),
        (7, "graphics", 10),
    ]
    assert reading.processes[4].absent["memory_used_bytes"] is Absence.NOT_SUPPORTED
    assert "processes" not in reading.sample.absent


@pytest.mark.parametrize(
    ("version", "right", "wrong"),
    [
        ("535.42", "v3", "v2"),
        ("535.43.02", "v2", "v3"),
        ("535.86.10", "v2", "v3"),
        ("535.87", "v3", "v2"),
        (None, "v3", "v2"),
    ],
)
def test_lists_whose_rows_are_too_wide_are_not_read(
    nvml: FakeDriver, version: str | None, right: str, wrong: str
) -> None:
    OneDevice(nvml, FakeDevice(), version).read()
    calls = nvml.calls(0)
    assert calls[f"nvmlDeviceGetComputeRunningProcesses_{right}"] == 1
    assert calls[f"nvmlDeviceGetComputeRunningProcesses_{wrong}"] == 0


def test_pids_that_are_none(nvml: FakeDriver) -> None:
    pids = (0, 71, LARGEST_PID, (1 << 31) + 5, (1 << 32) - 1)
    reading = read(nvml, FakeDevice(processes=tuple(FakeProcess(pid, "mps") for pid in pids)))
    assert [process.pid for process in reading.processes] == [71, LARGEST_PID]
    assert reading.sample.absent["processes"] is Absence.ERROR
