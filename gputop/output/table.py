"""The devices as a table: which columns fit, how they are aligned, and who holds each device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from gputop.output.ansi import DIM, Span
from gputop.output.columns import OWN, PROCESSES, STATE, Column
from gputop.text import ABSENT, cells, fit_columns, size, visible

if TYPE_CHECKING:
    from gputop.output.ansi import Line
    from gputop.schema.snapshot import Inventory, Process, Sample

GAP = 2
"""Blanks between columns."""
ENOUGH, LEAST = 40, 16
"""Cells for processes: `ada:python/48211(70.0 GiB)` and more; `ada(70.0 GiB) +2`."""
MOST_USEFUL = ("busy", "memory", PROCESSES, "temp", "name", "power", "clock", "fan")
"""In the order in which they have room."""
LUXURIES = ("clock", "fan")
"""Those that have room only where the processes have enough."""


def lines(
    inventory: Inventory, sample: Sample, columns: Sequence[Column], width: int | None
) -> Iterator[tuple[str | None, Line]]:
    """A title, and with its UUID a line for each device; what does not fit is left out.

    Of the usual columns the least useful goes first, of others the last, and a last line says so.
    """
    pairs = [
        (device, readings)
        for device in inventory.devices
        if (readings := sample.device(device.uuid)) is not None
    ]
    if not pairs:
        return
    held: dict[str, list[Process]] = {device.uuid: [] for device, _ in pairs}
    for process in sample.processes:
        held.get(process.device_uuid, []).append(process)
    everything = [*dict.fromkeys((*columns, STATE))]  # a device that does not answer always says so
    spans = {column: [column.span(*pair) for pair in pairs] for column in everything}
    processes = next((column for column in columns if column.name == PROCESSES), None)
    if processes:
        spans[processes] = [Span(holders(held[device.uuid], None)) for device, _ in pairs]
    if not any(span.text for span in spans[STATE]):
        del spans[STATE]
    widths = {column: _width(column, each) for column, each in spans.items()}
    kept = _fitting(widths, width)
    if processes in kept and processes is not None and width is not None:
        room = width - _total([widths[column] for column in kept if column != processes], 1)
        spans[processes] = [Span(holders(held[device.uuid], room)) for device, _ in pairs]
        widths[processes] = _width(processes, spans[processes])
    shown = [(column, widths[column]) for column in kept]
    yield None, _line([(*each, Span(each[0].name, DIM)) for each in shown])
    for n, (device, _) in enumerate(pairs):
        yield device.uuid, _line([(*each, spans[each[0]][n]) for each in shown])
    missing = [column.name for column in columns if column in widths and column not in kept]
    if missing and [*columns] != [column for column in OWN if column in columns]:
        yield None, [Span(f"no room for {', '.join(missing)}", DIM)]


def _width(column: Column, spans: Sequence[Span]) -> int:
    return max(cells(column.name), *(cells(span.text) for span in spans))


def _total(widths: Sequence[int], more: int = 0) -> int:
    """Cells of so wide columns, with the gaps between them and before `more`."""
    return sum(widths) + GAP * (len(widths) - 1 + more)


def _fitting(widths: Mapping[Column, int], width: int | None) -> list[Column]:
    """The columns that there is room for; the first and the state always are."""
    if width is None:
        return [*widths]
    usual = [*widths] == [column for column in OWN if column in widths]
    useful = MOST_USEFUL if usual else [column.name for column in [*widths][1:]]
    ranked = [c for name in useful for c in widths if c.name == name and c != STATE]
    always = [column for column in widths if column not in ranked]
    held = next((wide for column, wide in widths.items() if column.name == PROCESSES), 0)

    def taken(column: Column) -> int:
        return GAP + (min(LEAST, held) if column.name == PROCESSES else widths[column])

    def spare(column: Column) -> int:
        return min(ENOUGH, held) - min(LEAST, held) if usual and column.name in LUXURIES else 0

    room = width + GAP - sum(map(taken, always))
    kept = fit_columns(ranked, room, taken, spare)
    return [column for column in widths if column in kept or column in always]


def _line(fields: Sequence[tuple[Column, int, Span]]) -> Line:
    line: Line = []
    for column, wide, span in fields:
        blanks = Span(" " * (wide - cells(span.text)))
        line += [Span(" " * GAP)] * bool(line)
        line += [span, blanks] if column.left else [blanks, span]
    return line


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


def holders(processes: Sequence[Process], room: int | None) -> str:
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
