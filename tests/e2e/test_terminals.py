import re
import shlex
from pathlib import Path

import pytest

from gputop.console import TOO_MANY_FILES
from tests.e2e.shipped import GPUTOP, NO_DRIVER, dashboard, see
from tests.terminal import ALTERNATE_SCREEN, Terminal

MOUSE = {1000, 1002, 1003, 1006, 1015}
NO_THREADS = str(Path(__file__).parents[1] / "no_threads")


@pytest.mark.parametrize("option", [(), ("--no-mouse",)])
def test_the_mouse_is_left_to_the_terminal_where_asked(option: tuple[str, ...]) -> None:
    with dashboard("--demo", *option, env=NO_DRIVER) as terminal:
        see(terminal, "7 H100")
        assert bool(MOUSE & terminal.modes) == (option == ())
        terminal.send("q")
        assert terminal.wait() == 0
        assert not MOUSE & terminal.modes
        asked = re.search(rb"\x1b\[\?(?:1000|1002|1003|1006|1015)h", terminal.raw)
        assert bool(asked) == (option == ())


@pytest.mark.parametrize(
    ("limit", "environment", "status", "says"),
    [
        ("-n 9", {}, 3, TOO_MANY_FILES),
        ("", {"PYTHONPATH": NO_THREADS, "MORE_THREADS": "0"}, 3, "pids.max"),
        ("", {"PYTHONPATH": NO_THREADS, "MORE_PROCESSES": "0"}, 3, "pids.max"),
        (
            "",
            {"TEXTUAL_COLOR_SYSTEM": "nonsense"},
            2,
            "TEXTUAL_COLOR_SYSTEM=nonsense is not known. Unset it, or give",
        ),
    ],
    ids=["files", "threads", "processes", "colours"],
)
def test_a_start_that_fails_is_one_line(
    limit: str, environment: dict[str, str], status: int, says: str
) -> None:
    program = f"ulimit {limit}; exec {shlex.join(GPUTOP)} --demo"
    with Terminal(["/bin/sh", "-c", program], NO_DRIVER | environment, 100, 30) as terminal:
        assert terminal.wait() == status
        text = " ".join(terminal.text.split()).removeprefix("unlimited ")
        assert text.startswith("gputop: error: ")
        assert says in text
        assert text.count("gputop: ") == 1
        assert ALTERNATE_SCREEN not in terminal.modes
        assert terminal.line_modes == terminal.line_modes_before
