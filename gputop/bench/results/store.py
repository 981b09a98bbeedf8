"""Results of earlier runs: a JSON file for each, in the user's data directory.

An unusable file is not changed, and the `ProblemError` has the reason in one line.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import datetime
from itertools import islice
from pathlib import Path

from gputop.agent.problem import Problem, ProblemError
from gputop.bench.events import Result
from gputop.bench.results import compare
from gputop.bench.results.verdict import DEFAULTS, VerdictLimits, with_verdicts
from gputop.files import NoHomeError, read_at_once, user_folder, write_whole
from gputop.schema.decode import from_plain
from gputop.schema.limits import DecodeError
from gputop.text import visible

MOST_BYTES = 256 << 20
"""Longest file that is read."""
RESULT, CURVES = ".json", ".curves"
"""Ends of the names of a result's file, and of the file with the data of its charts."""
OLD_FILE = "results.sqlite"
"""All results of an older version, in the data directory."""


def folder() -> Path:
    """Return the folder of the results; raise `ProblemError` without a home folder."""
    try:
        return user_folder("data") / "results"
    except NoHomeError as error:
        raise _problem(str(error), "Set HOME or XDG_DATA_HOME") from None


def file_of(result: Result) -> Path:
    """Return the path of a result's file. The names sort by the start of the runs."""
    return folder() / _name(result.started_at, result.device_uuid)


def _name(started_at: float, uuid: str | None) -> str:
    return f"{started_at:017.6f}{_device_end(uuid)}"


def _device_end(uuid: str | None) -> str:
    """Return the end of the names of a device's files."""
    device = re.sub(r"[^\w-]", "_", uuid or "cpu")[:100]
    return f"-{device}{RESULT}"


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

    If earlier results cannot be read, it is kept without a comparison before the error is raised.
    `curves` is a document with the data of its charts.
    """
    unread = None
    if result.comparison is None:
        try:
            result = compared(result)
        except ProblemError as error:
            unread = error
    document = json.dumps(asdict(result), allow_nan=False)
    try:
        _write(file_of(result), document, curves)
    except ProblemError:
        if unread is None:
            raise
    if unread is not None:
        raise unread
    return result


def _write(file: Path, document: str, curves: str | None) -> None:
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if curves is not None:
            write_whole(file.with_suffix(CURVES), curves.encode(), 0o600)
        write_whole(file, document.encode(), 0o600)
    except OSError as error:
        raise _refused(file, error) from None


def read(file: Path) -> Result:
    """Return the result in a file; raise `ValueError` or `OSError` with the reason."""
    text = read_at_once(file, MOST_BYTES)
    try:
        return from_plain(Result, json.loads(text))
    except (DecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"it is not a complete result ({error})") from None


def curves_of(result: Result) -> str | None:
    """Return the curves kept with a result, or None; raise `ProblemError`."""
    file = file_of(result).with_suffix(CURVES)
    try:
        return read_at_once(file, MOST_BYTES).decode()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _refused(file, error) from None


def forget(result: Result) -> None:
    """Remove a result with its curves, and no other; raise `ProblemError`."""
    file = file_of(result)
    try:
        file.unlink(missing_ok=True)
        file.with_suffix(CURVES).unlink(missing_ok=True)
    except OSError as error:
        raise _refused(file, error) from None


def recent(
    limit: int | None = None, unread: list[ProblemError] | None = None
) -> list[Result]:
    """Return the latest results, newest first; raise `ProblemError` if there is no folder for them.

    The problems of damaged files are added to `unread`.
    """
    return [*islice(_stored(RESULT, unread), limit)]


def of_device(uuid: str | None, name: str) -> Iterator[Result]:
    """Yield the results of a device, newest first: by UUID, or for a CPU by name."""
    for result in _stored(_device_end(uuid)):
        if uuid is not None or result.device == name:
            yield result


def _stored(
    end: str, unread: list[ProblemError] | None = None
) -> Iterator[Result]:
    """Yield the results whose files have names with this end, newest first.

    A damaged file is skipped, and hides no other result.
    """
    place = folder()
    _import_old(place.with_name(OLD_FILE))
    try:
        files = sorted(place.iterdir(), key=str, reverse=True)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _refused(place, error) from None
    for file in files:
        if not file.name.endswith(end):
            continue
        try:
            yield read(file)
        except FileNotFoundError:  # another gputop has removed it
            continue
        except (OSError, ValueError) as error:
            if unread is not None:
                unread.append(_refused(file, error))


def _import_old(old: Path) -> None:
    """Keep each result of an older version's file as a file, and rename the old file.

    Several gputops may do this at once: they write the same files.
    """
    try:
        if not old.exists():
            return
        for document, started_at, uuid, curves in _old_rows(old):
            file = folder() / _name(started_at, uuid)
            _write(file, document, curves)
        day = f"{datetime.now():%Y%m%d-%H%M%S}"
        with contextlib.suppress(FileNotFoundError):
            old.rename(old.with_name(f"{old.name}.imported-{day}"))
    except (OSError, sqlite3.Error, ValueError, TypeError) as error:
        raise _refused(old, error) from None


def _old_rows(
    old: Path,
) -> Iterator[tuple[str, float, str | None, str | None]]:
    """Yield document, start, UUID and curves of each result. The first version had no curves."""
    with tempfile.TemporaryDirectory() as place:
        # A copy needs no lock. Some file systems of clusters have none.
        for name in (old.name, f"{old.name}-journal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(old.with_name(name), Path(place, name))
        connection = sqlite3.connect(Path(place, old.name))
        with contextlib.closing(connection):
            tables = connection.execute("SELECT name FROM sqlite_master")
            if ("results",) not in tables.fetchall():
                return
            for row in connection.execute("SELECT * FROM results ORDER BY id"):
                _, started_at, uuid, document, *curves = row
                yield document, started_at, uuid, next(iter(curves), None)


def _refused(file: Path, error: Exception) -> ProblemError:
    shown = visible(str(file))
    if isinstance(error, OSError):
        why = error.strerror or str(error)
        remedy = f"See the permissions of {shown} and the room on its disk, or set XDG_DATA_HOME"
        return _problem(why, remedy)
    why = f"{visible(file.name)}: {error}"
    what = "An earlier result cannot be used"
    return ProblemError(Problem(what, visible(why), f"Move {shown} away"))


def _problem(why: str, remedy: str) -> ProblemError:
    what = "The earlier results cannot be used"
    return ProblemError(Problem(what, visible(why), remedy))
