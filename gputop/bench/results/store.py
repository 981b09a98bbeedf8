"""Results of earlier runs: a SQLite file in the user's data directory.

An unusable file is not changed, and the `ProblemError` has the reason in one line.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Literal

from gputop.agent.problem import Problem, ProblemError
from gputop.bench.events import Result
from gputop.bench.results import compare
from gputop.bench.results.verdict import DEFAULTS, VerdictLimits, with_verdicts
from gputop.files import NoHomeError, user_folder
from gputop.schema.decode import from_plain
from gputop.schema.limits import DecodeError
from gputop.text import visible

VERSION = 1
"""Version of the tables, in `PRAGMA user_version`. New fields of documents do not change it."""
LOCK_SECONDS = 2.0

_TABLE = """
CREATE TABLE results (
    id INTEGER PRIMARY KEY,
    started_at REAL NOT NULL,
    device_uuid TEXT,
    document TEXT NOT NULL,
    curves TEXT
)
"""

CURVES = "curves"
"""Column that older versions ignore."""
_COLUMNS = "PRAGMA table_info(results)"
_THIS = "WHERE started_at = ? AND device_uuid IS ?"


def results_path() -> Path:
    """Return the path of the results file; raise `ProblemError` without a home folder."""
    try:
        return user_folder("data") / "results.sqlite"
    except NoHomeError as error:
        raise ProblemError(
            _problem(str(error), "Set HOME or XDG_DATA_HOME")
        ) from None


def compared(result: Result) -> Result:
    """Return a result with its comparison with earlier like runs; raise `ProblemError`."""
    earlier = of_device(result.device_uuid, result.device)
    return compare.compared(result, earlier)


def judged(
    results: Iterable[Result], limits: VerdictLimits = DEFAULTS
) -> list[Result]:
    """Return results of one run with their verdicts.

    If earlier runs cannot be read, that part of the verdict is not judged.
    """
    known = []
    for each in results:
        try:
            known.append(compared(each))
        except ProblemError:
            known.append(each)
    return with_verdicts(known, limits)


def append(result: Result, curves: str | None = None) -> Result:
    """Keep a result with its comparison, and return it; raise `ProblemError` if not possible.

    `curves` is a document with the data of its charts.
    """
    result = result if result.comparison is not None else compared(result)
    document = json.dumps(asdict(result), allow_nan=False)
    with _opened("write") as connection:
        connection.execute("BEGIN IMMEDIATE")
        if _version(connection) == 0:
            connection.execute(_TABLE)
            connection.execute(f"PRAGMA user_version = {VERSION}")
        elif CURVES not in (
            name for _, name, *_ in connection.execute(_COLUMNS)
        ):
            connection.execute(f"ALTER TABLE results ADD COLUMN {CURVES} TEXT")
        connection.execute(
            "INSERT INTO results (started_at, device_uuid, document, curves) VALUES (?, ?, ?, ?)",
            (result.started_at, result.device_uuid, document, curves),
        )
        connection.execute("COMMIT")
    return result


def curves_of(result: Result) -> str | None:
    """Return the curves kept with a result, or None; raise `ProblemError`."""
    if not _is_there():
        return None
    with _opened("read") as connection:
        this = (result.started_at, result.device_uuid)
        query = f"SELECT * FROM results {_THIS}"  # noqa: S608
        row = connection.execute(query, this).fetchone()
    return str(row[4]) if row is not None and len(row) > 4 and row[4] else None


def forget(result: Result) -> None:
    """Remove a result with its curves, and no other; raise `ProblemError`."""
    if _is_there():
        with _opened("write") as connection:
            _version(connection)
            this = (result.started_at, result.device_uuid)
            connection.execute(f"DELETE FROM results {_THIS}", this)  # noqa: S608


def recent(limit: int | None = None) -> list[Result]:
    """Return the latest results, newest first; raise `ProblemError` if they cannot be read."""
    return [*_read("", (), limit)]


def of_device(uuid: str | None, name: str) -> Iterator[Result]:
    """Yield the results of a device, newest first: by UUID, or for a CPU by name."""
    if uuid is not None:
        return _read("WHERE device_uuid = ?", (uuid,))
    return (
        result
        for result in _read("WHERE device_uuid IS NULL")
        if result.device == name
    )


def _read(
    where: str, values: tuple[str, ...] = (), limit: int | None = None
) -> Iterator[Result]:
    if not _is_there():
        return
    with _opened("read") as connection:
        if _version(connection) == 0:
            return
        query = f"SELECT document FROM results {where}"  # noqa: S608 - `where` is one of ours
        rows = connection.execute(
            f"{query} ORDER BY started_at DESC, id DESC LIMIT ?",
            (*values, -1 if limit is None else limit),
        )
        for (document,) in rows:
            yield from_plain(Result, json.loads(document))


def _is_there() -> bool:
    try:
        results_path().stat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _refused(error, results_path()) from error
    return True


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        why = f"a newer gputop made it (version {version}, this one knows {VERSION})"
        raise ProblemError(_problem(why, "Upgrade this gputop"))
    return int(version)


@contextlib.contextmanager
def _opened(purpose: Literal["read", "write"]) -> Iterator[sqlite3.Connection]:
    file = results_path()
    try:
        if purpose == "write":
            file.parent.mkdir(
                mode=0o700,
                parents=True,
                exist_ok=True,
            )
            # Create the file with a private mode. SQLite copies this mode to
            # its journal.
            os.close(
                os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            )
        with contextlib.closing(
            sqlite3.connect(
                # Open read-write even for reading, so that SQLite can roll
                # back a transaction of a killed writer. Without write
                # permission SQLite opens the file read-only.
                f"{file.as_uri()}?mode=rw&vfs={'unix' if _has_locks(file) else 'unix-dotfile'}",
                uri=True,
                timeout=LOCK_SECONDS,
                # This module begins and commits its own transactions.
                isolation_level=None,
            )
        ) as connection:
            yield connection
    except (
        sqlite3.Error,
        DecodeError,
        ValueError,
        RecursionError,
        OSError,
    ) as error:
        raise _refused(error, file) from error


_NO_LOCKS = (
    errno.ENOLCK,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
    errno.ENOTSUP,
    errno.EINVAL,
)


@lru_cache
def _has_locks(file: Path) -> bool:
    """Return False if the file system has no locks. Some mounts of NFS and Lustre have none.

    SQLite then locks by a folder `FILE.lock` while it uses the file. The result is cached, because
    a process that closes a file loses all of its locks on it, including SQLite's.
    """
    if not file.is_file():  # opening a pipe would block
        return True
    try:
        with file.open("rb") as opened:
            fcntl.lockf(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _NO_LOCKS
    return True


_HELD = "See whether another program holds FILE"
_LOCK_FOLDER = "If none does, remove FILE.lock, or set XDG_DATA_HOME to a folder on another disk"
_FORBIDDEN = "See the permissions of FILE and of its folder"
REMEDIES = {
    "locked": _HELD,
    "full": "Free some space on the disk of FILE",
    "I/O error": "See whether the disk of FILE has room, and works",
    "readonly": _FORBIDDEN,
    "unable to open": _FORBIDDEN,
    "permission": _FORBIDDEN,
}
"""Remedies by words of SQLite's messages."""


def _refused(error: Exception, file: Path) -> ProblemError:
    shown, why = visible(str(file)), str(error)
    if isinstance(error, OSError):
        remedy = f"See the permissions of {shown} and the room on its disk, or set XDG_DATA_HOME"
        return ProblemError(_problem(error.strerror or why, remedy))
    remedy = "Move FILE away; a new one is begun"
    if isinstance(error, sqlite3.Error):
        remedy = next(
            (REMEDIES[each] for each in REMEDIES if each in why), remedy
        )
        if remedy == _HELD and not _has_locks(file):
            why = "its file system has no locks, and another gputop seems to use it"
            remedy = _LOCK_FOLDER
    return ProblemError(_problem(why, remedy.replace("FILE", shown)))


def _problem(why: str, remedy: str) -> Problem:
    return Problem(
        "The file of earlier results cannot be used", visible(why), remedy
    )
