"""Disks that are full or may not be written to, and writers that are killed: nothing is lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from gputop.bench.results import store
from tests.bench.workers import RESULT

ROOT = Path(__file__).parents[2]
KEEP = """
import sys
from dataclasses import replace
from gputop.bench.results import store
from gputop.agent.problem import ProblemError
from tests.bench.workers import RESULT
first, count, size = map(int, sys.argv[1:])
kept = []
try:
    for n in range(first, first + count):
        kept.append(replace(RESULT, started_at=float(n), method="m" * size))
        store.append(kept[-1], "{}")
        print(n, flush=True)
except ProblemError as error:
    print(error)
    print(store.recent() == kept[-2::-1])
"""
"""Keep so many results. If one cannot be kept, print why, and if all before it are there."""

SMALL_DISK = 'mount -t tmpfs -o size=64k,mode=700 none "$1" || exit 77; shift; exec "$@"'
READ_ONLY_DISK = (
    'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 77; shift; exec "$@"'
)


def keeping_on(disk: str, folder: Path, *arguments: str) -> list[str]:
    """Return the lines of a program that keeps results, with such a disk for their folder."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare")
    folder.mkdir(parents=True, exist_ok=True)
    shell = ["unshare", "-rm", "sh", "-c", disk, "sh", str(folder)]
    ended = subprocess.run(
        [*shell, sys.executable, "-c", KEEP, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
    )
    if ended.returncode == 77 or "unshare" in ended.stderr:
        pytest.skip("a file system cannot be mounted here")
    return ended.stdout.splitlines()


def test_a_full_disk_is_one_line_and_nothing_is_lost(folder: Path) -> None:
    *_, says, intact = keeping_on(SMALL_DISK, folder, "0", "1000", "2000")
    assert "No space left on device" in says
    assert "the room on its disk" in says
    assert intact == "True"


def test_a_home_that_is_read_only_can_be_read(folder: Path) -> None:
    first = replace(RESULT, started_at=0.0, method="m")
    store.append(first)
    (file,) = folder.iterdir()
    before = file.read_bytes()
    says, intact = keeping_on(READ_ONLY_DISK, folder, "1", "1", "1")
    assert "Read-only file system" in says
    assert "permissions" in says
    assert intact == "False", "the earlier one is there, too"
    assert file.read_bytes() == before


def test_a_writer_that_is_killed_leaves_what_it_kept(folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KEEP, "0", "1000000", "3000"],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    ) as worker:
        assert worker.stdout is not None
        try:
            told_of = [int(worker.stdout.readline()) for _ in range(20)]
        finally:
            worker.kill()
    left = [run.started_at for run in store.recent()]
    assert left == [float(n) for n in reversed(range(len(left)))]
    assert len(left) >= len(told_of)


def test_several_at_once_lose_nothing(folder: Path) -> None:
    def keep(first: str) -> None:
        command = [sys.executable, "-c", KEEP, first, "10", "10"]
        subprocess.run(command, stdout=subprocess.DEVNULL, timeout=120, check=True, cwd=ROOT)

    with ThreadPoolExecutor(2) as threads:
        assert [*threads.map(keep, ("0", "10"))] == [None] * 2
    assert [run.started_at for run in store.recent()] == [float(n) for n in reversed(range(20))]
