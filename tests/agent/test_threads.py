"""Threads that a program does not wait for, at its end."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable

from gputop.agent.threads import SlowResults


def test_no_thread_starts_while_the_program_ends() -> None:
    """Until Python 3.12 one that does may crash it: `Segmentation fault` after the last output."""
    program = """if True:
        import atexit, threading

        started = 0
        def after_it() -> None:  # what is registered first is called last
            before, _ = started, threading.Event().wait(0.2)
            print("went on" if started > before else "stopped", before > 0)
        atexit.register(after_it)

        from gputop.agent.threads import start_daemon

        some = threading.Event()
        def start_more() -> None:
            global started
            while True:
                start_daemon(some.set)
                started += 1
        threading.Thread(target=start_more, daemon=True).start()
        some.wait()
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"stopped True\n"
    assert not done.stderr


def test_a_call_that_hangs_delays_no_other_one() -> None:
    gates = {number: threading.Event() for number in range(3)}
    calls: list[int] = []

    def function(number: int) -> str:
        calls.append(number)
        assert gates[number].wait(60)
        return f"result {number}"

    results = SlowResults(function, patience=0.01, most=2)
    gates[1].set()
    assert results.get(0) is None
    assert results.get(0) is None
    until(lambda: results.get(1) == "result 1")
    assert calls == [0, 1]
    gates[1].clear()
    results.keep({1, 2})  # it is still running
    assert results.get(0) is None
    assert results.get(1, again=True) == "result 1"  # the one before
    assert results.get(2) is None  # two calls are running
    until(lambda: calls == [0, 1, 1])
    for gate in gates.values():
        gate.set()
    until(lambda: results.get(0) == "result 0")
    until(lambda: results.get(2) == "result 2")
    assert calls == [0, 1, 1, 2]


def until(there: Callable[[], bool]) -> None:
    deadline, pause = time.monotonic() + 60, threading.Event()
    while not there():
        assert time.monotonic() < deadline
        pause.wait(0.01)
