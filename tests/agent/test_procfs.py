"""Single processes in /proc, real ones where they can be had; and signals to them."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.agent.lines import to_plain
from gputop.agent.linux import procfs
from gputop.agent.linux.process_details import read_details
from gputop.agent.linux.procfs import (
    BOOT_TIME,
    PAGE_BYTES,
    TICKS_PER_SECOND,
    Stat,
    boot_time,
    is_process,
    parse_stat,
    read_stat,
)
from gputop.agent.linux.signals import send_signal
from gputop.agent.problem import ProblemError
from gputop.agent.snapshot import Process, ProcessKind
from tests.agent.fake_proc import FakeProc, stat_line

BOUND = 60.0
NOBODY = 0x7FFFFFFF
CAT = shutil.which("cat") or "cat"


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProc:
    return FakeProc(tmp_path, monkeypatch)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits for its input to end, with an environment that is not harmless."""
    variables = {
        b"A": b"b=c",
        b"EMPTY": b"",
        b"ESC": b"\x1b[31m",
        b"RAW": b"\xff",
        b"\xc3\xa4": b"2",
    }
    with cat(variables) as process:
        yield process
        process.kill()


def cat(variables: Mapping[bytes, bytes]) -> subprocess.Popen[bytes]:
    """One that runs: until then its environment is empty, even when exec has closed its files."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([CAT], stdin=pipe, stdout=pipe, env=variables, bufsize=0)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    assert process.stdout.read(1)
    return process


def start_of(process: subprocess.Popen[bytes]) -> float:
    return read_stat(process.pid).started(BOOT_TIME)


def until(condition: Callable[[], bool]) -> None:
    """Waits for what the kernel does not report."""
    end = time.monotonic() + BOUND
    while not condition():
        assert time.monotonic() < end
        threading.Event().wait(0.01)


def test_a_line_of_the_kernel_is_understood() -> None:
    assert parse_stat(
        stat_line(7, parent=5, user_ticks=30, system_ticks=4, start=500, pages=3)
    ) == Stat("python", 5, 34, 500, 3 * PAGE_BYTES, "S")


def test_this_process() -> None:
    stat, other = read_stat(os.getpid()), psutil.Process()
    assert stat.name == other.name()[:15]
    assert stat.parent_pid == os.getppid()
    assert stat.cpu_ticks / TICKS_PER_SECOND == pytest.approx(sum(os.times()[:2]), abs=0.5)
    assert stat.started(BOOT_TIME) == other.create_time()
    # The kernel counts apart for each thread, and adds up when it comes to it.
    assert stat.resident_bytes == pytest.approx(other.memory_info().rss, rel=0.2)


@given(st.binary(max_size=15))
def test_a_name_may_be_anything(name: bytes) -> None:
    stat = parse_stat(stat_line(name=name, parent=5))
    assert stat.name.encode("utf-8", "surrogateescape") == name
    assert stat.parent_pid == 5


@given(st.one_of(st.binary(), st.binary().map(lambda junk: b"7 (a) S " + junk)))
def test_nonsense_is_a_value_error(data: bytes) -> None:
    with suppress(ValueError):
        assert parse_stat(data).resident_bytes >= 0


@pytest.mark.parametrize("data", [b"", b"7", b"7 (a", b"7 (a)", stat_line().replace(b"500", b"x")])
def test_a_stat_that_breaks_off(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"stat|invalid literal"):
        parse_stat(data)


def test_the_resident_size_is_never_negative() -> None:
    assert parse_stat(stat_line(pages=-2)).resident_bytes == 0


def test_boot_time_is_the_kernels(proc: FakeProc) -> None:
    assert boot_time(proc.path) == 1700000000
    assert boot_time() == psutil.boot_time()


@pytest.mark.parametrize("content", [None, b"cpu  1 2 3\n"])
def test_boot_time_without_the_kernels(proc: FakeProc, content: bytes | None) -> None:
    """/proc is mounted with subset=pid."""
    if content is None:
        (proc.root / "stat").unlink()
    else:
        proc.write("stat", content)
    assert boot_time(proc.path) == pytest.approx(psutil.boot_time(), abs=1)


def test_a_process_is_known_across_the_stream(child: subprocess.Popen[bytes]) -> None:
    """Where floats are rounded."""
    stat = read_stat(child.pid)
    process = Process(child.pid, "GPU-1", ProcessKind.COMPUTE, start_time=stat.started(BOOT_TIME))
    assert is_process(stat, to_plain(process)["start_time"])


@pytest.mark.parametrize("step", [-7200, 1, 86400])
def test_a_process_is_known_when_the_clock_was_set(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Between this process's start and the sampler's; each counts from what it saw first."""
    mine = start_of(child)
    monkeypatch.setattr(procfs, "boot_time", lambda _: BOOT_TIME + step)
    stat = read_stat(child.pid)
    assert stat.started(BOOT_TIME) == mine
    assert is_process(stat, mine)
    assert is_process(stat, mine + step)
    assert not is_process(stat, mine - step)


