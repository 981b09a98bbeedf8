import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.agent.lines import to_plain
from gputop.agent.linux import procfs
from gputop.agent.linux.procfs import (
    BOOT_TIME,
    PAGE_BYTES,
    TICKS_PER_SECOND,
    Stat,
    is_process,
    parse_stat,
    read_stat,
)
from gputop.agent.snapshot import Process, ProcessKind
from tests.agent.fake_proc import FakeProc, stat_line


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProc:
    return FakeProc(tmp_path, monkeypatch)


def test_nothing_stays_open(proc: FakeProc) -> None:
    proc.add()
    before = os.listdir("/proc/self/fd")  # noqa: PTH208
    read_stat(7, proc.path)
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208


def test_a_line_of_the_kernel_is_understood() -> None:
    assert parse_stat(
        stat_line(7, parent=5, user_ticks=30, system_ticks=4, start=500, pages=3)
    ) == Stat("python", 5, 34, 500, 3 * PAGE_BYTES, "S")


@given(st.binary(max_size=15))
def test_a_name_may_be_anything(name: bytes) -> None:
    stat = parse_stat(stat_line(name=name, parent=5))
    assert stat.name.encode("utf-8", "surrogateescape") == name
    assert stat.parent_pid == 5


@pytest.mark.parametrize("step", [0, -7200, 1, 86400])
def test_a_process_is_known_when_the_clock_was_set(
    monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    pid = os.getpid()
    mine = read_stat(pid).started
    monkeypatch.setattr(procfs, "boot_time", lambda _: BOOT_TIME + step)
    stat = read_stat(pid)
    process = Process(pid, "GPU-1", ProcessKind.COMPUTE, start_time=stat.started)
    assert to_plain(process)["start_time"] == mine
    assert is_process(stat, mine)
    assert is_process(stat, mine + step)
    assert not is_process(stat, mine - step - 1)


@pytest.mark.parametrize("ticks", [-100, -1, 1, 100])
def test_another_start_is_another_process(ticks: int) -> None:
    stat = parse_stat(stat_line())
    assert is_process(stat, stat.started)
    assert not is_process(stat, stat.started + ticks / TICKS_PER_SECOND)
