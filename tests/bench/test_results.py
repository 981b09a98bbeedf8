import contextlib
import json
import os
import re
import sqlite3
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from gputop.agent.problem import ProblemError
from gputop.bench.events import Comparison, Conditions, Result
from gputop.bench.results import store
from gputop.cli import main
from tests.bench.kept import BASE, SWEEP, soak, table
from tests.bench.workers import RESULT


def test_without_a_folder_there_are_none_and_none_is_made(folder: Path) -> None:
    assert store.recent(10) == []
    assert not folder.parent.exists()


def test_nobody_else_may_read_it(folder: Path) -> None:
    before = os.umask(0)
    try:
        store.append(RESULT, "{}")
    finally:
        os.umask(before)
    assert [file.stat().st_mode & 0o777 for file in folder.iterdir()] == [0o600, 0o600]
    assert folder.stat().st_mode & 0o777 == 0o700


WHOLE = json.dumps(asdict(RESULT)).encode()


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (b'{"device": 7}', "device"),
        (b"[" + WHOLE + b"]", "Expected `object`, got `array`"),
        (WHOLE[:-40], "Expecting|Unterminated|Invalid"),
        (b"", "Expecting value"),
        (b"[" * 100_000, "recursion"),
        (b"\xff", "utf-8"),
        (WHOLE.replace(b'"tflops_mean": 0.18', b'"tflops_mean": NaN'), "number out of range"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_damaged_file_is_named_left_as_it_is_and_hides_no_other_result(
    folder: Path, capsys: pytest.CaptureFixture[str], document: bytes, says: str
) -> None:
    store.append(RESULT)
    (file,) = folder.iterdir()
    file.write_bytes(document)
    later = store.append(replace(RESULT, started_at=RESULT.started_at + 1))
    assert store.recent() == [later]
    assert main(["bench", "--history"]) == 0
    listed = capsys.readouterr()
    assert listed.out.count(later.dtype) == 1
    (warning,) = listed.err.splitlines()
    assert re.search(says, warning)
    assert f"Move {file} away" in warning
    assert main(["bench", "--compare", str(file), str(file)]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot be compared: it is not a complete result (" in line
    assert file.read_bytes() == document


def test_a_folder_that_is_none_is_named(folder: Path) -> None:
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way")
    for use in (store.recent, lambda: store.append(RESULT)):
        with pytest.raises(ProblemError, match=r"Not a directory\. See the permissions"):
            use()


def test_all_that_a_result_can_have_comes_back_also_from_a_later_version(folder: Path) -> None:
    full = table("sweep", SWEEP, threads=4, time_to_steady_seconds=1.5)
    store.append(full)
    (file,) = folder.iterdir()
    file.write_text(json.dumps({**json.loads(file.read_text()), "later": 1}))
    assert store.recent() == [full]
    assert isinstance(store.recent()[0].conditions, Conditions)


def old_file(file: Path, rows: list[tuple[object, ...]], columns: str = "") -> None:
    """Write the file in which an older version kept all results."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(
            "CREATE TABLE results (id INTEGER PRIMARY KEY, started_at REAL NOT NULL, "
            f"device_uuid TEXT, document TEXT NOT NULL{columns})"
        )
        for row in rows:
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO results VALUES (NULL, {marks})", row)  # noqa: S608


def row_of(run: Result, *without: str) -> tuple[object, ...]:
    document = {name: value for name, value in asdict(run).items() if name not in without}
    return (run.started_at, run.device_uuid, json.dumps(document))


def test_a_document_of_the_first_version_is_read_and_is_no_measure_for_others(
    folder: Path,
) -> None:
    later = ("kind", "points", "conditions", "accumulate", "layout", "data", "threads")
    row = row_of(soak(900.0, ago=9.0), *later, "time_to_steady_seconds")
    old_file(folder.with_name("results.sqlite"), [row])
    (old,) = store.recent()
    assert (old.kind, old.points, old.conditions, old.layout) == ("soak", (), None, None)
    assert old.tflops_mean == 900.0
    assert store.curves_of(old) is None
    assert store.append(BASE).comparison == Comparison(runs=0)


def test_results_of_an_older_version_become_files_once(folder: Path) -> None:
    runs = [soak(780.0), soak(700.0, ago=9.0), replace(RESULT, started_at=BASE.started_at - 20)]
    old = folder.with_name("results.sqlite")
    old_file(old, [(*row_of(run), f"{run.seconds}") for run in runs], ", curves TEXT")
    content = old.read_bytes()
    assert store.recent() == runs
    assert [store.curves_of(run) for run in runs] == [f"{run.seconds}" for run in runs]
    store.forget(runs[0])
    assert store.recent() == runs[1:]
    (kept,) = folder.parent.glob("results.sqlite*")
    assert kept.read_bytes() == content, "it is renamed and not changed"
    later = soak(ago=-9.0)
    old_file(old, [row_of(later)])
    assert store.recent() == [later, *runs[1:]], "an older version was used once more"
    old.touch()
    assert len(store.recent()) == 3
    assert not old.exists(), "an old file without results is done"
    old.write_bytes(b"this is no database, " * 500)
    with pytest.raises(ProblemError, match=f"not a database. Move {old} away"):
        store.recent()
    assert old.exists(), "it is left as it is"


def test_the_newest_is_first_also_where_it_was_kept_before_an_older_one(folder: Path) -> None:
    runs = [soak(ago=float(ago)) for ago in (1, 3, 0, 2)]
    for run in runs:
        store.append(run)
    assert store.recent() == sorted(runs, key=lambda run: -run.started_at)


def test_a_device_has_its_own(folder: Path) -> None:
    cpus = [
        replace(RESULT, device="one CPU"),
        replace(RESULT, device="another", started_at=BASE.started_at - 1),
    ]
    gpus = [soak(), soak(device_uuid="GPU-b", device="NVIDIA H200")]
    for run in (*cpus, *gpus):
        store.append(run)
    assert [*store.of_device(None, "one CPU")] == cpus[:1]
    assert [*store.of_device("GPU-b", "whatever it is called")] == gpus[1:]
    assert [*store.of_device("GPU-c", "NVIDIA H200")] == []
    assert [*store.of_device("' OR 1=1 --", "x")] == []


def test_a_result_is_compared_with_what_came_before_it(folder: Path) -> None:
    assert store.append(soak(780.0, ago=90.0)).comparison == Comparison(runs=0)
    for mean, ago in ((850.0, 20.0), (851.0, 25.0), (849.0, 30.0), (700.0, 10.0), (9.0, -10.0)):
        store.append(soak(mean, ago))
    kept = store.append(soak(700.0))
    assert kept == soak(700.0), "the measurement itself is as it was"
    assert kept.comparison is not None
    assert kept.comparison.under_percent == pytest.approx(17.55, rel=0.01)
    assert kept.comparison.runs == 4, "the one that was slower is no measure"


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing", "", "pipe"):
        with pytest.raises(OSError, match=r"\w"):
            store.read(tmp_path / name)
    with pytest.raises(OSError, match="larger than 262144 KiB"):
        store.read(Path("/dev/zero"))
