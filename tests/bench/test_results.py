"""Results of earlier runs survive whatever happens to their file."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gputop.bench import results
from gputop.bench.results import ResultsError
from tests.bench.workers import RESULT

if TYPE_CHECKING:
    from pathlib import Path


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


def test_a_document_that_is_none(file: Path) -> None:
    results.append(RESULT)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE results SET document = '{\"device\": 7}'")
    connection.close()
    with pytest.raises(ResultsError, match="device"):
        results.recent(10)


def test_a_document_with_more_in_it_is_read(file: Path) -> None:
    results.append(RESULT)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE results SET document = json_set(document, '$.later', 1)")
    connection.close()
    assert results.recent(10) == [RESULT]
