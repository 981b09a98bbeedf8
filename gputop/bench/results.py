"""Results of earlier runs, in a SQLite file under the user's data directory.

A file that cannot be used is left as it is, and a `ResultsError` says why in one line.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import platformdirs

from gputop.bench.events import Result
from gputop.telemetry.codec import DecodeError, from_json
from gputop.telemetry.snapshot import Problem
from gputop.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = 1
"""Of the tables, in `PRAGMA user_version`."""
LOCK_SECONDS = 2.0

_TABLE = """
CREATE TABLE results (
    id INTEGER PRIMARY KEY,
    started_at REAL NOT NULL,
    device_uuid TEXT,
    document TEXT NOT NULL
)
"""


class ResultsError(Exception):
    """The results file cannot be read or written; `problem` says it to the user."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def path() -> Path:
    """Where the results are kept."""
    return Path(platformdirs.user_data_dir("gputop"), "results.sqlite")


def append(result: Result) -> None:
    """Keeps a result; raises `ResultsError` where that is not possible."""
    with _opened("write") as connection:
        connection.execute("BEGIN IMMEDIATE")
        if _version(connection) == 0:
            connection.execute(_TABLE)
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute(
            "INSERT INTO results (started_at, device_uuid, document) VALUES (?, ?, ?)",
            (result.started_at, result.device_uuid, json.dumps(asdict(result), allow_nan=False)),
        )
        connection.execute("COMMIT")


def recent(limit: int) -> list[Result]:
    """The latest results, newest first; raises `ResultsError` where the file cannot be read."""
    if not path().exists():
        return []
    with _opened("read") as connection:
        if _version(connection) == 0:
            return []
        rows = connection.execute(
            "SELECT document FROM results ORDER BY id DESC LIMIT ?", (limit,)
        ).fetchall()
        return [from_json(Result, json.loads(document)) for (document,) in rows]


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise ResultsError(
            _problem(
                f"a newer gputop made it (version {version}, this one knows {VERSION})",
                "Upgrade this gputop",
            )
        )
    return int(version)


@contextlib.contextmanager
def _opened(purpose: Literal["read", "write"]) -> Iterator[sqlite3.Connection]:
    file = path()
    try:
        if purpose == "write":
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Made by hand for its mode: SQLite gives its journal the same one.
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        mode = "rw" if purpose == "write" else "ro"
        with contextlib.closing(
            sqlite3.connect(
                f"{file.as_uri()}?mode={mode}",
                uri=True,
                timeout=LOCK_SECONDS,
                isolation_level=None,  # transactions are begun and committed here
            )
        ) as connection:
            yield connection
    except sqlite3.OperationalError as error:
        remedy = f"See whether another program holds {visible(str(file))}, and its permissions"
        raise ResultsError(_problem(str(error), remedy)) from error
    except (sqlite3.Error, DecodeError, ValueError) as error:
        remedy = f"Move {visible(str(file))} away; a new one is begun"
        raise ResultsError(_problem(str(error), remedy)) from error
    except OSError as error:
        remedy = f"See the permissions of {visible(str(file))}, and the room on its disk"
        raise ResultsError(_problem(error.strerror or str(error), remedy)) from error


def _problem(why: str, remedy: str) -> Problem:
    return Problem("The file of earlier results cannot be used", visible(why), remedy)
