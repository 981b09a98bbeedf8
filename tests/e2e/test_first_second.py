"""The first second: a frame before anything is loaded, which the app takes over unnoticed."""

from __future__ import annotations

import shlex
import signal
import sys
import termios
from typing import TYPE_CHECKING

import pytest

from tests.e2e.shipped import NO_DRIVER, dashboard, device, see
from tests.terminal import ALTERNATE_SCREEN, SHOW_CURSOR, Terminal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.driver import FakeDriver

STUCK = """
import signal, sys, types
from gputop import __main__
sys.modules["gputop.cli"] = cli = types.ModuleType("gputop.cli")
def main():
    {body}
cli.main = main
sys.exit(__main__.main())
"""
"""The program with something else in place of all that comes after the first frame."""
HIDDEN = "import os; from gputop.ui.terminal.skeleton import SKELETON; SKELETON.hide()"
TABS = 45
"""Cells of the first row that stay: then come host and time."""


def stuck(body: str) -> Terminal:
    return Terminal([sys.executable, "-c", STUCK.format(body=body)], NO_DRIVER, 100, 30)


def is_there(terminal: Terminal) -> bool:
    return terminal.text.rstrip().endswith(" q Quit")


def cells(terminal: Terminal) -> list[object]:
    """What the first frame has for good, as it looks: a blank in any ink is a blank."""
    rows, width = terminal.screen.buffer, terminal.screen.columns
    last = terminal.screen.lines - 1
    found = [
        *(rows[0][x] for x in range(TABS)),
        *(rows[y][x] for y in (1, last) for x in range(width)),
    ]
    return [
        each._replace(fg="default", bold=False)
        if each.data == " " and not (each.reverse or each.underscore)
        else each
        for each in found
    ]


def assert_restored(terminal: Terminal) -> None:
    assert ALTERNATE_SCREEN not in terminal.modes
    assert SHOW_CURSOR in terminal.modes
    assert terminal.line_modes == terminal.line_modes_before


@pytest.mark.daily(3)
@pytest.mark.driver
@pytest.mark.parametrize(
    ("env", "words", "size"),
    [
        ({}, (), (80, 24)),
        ({}, ("--theme", "light"), (120, 40)),
        ({"COLORTERM": "truecolor"}, ("--theme=colour-blind",), (200, 60)),
        ({"TERM": "xterm"}, ("--readonly",), (80, 24)),
        ({"TERM": "linux"}, (), (100, 30)),
        ({"NO_COLOR": "1"}, ("--interval", "0.5"), (80, 24)),
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, (), (60, 12)),
        ({"TEXTUAL_COLOR_SYSTEM": "standard"}, ("--ascii", "--no-mouse"), (80, 24)),
    ],
    ids=str,
)
def test_the_app_takes_over_without_a_change(
    driver: FakeDriver, env: Mapping[str, str], words: tuple[str, ...], size: tuple[int, int]
) -> None:
    driver.write(device(0), init_delay_ms=60_000)
    terminal = dashboard(*words, env={**driver.environment(), **env}, columns=size[0], rows=size[1])
    with terminal:
        terminal.wait_for(is_there)
        assert b"?2004h" not in terminal.raw, "the app is there already"
        first, changed = cells(terminal), list[int]()

        def check(terminal: Terminal) -> None:
            if cells(terminal) != first:
                changed.append(terminal.bytes_received)

        terminal.on_read = check
        see(terminal, "for the NVIDIA driver to answer")
        assert not changed
        assert terminal.raw.count(b"\x1b[?1049h") == 1
        terminal.send("q")
        assert terminal.wait() == 0
        assert_restored(terminal)


