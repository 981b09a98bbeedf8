"""Secrets of command lines and environments: masked, unless their user asks to see them."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from gputop.agent.masking import MASK
from tests.e2e.shipped import ENTER, ESCAPE, dashboard, device, held_by, run, see

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.driver import FakeDriver

pytestmark = pytest.mark.driver

WORDS = ["--token=abc-123", "--password", "two words"]
VARIABLE = ("WANDB_API_KEY", "0123-key")
RANK = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "n", "MASTER_PORT": "29500"}
"""What may be sent of an environment."""


@contextmanager
def trainer() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process with secrets in its command line and its environment; wait until it runs."""
    code = "print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", code, *WORDS],
        env={**os.environ, **RANK, VARIABLE[0]: VARIABLE[1]},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # before it has begun, its command line is empty
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("option", [(), ("--show-secrets",)], ids=["masked", "shown"])
def test_secrets_are_on_the_screen_alone_and_only_where_asked(
    driver: FakeDriver, tmp_path: Path, option: tuple[str, ...]
) -> None:
    file = tmp_path / "kept.jsonl.gz"
    with trainer() as process:
        driver.write(device(0, processes=held_by({"trainer": process})))
        arguments = ["--interval", "0.25", "--record", str(file), *option]
        with dashboard(*arguments, env=driver.environment(), columns=200) as terminal:
            see(terminal, f"--token={MASK}" if not option else "--token=abc-123")
            secrets = [word in terminal.text for word in ("abc-123", "two words")]
            assert secrets == [bool(option)] * 2
            terminal.send("3")
            see(terminal, "--token=")
            terminal.send("e")
            see(terminal, f"{process.pid} ", "Environment  / filter")
            terminal.send("/WANDB" + ENTER)
            shown = VARIABLE[1] if option else MASK
            see(terminal, f"{VARIABLE[0]}={shown}")
            terminal.send(ESCAPE)
            see(terminal, "Environment  / filter")
            terminal.send(ESCAPE)
            see(terminal, "--token=", without=("Environment",))
            terminal.send("q")
            assert terminal.wait() == 0
    content = gzip.decompress(file.read_bytes()).decode()
    commands = {
        each["command"]
        for line in content.splitlines()
        for each in json.loads(line).get("processes", ())
    }
    assert all(f"--token={MASK} --password {MASK}" in command for command in commands)
    assert commands
    assert not any(secret in content for secret in ("abc-123", "two words", VARIABLE[1]))


@pytest.mark.parametrize(
    "command",
    [("status", "--json"), ("stream", "--unmasked", "--count", "1")],
    ids=" ".join,
)
def test_what_is_printed_is_masked(driver: FakeDriver, command: tuple[str, ...]) -> None:
    with trainer() as process:
        driver.write(device(0, processes=held_by({"trainer": process})))
        done = run(*command, env=driver.environment())
    assert str(process.pid) in done.stdout
    assert "abc-123" not in done.stdout
    assert "two words" not in done.stdout
    assert '"n:29500"' in done.stdout
    assert VARIABLE[1] not in done.stdout
