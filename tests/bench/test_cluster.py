import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.bench.commands import COMMAND, environment
from tests.bench.workers import fake_interpreter
from tests.e2e.pretender import worker

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]
HEAD = ("--head", "--port=0", "--include-dashboard=false", "--block", "--disable-usage-stats")


@pytest.fixture
def address() -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory(prefix="gr", dir="/tmp") as folder,  # sockets want a short path
        subprocess.Popen(
            [
                *(sys.executable, "-m", "ray.scripts.scripts", "start", *HEAD),
                *(f"--temp-dir={folder}", "--num-cpus=4", "--num-gpus=2"),
                "--object-store-memory=100000000",
            ],
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as head,
    ):
        assert head.stdout is not None
        try:
            said = iter(head.stdout)
            found = next(filter(None, (re.search("address='([^']+)'", line) for line in said)))
            next(line for line in said if "--block" in line)
            yield found[1]
        finally:
            for process in psutil.Process(head.pid).children(recursive=True):
                process.kill()
            head.kill()


def test_a_run_on_its_nodes_ends_with_all_results(address: str, tmp_path: Path) -> None:
    python = fake_interpreter(tmp_path, worker())
    trial = ("--device", "cpu", "--seconds", "2", "--python", python, "--json")
    done = subprocess.run(
        [*COMMAND, "--ray", address, *trial],
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    results = json.loads(done.stdout)["results"]
    assert [each["stopped"] for each in results] == ["time", "time"]