def test_keys_that_are_typed_early_are_for_the_app() -> None:
    with dashboard("--demo") as terminal:
        terminal.wait_for(is_there)
        assert not terminal.line_modes[3] & (termios.ECHO | termios.ICANON)
        terminal.send("3")
        see(terminal, "GPU▲", "SIMULATED", without=("  busy  ━",))
        assert terminal.screen.buffer[0][35].reverse, "the third tab"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_it_before_the_app_is_there(number: signal.Signals) -> None:
    with stuck("signal.pause()") as terminal:
        terminal.wait_for(is_there)
        terminal.kill(number)
        assert terminal.wait() == 130
        assert_restored(terminal)
        assert not terminal.text.strip()


def test_ctrl_c_ends_it_before_the_app_is_there() -> None:
    with stuck("signal.pause()") as terminal:
        terminal.wait_for(is_there)
        terminal.send("\x1a\x1c")  # these are for the app: they would leave the frame behind
        terminal.send("\x03")
        assert terminal.wait() == 130
        assert_restored(terminal)


def test_what_a_parent_ignores_is_still_ignored() -> None:
    """As `nohup` does."""
    body = "import os; os.kill(os.getpid(), 1); print('\\033[5Halive', flush=True); signal.pause()"
    words = [sys.executable, "-c", STUCK.format(body=body)]
    argv = ["/bin/sh", "-c", f"trap '' HUP; exec {shlex.join(words)}"]
    with Terminal(argv, NO_DRIVER, 100, 30) as terminal:
        see(terminal, "alive", "Quit")


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("raise RuntimeError('of it')", 1, "RuntimeError: of it"),
        ("import no_such_module", 1, "No module named 'no_such_module'"),
        ("from gputop.commands.arguments import fail; fail('so it is', 3)", 3, "error: so it is"),
        ("raise KeyboardInterrupt", 130, ""),
        (f"{HIDDEN}; print('later', flush=True); os.kill(os.getpid(), 15)", 130, "later"),
        ("return 4", 4, ""),
    ],
)
def test_an_error_before_the_app_can_be_read(body: str, status: int, said: str) -> None:
    with stuck(body) as terminal:
        assert terminal.wait() == status
        assert b" q" in terminal.raw
        assert_restored(terminal)
        assert said in terminal.text
        assert bool(said) == bool(terminal.text.strip())


def test_a_child_of_it_leaves_the_terminal_alone() -> None:
    """As the sampler, which is forked: it ends by a signal, and the frame stays."""
    body = "import os\n    if os.fork() == 0: os.kill(os.getpid(), 15)\n"
    body += "    os.wait(); print('\\033[5Hended', flush=True); signal.pause()"
    with stuck(body) as terminal:
        see(terminal, "ended", "Quit")
        assert ALTERNATE_SCREEN in terminal.modes


@pytest.mark.parametrize(
    ("words", "env", "size"),
    [
        (("--no-such-option",), {}, (100, 30)),
        (("--demo", "--theme", "red"), {}, (100, 30)),
        (("--demo",), {"TERM": "dumb"}, (100, 30)),
        (("--version",), {}, (100, 30)),
    ],
)
def test_other_words_write_no_frame(
    words: tuple[str, ...], env: Mapping[str, str], size: tuple[int, int]
) -> None:
    with dashboard(*words, env={**NO_DRIVER, **env}, columns=size[0], rows=size[1]) as terminal:
        terminal.wait()
        assert b"\x1b[" not in terminal.raw
        assert "gputop" in terminal.text


def test_a_terminal_that_takes_no_output_gets_no_frame(tmp_path: Path) -> None:
    """As after Ctrl+S: to write would wait for a reader."""
    body = "from gputop.ui.terminal.skeleton import SKELETON\n"
    body += f"    open({str(tmp_path / 'shown')!r}, 'w').write(str(SKELETON.modes is not None))"
    program = STUCK.format(body=body)
    stopped = f"import sys, termios; termios.tcflow(1, termios.TCOOFF)\n{program}"
    with Terminal([sys.executable, "-c", stopped], NO_DRIVER, 100, 30) as terminal:
        assert terminal.wait() == 0
        assert (tmp_path / "shown").read_text() == "False"
