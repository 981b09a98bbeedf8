import os
import select
import signal
import sys
from collections.abc import Callable

import pytest

from tests.e2e.shipped import GPUTOP, NO_DRIVER, SOON, fill_terminal
from tests.terminal import ALTERNATE_SCREEN, SHOW_CURSOR, Terminal

DEMO = [*GPUTOP, "--demo", "--interval", "0.25"]


def left_unread(terminal: Terminal) -> list[str]:
    """Those of its processes that do not end while nothing is read of them."""
    left = []
    for pid, line in terminal.processes().items():
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        if not select.select([pidfd], [], [], SOON)[0]:
            left.append(line)
        os.close(pidfd)
    return left


@pytest.mark.daily(1)
@pytest.mark.parametrize(
    ("end", "status"),
    [
        pytest.param(lambda t: t.send("q"), 0, id="q"),
        pytest.param(lambda t: t.send("\x03"), 0, id="Ctrl+C"),
        pytest.param(lambda t: t.kill(signal.SIGTERM), 130, id="SIGTERM"),
        pytest.param(lambda t: t.kill(signal.SIGHUP), 130, id="SIGHUP"),
        pytest.param(lambda t: t.kill(signal.SIGINT), 130, id="SIGINT"),
    ],
)
def test_it_ends_while_nobody_reads_and_restores_the_terminal(
    end: Callable[[Terminal], None], status: int
) -> None:
    with Terminal(DEMO, env=NO_DRIVER, columns=200, rows=60) as terminal:
        terminal.wait_for("7 H100")
        fill_terminal(terminal)
        end(terminal)
        assert left_unread(terminal) == []
        assert terminal.wait() == status, terminal.text
        assert ALTERNATE_SCREEN not in terminal.modes
        assert SHOW_CURSOR in terminal.modes
        assert terminal.line_modes == terminal.line_modes_before


def test_a_terminal_that_is_gone_without_a_signal_ends_it() -> None:
    """As under a shell that ignores SIGHUP: its input is at its end, and that is all."""
    around = "import signal, subprocess, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    around += "sys.exit(subprocess.call(sys.argv[1:]))"
    with Terminal([sys.executable, "-c", around, *DEMO], env=NO_DRIVER) as terminal:
        terminal.wait_for("7 H100")
        terminal.close_pty()
        terminal.wait_until_gone()
