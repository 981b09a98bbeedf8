"""The instruments of the comparison: what they say of programs whose figures are known."""

from __future__ import annotations

import os
import time

from tests.perf.measure import Recorder, processor_seconds, pss
from tests.terminal import Terminal


def test_the_time_of_a_text_is_that_of_its_output_however_late_it_is_looked_at() -> None:
    with Recorder(["sh", "-c", "printf one; read _; printf two; read _"]) as terminal:
        one = terminal.when(lambda t: "one" in t.text)
        sent = terminal.elapsed
        terminal.send("\r")
        two = terminal.when(lambda t: "two" in t.text, first=0.5)
        looked = terminal.elapsed
    assert one is not None
    assert two is not None
    assert one < sent < two
    assert looked - sent > 0.5
    assert looked - two > 0.1


def test_what_does_not_come_is_none_at_once_where_the_program_has_ended() -> None:
    with Recorder(["true"]) as terminal:
        assert terminal.when(lambda t: "one" in t.text, timeout=60.0) is None
        assert terminal.elapsed < 30


def test_nothing_is_seen_of_a_screen_that_nobody_looked_at() -> None:
    with Recorder(["sh", "-c", "printf one; read _"]) as terminal:
        while not terminal.pieces:
            terminal.collect(0.05)
        assert terminal.text.strip() == ""
        terminal.look()
        assert terminal.text.strip() == "one"


def test_processor_time_is_that_of_a_process_and_of_its_children_that_ended() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    with Terminal(["sh", "-c", f"python3 -c '{busy}'; printf done; read _"]) as terminal:
        terminal.wait_for("done", timeout=60)
        used = processor_seconds(terminal.processes())
        assert 0.25 < used < 3.0
        terminal.collect(0.3)
        assert processor_seconds(terminal.processes()) - used < 0.1  # it sleeps


def test_processor_time_and_memory_of_who_is_gone_are_nothing() -> None:
    pid = os.posix_spawnp("true", ["true"], os.environ)
    os.waitpid(pid, 0)
    assert processor_seconds({pid: "true"}) == 0.0
    assert pss(pid) == 0


def test_memory_is_this_process_s() -> None:
    before = pss(os.getpid())
    more = bytearray(os.urandom(1 << 20)) * 64
    grown = pss(os.getpid()) - before
    assert 60 << 20 < grown < 70 << 20, len(more)


def test_the_processor_s_clock_is_finer_than_a_tick() -> None:
    clocks = {processor_seconds({os.getpid(): ""}) for _ in range(100)}
    assert len(clocks) > 10, time.get_clock_info("process_time")
