"""The commands on the three pages for a start work as they are written there.

Stress tests and the exporter are only parsed: other tests run them.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gputop.commands.parser import parse
from tests.driver import FakeDevice, FakeDriver
from tests.e2e.shipped import GIB
from tests.fake_ssh import FakeSsh

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("slow-training", "shared-server", "new-gpu")
PARSED = ("gputop bench", "gputop exporter")
"""Commands that take minutes, need torch, or do not end."""


def commands(page: str) -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


@pytest.mark.parametrize("page", PAGES)
def test_the_long_commands_of_a_page_are_accepted(page: str) -> None:
    for line in commands(page):
        if line.startswith(PARSED):
            words = shlex.split(line)[1:]
            assert parse(words).command == words[0]


@pytest.mark.slow
@pytest.mark.driver
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run_one_after_the_other(
    page: str, driver: FakeDriver, tmp_path: Path
) -> None:
    driver.write(
        FakeDevice(gpu_utilization_percent=0, memory_used_bytes=GIB),
        FakeDevice(gpu_utilization_percent=97, memory_used_bytes=70 * GIB),
    )
    gputop = tmp_path / "gputop"
    gputop.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m gputop "$@"\n')
    gputop.chmod(0o755)
    (tmp_path / "train.py").write_text("")
    environment = {
        **os.environ,
        **driver.environment(),
        "PATH": f"{FakeSsh(tmp_path).path}:{os.environ['PATH']}",
        "USER": "root",
        "PYTHONPATH": str(DOCS.parent),
    }
    for line in commands(page):
        if not line.startswith(PARSED):
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
        if output := re.search(r"--output (\S+)", line):
            file = folder / output[1]
            while process.poll() is None and not (file.exists() and file.stat().st_size):
                time.sleep(0.05)
            os.killpg(process.pid, signal.SIGINT)
        text, _ = process.communicate(timeout=120)
    return process.returncode, text
