"""A real process for pages and signals."""

import subprocess
from collections.abc import Iterator

import pytest

from gputop.agent.linux.procfs import read_stat

BOUND = 60.0
NOBODY = 0x7FFFFFFF


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits for its input to end, with an environment that is not harmless.

    It runs: until then its environment is empty, even when exec has closed its files.
    """
    said = {b"A": b"b=c", b"EMPTY": b"", b"ESC": b"\x1b[31m", b"RAW": b"\xff", b"\xc3\xa4": b"2"}
    pipe = subprocess.PIPE
    with subprocess.Popen(["/bin/cat"], stdin=pipe, stdout=pipe, env=said, bufsize=0) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        assert process.stdout.read(1)
        yield process
        process.kill()


def start_of(process: subprocess.Popen[bytes]) -> float:
    return read_stat(process.pid).started
