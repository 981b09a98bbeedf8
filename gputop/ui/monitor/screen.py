"""Monitor tab: all devices and their processes; without devices, the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on

from gputop.settings import CHARTS
from gputop.text import (
    ABSENT,
    duration,
    fit_columns,
    in_unit_of,
    number,
    percentage,
    size,
    visible,
)
from gputop.ui.drawing.cells import (
    Row,
    Span,
    bar,
    beside,
    cell,
    fit,
    paragraph,
    share_of,
    width_of,
)
from gputop.ui.drawing.live import TelemetryView, space_of
from gputop.ui.drawing.palette import CPU, DIM, MEMORY, STRONG, TEXT, WARN
from gputop.ui.monitor.device_list import DevicesView, process_rows
from gputop.ui.processes.screen import ListTab, ProcessesView

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.events import Click
    from textual.widget import Widget

    from gputop.agent.device import Device
    from gputop.agent.snapshot import Host
    from gputop.ui.processes.table_state import ProcessTable
    from gputop.ui.telemetry import Telemetry

SMALLEST = "-smallest"
"""Class of a screen that has no room but for the devices."""
NOTICED_SECONDS = 2.0
"""Seconds of waiting for the driver before the view counts them and suggests a cause."""
SLOW_DRIVER = (
    "Without persistence mode it takes some seconds. "
    "A driver that hangs leaves an Xid in `dmesg`, and the machine may need a reboot."
)
LABEL, VALUE = 6, 22
CORE_WIDTH = 26
"""Fewest cells of a core: number, bar and percentage."""


class MonitorTab(ListTab):
    """Tab with devices and processes, laid out for the available space.

    Keys are for the devices or for the processes; Tab switches between them.
    """

    def __init__(self, telemetry: Telemetry, table: ProcessTable) -> None:
        super().__init__(telemetry, table, "monitor")
        self.devices = DevicesView(telemetry)
        self._host = HostView(telemetry, id="host")

    def compose(self) -> ComposeResult:
        yield self.devices
        yield self.processes
        yield self._host

    @property
    def selected(self) -> Device | None:
        """Selected device, or the device of the selected process if keys are for processes."""
        found = super().selected if self.processes.focused_list else None
        return found or self.devices.selected

    def select(self, device: Device) -> None:
        self.devices.select(device)
        self._go_to_list(to_it=False)

    @property
    def key_handlers(self) -> tuple[Widget, ...]:
        """Widgets that handle keys; some keys are for the processes in any case."""
        if self.processes.focused_list:
            return (self, self.processes)
        return (self, self.devices, self.processes)

    @property
    def wants_gpm(self) -> bool:
        return self.devices.shows_gpm

    def show_telemetry(self) -> None:
        self._arrange()
        for view in (self.devices, self.processes, self._host):
            view.redraw()

    def is_right(self, uuid: str) -> bool:
        return self.devices.is_right(uuid)

    def action_density(self) -> None:
        self.devices.next_density()
        self.show_telemetry()

    def action_charts(self) -> None:
        now = CHARTS.index(self.devices.charts)
        self.devices.charts = CHARTS[(now + 1) % len(CHARTS)]
        self.show_telemetry()

    def action_switch(self) -> None:
        self._go_to_list(to_it=not self.processes.focused_list)

    def _go_to_list(self, *, to_it: bool) -> None:
        self.processes.focused_list, self.devices.active = to_it, not to_it
        self.show_telemetry()

    def action_filter(self) -> None:
        """Filter the processes; the next keys are for them too."""
        self._go_to_list(to_it=True)
        self.processes.action_filter()

    @on(ProcessesView.RowClicked)
    def _row_clicked(self) -> None:
        self._go_to_list(to_it=True)

    def on_click(self, event: Click) -> None:
        if event.widget is self.devices:
            self._go_to_list(to_it=False)
            if event.chain == 2:
                self.app.call_later(self.screen.run_action, "act('details')")

    def on_resize(self) -> None:
        self.show_telemetry()

    def _arrange(self) -> None:
        has_devices = bool(self.telemetry.devices or self.telemetry.machines)
        self._host.display = not has_devices
        alone = self.devices.alone = self.screen.has_class(SMALLEST)
        self.devices.display, self.processes.display = (
            has_devices,
            has_devices and not alone,
        )
        width, height = space_of(self)
        if alone:
            self.devices.styles.height = height
        elif has_devices and width and height:
            count = self.telemetry.process_count
            rows = min(
                self.devices.plan(width, height).rows,
                height - process_rows(count, height),
            )
            spare = height - rows - count - 1
            rows += max(0, min(self.devices.finding_rows, spare))
            self.devices.styles.height = rows


class HostView(TelemetryView):
    """View that says why there are no devices, and shows the CPU, which can be tested meanwhile."""

    def draw(self, width: int, height: int) -> list[Row]:
        """Draw the problem, then memory and load, then the cores that fit."""
        rows = [[Span("  "), *row] for row in self._problem(width - 4)]
        host = self._telemetry.host
        if host is None:
            return (
                rows
                if self._telemetry.interruption
                else [*rows, [Span("  Starting …", DIM)]]
            )
        inner, busy = width - 4, [Span(percentage(host.cpu_percent).rjust(5), STRONG)]
        used, total = host.memory_used_bytes, host.memory_total_bytes
        in_use = ABSENT if used is None else in_unit_of(used, total)
        memory = [Span(in_use.rjust(5), STRONG), Span(f" of {size(total)}", DIM)]
        name = self._telemetry.inventory.cpu_name if self._telemetry.inventory else None
        block: list[Row] = [
            [Span(visible(name or "CPU"), STRONG), Span(_clock(host), DIM)],
            _line("busy", share_of(host.cpu_percent, 100), busy, inner),
            _line("mem", share_of(used, total), memory, inner),
            _load(host, inner),
            [],
        ]
        block += _cores(host, inner, height - len(rows) - len(block) - 2)
        return [*rows, *([Span("  "), *row] for row in block)]

    def _problem(self, width: int) -> list[Row]:
        telemetry = self._telemetry
        if telemetry.starting and telemetry.interruption is None:
            seconds = telemetry.waiting_seconds
            if seconds < NOTICED_SECONDS:
                return [
                    [],
                    [Span("Waiting for the NVIDIA driver to answer …", WARN)],
                    [],
                ]
            waiting = (
                f"Waiting for {duration(seconds)} for the NVIDIA driver to answer …"
            )
            return [[], [Span(waiting, WARN)], *paragraph(SLOW_DRIVER, width, TEXT), []]
        inventory = telemetry.inventory
        problem = telemetry.interruption or (inventory.problem if inventory else None)
        what = "The NVIDIA driver is loaded but lists no devices"
        remedy = "`lspci | grep -i nvidia` lists what is plugged in"
        if problem is not None:
            what = f"{visible(problem.what)}: {visible(problem.why)}"
            remedy = visible(problem.remedy)
        rows = [
            [],
            *paragraph(f"{what}.", width, WARN),
            *paragraph(f"{remedy}.", width, TEXT),
        ]
        hints = "Press b to stress-test the CPU. gputop --demo simulates devices."
        return [*rows, *paragraph(hints, width, DIM), []]


def _line(label: str, share: float | None, value: Row, width: int) -> Row:
    style = MEMORY if label == "mem" else CPU
    room = max(0, min(60, width - LABEL - VALUE))
    row = [cell(label, LABEL, DIM), *bar(share, room, style), Span(" " * (room > 0))]
    return [
        *row,
        *fit_columns(value, width - width_of(row), lambda span: len(span.text)),
    ]


def _load(host: Host, width: int) -> Row:
    parts = [cell("load", LABEL - 2, DIM)]
    parts += [Span(f"  {number(value)}") for value in host.load_average]
    parts.append(Span(f"  on {len(host.cpu_core_percent)} cores", DIM))
    return fit_columns(parts, width, lambda span: len(span.text))


def _clock(host: Host) -> str:
    clock = f"  {host.cpu_clock_mhz:.0f} MHz" if host.cpu_clock_mhz else ""
    heat = (
        f"  {host.cpu_temperature_celsius:.0f}°C"
        if host.cpu_temperature_celsius
        else ""
    )
    return clock + heat


def _cores(host: Host, width: int, room: int) -> list[Row]:
    cores = host.cpu_core_percent
    if not cores or room <= 0:
        return []
    columns = max(
        1, min(len(cores), width // CORE_WIDTH, -(-len(cores) // min(room, 8)))
    )
    each = min(44, (width - 2 * (columns - 1)) // columns)
    lines = -(-len(cores) // columns)
    drawn = []
    for n, percent in enumerate(cores):
        row = [
            cell(str(n), 4, DIM, right=True),
            Span(" "),
            *bar(percent / 100, each - 11, CPU),
        ]
        drawn.append(fit([*row, Span(percentage(percent).rjust(6))], each))
    blocks = [drawn[start : start + lines] for start in range(0, len(drawn), lines)]
    return beside(blocks, each, 2)[:room]
