"""The first frame before the app: when it is written, in which colours, and at what cost."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from rich.color import ColorSystem

from gputop.commands.parser import parse
from gputop.console import INTERRUPTED
from gputop.settings import THEMES
from gputop.ui.drawing import palette
from gputop.ui.drawing.look import Look, Terminal, choose_look
from gputop.ui.terminal import skeleton

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = {"TERM": "xterm-256color", "XDG_CONFIG_HOME": "/nonexistent"}


@pytest.fixture(autouse=True)
def _at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "isatty", lambda _: True)


def of(look: Look) -> tuple[str, ...]:
    """The parameters by which rich draws the three roles."""
    roles = (palette.ACCENT, palette.DIM, palette.WARN)
    return tuple(
        look._restyle(role).render("x", color_system=ColorSystem.TRUECOLOR)[2:].partition("m")[0]
        for role in roles
    )


@pytest.mark.parametrize("name", THEMES)
def test_each_theme_has_its_colours(name: str) -> None:
    look = choose_look(name, None, Terminal())
    assert skeleton.colours_of(["--theme", name], PLAIN) == of(look)
    assert skeleton.colours_of([], {**PLAIN, "GPUTOP_THEME": name}) == of(look)


@pytest.mark.parametrize(
    "env",
    [
        {"TERM": "xterm-256color"},
        {"TERM": "xterm-kitty"},
        {"TERM": "screen-16color"},
        {"TERM": "foo", "COLORTERM": "truecolor"},
        {"TERM": "foo", "COLORTERM": "yes"},
        {"TERM": "xterm-256color", "NO_COLOR": "1"},
        {"TERM": "xterm-256color", "NO_COLOR": ""},
    ],
    ids=str,
)
def test_the_colours_are_those_that_the_terminal_has(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # It would read the TERM of this process.
    monkeypatch.setattr("gputop.console.terminfo_colours", lambda: None)
    look = choose_look("auto", None, Terminal.detect(env))
    assert skeleton.colours_of([], {"XDG_CONFIG_HOME": "/nonexistent", **env}) == of(look)


@pytest.mark.parametrize(("given", "theme"), [("standard", "ansi"), ("256", "dark")])
def test_the_number_of_colours_can_be_given(given: str, theme: str) -> None:
    env = {**PLAIN, "TERM": "foo", "TEXTUAL_COLOR_SYSTEM": given}
    assert skeleton.colours_of([], env) == skeleton.COLOURS[theme]


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["--demo", "status"],
        ["--help"],
        ["--theme"],
        ["--theme", "red"],
        ["--theme=monochrome"],
        ["--theme", "--ascii"],
        ["--interval", "x"],
        ["--interval", "0.1"],
        ["--interval=nan"],
        ["--demo=1"],
        ["--no-demo"],
        ["--ascii=1"],
        ["--prometheus", "x"],
        ["--"],
        [""],
        ["demo"],
        ["-h"],
    ],
    ids=str,
)
def test_words_that_may_not_open_the_dashboard_are_left_alone(words: list[str]) -> None:
    assert skeleton.colours_of(words, PLAIN) is None


@pytest.mark.parametrize(
    "env",
    [
        {"TERM": "dumb"},
        {"TERM": ""},
        {"TEXTUAL_COLOR_SYSTEM": "nonsense"},
        {"JPY_PARENT_PID": "1"},
        {"TERM": "xterm-color", "GIT_PAGER": "cat"},
    ],
    ids=str,
)
def test_a_terminal_that_may_be_refused_is_left_alone(env: dict[str, str]) -> None:
    assert skeleton.colours_of([], {**PLAIN, **env}) is None


def test_all_switches_of_the_dashboard_are_known() -> None:
    words = [f"--{no}{flag}" for flag in skeleton.FLAGS for no in ("", "no-")]
    assert vars(parse(words)).items() >= dict.fromkeys(skeleton.FLAGS, False).items()
    words += ["--demo", "--interval", "0.5", "--interval=60", "--theme=auto", "--config=x"]
    assert skeleton.colours_of(words, PLAIN) == skeleton.COLOURS["dark"]
    assert set(skeleton.COLOURS) == set(THEMES)
    assert skeleton.INTERRUPTED == INTERRUPTED


@pytest.mark.parametrize(
    ("text", "theme"),
    [
        ('theme = "light"\n', "light"),
        ("# mine\ninterval = 2\n theme='colour-blind' # good\n", "colour-blind"),
        ('theme = "monochrome"\n', "dark"),
        ('themes = "light"\n', "dark"),
        ("\xff\0theme", "dark"),
        ("", "dark"),
    ],
)
def test_the_theme_of_the_settings_file(tmp_path: Path, text: str, theme: str) -> None:
    file = tmp_path / "gputop" / "config.toml"
    file.parent.mkdir()
    file.write_text(text, encoding="latin-1")
    expected = skeleton.COLOURS[theme]
    assert skeleton.colours_of([], {**PLAIN, "XDG_CONFIG_HOME": str(tmp_path)}) == expected
    assert skeleton.colours_of([f"--config={file}"], PLAIN) == expected
    assert skeleton.colours_of([], {**PLAIN, "GPUTOP_CONFIG": str(file)}) == expected


def test_a_settings_file_that_is_none_is_not_opened(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for name in (pipe, tmp_path, "/dev/tty", "a\0b"):
        assert skeleton.colours_of([f"--config={name}"], PLAIN) == skeleton.COLOURS["dark"]


def test_it_is_a_few_hundred_bytes() -> None:
    dark = skeleton.COLOURS["dark"]
    assert len(skeleton.ENTER + skeleton.frame(120, 40, dark)) < 550


def test_little_is_loaded_before_it() -> None:
    """Each of these takes a millisecond and up."""
    program = "import sys; before = set(sys.modules); import gputop.__main__; "
    program += "print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run(
        # Isolated, but with this gputop: what `site` finds loads much of it already.
        [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}; {program}"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    ).stdout.split()
    ours = {name for name in loaded if name.startswith("gputop")}
    assert ours == {
        *("gputop", "gputop.__main__", "gputop.agent", "gputop.agent.times", "gputop.bounds"),
        *("gputop.ui", "gputop.ui.terminal", "gputop.ui.terminal.skeleton"),
    }
    heavy = {"argparse", "ast", "contextlib", "dataclasses", "inspect", "pathlib", "re", "typing"}
    assert not heavy & set(loaded)
    assert len(loaded) <= 30, loaded
