"""How it ends with something in the way: a terminal that stalls, a signal, a fault of its own."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import sys
import termios
import threading
import time

import pytest

from tests.terminal import ALTERNATE_SCREEN, SHOW_CURSOR, Terminal

NO_DRIVER = {"LD_LIBRARY_PATH": ""}
GPUTOP = [sys.executable, "-P", "-m", "gputop", "--demo", "--interval", "0.25"]

FAULTY = """
import sys
from gputop.cli import main
from gputop.ui.screens.monitor import MonitorTab

def fails(self):
    secret = "a local variable"
    raise RuntimeError("on\\x1b[2J purpose")

MonitorTab.action_density = fails
sys.exit(main(["--demo"]))
"""


def waiting_bytes(terminal: Terminal) -> int:
    """How much the terminal holds that nobody has read."""
    answer = fcntl.ioctl(terminal._master, termios.FIONREAD, b"\0" * 4)
    (count,) = struct.unpack("i", answer)
    assert isinstance(count, int)
    return count


def ticks(pid: int) -> int:
    """Processor time that a process has used, in clock ticks."""
    with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - bytes of a special file
        fields = file.read().rpartition(b")")[2].split()
    return int(fields[11]) + int(fields[12])


def stall(terminal: Terminal) -> None:
    """Has it write, and reads nothing, until it does nothing any more but wait to write."""
    pause, deadline = threading.Event(), time.monotonic() + 30
    still, before = 0, (-1, -1)
    while still < 8:
        assert time.monotonic() < deadline, "it never stalled"
        if still == 0:
            terminal.send("21")
        pause.wait(0.15)
        now = waiting_bytes(terminal), ticks(terminal.pid)
        still = still + 1 if now == before else 0
        before = now
    assert waiting_bytes(terminal) > 0


def end_unread(terminal: Terminal, seconds: float) -> bool:
    """Whether all its processes end within that time while nothing is read of what they wrote."""
    deadline = time.monotonic() + seconds
    for pid in terminal.processes():
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ready, _, _ = select.select([pidfd], [], [], max(0.0, deadline - time.monotonic()))
        os.close(pidfd)
        if not ready:
            return False
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_it_even_where_nobody_reads_the_terminal(number: signal.Signals) -> None:
    with Terminal(GPUTOP, env=NO_DRIVER, columns=200, rows=60) as terminal:
        terminal.wait_for("7 H100")
        before = len(terminal.processes())
        assert before == 2
        stall(terminal)
        terminal.kill(number)
        assert end_unread(terminal, 2.0), terminal.processes()
        assert terminal.wait() == 130


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_restores_the_terminal_and_is_told_in_the_exit_status(
    number: signal.Signals,
) -> None:
    with Terminal(GPUTOP, env=NO_DRIVER) as terminal:
        terminal.wait_for("7 H100")
        terminal.kill(number)
        assert terminal.wait() == 130
        assert ALTERNATE_SCREEN not in terminal.modes
        assert SHOW_CURSOR in terminal.modes
        terminal.wait_until_gone(2)


@pytest.mark.parametrize("debug", ["", "1"])
def test_a_fault_of_its_own_ends_it_with_one_line(debug: str) -> None:
    argv = [sys.executable, "-P", "-c", FAULTY]
    env = {**NO_DRIVER, "GPUTOP_DEBUG": debug}
    with Terminal(argv, env=env, columns=160, rows=40) as terminal:
        terminal.wait_for("7 H100")
        terminal.send("c")
        assert terminal.wait() == 1
        assert ALTERNATE_SCREEN not in terminal.modes
        assert ("a local variable" in terminal.text) == bool(debug)
        assert ("Traceback" in terminal.text) == bool(debug)
        if not debug:
            (line,) = terminal.text.strip().splitlines()
            assert "RuntimeError: on␛[2J purpose" in line
            assert "Please report it" in line
        terminal.wait_until_gone(2)


@pytest.mark.parametrize(
    "locale",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "latin-1"},
    ],
    ids=["C", "latin-1"],
)
def test_lines_and_charts_are_drawn_whatever_the_locale_says(locale: dict[str, str]) -> None:
    with Terminal(GPUTOP, env={**NO_DRIVER, **locale}, columns=120, rows=40) as terminal:
        terminal.wait_for("7 H100")
        terminal.wait_for("━")
        assert "\\u" not in terminal.text
        assert b"\\u2" not in terminal.raw
