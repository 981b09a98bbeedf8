"""Results of earlier runs survive whatever happens to their file."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gputop.bench import compare, results
from gputop.bench.events import Conditions, Point
from gputop.bench.results import ResultsError
from tests.bench.kept import BASE, COPY, SWEEP, soak, table
from tests.bench.workers import RESULT

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert results.path() == tmp_path / "data" / "gputop" / "results.sqlite"
    return results.path()


def test_what_is_kept_comes_back_newest_first(file: Path) -> None:
    runs = [replace(RESULT, iterations=n, tflops_mean=0.0031167065194031983) for n in range(5)]
    for run in runs:
        results.append(run)
    assert results.recent(3) == runs[:1:-1]
    assert results.recent(100) == runs[::-1]


def test_without_a_file_there_are_none_and_none_is_made(file: Path) -> None:
    assert results.recent(10) == []
    assert not file.parent.exists()


def test_nobody_else_may_read_it(file: Path) -> None:
    before = os.umask(0)
    try:
        results.append(RESULT)
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


def both(says: str) -> None:
    """Writing and reading are refused in one line, which is `says`."""
    with pytest.raises(ResultsError, match=says) as caught:
        results.append(RESULT)
    assert "\n" not in str(caught.value)
    with pytest.raises(ResultsError, match=says):
        results.recent(10)


def test_a_corrupt_file_is_left_as_it_is(file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_bytes(b"this is no database, " * 500)
    both("Move .* away")
    assert file.read_bytes() == b"this is no database, " * 500


def test_a_file_of_a_newer_version_is_left_as_it_is(file: Path) -> None:
    results.append(RESULT)
    with sqlite3.connect(file) as connection:
        connection.execute(f"PRAGMA user_version = {results.VERSION + 1}")
    connection.close()
    before = file.read_bytes()
    both("a newer gputop made it")
    assert file.read_bytes() == before


def test_a_locked_file_is_not_waited_for(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results.append(RESULT)
    monkeypatch.setattr(results, "LOCK_SECONDS", 0.05)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    both("locked.*another program")
    other.execute("ROLLBACK")
    other.close()
    results.append(RESULT)
    assert len(results.recent(10)) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_file_can_be_read(file: Path) -> None:
    results.append(RESULT)
    file.chmod(0o400)
    with pytest.raises(ResultsError):
        results.append(RESULT)
    assert results.recent(10) == [RESULT]


def test_a_folder_that_cannot_be_made(file: Path) -> None:
    file.parent.parent.write_text("a file where the folder should be")
    with pytest.raises(ResultsError, match="permissions"):
        results.append(RESULT)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ('{"device": 7}', "device"),
        ("[]", "expected an object"),
        ("{", "Expecting property name"),
        ("[" * 100_000, "recursion"),
        (b"\xff", "utf-8"),
    ],
)
def test_a_document_that_is_none(file: Path, document: object, says: str) -> None:
    results.append(RESULT)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE results SET document = ?", (document,))
    connection.close()
    before = file.read_bytes()
    with pytest.raises(ResultsError, match=says) as caught:
        results.recent(10)
    assert "Move" in str(caught.value)
    assert file.read_bytes() == before


def test_a_table_that_is_another_one(file: Path) -> None:
    file.parent.mkdir(parents=True)
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE something (else_)")
        connection.execute(f"PRAGMA user_version = {results.VERSION}")
    connection.close()
    both("no such table|no table named")


def test_a_document_with_more_in_it_is_read(file: Path) -> None:
    results.append(RESULT)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE results SET document = json_set(document, '$.later', 1)")
    connection.close()
    assert results.recent(10) == [RESULT]


def test_all_that_a_result_can_have_comes_back(file: Path) -> None:
    full = table("sweep", SWEEP, threads=4, time_to_steady_seconds=1.5, context_bytes=1 << 29)
    results.append(full)
    assert results.recent() == [full]
    assert isinstance(results.recent()[0].points[0], Point)
    assert isinstance(results.recent()[0].conditions, Conditions)


def test_a_document_of_the_first_version_is_read(file: Path) -> None:
    """Of which it is not known by which method it was made: it is no measure for others."""
    results.append(soak(900.0, ago=9.0))
    later = ("kind", "points", "conditions", "accumulate", "layout", "data", "threads")
    document = asdict(soak(900.0, ago=9.0))
    for name in (*later, "context_bytes", "cache_bytes", "tensor_bytes", "time_to_steady_seconds"):
        del document[name]
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE results SET document = ?", (json.dumps(document),))
    connection.close()
    (old,) = results.recent()
    assert (old.kind, old.points, old.conditions, old.layout) == ("soak", (), None, None)
    assert old.tflops_mean == 900.0
    assert results.best_before(BASE) is None


def test_the_newest_is_first_also_where_it_was_kept_before_an_older_one(file: Path) -> None:
    runs = [soak(ago=float(ago)) for ago in (1, 3, 0, 2)]
    for run in runs:
        results.append(run)
    assert results.recent() == sorted(runs, key=lambda run: -run.started_at)


def test_a_device_has_its_own(file: Path) -> None:
    cpus = [replace(RESULT, device=name) for name in ("one CPU", "another")]
    gpus = [soak(), soak(device_uuid="GPU-b", device="NVIDIA H200")]
    for run in (*cpus, *gpus):
        results.append(run)
    assert results.of_device(None, "one CPU") == cpus[:1]
    assert results.of_device("GPU-b", "whatever it is called") == gpus[1:]
    assert results.of_device("GPU-c", "NVIDIA H200") == []
    assert results.of_device("' OR 1=1 --", "x") == []


def test_like_is_of_the_same_method(file: Path) -> None:
    runs = [soak(), soak(dtype="float16"), soak(ago=5.0, method="20 warm-up products")]
    for run in runs:
        results.append(run)
    assert results.like(BASE) == [runs[0], runs[2]]


def test_a_result_is_compared_with_what_came_before_it(file: Path) -> None:
    assert results.best_before(BASE) is None
    assert results.regression(BASE) is None
    for mean, ago in ((780.0, 30.0), (850.0, 20.0), (700.0, 10.0), (990.0, -10.0)):
        results.append(soak(mean, ago))
    now = soak(790.0)
    best = results.best_before(now)
    assert best is not None
    assert best.tflops_mean == 850.0
    assert results.regression(now) == compare.regression(now, best)
    assert "7.1 % under" in str(results.regression(now))
    results.append(now)
    assert results.best_before(now) == best
    assert results.regression(soak(849.0)) is None


def test_tables_are_compared_too(file: Path) -> None:
    results.append(table("copy", COPY, ago=60.0))
    assert results.best_before(table("copy", COPY)) == table("copy", COPY, ago=60.0)
    assert results.best_before(table("sweep", SWEEP)) is None


KEEP = """
import sys
from dataclasses import replace
from gputop.bench import results
from tests.bench.workers import RESULT
try:
    for n in range(int(sys.argv[1])):
        results.append(replace(RESULT, iterations=n + 1, method="m" * int(sys.argv[2])))
