"""The terminal for end-to-end tests, on programs small enough to know what they do."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import pytest

from tests.terminal import ALTERNATE_SCREEN, SHOW_CURSOR, ScreenError, Terminal, processes_of

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


def test_waiting_for_text_and_for_a_predicate() -> None:
    with python(f"print('ready'); {WAIT}; print('\\x1b[31mdone\\x1b[0m')") as terminal:
        painted = terminal.wait_for("ready")
        assert 0 < terminal.first_paint_seconds <= painted
        terminal.send("x\r")
        later = terminal.wait_for(lambda t: "done" in t.text)
        assert later >= painted
        column, row = terminal.find("done")
        assert terminal.screen.buffer[row][column].fg == "red"
        assert terminal.wait() == 0
    assert terminal.bytes_received == len(terminal.raw) > 0


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


def test_the_exit_status_and_the_last_words() -> None:
    with python("import sys; print('x' * 100_000 + 'end'); sys.exit(7)") as terminal:
        assert terminal.wait() == 7
        assert terminal.text.split()[-1] == "end"


def test_a_resize_reaches_the_program() -> None:
    program = """if True:
        import os, signal, sys
        signal.signal(signal.SIGWINCH, lambda *_: print(os.get_terminal_size(0).columns, "wide"))
        print("ready")
        sys.stdin.readline()
    """
    with python(program) as terminal:
        terminal.wait_for("ready")
        terminal.resize(132, 50)
        terminal.wait_for("132 wide")
        assert terminal.screen.columns == 132


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_a_signal_ends_the_program(number: signal.Signals) -> None:
    with python(f"print('ready'); {WAIT}") as terminal:
        terminal.wait_for("ready")
        terminal.kill(number)
        assert terminal.wait() == -number


def test_closing_the_pty_hangs_up() -> None:
    with python(f"print('ready'); {WAIT}") as terminal:
        terminal.wait_for("ready")
        terminal.close_pty()
        assert terminal.wait() == -signal.SIGHUP


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


def test_nothing_left_means_gone() -> None:
    with python(f"print('ready'); {WAIT}") as terminal:
        terminal.wait_for("ready")
        assert list(terminal.processes()) == [terminal.pid]
        terminal.send("\r")
        terminal.wait_until_gone()
        assert terminal.wait() == 0


def test_sequences_that_pyte_does_not_know_leave_no_trace() -> None:
    unknown = "".join(
        (
            "\x1b[?2026$p",  # is synchronized output there?
            "\x1b[>1u\x1b[<u\x1b[=1;1u\x1b[?u",  # kitty's keyboard protocol
            "\x1b[>4;2m\x1b[>q\x1b[?6n",  # xterm's keys, version, private cursor report
            "\x1b[4:3m\x1b[0m",  # a curly underline
            "\x1bP+q544e\x1b\\\x1b_Ga=q;AAAA\x1b\\",  # strings: termcap, kitty's pictures
            "\x1b]8;;http://localhost\x1b\\\x1b]0;title\x07\x1b[2 q",
            "\x1b[?2026h",
        )
    )
    # One byte at a time, so that each sequence comes in pieces.
    program = f"""if True:
        import os, tty
        tty.setraw(0)  # or the answer is echoed
        for byte in {("a" + unknown + "b")!r}.encode():
            os.write(1, bytes([byte]))
    """
    with python(program) as terminal:
        assert terminal.wait() == 0
        assert terminal.text.strip() == "ab"
        assert terminal.screen.title == "title"


def test_the_alternate_screen_gives_the_main_one_back() -> None:
    program = f"""if True:
        print("before")
        print("\\x1b[?1049h\\x1b[?25l\\x1b[?1000h\\x1b[Hinside")
        {WAIT}
        print("\\x1b[?1000l\\x1b[?25h\\x1b[?1049lafter")
    """
    with python(program) as terminal:
        terminal.wait_for("inside")
        assert "before" not in terminal.text
        assert {ALTERNATE_SCREEN, 1000} <= terminal.modes
        assert SHOW_CURSOR not in terminal.modes
        terminal.send("\r")
        assert terminal.wait() == 0
        assert terminal.text.split() == ["before", "after"]
        assert not {ALTERNATE_SCREEN, 1000} & terminal.modes
        assert SHOW_CURSOR in terminal.modes


def test_a_question_of_the_program_is_answered() -> None:
    program = """if True:
        import sys, termios, tty
        tty.setcbreak(0)
        sys.stdout.write("\\x1b[6n")
        answer = "".join(iter(lambda: sys.stdin.read(1), "R"))
        print(repr(answer))
    """
    with python(program) as terminal:
        terminal.wait_for("[1;1")


def test_traffic_is_counted() -> None:
    with python(f"import os; os.write(1, b'ready'); {WAIT}; os.write(1, b'x' * 40)") as terminal:
        terminal.wait_for("ready")
        assert terminal.collect(0.05) == 0
        assert terminal.bytes_received == len("ready")
        terminal.send("\r")  # which the terminal echoes as two bytes
        assert terminal.wait() == 0
        assert terminal.bytes_received == len("ready") + 2 + 40


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


def test_a_frame_without_an_end_is_waited_for_only_so_long() -> None:
    with Terminal([sys.executable, "-u", "-c", FRAME]) as terminal:
        terminal.wait_for("first row")


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        Terminal(["no-such-program-anywhere"])
