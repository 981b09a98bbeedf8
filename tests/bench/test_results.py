"""Results of earlier runs survive whatever happens to their file."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sqlite3
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from gputop.agent.problem import ProblemError
from gputop.bench.events import Comparison, Conditions, Point, Result, Verdict, VerdictPart
from gputop.bench.results import compare, exports, measures, store
from tests.bench.kept import BASE, SWEEP, soak, table
from tests.bench.pages import result_text
from tests.bench.workers import RESULT


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert store.results_path() == tmp_path / "data" / "gputop" / "results.sqlite"
    return store.results_path()


def test_without_a_file_there_are_none_and_none_is_made(file: Path) -> None:
    assert store.recent(10) == []
    assert not file.parent.exists()


def test_nobody_else_may_read_it(file: Path) -> None:
    before = os.umask(0)
    try:
        store.append(RESULT)
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


def both(says: str) -> None:
    """Writing and reading are refused in one line, which is `says`."""
    with pytest.raises(ProblemError, match=says) as caught:
        store.append(RESULT)
    assert "\n" not in str(caught.value)
    with pytest.raises(ProblemError, match=says):
        store.recent(10)


def changed(file: Path, *statement: object) -> None:
    """Keep a result, and change the file by SQL."""
    store.append(RESULT)
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute(*statement)  # type: ignore[arg-type]


def corrupt(file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_bytes(b"this is no database, " * 500)


def newer(file: Path) -> None:
    changed(file, f"PRAGMA user_version = {store.VERSION + 1}")


def another_table(file: Path) -> None:
    file.parent.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE something (else_)")
        connection.execute(f"PRAGMA user_version = {store.VERSION}")


def cut_off(file: Path) -> None:
    for n in range(200):
        store.append(replace(RESULT, started_at=float(n)))
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (corrupt, "Move .* away"),
        (newer, "a newer gputop made it"),
        (another_table, "no such table|no table named"),
        (cut_off, "Move .* away"),
        (lambda file: file.mkdir(parents=True), "permissions"),
    ],
)
def test_a_file_that_cannot_be_used_is_left_as_it_is(
    file: Path, damage: Callable[[Path], None], says: str
) -> None:
    damage(file)
    before = file.read_bytes() if file.is_file() else b""
    both(says)
    assert not before or file.read_bytes() == before


def test_a_locked_file_is_not_waited_for(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append(RESULT)
    monkeypatch.setattr(store, "LOCK_SECONDS", 0.05)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    both("locked.*another program")
    other.execute("ROLLBACK")
    other.close()
    store.append(RESULT)
    assert len(store.recent(10)) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_file_can_be_read(file: Path) -> None:
    store.append(RESULT)
    file.chmod(0o400)
    with pytest.raises(ProblemError):
        store.append(RESULT)
    assert store.recent(10) == [RESULT]


def test_a_folder_that_cannot_be_made(file: Path) -> None:
    file.parent.parent.write_text("a file where the folder should be")
    with pytest.raises(ProblemError, match="permissions"):
        store.append(RESULT)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ('{"device": 7}', "device"),
        ("[]", "Expected `object`, got `array`"),
        ("{", "Expecting property name"),
        ("[" * 100_000, "recursion"),
        (b"\xff", "utf-8"),
    ],
)
def test_a_document_that_is_none(file: Path, document: object, says: str) -> None:
    changed(file, "UPDATE results SET document = ?", (document,))
    before = file.read_bytes()
    with pytest.raises(ProblemError, match=says) as caught:
        store.recent(10)
    assert "Move" in str(caught.value)
    assert file.read_bytes() == before


def test_a_document_with_more_in_it_is_read(file: Path) -> None:
    changed(file, "UPDATE results SET document = json_set(document, '$.later', 1)")
    assert store.recent(10) == [RESULT]


def test_all_that_a_result_can_have_comes_back(file: Path) -> None:
    full = table("sweep", SWEEP, threads=4, time_to_steady_seconds=1.5, context_bytes=1 << 29)
    store.append(full)
    assert store.recent() == [full]
    assert isinstance(store.recent()[0].points[0], Point)
    assert isinstance(store.recent()[0].conditions, Conditions)


def test_a_document_of_the_first_version_is_read(file: Path) -> None:
    """Of which it is not known by which method it was made: it is no measure for others."""
    store.append(soak(900.0, ago=9.0))
    later = ("kind", "points", "conditions", "accumulate", "layout", "data", "threads")
    document = asdict(soak(900.0, ago=9.0))
    for name in (*later, "context_bytes", "cache_bytes", "tensor_bytes", "time_to_steady_seconds"):
        del document[name]
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE results SET document = ?", (json.dumps(document),))
    connection.close()
    (old,) = store.recent()
    assert (old.kind, old.points, old.conditions, old.layout) == ("soak", (), None, None)
    assert old.tflops_mean == 900.0
    assert store.append(BASE).comparison == Comparison(runs=0)


def test_a_verdict_of_an_older_version_has_no_summary(file: Path) -> None:
    store.append(BASE)
    document = asdict(replace(BASE, verdict=Verdict((VerdictPart("droop", "ok", "none"),))))
    del document["verdict"]["summary"], document["device_index"]
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE results SET document = ?", (json.dumps(document),))
    connection.close()
    (old,) = store.recent()
    assert old.verdict is not None
    assert (old.verdict.state, old.verdict.summary) == ("ok", "")
    assert "Verdict: ok (1 part)" in result_text(old)
    assert exports.kept_results(None) == [old]


def test_the_newest_is_first_also_where_it_was_kept_before_an_older_one(file: Path) -> None:
    runs = [soak(ago=float(ago)) for ago in (1, 3, 0, 2)]
    for run in runs:
        store.append(run)
    assert store.recent() == sorted(runs, key=lambda run: -run.started_at)


def test_a_device_has_its_own(file: Path) -> None:
    cpus = [replace(RESULT, device=name) for name in ("one CPU", "another")]
    gpus = [soak(), soak(device_uuid="GPU-b", device="NVIDIA H200")]
    for run in (*cpus, *gpus):
        store.append(run)
    assert [*store.of_device(None, "one CPU")] == cpus[:1]
    assert [*store.of_device("GPU-b", "whatever it is called")] == gpus[1:]
    assert [*store.of_device("GPU-c", "NVIDIA H200")] == []
    assert [*store.of_device("' OR 1=1 --", "x")] == []


@pytest.mark.slow
def test_a_run_is_compared_with_those_before_it_one_at_a_time(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be thousands of them, and each stress test looks through all."""
    for n in range(60):
        store.append(soak(700.0 + n, ago=100.0 - n))
    score, alive = measures.score, []

    def count() -> int:
        return sum(type(each) is Result for each in gc.get_objects())

    def counting(result: Result) -> float | None:
        alive.append(count())
        return score(result)

    gc.collect()
    before = count()
    monkeypatch.setattr(compare, "score", counting)
    kept = store.append(soak(800.0))
    assert kept.comparison is not None
    assert kept.comparison.under_percent is not None
    assert len(alive) >= 60
    assert max(alive) <= before + 25, "the last ten, the first ten, and a few"


