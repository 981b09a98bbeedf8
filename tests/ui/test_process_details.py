import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.agent.linux.procfs import TICKS_PER_SECOND
from gputop.agent.masking import MASK
from gputop.agent.problem import ProblemError
from gputop.ui.processes.process_details import read_details
from tests.agent.fake_proc import FakeProc
from tests.agent.test_procfs import proc
from tests.ui.real_process import child, start_of

__all__ = ["child", "proc"]
START = 1700000000 + 500 / TICKS_PER_SECOND


def test_a_real_process(child: subprocess.Popen[bytes]) -> None:
    found = read_details(child.pid, start_of(child))
    assert found.command == found.unmasked == child.args[0]  # type: ignore[index]
    assert found.state in ("S", "R")
    assert found.parents[0][0] == os.getpid()
    assert found.directory == str(Path.cwd())
    assert found.environment == (
        ("A", "b=c"),
        ("EMPTY", ""),
        ("ESC", "\x1b[31m"),
        ("RAW", "\udcff"),
        ("ä", "2"),
    )
    with pytest.raises(ProblemError, match="another process has its pid"):
        read_details(child.pid, start_of(child) - 1.0)


def test_threads_and_signals_of_a_real_process() -> None:
    program = (
        "import signal, threading; signal.signal(signal.SIGTERM, print); "
        "signal.signal(signal.SIGHUP, signal.SIG_IGN); lock = threading.Event(); "
        "[threading.Thread(target=lock.wait).start() for _ in '123']; print(); input(); lock.set()"
    )
    pipe = subprocess.PIPE
    arguments = [sys.executable, "-c", program, "--token=abc-123"]
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, bufsize=0) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        found = read_details(process.pid, start_of(process))
        process.communicate(b"\n")
    assert found.threads == 4
    assert found.caught >> signal.SIGTERM - 1 & 1
    assert found.ignored >> signal.SIGHUP - 1 & 1
    assert found.ignored >> signal.SIGPIPE - 1 & 1  # Python ignores it
    assert found.unmasked.endswith("--token=abc-123")
    assert found.command.endswith(f"--token={MASK}")


def test_parents_up_to_the_first_one_and_no_cycle(proc: FakeProc) -> None:
    for pid, parent, name in ((7, 6, b"rank"), (6, 2, b"torchrun"), (2, 0, b"init")):
        proc.add(pid, parent=parent, name=name)
    assert read_details(7, START, proc.path).parents == ((6, "torchrun"), (2, "init"))
    proc.add(2, parent=7, name=b"init")
    names = [name for _, name in read_details(7, START, proc.path).parents]
    assert names == ["torchrun", "init", "rank"]
    for pid in range(100, 200):
        proc.add(pid, parent=pid + 1)
    assert len(read_details(100, START, proc.path).parents) == 32


@pytest.mark.parametrize(
    ("data", "command"),
    [
        (b"", ""),
        (b"python\0-m\0train\0", "python -m train"),
        (b"vllm worker 3\0\0\0\0", "vllm worker 3"),
        (b"x" * 70_000, "x" * 32_768),
    ],
)
def test_a_command_line(proc: FakeProc, data: bytes, command: str) -> None:
    proc.add(command=data)
    assert read_details(7, START, proc.path).unmasked == command


def test_an_environment_that_the_process_wrote_over(proc: FakeProc) -> None:
    proc.add()
    (proc.root / "7/cwd").symlink_to("/")
    large = "x" * 200_000
    proc.write("7/environ", b"rain.py\0\0=\0A=1\0=x\0LAST=" + large.encode())
    found = read_details(7, START, proc.path).environment
    assert found == (("rain.py", ""), ("", ""), ("A", "1"), ("", "x"), ("LAST", large))


def test_what_is_not_permitted_is_left_out(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> Path:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "readlink", fail)
    found = read_details(child.pid, start_of(child))
    assert found.directory is None
    assert found.environment is None
