import shlex

from tests.e2e.shipped import GPUTOP, NO_DRIVER
from tests.terminal import Terminal

DEMO = shlex.join([*GPUTOP, "--demo"])
KERNEL = {**NO_DRIVER, "JPY_PARENT_PID": "4242", "TERM": "xterm-color", "FORCE_COLOR": "1"}


def test_in_a_cell_it_prints_the_devices_and_ends() -> None:
    with Terminal(["/bin/sh", "-c", DEMO], env=KERNEL, rows=60) as terminal:
        assert terminal.wait() == 0
        assert "7  H100" in terminal.text
        assert b"\x1b[?1049h" not in terminal.raw
