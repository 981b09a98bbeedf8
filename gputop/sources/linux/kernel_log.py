"""Xid errors in the kernel's log: those from before gputop was there to be told."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_MOST_RECORDS = 100_000
_RECORD_BYTES = 1 << 13
_XID = re.compile(
    r"^\d+,\d+,(?P<at>\d+),[^;]*;NVRM: Xid \(PCI:(?P<address>[0-9a-fA-F:.]+)\): (?P<code>\d+)"
)
"""A record of /dev/kmsg, whose time is in microseconds since the boot; see the kernel's
Documentation/ABI/testing/dev-kmsg. Source of the text: https://docs.nvidia.com/deploy/xid-errors/."""


@dataclass(frozen=True, slots=True)
class LoggedXid:
    """An Xid, of the device at that PCI address (as the driver writes it), so long ago."""

    address: str
    code: int
    age_seconds: float


@dataclass(frozen=True, slots=True)
class KernelLog:
    """The Xids in it, oldest first; `refused` says why it cannot be read."""

    xids: tuple[LoggedXid, ...] = ()
    refused: str | None = None


def read(root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> KernelLog:
    """What is in the log now; never waits for more."""
    try:
        descriptor = os.open(root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return KernelLog(refused=(error.strerror or str(error)).lower())
    try:
        text = b"".join(_records(descriptor)).decode(errors="replace")
    except OSError as error:
        return KernelLog(refused=(error.strerror or str(error)).lower())
    finally:
        os.close(descriptor)
    return KernelLog(tuple(_xids(text, clock())))


def _records(descriptor: int) -> Iterator[bytes]:
    """One read is one record; what was overwritten meanwhile is passed over."""
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


def _xids(text: str, now: float) -> Iterator[LoggedXid]:
    for line in text.splitlines():
        if found := _XID.match(line):
            age = max(0.0, now - int(found["at"]) / 1e6)
            yield LoggedXid(found["address"], int(found["code"]), age)


def same_address(one: str, other: str) -> bool:
    """Whether two PCI addresses are of one device: `0000:17:00` and `00000000:17:00.0`."""
    numbers = _numbers(one)
    return numbers is not None and numbers == _numbers(other)


def _numbers(address: str) -> tuple[int, ...] | None:
    parts = address.partition(".")[0].split(":")
    try:
        domain, bus, device = (int(part, 16) for part in parts)
    except ValueError:
        return None
    return domain, bus, device
