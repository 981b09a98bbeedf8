"""Write a recording. The file is readable to its end wherever it is cut off."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
import zlib
from pathlib import Path

from gputop.agent.lines import to_line
from gputop.agent.problem import Problem, ProblemError
from gputop.agent.snapshot import Inventory, Record
from gputop.files import refusal

GZIP = 31
"""Window bits of zlib for a gzip header and trailer around the largest window."""
SAMPLES_A_CHECKSUM = 64
"""Samples per gzip member. Each member ends with a checksum, which detects wrong data."""


class OutputError(ProblemError):
    """The file cannot be written."""


class GrowingFile:
    """A new file with mode 0600, compressed if its name ends in `.gz`.

    Raises `OutputError`. After that the file ends with the last complete write. Only `close` it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._is_compressed = path.suffix == ".gz"
        self._deflate: zlib._Compress | None = None
        try:
            self._descriptor = _create(path)
        except OSError as error:
            raise _failed(path, error) from None
        self._has_name = os.fstat(self._descriptor).st_nlink > 0

    def write(self, data: bytes) -> None:
        """Append data. It is readable at once, even if this process is killed."""
        if self._is_compressed:
            if self._deflate is None:
                self._deflate = zlib.compressobj(wbits=GZIP)
            data = self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        self._append(data)

    def end_member(self) -> None:
        """End the gzip member with its checksum. The next write starts a new member."""
        if self._deflate is not None:
            data = self._deflate.flush()
            self._deflate = None
            self._append(data)

    def close(self) -> None:
        """End the file. If gzip's trailer does not fit on the disk, the data stays readable."""
        with contextlib.suppress(OutputError):
            self.end_member()
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    def _append(self, data: bytes) -> None:
        if self._has_name and os.fstat(self._descriptor).st_nlink == 0:
            what = f"{self.path} is no longer written"
            raise OutputError(Problem(what, "it was removed", "Start another one"))
        view = memoryview(data)
        try:
            while view:
                written = os.write(self._descriptor, view)
                view = view[written:]
        except OSError as error:
            self._deflate = None  # its trailer would not match the data in the file
            with contextlib.suppress(OSError):  # a pipe has no length
                os.ftruncate(self._descriptor, self.size)
            raise _failed(self.path, error) from None
        self.size += len(data)


def _failed(path: Path, error: OSError) -> OutputError:
    why = error.strerror or str(error)
    remedy = "Name a file where you may write"
    if error.errno == errno.EEXIST:
        why = "it is there already"
        remedy = "Remove it, or name another"
    elif error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        remedy = "Free some space, or name a file elsewhere"
    return OutputError(Problem(f"{path} cannot be written", why, remedy))


def _create(path: Path) -> int:
    """Open a new file, an empty file of this user, or a device or pipe.

    A link to a file is refused: another user may have put it into a shared folder.
    """
    flags = os.O_WRONLY | os.O_CLOEXEC
    with contextlib.suppress(FileExistsError):
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    descriptor = os.open(path, flags)
    try:
        _check_existing(path, descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _check_existing(path: Path, descriptor: int) -> None:
    """Raise `OSError` if writing to this existing file could do harm."""
    opened = os.fstat(descriptor)
    if stat.S_ISCHR(opened.st_mode):  # /dev/null, a terminal
        return
    if stat.S_ISFIFO(opened.st_mode):
        if opened.st_uid != os.geteuid():
            raise OSError(errno.EPERM, "it belongs to another user")
        return
    reason = refusal(opened)
    if reason is None and not os.path.samestat(opened, path.lstat()):
        reason = "it is a link"
    if reason is not None:
        raise OSError(errno.EPERM, reason)
    if opened.st_size > 0:
        raise FileExistsError(errno.EEXIST, "")
    os.fchmod(descriptor, 0o600)


class Recorder:
    """Writes records to a new file. Raises `OutputError`.

    Each write reaches the file at once. If the process is killed, at most one record is lost.
    """

    def __init__(self, path: Path) -> None:
        self.file = GrowingFile(path)
        self._samples = 0

    def write(self, record: Record) -> None:
        """Append a record."""
        if not isinstance(record, Inventory):
            record = record.with_secrets(shown=False)
            self._samples += 1
        self.file.write(to_line(record).encode() + b"\n")
        if self._samples == SAMPLES_A_CHECKSUM:
            self._samples = 0
            self.file.end_member()

    def close(self) -> None:
        """End the file."""
        self.file.close()


def default_name(hostname: str, now: float) -> str:
    """Return the default name of a recording: `gputop-node07-20251120-120000.jsonl.gz`.

    `now` is a Unix time, shown as local time.
    """
    host = re.sub(r"[^A-Za-z0-9._-]+", "-", hostname)[:60].strip("-.") or "host"
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    return f"gputop-{host}-{stamp}.jsonl.gz"