@pytest.mark.parametrize("ticks", [-100, -1, 1, 100])
def test_another_start_is_another_process(child: subprocess.Popen[bytes], ticks: int) -> None:
    stat = read_stat(child.pid)
    assert not is_process(stat, stat.started(BOOT_TIME) + ticks / TICKS_PER_SECOND)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1, signal.SIGUSR2], ids=str
)
def test_a_signal_arrives(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    assert send_signal(child.pid, start_of(child), number) is None
    assert child.wait(BOUND) == -number


def test_a_process_is_halted_and_goes_on(child: subprocess.Popen[bytes]) -> None:
    def state() -> bytes:
        return procfs.read(f"/proc/{child.pid}/stat").rpartition(b")")[2].split()[0]

    start = start_of(child)
    assert send_signal(child.pid, start, signal.SIGSTOP) is None
    until(lambda: state() == b"T")
    assert send_signal(child.pid, start, signal.SIGCONT) is None
    until(lambda: state() != b"T")
    child.communicate(timeout=BOUND)
    assert child.returncode == 0


def test_a_pid_that_is_used_again_gets_no_signal(child: subprocess.Popen[bytes]) -> None:
    problem = send_signal(child.pid, start_of(child) - 1.0, signal.SIGKILL)
    assert problem is not None
    assert str(problem) == (
        f"Process {child.pid} got no signal: it ended, and another process has its pid. "
        "Choose it again"
    )
    child.communicate(timeout=BOUND)
    assert child.returncode == 0


def test_a_pid_that_is_used_again_at_the_last_moment(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the check the process ends; what has its pid then gets nothing."""
    stat = read_stat(child.pid)

    def look(*_: object) -> Stat:
        child.communicate(timeout=BOUND)
        return stat

    killed: list[object] = []
    monkeypatch.setattr(procfs, "read_stat", look)
    monkeypatch.setattr(os, "kill", lambda *what: killed.append(what))
    problem = send_signal(child.pid, stat.started(BOOT_TIME), signal.SIGTERM)
    assert problem is not None
    assert problem.why == "it has ended"
    assert killed == []


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM, errno.EINVAL])
def test_a_kernel_or_a_sandbox_without_handles(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(pid: int) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "pidfd_open", fail)
    assert send_signal(child.pid, start_of(child) + 1.0, signal.SIGTERM) is not None
    assert send_signal(child.pid, start_of(child), signal.SIGTERM) is None
    assert child.wait(BOUND) == -signal.SIGTERM


def test_a_python_without_handles(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    assert send_signal(child.pid, start_of(child), signal.SIGTERM) is None
    assert child.wait(BOUND) == -signal.SIGTERM


@pytest.mark.parametrize("handles", [True, False])
@pytest.mark.parametrize("pid", [NOBODY, 1 << 40])
def test_a_process_that_has_gone(
    monkeypatch: pytest.MonkeyPatch, pid: int, *, handles: bool
) -> None:
    if not handles:
        monkeypatch.delattr(os, "pidfd_open")
    problem = send_signal(pid, 1e9, signal.SIGTERM)
    assert problem is not None
    assert (problem.what, problem.why) == (f"Process {pid} got no signal", "it has ended")


@pytest.mark.parametrize("pid", [1, 0, -1, -7])
def test_what_is_no_process_to_signal(monkeypatch: pytest.MonkeyPatch, pid: int) -> None:
    """0 and less are groups of processes, or all of them."""
    reached: list[object] = []
    monkeypatch.setattr(os, "kill", lambda *what: reached.append(what))
    monkeypatch.setattr(os, "pidfd_open", lambda *what: reached.append(what))
    start = read_stat(1).started(BOOT_TIME)
    problem = send_signal(pid, start, signal.SIGTERM)
    assert problem is not None
    assert str(problem).endswith("Choose another process")
    assert reached == []


def test_this_program_does_not_signal_itself() -> None:
    problem = send_signal(os.getpid(), read_stat(os.getpid()).started(BOOT_TIME), signal.SIGKILL)
    assert problem is not None
    assert problem.why == "it is this gputop"


def test_a_signal_that_is_refused(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(handle: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(signal, "pidfd_send_signal", fail)
    problem = send_signal(child.pid, start_of(child), signal.SIGTERM)
    assert problem is not None
    assert problem.why == "it is not yours, or protected"
    assert "root" in problem.remedy


def test_a_number_that_is_no_signal(child: subprocess.Popen[bytes]) -> None:
    problem = send_signal(child.pid, start_of(child), 4096)
    assert problem is not None
    assert problem.why == os.strerror(errno.EINVAL)


def test_a_proc_of_something_else(proc: FakeProc, child: subprocess.Popen[bytes]) -> None:
    proc.write(f"{child.pid}/stat", b"7 (cat) S\n")
    problem = send_signal(child.pid, 1e9, signal.SIGTERM, proc.path)
    assert problem is not None
    assert problem.why == "not the content of /proc/PID/stat"


def test_no_handle_is_left_behind(child: subprocess.Popen[bytes]) -> None:
    def handles() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = handles()
    send_signal(child.pid, start_of(child), 0)
    send_signal(child.pid, 0.0, 0)
    send_signal(child.pid, start_of(child), 4096)
    with pytest.raises(ProblemError):
        read_details(child.pid, 0.0)
    assert handles() == before
