"""The terminal for end-to-end tests, on programs small enough to know what they do."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.terminal import ScreenError, Terminal, processes_of

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT = "import sys; sys.stdin.readline()"


def python(program: str, columns: int = 80, rows: int = 24) -> Terminal:
    return Terminal([sys.executable, "-u", "-c", program], columns=columns, rows=rows)


def test_the_program_has_a_terminal_of_its_own() -> None:
    program = """if True:
        import os, sys
        assert os.isatty(0) and os.isatty(1) and os.isatty(2)
        assert os.getsid(0) == os.getpid() == os.tcgetpgrp(0)
        print(os.get_terminal_size(), os.path.basename(os.ctermid()), open("/dev/tty").isatty())
    """
    with python(program, columns=100, rows=30) as terminal:
        assert terminal.wait() == 0
        assert "terminal_size(columns=100, lines=30) tty True" in terminal.text.replace("os.", "")


def test_a_failed_wait_shows_the_screen() -> None:
    with python(f"print('something else'); {WAIT}") as terminal:
        terminal.wait_for("else")
        with pytest.raises(ScreenError, match=r"no 'wanted' after 0\.1 s(?s:.*)something else"):
            terminal.wait_for("wanted", timeout=0.1)
        with pytest.raises(ScreenError, match="still running"):
            terminal.wait(timeout=0.1)
        terminal.send("\r")
        with pytest.raises(ScreenError, match="when the output ended"):
            terminal.wait_for("wanted", timeout=20)


def test_every_descendant_is_found() -> None:
    """Also one in a session of its own, whose parent is gone."""
    program = """if True:
        import subprocess, sys
        child = "import subprocess, sys; subprocess.Popen(%r, start_new_session=True); print('ok')"
        lasting = [sys.executable, "-c", "import signal; signal.pause()"]
        subprocess.run([sys.executable, "-c", child % lasting], stdout=sys.stdout, check=True)
    """
    with python(program) as terminal:
        terminal.wait_for("ok")
        assert terminal.wait() == 0
        with pytest.raises(ScreenError, match=r"still there(?s:.*)signal\.pause"):
            terminal.wait_until_gone(timeout=0.1)
        assert "signal.pause" in "".join(terminal.processes().values())
    assert processes_of(terminal.run_id) == {}


FRAME = """if True:
    import sys, time, tty
    tty.setraw(0)
    sys.stdout.write("\\x1b[?2026$p")
    answer = "".join(iter(lambda: sys.stdin.read(1), "y"))
    sys.stdout.write("\\x1b[?2026hfirst row" + answer[-2:])
    time.sleep(0.1)
    sys.stdout.write("last row\\x1b[?2026l" if sys.argv[1:] else "")
    sys.stdin.read()
"""


@pytest.mark.parametrize("wait", [Terminal.wait_for, lambda t, true: t.answer("", true)])
def test_what_is_waited_for_is_looked_for_in_whole_frames(
    wait: Callable[[Terminal, Callable[[Terminal], bool]], float],
) -> None:
    looks = []

    def look(terminal: Terminal) -> bool:
        looks.append("last row" in terminal.text)
        return "first row2$" in terminal.text

    with Terminal([sys.executable, "-u", "-c", FRAME, "whole"]) as terminal:
        wait(terminal, look)
    assert looks[-1]
