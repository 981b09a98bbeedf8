"""The processes on the devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.output.page import unseen
from gputop.telemetry.snapshot import DeviceState
from gputop.text import ABSENT, size, visible
from gputop.ui.draw import Row, Span, cell, clip, fit
from gputop.ui.palette import DIM, STRONG, TEXT
from gputop.ui.widgets.live import LiveView

if TYPE_CHECKING:
    from gputop.telemetry.snapshot import Process
    from gputop.ui.model import Telemetry


class ProcessesView(LiveView):
    """One row a process and device, by device, then the largest first."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(id="processes")
        self._telemetry = telemetry

    def draw(self, width: int, height: int) -> list[Row]:
        """A heading and as many processes as there is room for, the rest counted."""
        telemetry = self._telemetry
        processes = telemetry.processes()
        if not processes:
            return [[Span(f"  {self._none()}", DIM)]]
        rows = [fit(_row("GPU", "PID", "USER", "MEMORY", "COMMAND"), width, style=DIM)]
        rows = [[Span(span.text, DIM) for span in rows[0]]]
        index = {device.uuid: str(device.index) for device in telemetry.devices}
        room = height - 1
        shown = processes if len(processes) <= room else processes[: room - 1]
        rows += [_process(p, index.get(p.device_uuid, ABSENT), width) for p in shown]
        if len(shown) < len(processes):
            more = len(processes) - len(shown)
            rows.append([Span(f"     and {more} more: enlarge the terminal, or press c", DIM)])
        return rows

    def _none(self) -> str:
        """Why there is nothing to list: devices that do not answer at all say so themselves."""
        telemetry = self._telemetry
        silent = [
            str(device.index)
            for device in telemetry.devices
            if "processes" in (r := telemetry.readings(device.uuid)).absent
            and r.state is DeviceState.OK
            and r.age_seconds is not None
        ]
        if silent:
            return f"The driver does not list the processes of GPU {', '.join(silent)}"
        return "No process uses a device"


def _row(gpu: str, pid: str, user: str, memory: str, command: str) -> Row:
    return [
        cell(gpu, 4, right=True),
        cell(pid, 9, right=True),
        Span("  "),
        cell(user, 10),
        cell(memory, 9, right=True),
        Span("  "),
        Span(command),
    ]


def _process(process: Process, index: str, width: int) -> Row:
    gpu, pid, space, user, memory, gap, _ = _row(
        index,
        str(process.pid),
        visible(process.user or ABSENT),
        size(process.memory_used_bytes),
        "",
    )
    if process.command is None:
        command = Span(f"({unseen(process)})", DIM)
    else:
        room = max(0, width - 36)
        command = Span(clip(visible(process.command, 4 * room), room), TEXT)
    strong = Span(memory.text, DIM if process.memory_used_bytes is None else STRONG)
    return [gpu, pid, space, user, strong, gap, command]