def test_a_result_is_compared_with_what_came_before_it(file: Path) -> None:
    assert store.append(soak(780.0, ago=90.0)).comparison == Comparison(runs=0)
    for mean, ago in ((850.0, 20.0), (851.0, 25.0), (849.0, 30.0), (700.0, 10.0), (9.0, -10.0)):
        store.append(soak(mean, ago))
    kept = store.append(soak(700.0))
    assert kept == soak(700.0), "the measurement itself is as it was"
    assert kept.comparison is not None
    assert kept.comparison.under_percent == pytest.approx(17.55, rel=0.01)
    assert kept.comparison.runs == 4, "the one that was slower is no measure"


def test_an_empty_file_is_begun(file: Path) -> None:
    """As a full disk leaves it where the first result was to be kept."""
    file.parent.mkdir(parents=True)
    file.touch(0o600)
    assert store.recent() == []
    store.append(RESULT)
    assert store.recent() == [RESULT]


def test_a_result_that_is_no_document_does_not_touch_the_file(file: Path) -> None:
    store.append(RESULT)
    with pytest.raises(ValueError, match="JSON"):
        store.append(replace(RESULT, tflops_mean=float("nan")))
    assert store.recent() == [RESULT]


def test_a_folder_that_may_not_be_looked_into(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", refused)
    with pytest.raises(ProblemError, match=r"Permission denied.*permissions"):
        store.recent()
