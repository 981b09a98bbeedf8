"""The devices as a table: which columns fit, and how they are aligned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gputop.output.ansi import DIM, Span
from gputop.output.columns import OWN, PROCESSES, STATE, Column
from gputop.output.holders import fitting
from gputop.text import cells

if TYPE_CHECKING:
    from gputop.output.ansi import Line
    from gputop.telemetry.snapshot import Inventory, Process, Sample

GAP = 2
"""Blanks between columns."""
ENOUGH, LEAST = 40, 16
"""Cells for processes: `ada:python/48211(70.0 GiB)` and more; `ada(70.0 GiB) +2`."""
LEAST_USEFUL = {
    "fan": ENOUGH,
    "clock": ENOUGH,
    "power": LEAST,
    "name": LEAST,
    "temp": LEAST,
    PROCESSES: LEAST,
    "memory": 0,
    "busy": 0,
}
"""In the order in which they go where there is no room, and how much the processes want before."""


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
        spans[processes] = [Span(fitting(held[device.uuid], None)) for device, _ in pairs]
    if not any(span.text for span in spans[STATE]):
        del spans[STATE]
    widths = {column: _width(column, each) for column, each in spans.items()}
    kept = _fitting(widths, width)
    if processes in kept and processes is not None and width is not None:
        room = width - _total([widths[column] for column in kept if column != processes], 1)
        spans[processes] = [Span(fitting(held[device.uuid], room)) for device, _ in pairs]
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
    kept = [*widths]
    usual = kept == [column for column in OWN if column in widths]
    order = LEAST_USEFUL if usual else {column.name: LEAST for column in reversed(kept[1:])}
    for name, enough in order.items():
        wanted = [
            min(widths[column], enough) if column.name == PROCESSES else widths[column]
            for column in kept
        ]
        if width is None or _total(wanted) <= width:
            break
        kept = [column for column in kept if column.name != name or column == STATE]
    return kept


def _line(fields: Sequence[tuple[Column, int, Span]]) -> Line:
    line: Line = []
    for column, wide, span in fields:
        blanks = Span(" " * (wide - cells(span.text)))
        line += [Span(" " * GAP)] * bool(line)
        line += [span, blanks] if column.left else [blanks, span]
    return line
