import subprocess
import sys
import threading

import pytest

from gputop.agent.threads import SlowResults, call_in_thread


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


def test_calls_that_hang_are_64_at_most_and_each_argument_is_called_once() -> None:
    gate = threading.Event()
    hung = SlowResults[int, bool](lambda _: gate.wait(60), 0.0)
    before = threading.active_count()
    for number in (*range(63), 0, 63, 64):
        assert hung.get(number, again=True) is None
    assert threading.active_count() == before + 64
    gate.set()


def test_a_result_is_kept_until_a_newer_one_is_wanted_or_nobody_asks() -> None:
    def slow(number: int) -> list[int]:
        threading.Event().wait(0.05)
        return [number]

    results = SlowResults(slow, 60.0)
    first = results.get(7)
    assert first == [7]
    results.keep({7})
    assert results.get(7) is first
    newer = results.get(7, again=True)
    assert newer is not first
    results.keep({8})
    assert results.get(7) is not newer


def test_an_error_is_raised_where_the_result_is_waited_for() -> None:
    with pytest.raises(ZeroDivisionError):
        call_in_thread(lambda: 1 / 0).result(60)
    gate = threading.Event()
    waiting = call_in_thread(gate.wait)
    assert not waiting.cancel(), "the thread cannot be"
    gate.set()
