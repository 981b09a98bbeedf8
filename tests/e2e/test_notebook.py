import shlex
import shutil

import pytest

from tests.e2e.shipped import GPUTOP, NO_DRIVER
from tests.terminal import ALTERNATE_SCREEN, Terminal

DEMO = shlex.join([*GPUTOP, "--demo"])
KERNEL = {**NO_DRIVER, "JPY_PARENT_PID": "4242", "TERM": "xterm-color", "FORCE_COLOR": "1"}


def test_in_a_cell_it_prints_the_devices_and_ends() -> None:
    with Terminal(["/bin/sh", "-c", DEMO], env=KERNEL, rows=60) as terminal:
        assert terminal.wait() == 0
        assert "7  H100" in terminal.text
        assert b"\x1b[?1049h" not in terminal.raw


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_in_a_terminal_beside_the_notebook_there_is_the_dashboard() -> None:
    """One that is opened from a kernel, such as colab-xterm's, has the kernel's environment."""
    env = KERNEL | {"TERM": "xterm-256color", "PS1": "ready> "}
    with Terminal(["bash", "--norc", "-i"], env=env) as terminal:
        terminal.wait_for("ready>")
        terminal.send(f"{DEMO}\r")
        terminal.wait_for(lambda t: ALTERNATE_SCREEN in t.modes and "7 H100" in t.text)
        terminal.send("q")
        terminal.wait_for(lambda t: t.text.count("ready>") == 2, what="the prompt after it")
        assert ALTERNATE_SCREEN not in terminal.modes
