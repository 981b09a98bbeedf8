"""Xids in the kernel log: GPU errors that NVIDIA's kernel module reported."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

_MOST_RECORDS = 100_000
_RECORD_BYTES = 1 << 13
_XID = (
    r"^\d+,\d+,(?P<at>\d+),[^;]*;"
    r"NVRM: Xid \(PCI:(?P<address>[0-9a-fA-F:.]+)\): (?P<code>\d+)"
)
"""A record of /dev/kmsg, with the time in microseconds since boot; see the kernel's
Documentation/ABI/testing/dev-kmsg. Source of the text: https://docs.nvidia.com/deploy/xid-errors/."""


class LoggedXid(NamedTuple):
    """An Xid in the kernel log, with the device's PCI address in the driver's format."""

    address: str
    code: int
    age_seconds: float


class KernelLog(NamedTuple):
    """Xids in the kernel log, oldest first. `refused` is the reason why it cannot be read."""

    xids: tuple[LoggedXid, ...] = ()
    refused: str | None = None


def read_kernel_log(
    root: Path = Path("/"),
    clock: Callable[[], float] = time.monotonic,
) -> KernelLog:
    """Return the Xids that are in the kernel log now. Does not wait for more."""
    try:
        descriptor = os.open(
            root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        )
        try:
            text = b"".join(_records(descriptor)).decode(errors="replace")
        finally:
            os.close(descriptor)
    except OSError as error:
        return KernelLog(refused=(error.strerror or str(error)).lower())
    return KernelLog(_xids(text, clock()))


def _records(descriptor: int) -> Iterator[bytes]:
    """Yield the log's records. One read returns one record; overwritten ones are skipped."""
    for _ in range(_MOST_RECORDS):
        try:
            record = os.read(descriptor, _RECORD_BYTES)
        except BlockingIOError:
            return
        except BrokenPipeError:
            continue
        if not record:
            return
        yield record


def _xids(text: str, now: float) -> tuple[LoggedXid, ...]:
    xids = []
    for line in text.splitlines():
        found = re.match(_XID, line)
        if found:
            age = max(0.0, now - int(found["at"]) / 1e6)
            xids.append(LoggedXid(found["address"], int(found["code"]), age))
    return tuple(xids)
