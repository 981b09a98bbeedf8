"""Who holds a device, in one cell: as gpustat writes it, and shorter where there is less room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from gputop.text import ABSENT, cells, size, visible

if TYPE_CHECKING:
    from gputop.telemetry.snapshot import Process


def forms(processes: Sequence[Process]) -> Iterator[str]:
    """The same processes in ever fewer columns: all of them said, then the largest and how many.

    No number is cut.
    """
    ordered = sorted(processes, key=lambda p: -(p.memory_used_bytes or 0))
    yield " ".join(f"{_user(p)}:{_program(p)}/{p.pid}({_memory(p)})" for p in ordered)
    yield " ".join(f"{_user(p)}/{p.pid}({_memory(p)})" for p in ordered)
    briefly = [f"{_user(p)}({_memory(p)})" for p in ordered]
    for shown in range(len(briefly), 0, -1):
        rest = len(briefly) - shown
        yield " ".join([*briefly[:shown], *([f"+{rest}"] if rest else [])])
    yield f"{len(ordered)} proc." if ordered else ""


def fitting(processes: Sequence[Process], room: int | None) -> str:
    """The longest of the forms that fits; the shortest where none does."""
    text = ""
    for text in forms(processes):
        if room is None or cells(text) <= room:
            break
    return text


def _user(process: Process) -> str:
    return visible(process.user or ABSENT, 32)


def _program(process: Process) -> str:
    """The name of what it runs, without its folder and its arguments."""
    words = (process.command or "").split()
    name = PurePosixPath(words[0]).name if words else ""
    return visible(name, 40) or ABSENT


def _memory(process: Process) -> str:
    return size(process.memory_used_bytes)
