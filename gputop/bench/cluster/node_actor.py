"""Ray actor on a node: starts the worker there and passes on its output.

It is sent there as it is: standard library only (Python 3.9 and later), and no gputop.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any, Optional

LINE_BYTES, ERROR_BYTES = 1 << 16, 4096
MOST_WAITING = 1000
"""Most messages waiting to be fetched. Beyond it the worker has to wait."""
SMI_SECONDS = 20.0
END_SECONDS = 1.0

FACTS = (
    "index,uuid,name,pci.bus_id,pci.device_id,driver_version,memory.total,memory.used,memory.free,"
    "clocks.max.sm,power.limit"
)
Said = tuple[str, Any]
"""`line` of the worker, or `ended` with status and standard error."""


class NodeActor:
    """A GPU that Ray has lent, and the worker on it. Methods run in several threads."""

    def __init__(self, archive: bytes, python: Optional[str], cpu: bool) -> None:  # noqa: UP045
        self._archive, self._python, self._cpu = archive, python or sys.executable, cpu
        self._said: queue.Queue[Said] = queue.Queue(MOST_WAITING)
        self._worker: subprocess.Popen[bytes] | None = None
        self._uuid: str | None = None
        self._started = threading.Event()

    def facts(
        self,
        own: Callable[[], tuple[str, str, list[Any]]],
        available_bytes: Callable[[], Optional[int]],  # noqa: UP045 - Python 3.9
    ) -> dict[str, Any]:
        """Return the node, its GPU and the GPU's state.

        `own` asks Ray for node, address and GPUs, `available_bytes` returns the node's free memory.
        """
        node, address, ids = own()
        found: dict[str, Any] = {
            "node": node,
            "host": socket.gethostname(),
            "address": f"{address}:{_free_port()}",
            "gpus": [str(each) for each in ids],
            "python": self._python,
            "torch": _torch()
            if self._python == sys.executable
            else "of unknown version",
            "pid": os.getpid(),
        }
        if self._cpu:
            return {**found, "cpu": _cpu_name(), "free_bytes": available_bytes()}
        if len(ids) != 1:
            return {**found, "why": f"Ray gave it {len(ids)} GPUs in the place of one"}
        try:
            return {**found, **self._gpu(str(ids[0]))}
        except FileNotFoundError:
            return {**found, "why": "there is no nvidia-smi on its PATH"}
        except (OSError, subprocess.SubprocessError) as error:
            why = getattr(error, "stdout", None) or str(error)
            return {**found, "why": f"nvidia-smi: {' '.join(str(why).split())[:200]}"}

    def start(self, order: bytes) -> None:
        """Start the worker, with its GPU alone."""
        own = {"GPUTOP_PARENT": str(os.getpid()), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        environment = {**os.environ, **own}
        if self._uuid is not None:
            environment["CUDA_VISIBLE_DEVICES"] = self._uuid
        # It ends with the thread that starts it: one that lasts until it has ended.
        threading.Thread(
            target=self._keep, args=(order, environment), daemon=True
        ).start()

    def read(self, seconds: float, gather: float) -> list[Said]:
        """Return the messages since the last call; wait at most that long for the first.

        After the first message, gather more for `gather` seconds or until the worker ends.
        """
        found: list[Said] = []
        until = time.monotonic() + seconds
        with contextlib.suppress(queue.Empty):
            while not found or found[-1][0] != "ended":
                found.append(self._said.get(timeout=max(0.0, until - time.monotonic())))
                if len(found) == 1:
                    until = time.monotonic() + gather
        return found

    def write(self, line: bytes) -> None:
        """Write to the worker's standard input."""
        self._started.wait(END_SECONDS)
        with contextlib.suppress(OSError, ValueError):  # it has ended
            if self._worker is not None and self._worker.stdin is not None:
                self._worker.stdin.write(line)
                self._worker.stdin.flush()

    def signal(self, number: int) -> None:
        """Send a signal to the worker and everything that it started."""
        self._started.wait(END_SECONDS)
        worker = self._worker
        if worker is not None and worker.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.pid, number)

    def _keep(self, order: bytes, environment: dict[str, str]) -> None:
        with tempfile.TemporaryFile() as code, tempfile.TemporaryFile() as errors:
            code.write(self._archive)
            code.flush()
            try:
                worker = subprocess.Popen(
                    [self._python, f"/proc/self/fd/{code.fileno()}"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    pass_fds=(code.fileno(),),
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                self._said.put(
                    ("ended", (127, f"{self._python}: {error.strerror}".encode()))
                )
                return
            self._worker = worker
            self._started.set()
            self.write(order)
            assert worker.stdout is not None
            while line := worker.stdout.readline(LINE_BYTES):
                self._said.put(("line", line))
            self._end(worker, errors)

    def _end(self, worker: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        status = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = worker.wait(END_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, 9)
        worker.wait()
        for pipe in (worker.stdin, worker.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        size = errors.seek(0, os.SEEK_END)
        errors.seek(max(0, size - ERROR_BYTES))
        self._said.put(("ended", (status, errors.read())))

    def _gpu(self, number: str) -> dict[str, Any]:
        """Return what nvidia-smi knows of the GPU, or of the GPU that a MIG instance is part of."""
        parent, instance = number, None
        if number.startswith("MIG"):
            parent, instance = _parent(number, _smi("-L"))
        asked = f"{FACTS},compute_cap"
        try:
            row = _smi("-i", parent, f"--query-gpu={asked}", *CSV)
        except subprocess.CalledProcessError:  # a driver before 495
            asked = FACTS
            row = _smi("-i", parent, f"--query-gpu={asked}", *CSV)
        values = [value.strip() for value in row.strip().split(",")]
        known = dict(zip(asked.split(","), values))  # noqa: B905 - Python 3.9 has no `strict`
        apps = (
            "" if instance else _smi("-i", parent, f"--query-compute-apps={APPS}", *CSV)
        )
        heat = ""
        with contextlib.suppress(subprocess.CalledProcessError):
            heat = _smi("-i", parent, "-q", "-d", "TEMPERATURE")
        self._uuid = number if instance else known.get("uuid")
        return {"gpu": known, "instance": instance, "apps": apps, "heat": heat}


def _torch() -> Optional[str]:  # noqa: UP045
    """Return the version of torch in this Python, or None without one."""
    with contextlib.suppress(PackageNotFoundError):
        return version("torch")
    return None


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        return int(found.getsockname()[1])


SMI = "nvidia-smi"
CSV = ("--format=csv,noheader,nounits",)
APPS = "pid,process_name,used_memory"


def _smi(*arguments: str) -> str:
    return subprocess.run(
        [SMI, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SMI_SECONDS,
        check=True,
        text=True,
    ).stdout


def _parent(uuid: str, listed: str) -> tuple[str, str]:
    """Return a MIG instance's GPU, number and profile from `nvidia-smi -L`."""
    gpu = ""
    for line in listed.splitlines():
        found = re.search(r"UUID: ([^)]+)", line)
        if found and line.startswith("GPU"):
            gpu = found[1]
        elif found and found[1] == uuid:
            said = re.search(r"MIG (\S+)\s+Device\s+([0-9]+)", line)
            return gpu, f"{said[2]} {said[1]}" if said else "0 ?"
    return gpu, "0 ?"


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        if found := re.search(
            r"\nmodel name\s*: (.*)", Path("/proc/cpuinfo").read_text()
        ):
            return found[1]
    return "CPU"
