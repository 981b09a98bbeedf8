"""What is sent to which terminal; and the settings, from one start to the next."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gputop.console import TOO_MANY_FILES
from tests.e2e.shipped import (
    ENTER,
    ESCAPE,
    GPUTOP,
    NO_DRIVER,
    child,
    dashboard,
    device,
    held_by,
    see,
)
from tests.terminal import ALTERNATE_SCREEN, Terminal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.driver import FakeDriver

pytestmark = pytest.mark.driver

MOUSE = {1000, 1002, 1003, 1006, 1015}
MORE_COLOURS = re.compile(rb"\x1b\[[0-9;:]*[34]8[;:][25][;:]")


def opened(driver: FakeDriver, *arguments: str, env: Mapping[str, str] | None = None) -> Terminal:
    """With something to say on every tab."""
    driver.write(device(0, clock_event_reasons=0x20), device(1, code=15))
    environment = {**driver.environment(), **(env or {})}
    return dashboard("--interval", "0.25", *arguments, env=environment)


def tour(terminal: Terminal) -> None:
    """Through every tab, the page of a device and the help."""
    see(terminal, "0 Test 0", "Throttled by heat")
    for keys, text in (
        ("2", "Press b"),
        ("3", "No process"),
        (ENTER, "Power and temperature"),
        ("?", "Main keys"),
        (ESCAPE, "Power and temperature"),
        ("1", "0 Test 0"),
    ):
        terminal.send(keys)
        # Behind the help is what there is after it, and Escape with the next key would be Alt.
        see(terminal, text, without=() if keys == "?" else ("Main keys",))


@pytest.mark.parametrize("option", [None, "--no-mouse"])
def test_the_mouse_is_left_to_the_terminal_where_asked(
    driver: FakeDriver, option: str | None
) -> None:
    with opened(driver, *([option] if option else [])) as terminal:
        tour(terminal)
        taken = MOUSE & terminal.modes
        assert bool(taken) == (option is None)
        terminal.send("q")
        assert terminal.wait() == 0
        assert not MOUSE & terminal.modes
        asked = re.findall(rb"\x1b\[\?(?:1000|1002|1003|1006|1015)h", terminal.raw)
        assert bool(asked) == (option is None)


@pytest.mark.daily(1)
@pytest.mark.parametrize("env", [{"TERM": "linux"}, {"LC_ALL": "de_DE.ISO-8859-1"}], ids=str)
def test_nothing_but_ascii(driver: FakeDriver, env: dict[str, str]) -> None:
    with opened(driver, env=env) as terminal:
        tour(terminal)
        assert [chr(byte) for byte in terminal.raw if byte >= 0x80] == []


@pytest.mark.daily(2)
@pytest.mark.parametrize(
    ("env", "more"),
    [
        ({"TERM": "xterm"}, False),
        ({"NO_COLOR": "1"}, False),
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, True),
    ],
    ids=["xterm", "NO_COLOR", "256", "empty NO_COLOR"],
)
def test_no_more_colours_than_there_are(
    driver: FakeDriver, env: dict[str, str], more: bool
) -> None:
    with opened(driver, env=env) as terminal:
        tour(terminal)
        terminal.send("T")
        terminal.collect(0.5)
        assert bool(MORE_COLOURS.search(terminal.raw)) == more


def test_what_was_sent_bit_by_bit_is_what_a_repaint_shows(driver: FakeDriver) -> None:
    with opened(driver) as terminal:
        tour(terminal)
        terminal.collect(2.0)  # of ticks, with their charts
        terminal.send(" ")
        see(terminal, "PAUSED")
        terminal.collect(0.3)
        before = cells_below_the_clock(terminal)
        message = "Broadcast message from root"
        terminal.feed(f"\x1b[H{message}".encode())
        terminal.send("\x0c")
        see(terminal, "PAUSED", "c Density", without=(message,))  # the last row is there
        assert cells_below_the_clock(terminal) == before


def cells_below_the_clock(terminal: Terminal) -> list[object]:
    """Characters and styles; a blank has no colour of text."""
    buffer, size = terminal.screen.buffer, terminal.screen
    cells = (buffer[y][x] for y in range(1, size.lines) for x in range(size.columns))
    return [(c.data, c.bg, c.reverse) if c.data == " " else c for c in cells]


def test_settings_are_kept_for_the_next_start(driver: FakeDriver) -> None:
    file = Path(os.environ["XDG_CONFIG_HOME"]) / "gputop" / "config.toml"
    env = driver.environment()
    with child("train-alpha") as process:
        driver.write(device(0, processes=held_by({"train-alpha": process})))
        with dashboard(env=env) as terminal:
            see(terminal, "train-alpha", "GPU▲", "97 %")
            terminal.send(".I+Tc")
            see(terminal, "PID▼", "every 0.5 s")
            assert not file.exists()
            terminal.send("S")
            see(terminal, "Saved in")
            terminal.send("q")
            assert terminal.wait() == 0
        kept = tomllib.loads(file.read_text())
        assert kept.pop("density") in ("row", "compact", "full")
        assert kept == {"theme": "light", "interval": 0.5, "sort": "PID", "reverse": True}
        assert file.stat().st_mode & 0o77 == 0
        with dashboard(env=env) as terminal:
            see(terminal, "train-alpha", "PID▼", "every 0.5 s")
        with dashboard("--interval", "2", env=env) as terminal:
            see(terminal, "train-alpha", "PID▼", "every 2 s")


def test_a_broken_settings_file_is_said_and_left_alone(driver: FakeDriver, tmp_path: Path) -> None:
    file = tmp_path / "broken.toml"
    file.write_text("theme = [\n")
    with opened(driver, "--config", str(file)) as terminal:
        see(terminal, "The settings in")
        see(terminal, "0 Test 0")
        terminal.send("S")
        see(terminal, "Not saved")
    assert file.read_text() == "theme = [\n"


@pytest.mark.daily(2)
@pytest.mark.parametrize("limit", [6, 9, 13, 64])
def test_too_few_descriptors_are_one_line(limit: int) -> None:
    program = f"ulimit -n {limit}; exec {shlex.join(GPUTOP)} --demo"
    with Terminal(["/bin/sh", "-c", program], NO_DRIVER, 100, 30) as terminal:
        terminal.wait_for(lambda t: "GPU▲" in t.text or "error:" in t.text)
        enough = "GPU▲" in terminal.text
        assert enough == (limit == 64) or limit not in (6, 9, 64)  # in between it depends
        if enough:
            terminal.send("q")
            assert terminal.wait() == 0
        else:
            assert terminal.wait() == 3
            assert " ".join(terminal.text.split()) == f"gputop: error: {TOO_MANY_FILES}"


NO_THREADS = Path(__file__).parents[1] / "no_threads"


@pytest.mark.parametrize("kind", ["MORE_THREADS", "MORE_PROCESSES"])
def test_a_dashboard_without_threads_or_processes_is_one_line(kind: str) -> None:
    environment = {**NO_DRIVER, "PYTHONPATH": str(NO_THREADS), kind: "0"}
    with dashboard("--demo", env=environment) as terminal:
        assert terminal.wait() == 3
        text = " ".join(terminal.text.split())
        assert text.startswith("gputop: error: ")
        assert "pids.max" in text
        assert text.count("gputop: ") == 1
        assert ALTERNATE_SCREEN not in terminal.modes
        assert terminal.line_modes == terminal.line_modes_before


def test_colours_that_textual_does_not_know_are_one_line() -> None:
    with dashboard("--demo", env={**NO_DRIVER, "TEXTUAL_COLOR_SYSTEM": "nonsense"}) as terminal:
        assert terminal.wait() == 2
        assert "Traceback" not in terminal.text
        assert "TEXTUAL_COLOR_SYSTEM=nonsense is not known. Unset it, or give" in terminal.text
