"""Write a recording. A truncated file is readable up to its end."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
import zlib
from collections.abc import Mapping
from pathlib import Path

from gputop.agent.lines import to_line
from gputop.agent.problem import Problem, ProblemError
from gputop.agent.snapshot import Inventory, Record

GZIP = 31
"""Window bits of zlib for a gzip header and trailer around the largest window."""
FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
"""Require a new file. A link in a shared folder could point to another user's file."""
NO_SPACE = "Free some space, or choose another disk"
REMEDIES: Mapping[int | None, str] = {
    errno.EEXIST: "Remove it, or name another",
    errno.ENOSPC: NO_SPACE,
    errno.EDQUOT: NO_SPACE,
    errno.EFBIG: NO_SPACE,
}


class OutputError(ProblemError):
    """The file cannot be written."""


class GrowingFile:
    """A new file with mode 0600, compressed if its name ends in `.gz`.

    Raises `OutputError`. After an error the file ends with the last complete write; call only
    `close`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._deflate: zlib._Compress | None = None
        if path.suffix == ".gz":
            self._deflate = zlib.compressobj(wbits=GZIP)
        try:
            self._descriptor = os.open(path, FLAGS, 0o600)
        except OSError as error:
            raise _failed(path, error) from None

    def write_record(self, record: Record) -> None:
        """Append a record without secrets, as one line."""
        if not isinstance(record, Inventory):
            record = record.with_secrets(shown=False)
        self.write(to_line(record).encode() + b"\n")

    def write(self, data: bytes) -> None:
        """Append data. It is readable at once, even if this process is killed."""
        if self._deflate is not None:
            data = self._deflate.compress(data) + self._deflate.flush(
                zlib.Z_SYNC_FLUSH
            )
        self._append(data)

    def close(self) -> None:
        """End the file. If gzip's trailer does not fit on the disk, the data stays readable."""
        with contextlib.suppress(OutputError):
            if self._deflate is not None:
                self._append(self._deflate.flush())
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    def _append(self, data: bytes) -> None:
        if os.fstat(self._descriptor).st_nlink == 0:
            what = f"{self.path} is no longer written"
            raise OutputError(
                Problem(what, "it was removed", "Start another one")
            )
        view = memoryview(data)
        try:
            while view:
                written = os.write(self._descriptor, view)
                view = view[written:]
        except OSError as error:
            # The trailer would not match the data in the file.
            self._deflate = None
            os.ftruncate(self._descriptor, self.size)
            raise _failed(self.path, error) from None
        self.size += len(data)


def _failed(path: Path, error: OSError) -> OutputError:
    why = error.strerror or str(error)
    if error.errno == errno.EEXIST:
        why = "the file exists already"
    remedy = REMEDIES.get(error.errno, "Choose a folder where you can write")
    return OutputError(Problem(f"{path} cannot be written", why, remedy))


def default_name(hostname: str, now: float) -> str:
    """Return the default name of a recording: `gputop-node07-20251120-120000.jsonl.gz`.

    `now` is a Unix time, shown as local time.
    """
    host = (
        re.sub(r"[^A-Za-z0-9._-]+", "-", hostname)[:60].strip("-.") or "host"
    )
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    return f"gputop-{host}-{stamp}.jsonl.gz"
