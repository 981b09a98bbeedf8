"""A child that is forked: what it has of its parent, and what its parent sees of it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gputop.stream.launch import can_fork
from tests.e2e.shipped import GPUTOP, NO_DRIVER, see
from tests.terminal import Terminal

BOUND = 60.0
START = """
import gc, json, os, select, signal, subprocess, sys, time
from gputop.stream.launch import Forked, can_fork
def of(work, title=("gputop", "stream", "--interval", "1", "x" * 5000)):
    assert can_fork()
    return Forked(work, title)
"""


def said_by(program: str, *options: str, cwd: Path | None = None) -> Any:
    """What a program prints as JSON: the process of the tests has threads, and may not fork."""
    done = subprocess.run(
        [sys.executable, *options, "-c", START + program],
        stdout=subprocess.PIPE,
        check=True,
        timeout=BOUND,
        cwd=cwd,
    )
    return json.loads(done.stdout)


def test_a_child_has_pipes_and_nothing_else(tmp_path: Path) -> None:
    """No descriptors, signals or session of its parent's, and no modules from where it was."""
    program = """
gc.disable()
extra = os.open("/dev/null", os.O_RDONLY)
os.set_inheritable(extra, True)
signal.signal(signal.SIGTERM, lambda *_: None)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
def work():
    import ctypes
    told = ctypes.c_int()
    ctypes.CDLL(None).prctl(2, ctypes.byref(told))
    line = sys.stdin.readline()
    facts = {
        "line": line,
        "open": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
        "leads": os.getsid(0) == os.getpid(),
        "default": signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
        "ignored": signal.getsignal(signal.SIGHUP) is signal.SIG_IGN,
        "collects": gc.isenabled(),
        "ends_by": told.value,
        "here": os.getcwd() in sys.path or "" in sys.path,
    }
    os.write(1, json.dumps(facts).encode())
    os.write(2, b"of errors")
child = of(work)
title = open(f"/proc/{child.pid}/cmdline", "rb").read()
while not title.startswith(b"gputop"):
    title = open(f"/proc/{child.pid}/cmdline", "rb").read()
child.stdin.write(b"from outside\\n")
facts = json.loads(child.stdout.read())
errors = child.stderr.read().decode()
print(json.dumps([facts, errors, child.wait(30), child.poll(), title.decode()]))
"""
    facts, errors, status, again, title = said_by(program, cwd=tmp_path)
    assert facts == {
        "line": "from outside\n",
        "open": [0, 1, 2],
        "leads": True,
        "default": True,
        "ignored": True,
        "collects": True,
        "ends_by": 9,
        "here": False,
    }
    assert (errors, status, again) == ("of errors", 0, 0)
    words = title.split("\0")
    assert words[:5] == ["gputop", "stream", "--interval", "1", "x" * len(words[4])]
    assert not any(words[5:])


def test_a_child_that_fails_ends_with_a_traceback_and_runs_nothing_of_its_parent() -> None:
    program = """
def work():
    raise RuntimeError("of the work")
try:
    child = of(work)
finally:
    pid = os.getpid()
    print(pid, file=sys.stderr)
errors = child.stderr.read().decode().splitlines()
print(json.dumps([errors[-1], child.wait(30), len(errors) > 1]))
"""
    assert said_by(program) == ["RuntimeError: of the work", 1, True]


def test_it_is_waited_for_and_signalled_as_others_are() -> None:
    program = """
child = of(lambda: (os.write(1, b"x"), signal.pause()))
child.stdout.read(1)
late = None
try:
    child.wait(0.01)
except subprocess.TimeoutExpired:
    late = child.poll()
    child.send_signal(signal.SIGTERM)
status = child.wait(30)
child.send_signal(signal.SIGTERM)  # to nobody
print(json.dumps([late, status, child.returncode]))
"""
    assert said_by(program) == [None, -15, -15]


def test_it_ends_with_a_parent_that_is_killed() -> None:
    program = """
child = of(lambda: (os.write(1, b"x"), time.sleep(60)))
child.stdout.read(1)
print(json.dumps(child.pid), flush=True)
time.sleep(60)
"""
    with subprocess.Popen(
        [sys.executable, "-c", START + program], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        pidfd = os.pidfd_open(json.loads(parent.stdout.readline()))
        parent.kill()
        assert select.select([pidfd], [], [], BOUND)[0]
        os.close(pidfd)


def test_a_process_with_threads_does_not_fork() -> None:
    program = """
import threading
before, asked = can_fork(), threading.Event()
threading.Thread(target=asked.wait).start()
print(json.dumps([before, can_fork()]))
asked.set()
"""
    assert said_by(program) == [True, False]
    assert isinstance(can_fork(), bool)


def test_the_first_sampler_is_forked_and_the_next_is_not() -> None:
    with Terminal([*GPUTOP, "--demo", "--interval", "0.25"], NO_DRIVER, 100, 30) as terminal:
        see(terminal, "GPU▲")
        ((first, line),) = _children(terminal).items()
        assert line == "gputop stream --interval 0.25 --control --no-gpm --demo"[: len(line)]
        os.kill(first, 9)
        deadline = time.monotonic() + BOUND
        # Until the next one has begun its own program, it appears as a copy of the dashboard.
        while not any(line.startswith(sys.executable) for line in _children(terminal).values()):
            assert time.monotonic() < deadline, _children(terminal)
            terminal.collect(0.1)
        assert first not in _children(terminal)
        terminal.send("q")
        assert terminal.wait() == 0
        terminal.wait_until_gone()


def _children(terminal: Terminal) -> dict[int, str]:
    return {pid: line for pid, line in terminal.processes().items() if pid != terminal.pid}