except results.ResultsError as error:
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
        cwd=Path(__file__).parent.parent.parent,
        preexec_fn=before,
    )
    assert ended.stderr == ""
    return ended.stdout


def kept_and_whole(file: Path, count: int) -> None:
    """That many results are there, the file has no fault in it, and takes another one."""
    assert len(results.recent()) == count
    connection = sqlite3.connect(file)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    results.append(RESULT)
    assert len(results.recent()) == count + 1


def test_without_room_nothing_is_lost(file: Path) -> None:
    for n in range(3):
        results.append(replace(RESULT, iterations=n))
    size = file.stat().st_size + 8192

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    says = keeping(1, 100_000, limited)
    assert "has room" in says
    assert len(says.splitlines()) == 1
    kept_and_whole(file, 3)


MOUNTED = 'mount -t tmpfs -o size=64k,mode=700 none "$1" || exit 77; shift; exec "$@"'
ON_A_SMALL_DISK = ("unshare", "-rm", "sh", "-c", MOUNTED, "sh")


@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare")
def test_a_full_disk_is_one_line_and_nothing_is_lost(file: Path) -> None:
    program = KEEP + "print([r.iterations for r in results.recent()] == [*range(n, 0, -1)])\n"
    folder = file.parent
    folder.mkdir(parents=True)
    ended = subprocess.run(
        [*ON_A_SMALL_DISK, str(folder), sys.executable, "-c", program, "1000", "2000"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=Path(__file__).parent.parent.parent,
    )
    if ended.returncode == 77 or "unshare" in ended.stderr:
        pytest.skip("a file system cannot be mounted here")
    says, intact = ended.stdout.splitlines()
    assert "full" in says
    assert "Free some space" in says
    assert intact == "True"


SHUT = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 77; shift; exec "$@"'
ON_A_READ_ONLY_ONE = ("unshare", "-rm", "sh", "-c", SHUT, "sh")


@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare")
def test_a_home_that_is_read_only_can_be_read(file: Path) -> None:
    results.append(RESULT)
    before = file.read_bytes()
    program = KEEP + "print(len(results.recent()))\n"
    ended = subprocess.run(
        [*ON_A_READ_ONLY_ONE, str(file.parent), sys.executable, "-c", program, "1", "10"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=Path(__file__).parent.parent.parent,
    )
    if ended.returncode == 77 or "unshare" in ended.stderr:
        pytest.skip("a file system cannot be mounted here")
    says, count = ended.stdout.splitlines()
    assert "Read-only file system" in says
    assert "permissions" in says
    assert count == "1"
    assert file.read_bytes() == before


def test_a_writer_that_is_killed_leaves_what_it_kept(file: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KEEP, "1000000", "3000"],
        cwd=Path(__file__).parent.parent.parent,
    ) as worker:
        count = 0
        while count < 20:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(timeout=0.02)
            assert worker.poll() is None
            count = len(results.recent())
        worker.kill()
    left = results.recent()
    assert len(left) >= count
    assert [run.iterations for run in left] == [*range(len(left), 0, -1)]
    kept_and_whole(file, len(left))


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
    results.append(RESULT)
    subprocess.run([sys.executable, "-c", HALF_WRITTEN, str(file)], timeout=60, check=True)
    journal = file.with_name(f"{file.name}-journal")
    assert journal.exists()
    assert results.recent() == [RESULT]
    assert not journal.exists()


def test_several_at_once_lose_nothing(file: Path) -> None:
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", KEEP, "20", "10"],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parent.parent.parent,
        )
        for _ in range(3)
    ]
    for worker in workers:
        said, _ = worker.communicate(timeout=120)
        assert said == b""
    kept_and_whole(file, 60)


def test_a_file_cut_off_is_left_as_it_is(file: Path) -> None:
    keeping(40, 2000)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ResultsError, match=r"Move .* away"):
        results.recent()
    assert file.read_bytes() == whole[: len(whole) // 2]


def test_an_empty_file_is_begun(file: Path) -> None:
    """As a full disk leaves it where the first result was to be kept."""
    file.parent.mkdir(parents=True)
    file.touch(0o600)
    assert results.recent() == []
    results.append(RESULT)
    assert results.recent() == [RESULT]


def test_a_result_that_is_no_document_does_not_touch_the_file(file: Path) -> None:
    results.append(RESULT)
    with pytest.raises(ValueError, match="JSON"):
        results.append(replace(RESULT, tflops_mean=float("nan")))
    assert results.recent() == [RESULT]


def test_a_folder_where_the_file_should_be(file: Path) -> None:
    file.mkdir(parents=True)
    both("permissions")


def test_a_folder_that_may_not_be_looked_into(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", refused)
    with pytest.raises(ResultsError, match=r"Permission denied.*permissions"):
        results.recent()
