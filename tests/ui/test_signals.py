"""Signals to processes, real ones where they can be had."""

from __future__ import annotations

import errno
import os
import signal
import subprocess

import pytest

from gputop.agent.linux import procfs
from gputop.agent.linux.procfs import Stat, read_stat
from gputop.ui.processes.signals import send_signal
from tests.agent.test_procfs import BOUND, NOBODY, child, proc, start_of

__all__ = ["child", "proc"]


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1, signal.SIGUSR2], ids=str
)
def test_a_signal_arrives(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    assert send_signal(child.pid, start_of(child), number) is None
    assert child.wait(BOUND) == -number


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
    problem = send_signal(child.pid, stat.started, signal.SIGTERM)
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
    start = read_stat(1).started
    problem = send_signal(pid, start, signal.SIGTERM)
    assert problem is not None
    assert str(problem).endswith("Choose another process")
    assert reached == []


def test_this_program_does_not_signal_itself() -> None:
    problem = send_signal(os.getpid(), read_stat(os.getpid()).started, signal.SIGKILL)
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
