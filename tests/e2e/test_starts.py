"""The commands on the three pages for a start work as they are written there.

Stress tests and the exporter are only parsed: other tests run them.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gputop.commands.parser import parse
from tests.driver import FakeDevice
from tests.e2e.shipped import GIB
from tests.fake_ssh import FakeSsh

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.driver import FakeDriver

pytestmark = pytest.mark.driver

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("slow-training", "shared-server", "new-gpu")
PARSED = ("bench", "exporter")
"""Commands that take minutes, need torch, or do not end."""
ENDLESS = "--output"
PATIENCE = 120.0


def commands() -> Iterator[tuple[str, str]]:
    """Yield the page and the text of each command of gputop."""
    for page in PAGES:
        text = (DOCS / f"{page}.md").read_text()
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
            for line in block.splitlines():
                yield page, line


COMMANDS = list(commands())


def words_of(line: str) -> list[str]:
    return shlex.split(line)[1:]


def is_parsed(line: str) -> bool:
    words = words_of(line)
    return bool(words) and words[0] in PARSED


@pytest.mark.parametrize("line", [line for _, line in COMMANDS if is_parsed(line)])
def test_a_long_command_of_a_page_is_accepted(line: str) -> None:
    assert parse(words_of(line)).command == words_of(line)[0]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run_one_after_the_other(
    page: str, driver: FakeDriver, tmp_path: Path
) -> None:
    driver.write(
        FakeDevice(gpu_utilization_percent=0, memory_used_bytes=GIB),
        FakeDevice(gpu_utilization_percent=97, memory_used_bytes=70 * GIB),
    )
    ssh = FakeSsh(tmp_path)
    gputop = tmp_path / "gputop"
    gputop.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m gputop "$@"\n')
    gputop.chmod(0o755)
    (tmp_path / "train.py").write_text("")
    environment = {
        **os.environ,
        **driver.environment(),
        "PATH": f"{ssh.path}:{os.environ['PATH']}",
        "USER": "root",
        "PYTHONPATH": str(DOCS.parent),
    }
    for where, line in COMMANDS:
        if where == page and not is_parsed(line):
            status, text = run(line, tmp_path, environment)
            assert "gputop: error" not in text, text
            assert "usage" not in text, text
            assert status in (0, 1, 4, 130), f"{line}: {status}\n{text}"


def run(line: str, folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Run a line in a shell; end a recording by Ctrl+C once it has something in it."""
    with subprocess.Popen(
        ["bash", "-c", f"exec 2>&1; {line}"],  # noqa: S607
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        if ENDLESS in line:
            file = folder / words_of(line)[words_of(line).index(ENDLESS) + 1]
            while process.poll() is None and not (file.exists() and file.stat().st_size):
                time.sleep(0.05)
            os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, output
