"""Ray actor on a node: reads the GPU with the agent, starts the worker, and passes on its output.

The relay sends this module to the nodes, so it imports only the standard library and supports
Python 3.9 and later.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import IO, Any, Union

LINE_BYTES, ERROR_BYTES = 1 << 16, 4096
MOST_WAITING = 1000
"""Most messages that wait to be fetched. With more, the worker's output blocks."""
LOOK_SECONDS, END_SECONDS = 20.0, 1.0

Said = Union[bytes, "tuple[int | None, bytes]"]
"""A line of the worker as bytes, or at its end a tuple: exit status and standard error."""


@dataclass
class NodeAnswer:
    """A node, and its GPU as the agent reads it."""

    node: str
    """Ray's id of the node."""
    host: str
    address: str
    """`HOST:PORT` with a free port."""
    gpus: list[str]
    """Ray's ids of the lent GPUs."""
    python: str
    torch: str | None
    """Version of that Python's torch, or None without one."""
    cpu: bool
    free_bytes: int | None
    """Free memory of the node."""
    lines: list[str]
    """The agent's lines about the GPU."""
    errors: str
    """The end of the agent's standard error."""


class NodeActor:
    """A GPU that Ray has lent, and the worker on it. Methods run in several threads."""

    def __init__(
        self,
        archive: bytes,
        python: str | None,
        cpu: bool,
    ) -> None:
        self._python, self._cpu = python or sys.executable, cpu
        # The memory file exists as long as this process.
        self._code = os.memfd_create("gputop-worker")
        with open(self._code, "wb", closefd=False) as code:
            code.write(archive)
        self._said: queue.Queue[Said] = queue.Queue(MOST_WAITING)
        self._worker: subprocess.Popen[bytes] | None = None
        self._started = threading.Event()

    def look(
        self,
        own: Callable[[], tuple[str, str, list[Any]]],
        available_bytes: Callable[[], int | None],
    ) -> dict[str, Any]:
        """Return the fields of a `NodeAnswer`.

        `own` returns Ray's node id, address and GPUs. `available_bytes` returns the node's free
        memory.
        """
        node, address, ids = own()
        lines, errors = self._read_gpu("" if self._cpu else str(ids[0]))
        answer = NodeAnswer(
            node=node,
            host=socket.gethostname(),
            address=f"{address}:{_free_port()}",
            gpus=[str(each) for each in ids],
            python=self._python,
            torch=self._torch(),
            cpu=self._cpu,
            free_bytes=available_bytes(),
            lines=lines,
            errors=errors,
        )
        # Only plain values are sent back, because the relay's class is another.
        return vars(answer)

    def start(self, order: bytes, uuid: str | None) -> None:
        """Start the worker. It sees only the GPU with this UUID; None is the CPU."""
        own = {
            "GPUTOP_PARENT": str(os.getpid()),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }
        environment = {**os.environ, **own}
        if uuid is not None:
            environment["CUDA_VISIBLE_DEVICES"] = uuid
        # The kernel kills the worker when the thread that started it ends, so
        # this thread lasts as long as the worker.
        threading.Thread(
            target=self._keep, args=(order, environment), daemon=True
        ).start()

    def read(self, seconds: float, gather: float) -> list[Said]:
        """Return the messages since the last call; wait at most `seconds` for the first.

        After the first message, gather more for `gather` seconds or until the worker ends.
        """
        found: list[Said] = []
        until = time.monotonic() + seconds
        with contextlib.suppress(queue.Empty):
            while not found or isinstance(found[-1], bytes):
                found.append(
                    self._said.get(timeout=max(0.0, until - time.monotonic()))
                )
                if len(found) == 1:
                    until = time.monotonic() + gather
        return found

    def write(self, line: bytes) -> None:
        """Write to the worker's standard input."""
        self._started.wait(END_SECONDS)
        with contextlib.suppress(OSError, ValueError):  # worker has ended
            if self._worker is not None and self._worker.stdin is not None:
                self._worker.stdin.write(line)
                self._worker.stdin.flush()

    def signal(self, number: int) -> None:
        """Send a signal to the worker and all processes that it started."""
        self._started.wait(END_SECONDS)
        worker = self._worker
        if worker is not None and worker.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.pid, number)

    def _command(self, python: str, *words: str) -> list[str]:
        """Return the command that runs the archive: the agent with these words, else the worker."""
        return [python, f"/proc/self/fd/{self._code}", *words]

    def _read_gpu(self, gpu: str) -> tuple[list[str], str]:
        """Return the lines of an agent that reads a GPU once, and its standard error."""
        words = ["--no-gpm", "--count", "1"]
        if gpu:
            words += ["--id", gpu]
        try:
            ended = subprocess.run(
                self._command(sys.executable, *words),
                pass_fds=(self._code,),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=LOOK_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return [], f"the driver did not answer within {LOOK_SECONDS:.0f} s"
        return ended.stdout.splitlines(), ended.stderr[-ERROR_BYTES:]

    def _torch(self) -> str | None:
        """Return the version of the worker's torch, or None without one."""
        if self._python != sys.executable:
            return "of unknown version"
        with contextlib.suppress(PackageNotFoundError):
            return version("torch")
        return None

    def _keep(self, order: bytes, environment: dict[str, str]) -> None:
        with tempfile.TemporaryFile() as errors:
            try:
                worker = subprocess.Popen(
                    self._command(self._python),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    pass_fds=(self._code,),
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                why = f"{self._python}: {error.strerror}"
                self._said.put((127, why.encode()))
                return
            self._worker = worker
            self._started.set()
            self.write(order)
            assert worker.stdout is not None
            while line := worker.stdout.readline(LINE_BYTES):
                self._said.put(line)
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
        self._said.put((status, errors.read()))


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        return int(found.getsockname()[1])
