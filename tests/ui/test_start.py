"""What is left out at the start: there for who asks later, and where it cannot be left out."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

BOUND = 120.0


START = "from gputop.ui.shell import start"


def said_by(program: str) -> list[object]:
    """What it prints as JSON: each program needs an interpreter that has loaded nothing."""
    done = subprocess.run(
        [sys.executable, "-c", f"import json, sys\nfrom gputop.ui.shell import start\n{program}"],
        stdout=subprocess.PIPE,
        check=True,
        timeout=BOUND,
    )
    found: list[object] = json.loads(done.stdout)
    return found


def test_what_was_left_out_is_there_for_who_asks() -> None:
    program = """
start.load_asyncio()
start.load_textual()
early = [name in sys.modules for name in ("ssl", "textual.command")]
import ssl, textual.command
from textual.app import App
real = isinstance(textual.command.CommandPalette.COMPONENT_CLASSES, set)
print(json.dumps([*early, real, bool(ssl.OPENSSL_VERSION), App.__module__]))
"""
    assert said_by(program) == [False, False, True, True, "textual.app"]


def test_an_app_runs_without_the_palette() -> None:
    program = """
start.load_asyncio()
start.load_textual()
import asyncio
from textual.app import App
async def run():
    app = App()
    async with app.run_test() as pilot:
        await pilot.press("a")
        return app.screen.is_current
print(json.dumps([asyncio.run(run()), "textual.command" in sys.modules]))
"""
    assert said_by(program)[0] is True


@pytest.mark.parametrize("missing", ["Provider", "CommandPalette"])
def test_where_textual_needs_it_it_is_loaded(missing: str) -> None:
    """As a Textual would that has another palette: the empty class is not enough for it."""
    program = f"""
def made(self, name):
    if name == {missing!r}:
        raise AttributeError(name)
    return type(name, (), {{}})
start._Empty.__getattr__ = made
start.load_textual()
left = [name for name in sys.modules if name.startswith("textual")]
import textual.app
import textual.command
same = textual.app.CommandPalette is textual.command.CommandPalette
print(json.dumps([left, same]))
"""
    assert said_by(program) == [[], True]


def test_nothing_is_changed_where_it_is_loaded_already() -> None:
    program = """
import ssl, textual.command, textual.app
before = [sys.modules[name] for name in ("ssl", "textual.command", "textual.app")]
start.load_asyncio()
start.load_textual()
after = [sys.modules[name] for name in ("ssl", "textual.command", "textual.app")]
print(json.dumps([a is b for a, b in zip(before, after)]))
"""
    assert said_by(program) == [True, True, True]
