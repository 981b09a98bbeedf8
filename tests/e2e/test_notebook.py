"""`!gputop` in a notebook, whose pty nobody types into, and terminals beside notebooks."""

import shlex
import shutil

import pytest

from tests.e2e.shipped import GPUTOP, NO_DRIVER
from tests.terminal import ALTERNATE_SCREEN, Terminal

DEMO = shlex.join([*GPUTOP, "--demo"])
JUPYTER = {"JPY_PARENT_PID": "4242"}
"""Set by jupyter_client for a kernel. A front end that starts kernels by itself may not set it."""
IPYKERNEL = {"TERM": "xterm-color", "PAGER": "cat", "GIT_PAGER": "cat", "FORCE_COLOR": "1"}
"""What ipykernel sets for itself and its children."""
TERMINADO = {"TERM": "xterm-256color"}
"""What terminado sets for the terminals that it opens."""


@pytest.mark.daily(1)
@pytest.mark.parametrize(
    "env", [JUPYTER | IPYKERNEL, IPYKERNEL, JUPYTER], ids=["both", "ipykernel", "Jupyter"]
)
def test_in_a_cell_it_prints_the_devices_and_ends(env: dict[str, str]) -> None:
    with Terminal(["/bin/sh", "-c", DEMO], env=NO_DRIVER | env, rows=60) as terminal:
        assert terminal.wait() == 0
        assert "7  H100" in terminal.text
        assert b"\x1b[?1049h" not in terminal.raw


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.daily(1)
@pytest.mark.parametrize("env", [TERMINADO, JUPYTER | IPYKERNEL | TERMINADO], ids=["lab", "kernel"])
def test_in_a_terminal_beside_the_notebook_there_is_the_dashboard(env: dict[str, str]) -> None:
    """One that is opened from a kernel, such as colab-xterm's, has the kernel's environment."""
    argv = ["bash", "--norc", "-i"]
    with Terminal(argv, env=NO_DRIVER | env | {"PS1": "ready> "}) as terminal:
        terminal.wait_for("ready>")
        terminal.send(f"{DEMO}\r")
        terminal.wait_for(lambda t: ALTERNATE_SCREEN in t.modes and "7 H100" in t.text)
        terminal.send("q")
        terminal.wait_for(lambda t: t.text.count("ready>") == 2, what="the prompt after it")
        assert ALTERNATE_SCREEN not in terminal.modes
