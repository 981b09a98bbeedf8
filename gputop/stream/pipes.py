"""Pipes of a child process on the event loop, and waiting for its end."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import AsyncIterator

CHUNK_BYTES = 1 << 16
SECOND_LOOK_SECONDS = 0.5
KEPT_BYTES = 2000
"""Bytes kept of the end of standard error."""


class Tail(asyncio.Protocol):
    """Keeps the end of a child's standard error."""

    def __init__(self) -> None:
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data = (self._data + data)[-KEPT_BYTES:]

    @property
    def text(self) -> str:
        # `ssh` ends its lines with \r\n.
        return self._data.decode(errors="replace").replace("\r", "").strip()


@contextlib.asynccontextmanager
async def connected(
    process: subprocess.Popen[bytes], errors: Tail
) -> AsyncIterator[tuple[asyncio.WriteTransport, asyncio.StreamReader]]:
    """Yield the child's input and output, and close all its pipes at the end."""
    loop = asyncio.get_running_loop()
    output = asyncio.StreamReader()
    with contextlib.ExitStack() as pipes:
        pipe, _ = await loop.connect_read_pipe(lambda: errors, process.stderr)
        pipes.callback(pipe.close)
        pipe, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output), process.stdout
        )
        pipes.callback(pipe.close)
        requests, _ = await loop.connect_write_pipe(
            asyncio.BaseProtocol, process.stdin
        )
        pipes.callback(_abort, requests)
        yield requests, output


def _abort(pipe: asyncio.WriteTransport) -> None:
    """Close a pipe and drop unwritten data. A broken pipe is already closed."""
    if not pipe.is_closing():
        pipe.abort()


async def read_within(output: asyncio.StreamReader, seconds: float) -> bytes:
    """Return the next data, or b"" at the end. Raises `TimeoutError` after `seconds` without data.

    After a suspension the timeout expires at once, even if there is data. So read a second time.
    """
    # wait_for is not used: before Python 3.12 it can lose a cancellation that
    # coincides with data.
    try:
        async with asyncio.timeout(seconds):
            return await output.read(CHUNK_BYTES)
    except TimeoutError:
        async with asyncio.timeout(SECOND_LOOK_SECONDS):
            return await output.read(CHUNK_BYTES)


async def ends_within(
    process: subprocess.Popen[bytes], seconds: float
) -> bool:
    """Return True if the process ends in time. Uses no thread, because a limit may forbid one."""
    deadline = time.monotonic() + seconds
    while process.poll() is None:
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(0.01)
    return True
