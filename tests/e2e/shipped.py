"""The shipped command in a real terminal, keys as a user presses them, and children of the test."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping

from gputop.stream.launch import module_command
from tests.driver import FakeDevice, FakeProcess
from tests.terminal import PATIENCE_SECONDS, Terminal

GPUTOP = module_command("gputop")
NO_DRIVER = {"LD_LIBRARY_PATH": ""}
GIB = 1 << 30
SOON = PATIENCE_SECONDS

UP, DOWN, RIGHT, LEFT = "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D"
PAGE_UP, PAGE_DOWN, HOME, END = "\x1b[5~", "\x1b[6~", "\x1b[H", "\x1b[F"
F9 = "\x1b[20~"
ESCAPE, ENTER, TAB = "\x1b", "\r", "\t"
MARK = "▌"
"""In front of what is selected."""


def dashboard(
    *arguments: str, env: Mapping[str, str] | None = None, columns: int = 120, rows: int = 40
) -> Terminal:
    return Terminal([*GPUTOP, *arguments], env=env or NO_DRIVER, columns=columns, rows=rows)


def run(*arguments: object, env: Mapping[str, str] = NO_DRIVER) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*GPUTOP, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=60,
        env={**os.environ, **env},
    )


def fill_terminal(terminal: Terminal) -> None:
    """Have it draw, and read nothing, until the terminal takes no more."""
    deadline, still, before = time.monotonic() + 3 * SOON, 0, -1
    while still < 6:
        assert time.monotonic() < deadline, "the terminal takes everything"
        terminal.send("21")
        time.sleep(0.1)  # nothing is read that could be waited for
        now = terminal.waiting_bytes
        still, before = (still + 1 if now == before > 0 else 0), now


def see(terminal: Terminal, *texts: str, without: tuple[str, ...] = ()) -> None:
    """Waits until all of these are on screen at the same time, and none of those without.

    A screen is read as it is being painted: what has to come with it is waited for, too.
    """
    terminal.wait_for(
        lambda t: all(x in t.text for x in texts) and not any(x in t.text for x in without),
        what=f"{texts} without {without}",
    )


def device(number: int, **changes: object) -> FakeDevice:
    return FakeDevice(name=f"NVIDIA Test {number}", **changes)  # type: ignore[arg-type]


@contextlib.contextmanager
def children(*names: str) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Processes called so that run until they get a signal, or the test is over."""
    cat = shutil.which("cat")
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(
                subprocess.Popen([name, "-"], executable=cat, stdin=subprocess.PIPE)
            )
            for name in names
        }


def held_by(
    processes: Mapping[str, subprocess.Popen[bytes]], **each: object
) -> tuple[FakeProcess, ...]:
    """As the driver lists them: the first with 1 GiB, the second with 2, and so on."""
    return tuple(
        FakeProcess(process.pid, memory_bytes=n * GIB, **each)  # type: ignore[arg-type]
        for n, process in enumerate(processes.values(), 1)
    )
