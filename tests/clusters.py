"""A Ray cluster of a test's own: its head, further nodes, and an end that leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

START_SECONDS = 90.0
HEAD = ("--head", "--port=0", "--include-dashboard=false")
QUIET = ("--disable-usage-stats", "--num-cpus=4", "--block")


class RayCluster:
    """Processes of `ray start`; none is a daemon."""

    def __init__(self, gpus: int, environment: Mapping[str, str] | None = None) -> None:
        self._environment = {**os.environ, **(environment or {}), "RAY_USAGE_STATS_ENABLED": "0"}
        self._folder = tempfile.mkdtemp(prefix="gr", dir="/tmp")  # sockets want a short path
        self._nodes: list[subprocess.Popen[bytes]] = []
        self.address = self._start(gpus, *HEAD, f"--temp-dir={self._folder}")

    def add_node(self, gpus: int) -> int:
        """Another node on this machine; returns the place that `kill_node` wants."""
        self._start(gpus, f"--address={self.address}")
        return len(self._nodes) - 1

    def kill_node(self, at: int) -> None:
        """What the end of a machine is: all of it at once."""
        for process in _tree(self._nodes[at].pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def workers(self) -> list[psutil.Process]:
        """Stress tests' workers that run on the nodes, without the agents that look at GPUs."""
        return [
            process
            for node in self._nodes
            for process in _tree(node.pid)
            if _is_worker(_words(process))
        ]

    def posts(self) -> list[psutil.Process]:
        """The processes that Ray runs beside the workers."""
        return [
            process
            for node in self._nodes
            for process in _tree(node.pid)
            if any("ray::NodeActor" in word for word in _words(process))
        ]

    def close(self) -> None:
        """Kills all of it."""
        for at in range(len(self._nodes)):
            self.kill_node(at)
        for node in self._nodes:
            node.wait()
            assert node.stdout is not None
            node.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, gpus: int, *arguments: str) -> str:
        node = subprocess.Popen(
            [
                *(sys.executable, "-m", "ray.scripts.scripts", "start", *arguments, *QUIET),
                *(f"--num-gpus={gpus}", "--object-store-memory=100000000"),
            ],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._nodes.append(node)
        assert node.stdout is not None
        said, until = "", time.monotonic() + START_SECONDS
        while "Ray runtime started" not in said or "--block" not in said:
            if not select.select([node.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
                self.close()
                raise TimeoutError(said)
            data = os.read(node.stdout.fileno(), 4096)
            if not data:
                self.close()
                raise RuntimeError(said)
            said += data.decode()
        found = re.search(r"ray start --address='([^']+)'", said)
        return found[1] if found else ""


def _tree(pid: int) -> list[psutil.Process]:
    """A process and all that come from it."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _is_worker(words: list[str]) -> bool:
    is_sent = any("/proc/self/fd/" in word for word in words) and "--no-gpm" not in words
    return is_sent or any("fake_worker" in word for word in words)


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
