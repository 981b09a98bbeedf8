"""Disks that are full or may not be written to, and writers that are killed: nothing is lost."""

from __future__ import annotations

import errno
import fcntl
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gputop.agent.problem import ProblemError
from gputop.bench.results import store
from tests.bench.workers import RESULT

if TYPE_CHECKING:
    from collections.abc import Callable


ROOT = Path(__file__).parents[2]
KEEP = """
import sys
from dataclasses import replace
from gputop.bench.results import store
from gputop.agent.problem import ProblemError
from tests.bench.workers import RESULT
try:
    for n in range(int(sys.argv[1])):
        store.append(replace(RESULT, iterations=n + 1, method="m" * int(sys.argv[2])))
except ProblemError as error:
    print(error)
"""


def keeping(count: int, size: int, before: Callable[[], None] | None = None) -> str:
    """What another process says that keeps results with a method of that length."""
    ended = subprocess.run(
        [sys.executable, "-c", KEEP, str(count), str(size)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=ROOT,
        preexec_fn=before,
    )
    assert ended.stderr == ""
    return ended.stdout


def kept_and_whole(file: Path, count: int) -> None:
    """That many results are there, the file has no fault in it, and takes another one."""
    assert len(store.recent()) == count
    connection = sqlite3.connect(file)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    store.append(RESULT)
    assert len(store.recent()) == count + 1


@pytest.mark.usefixtures("no_bytecode")
def test_without_room_nothing_is_lost(file: Path) -> None:
    for n in range(3):
        store.append(replace(RESULT, iterations=n))
    size = file.stat().st_size + 8192

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    says = keeping(1, 100_000, limited)
    assert "has room" in says
    assert len(says.splitlines()) == 1
    kept_and_whole(file, 3)


SMALL_DISK = 'mount -t tmpfs -o size=64k,mode=700 none "$1" || exit 77; shift; exec "$@"'
READ_ONLY_DISK = (
    'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 77; shift; exec "$@"'
)


def keeping_on(disk: str, file: Path, program: str, *arguments: str) -> list[str]:
    """Return the lines of a program that keeps results, with such a disk for their folder."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare")
    file.parent.mkdir(parents=True, exist_ok=True)
    shell = ["unshare", "-rm", "sh", "-c", disk, "sh", str(file.parent)]
    ended = subprocess.run(
        [*shell, sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
    )
    if ended.returncode == 77 or "unshare" in ended.stderr:
        pytest.skip("a file system cannot be mounted here")
    return ended.stdout.splitlines()


def test_a_full_disk_is_one_line_and_nothing_is_lost(file: Path) -> None:
    program = KEEP + "print([r.iterations for r in store.recent()] == [*range(n, 0, -1)])\n"
    says, intact = keeping_on(SMALL_DISK, file, program, "1000", "2000")
    assert "full" in says
    assert "Free some space" in says
    assert intact == "True"


def test_a_home_that_is_read_only_can_be_read(file: Path) -> None:
    store.append(RESULT)
    before = file.read_bytes()
    program = KEEP + "print(len(store.recent()))\n"
    says, count = keeping_on(READ_ONLY_DISK, file, program, "1", "10")
    assert "Read-only file system" in says
    assert "permissions" in says
    assert count == "1"
    assert file.read_bytes() == before


def test_a_writer_that_is_killed_leaves_what_it_kept(file: Path) -> None:
    told = KEEP.replace("))\nexcept", "))\n        print(n, flush=True)\nexcept")
    with subprocess.Popen(
        [sys.executable, "-c", told, "1000000", "3000"],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    ) as worker:
        assert worker.stdout is not None
        try:
            told_of = [int(worker.stdout.readline()) for _ in range(20)]
        finally:
            worker.kill()
    left = store.recent()
    assert len(left) >= len(told_of)
    assert [run.iterations for run in left] == [*range(len(left), 0, -1)]
    kept_and_whole(file, len(left))


NO_LOCKS = [errno.ENOLCK, errno.ENOSYS]
"""What NFS without its lock daemon, and Lustre without `flock`, answer."""


@pytest.fixture(scope="module")
def no_locks(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library for LD_PRELOAD with which there are no locks."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = tmp_path_factory.mktemp("no-locks") / "no_locks.so"
    source = Path(__file__).with_name("no_locks.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return str(library)


@pytest.mark.daily(1)
@pytest.mark.parametrize("error", NO_LOCKS, ids=errno.errorcode.get)
def test_several_at_once_lose_nothing_where_there_are_no_locks(
    file: Path, monkeypatch: pytest.MonkeyPatch, no_locks: str, error: int
) -> None:
    with monkeypatch.context() as without_locks:
        without_locks.setenv("LD_PRELOAD", no_locks)
        without_locks.setenv("LOCK_ERROR", str(error))
        with ThreadPoolExecutor(2) as threads:
            assert [*threads.map(keeping, [10] * 2, [10] * 2)] == [""] * 2
    kept_and_whole(file, 20)


def test_a_lock_that_a_killed_gputop_left_is_named_with_another_folder(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", refused)
    monkeypatch.setattr(store, "LOCK_SECONDS", 0.1)
    store.append(RESULT)
    assert store.recent() == [RESULT]
    lock = file.with_name(f"{file.name}.lock")
    lock.mkdir()
    with pytest.raises(ProblemError, match=r"no locks") as failed:
        store.append(RESULT)
    assert f"remove {lock}, or set XDG_DATA_HOME" in failed.value.problem.remedy
    assert "\n" not in str(failed.value)
    lock.rmdir()
    assert store.recent() == [RESULT]


HALF_WRITTEN = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")  # pages go into the file before the commit
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE results SET document = 'x'")
insert = "INSERT INTO results (started_at, document) VALUES (1, ?)"
connection.executemany(insert, [("y" * 9999,)] * 99)
os._exit(0)
"""


def test_what_a_killed_writer_left_half_done_is_taken_back_by_a_reader(file: Path) -> None:
    store.append(RESULT)
    subprocess.run([sys.executable, "-c", HALF_WRITTEN, str(file)], timeout=60, check=True)
    journal = file.with_name(f"{file.name}-journal")
    assert journal.exists()
    assert store.recent() == [RESULT]
    assert not journal.exists()
