"""One snapshot as a page of text: `gputop status`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from gputop.health.conditions import find_alerts
from gputop.health.findings import Severity, summarize
from gputop.output import table
from gputop.output.ansi import BOLD, DIM, LOUD_RED, LOUD_YELLOW, YELLOW, Span, clipped, painted
from gputop.output.columns import OWN, PROCESSES, Column
from gputop.schema.absences import unseen
from gputop.schema.codec import to_json
from gputop.schema.snapshot import DeviceState, DriverState, Source
from gputop.text import ABSENT, cells, moment, percentage, size, that_fit, used_of, visible

if TYPE_CHECKING:
    from gputop.output.ansi import Line
    from gputop.schema.snapshot import Inventory, Process, Sample

Processes = Literal["beside", "below", "none"]
"""Where a device's processes are shown: on its line, each on one of its own, or nowhere."""


@dataclass(frozen=True, slots=True)
class View:
    """How a page is drawn; `width` is None where nothing breaks its lines."""

    columns: tuple[Column, ...] = OWN
    processes: Processes = "beside"
    width: int | None = None
    colour: bool = False


PLAIN = View()


def document(inventory: Inventory, sample: Sample) -> dict[str, Any]:
    """The snapshot as one JSON document, in the fields of the stream."""
    return {"inventory": to_json(inventory), "sample": to_json(sample)}


def page(inventory: Inventory, sample: Sample, view: View = PLAIN) -> str:
    """The snapshot as text: a heading, a line for each device, what is wrong.

    No line is longer than the width, and no number is cut.
    """
    lines: list[Line] = [_heading(inventory, sample, view.width)]
    below: dict[str, list[Process]] = {}
    if view.processes == "below":
        for process in sample.processes:
            below.setdefault(process.device_uuid, []).append(process)
    for uuid, line in table.lines(inventory, sample, _columns(view), view.width):
        lines.append(line)
        lines += [_process(process) for process in below.get(uuid or "", ())]
    lines += _remarks(inventory, sample, view.width)
    if view.width is not None:
        lines = [clipped(line, view.width) for line in lines]
    return "\n".join(painted(line, colour=view.colour) for line in lines)


def _columns(view: View) -> Sequence[Column]:
    beside = view.processes == "beside"
    return [column for column in view.columns if beside or column.name != PROCESSES]


def _heading(inventory: Inventory, sample: Sample, width: int | None) -> Line:
    """What does not fit is left out from its end."""
    host = sample.host
    spans = [Span(visible(inventory.hostname), BOLD)]
    if inventory.source is Source.SIMULATED:
        spans.append(Span("SIMULATED", LOUD_YELLOW))
    spans.append(Span(moment(sample.time, "%Y-%m-%d %H:%M:%S")))
    if inventory.driver_version:
        spans.append(Span(f"driver {visible(inventory.driver_version)}"))
    if inventory.cuda_version:
        spans.append(Span(f"CUDA {visible(inventory.cuda_version)}"))
    spans.append(Span(f"CPU {percentage(host.cpu_percent)}"))
    memory = used_of(host.memory_used_bytes, host.memory_total_bytes, " of ")
    spans.append(Span(f"memory {memory}"))
    first, *rest = spans
    if width is not None:
        rest = that_fit(rest, width - cells(first.text), lambda span: 3 + cells(span.text))
    return [first, *(part for span in rest for part in (Span(" · ", DIM), span))]


def _process(process: Process) -> Line:
    user = visible(process.user or ABSENT)
    command = visible(process.command or f"({unseen(process)})", 200)
    memory = size(process.memory_used_bytes)
    return [Span(f"     {process.pid:>7}  {user:<8}  {memory:>9}  {command}")]


def _remarks(inventory: Inventory, sample: Sample, width: int | None) -> Iterator[Line]:
    """What is wrong besides a device's state, which its line has."""
    if inventory.driver_state is DriverState.STARTING:
        yield [Span("The driver has not answered yet", YELLOW)]
    readings = {device.uuid: device for device in sample.devices}
    found = find_alerts(inventory.devices, readings, sample.events, sample.time)
    for severity, text in summarize(alert for alert in found if alert.rule not in [*DeviceState]):
        look = LOUD_RED if severity is Severity.FAULT else LOUD_YELLOW
        for part in textwrap.wrap(visible(text), width or len(text) + 1):
            yield [Span(part, look)]
