import sys

from tests.e2e.shipped import NO_DRIVER, dashboard
from tests.terminal import ALTERNATE_SCREEN, Terminal

FAULTY = """
import sys
from gputop.cli import main
from gputop.ui.monitor.screen import MonitorTab

def fails(self):
    raise RuntimeError("on\\x1b[2J purpose")

MonitorTab.action_density = fails
sys.exit(main(["--demo"]))
"""


def test_a_fault_of_its_own_ends_it_with_one_line() -> None:
    argv = [sys.executable, "-c", FAULTY]
    with Terminal(argv, env=NO_DRIVER, columns=160, rows=40) as terminal:
        terminal.wait_for("7 H100")
        terminal.send("c")
        assert terminal.wait() == 1
        assert ALTERNATE_SCREEN not in terminal.modes
        (line,) = terminal.text.strip().splitlines()
        assert "RuntimeError: on␛[2J purpose" in line
        assert "Please report it" in line
        terminal.wait_until_gone()


def test_lines_and_charts_are_drawn_whatever_the_locale_says() -> None:
    locale = {"LC_ALL": "", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    env = {**NO_DRIVER, **locale, "PYTHONIOENCODING": "latin-1"}
    with dashboard("--demo", env=env) as terminal:
        terminal.wait_for("7 H100")
        terminal.wait_for("━")
        assert b"\\u" not in terminal.raw


LOADING = """
import signal, sys, types
from gputop import __main__
sys.modules["gputop.cli"] = cli = types.ModuleType("gputop.cli")

def main():
    print("loading", flush=True)
    signal.pause()

cli.main = main
sys.exit(__main__.main())
"""


def test_ctrl_c_while_it_is_loading_ends_it_quietly() -> None:
    with Terminal([sys.executable, "-c", LOADING], env=NO_DRIVER) as terminal:
        terminal.wait_for("loading")
        terminal.send("\x03")
        assert terminal.wait() == 130
        assert "Traceback" not in terminal.text


def test_keys_that_are_typed_while_it_is_loading_are_kept() -> None:
    with dashboard("--demo") as terminal:
        terminal.send("2")
        terminal.wait_for("Press b")
        terminal.send("q")
        assert terminal.wait() == 0
