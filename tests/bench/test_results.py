"""Results of earlier runs survive whatever happens to their file."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.agent.problem import ProblemError
from gputop.bench.events import Comparison, Conditions, Point
from gputop.bench.results import store
from gputop.bench.results.exports import read_results
from tests.bench.commands import ran
from tests.bench.kept import BASE, SWEEP, soak, table
from tests.bench.workers import RESULT

if TYPE_CHECKING:
    from pathlib import Path


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
    full = table("sweep", SWEEP, threads=4, time_to_steady_seconds=1.5)
    store.append(full)
    assert store.recent() == [full]
    assert isinstance(store.recent()[0].points[0], Point)
    assert isinstance(store.recent()[0].conditions, Conditions)


def test_a_document_of_the_first_version_is_read(file: Path) -> None:
    """Of which it is not known by which method it was made: it is no measure for others."""
    store.append(soak(900.0, ago=9.0))
    later = ("kind", "points", "conditions", "accumulate", "layout", "data", "threads")
    document = asdict(soak(900.0, ago=9.0))
    for name in (*later, "time_to_steady_seconds"):
        del document[name]
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE results SET document = ?", (json.dumps(document),))
    connection.close()
    (old,) = store.recent()
    assert (old.kind, old.points, old.conditions, old.layout) == ("soak", (), None, None)
    assert old.tflops_mean == 900.0
    assert store.append(BASE).comparison == Comparison(runs=0)


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


def test_a_result_is_compared_with_what_came_before_it(file: Path) -> None:
    assert store.append(soak(780.0, ago=90.0)).comparison == Comparison(runs=0)
    for mean, ago in ((850.0, 20.0), (851.0, 25.0), (849.0, 30.0), (700.0, 10.0), (9.0, -10.0)):
        store.append(soak(mean, ago))
    kept = store.append(soak(700.0))
    assert kept == soak(700.0), "the measurement itself is as it was"
    assert kept.comparison is not None
    assert kept.comparison.under_percent == pytest.approx(17.55, rel=0.01)
    assert kept.comparison.runs == 4, "the one that was slower is no measure"


GOOD = asdict(dataclasses.replace(RESULT, device_uuid="GPU-9", host="node-9"))
DAMAGED: dict[str, tuple[Any, str]] = {
    "empty": ("", "it is empty"),
    "blank": (" \n", "it is empty"),
    "cut off": (json.dumps(GOOD)[:-40], "not a complete JSON document"),
    "no result": ({"a": 1}, "it is not a result"),
    "a number": (3, "it is not a result"),
    "half a result": ({key: GOOD[key] for key in list(GOOD)[:9]}, "it is not a complete result"),
    "wrong types": ({**GOOD, "seconds": "long"}, "it is not a complete result"),
    "not a number": (
        json.dumps({**GOOD, "tflops_mean": float("nan")}),
        "number out of range",
    ),
    "deep": ("[" * 100_000, "not a complete JSON document"),
}


def write(folder: Path, document: Any) -> str:
    path = folder / "result.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_named(tmp_path: Path, name: str) -> None:
    document, why = DAMAGED[name]
    with pytest.raises(ValueError, match=why):
        read_results(write(tmp_path, document))


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing", "bytes", "", "pipe"):
        with pytest.raises(ValueError, match=r"\w"):
            read_results(str(tmp_path / name))
    with pytest.raises(ValueError, match=r"\w"):
        read_results("/dev/zero")


def test_a_file_has_one_result_or_several(tmp_path: Path) -> None:
    failed = {"device": "NVIDIA H100", "problem": {"what": "The device hangs"}, "status": 1}
    assert len(read_results(write(tmp_path, GOOD))) == 1
    assert len(read_results(write(tmp_path, [GOOD, failed]))) == 1
    (found,) = read_results(write(tmp_path, {"results": [{**GOOD, "place": "GPU 6"}]}))
    assert found.host == "node-9"


def test_a_file_with_several_results_is_not_compared(tmp_path: Path) -> None:
    file = write(tmp_path, [GOOD, GOOD])
    done = ran("--compare", file, file)
    assert done.returncode == 3
    assert "cannot be compared: it has 2 results. Name one result." in done.stderr


@given(st.text(max_size=200))
def test_no_file_is_too_strange(text: str) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".json", errors="surrogatepass") as file:
        file.write(text)
        file.flush()
        why = None
        try:
            found = read_results(file.name)
        except ValueError as error:
            found, why = [], str(error)
    assert found == [], "an empty list has none either"
    assert why != ""
