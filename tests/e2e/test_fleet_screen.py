"""The fleet screen in a real terminal: hosts are opened and left, and nothing is left behind."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest

from tests.e2e.shipped import DOWN, ENTER, ESCAPE, see
from tests.terminal import Terminal

ROOT = Path(__file__).parents[2]


def screen(gpus: int, columns: int = 80, rows: int = 24) -> Terminal:
    argv = [sys.executable, "-m", "tests.e2e.fleet_program", str(gpus), "60"]
    return Terminal(argv, {"PYTHONPATH": str(ROOT)}, columns, rows)


def test_a_host_is_opened_and_left_with_everything_as_it_was() -> None:
    with screen(512) as terminal:
        terminal.wait_for("512 GPUs on 64 hosts")
        terminal.send("m\t" + DOWN)
        terminal.wait_for("▌! node0017:1")
        see(terminal, "q Quit")
        before = terminal.text.splitlines()[5:-1]
        for _ in range(2):
            terminal.send(ENTER)
            see(terminal, "1 Monitor", "node0017 ", "Esc Fleet")
            terminal.send("3")
            see(terminal, "COMMAND", without=("H100 80GB HBM3",))
            terminal.send(ESCAPE)
            terminal.wait_for("H100 80GB HBM3")
            terminal.send(ESCAPE)
            terminal.wait_for(lambda t: t.text.splitlines()[5:-1] == before, what="as it was")
        terminal.send("q")
        assert terminal.wait() == 0
        terminal.wait_until_gone()
        assert "closed" in terminal.text
        assert terminal.line_modes == terminal.line_modes_before


def test_hosts_that_were_left_hold_nothing() -> None:
    with screen(8) as terminal:
        see(terminal, "8 GPUs on 1 host", "q Quit")
        (pid,) = terminal.processes()
        held = []
        for _ in range(3):
            terminal.send(ENTER)
            see(terminal, "1 Monitor", "Esc Fleet")
            terminal.send(ESCAPE)
            see(terminal, "8 GPUs on 1 host", "q Quit")
            held.append(len([*Path(f"/proc/{pid}/fd").iterdir()]))
        assert held[0] == held[1] == held[2]
        terminal.send("q")
        assert terminal.wait() == 0
        (hosts,) = re.findall(r"closed, ([0-9]+) hosts", terminal.text)
        assert int(hosts) <= 1, "of three: perhaps the one that was left last"


def test_q_in_a_host_leaves_it_all() -> None:
    with screen(8) as terminal:
        terminal.wait_for("8 GPUs on 1 host")
        terminal.send(ENTER)
        terminal.wait_for("1 Monitor")
        terminal.send("q")
        assert terminal.wait() == 0
        terminal.wait_until_gone()


@pytest.mark.daily(1)
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it(number: int, opened: bool) -> None:
    with screen(8) as terminal:
        terminal.wait_for("8 GPUs on 1 host")
        if opened:
            terminal.send(ENTER)
            terminal.wait_for("1 Monitor")
            terminal.send(ESCAPE)
            terminal.wait_for("8 GPUs on 1 host")
        terminal.kill(number)
        assert terminal.wait() == 130
        terminal.wait_until_gone()
