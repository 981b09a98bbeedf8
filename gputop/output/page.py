"""One snapshot as a page of text: `gputop status`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from gputop.health.conditions import find_alerts
from gputop.health.findings import Severity, summarize
from gputop.output.ansi import BOLD, LOUD_RED, LOUD_YELLOW, YELLOW, Line, Span, rendered, with_dots
from gputop.output.table import OWN, PROCESSES, TableColumn, table_lines
from gputop.schema.codec import to_json
from gputop.schema.device import DeviceState
from gputop.schema.remedies import unseen
from gputop.schema.snapshot import DriverState, Inventory, Process, Sample, Source
from gputop.text import ABSENT, cells, fit_columns, moment, percentage, size, used_of, visible

Processes = Literal["beside", "below", "none"]
"""Where processes are shown: on the device's line, each on its own line, or nowhere."""


@dataclass(frozen=True, slots=True)
class View:
    """Options of a page; `width` is None if lines are not broken."""

    columns: tuple[TableColumn, ...] = OWN
    processes: Processes = "beside"
    width: int | None = None
    colour: bool = False


PLAIN = View()


def document(inventory: Inventory, sample: Sample) -> dict[str, Any]:
    """Return the snapshot as one JSON document with the fields of the stream."""
    return {"inventory": to_json(inventory), "sample": to_json(sample)}


def gpu_list(inventory: Inventory) -> str:
    """Return a line for each GPU and MIG instance with its UUID, as `nvidia-smi -L` prints them."""
    lines = []
    for device in inventory.devices:
        start = f"GPU {device.index}: {visible(device.name)}"
        if device.mig_index is not None:
            profile = visible(device.name.rpartition(" MIG ")[2])
            start = f"  MIG {profile:<11} Device {device.mig_index:>2}:"
        lines.append(f"{start} (UUID: {visible(device.uuid)})")
    return "\n".join(lines)


def page(inventory: Inventory, sample: Sample, view: View = PLAIN) -> str:
    """Return the snapshot as text: a heading, a line for each device, what is wrong.

    No line is longer than the width, and no number is cut.
    """
    lines: list[Line] = [_heading(inventory, sample, view.width)]
    below: dict[str, list[Process]] = {}
    if view.processes == "below":
        for process in sample.processes:
            below.setdefault(process.device_uuid, []).append(process)
    beside = view.processes == "beside"
    columns = [column for column in view.columns if beside or column.name != PROCESSES]
    for uuid, line in table_lines(inventory, sample, columns, view.width):
        lines.append(line)
        lines += [_process(process) for process in below.get(uuid or "", ())]
    lines += _remarks(inventory, sample, view.width)
    return rendered(lines, view.width, colour=view.colour)


def _heading(inventory: Inventory, sample: Sample, width: int | None) -> Line:
    """Return the heading, without its last parts if they do not fit."""
    host = sample.host
    spans = [Span(visible(inventory.hostname), BOLD)]
    if inventory.source is Source.SIMULATED:
        spans.append(Span("SIMULATED", LOUD_YELLOW))
    if inventory.devices_left_out:
        spans.append(Span(inventory.gpus_text))
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
        rest = fit_columns(rest, width - cells(first.text), lambda span: 3 + cells(span.text))
    return with_dots([first, *rest])


def _process(process: Process) -> Line:
    user = visible(process.user or ABSENT)
    command = visible(process.command or f"({unseen(process)})", 200)
    memory = size(process.memory_used_bytes)
    return [Span(f"     {process.pid:>7}  {user:<8}  {memory:>9}  {command}")]


def _remarks(inventory: Inventory, sample: Sample, width: int | None) -> Iterator[Line]:
    """Yield what is wrong, except for device states: these are on the devices' lines."""
    if inventory.driver_state is DriverState.STARTING:
        yield [Span("The driver has not answered yet", YELLOW)]
    readings = {device.uuid: device for device in sample.devices}
    found = find_alerts(inventory.devices, readings, sample.events, sample.time)
    for severity, text in summarize(alert for alert in found if alert.rule not in [*DeviceState]):
        look = LOUD_RED if severity is Severity.FAULT else LOUD_YELLOW
        for part in textwrap.wrap(visible(text), width or len(text) + 1):
            yield [Span(part, look)]
