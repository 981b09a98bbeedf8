"""View of the host, shown while there are no devices."""

from __future__ import annotations

from gputop.agent.snapshot import Host
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
    cell,
    paragraph,
    share_of,
    width_of,
)
from gputop.ui.drawing.live import TelemetryView
from gputop.ui.drawing.palette import CPU, DIM, MEMORY, STRONG, TEXT, WARN

NOTICED_SECONDS = 2.0
"""Seconds of waiting for the driver before the view shows the time and suggests a cause."""
SLOW_DRIVER = (
    "Without persistence mode it takes some seconds. "
    "A driver that hangs leaves an Xid in `dmesg`, and the machine may need a reboot."
)
HINTS = "Press b to stress-test the CPU. gputop --demo simulates devices."
LABEL, VALUE = 6, 22


class HostView(TelemetryView):
    """View with the reason why there are no devices, and with the CPU, which can be tested."""

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - few rows
        """Draw the problem, then CPU, memory and load."""
        inner = width - 4
        rows = self._problem(inner)
        host = self._telemetry.host
        if host is not None:
            rows += self._host(host, inner)
        elif self._telemetry.interruption is None:
            rows.append([Span("Starting …", DIM)])
        return [[Span("  "), *row] for row in rows]

    def _host(self, host: Host, width: int) -> list[Row]:
        busy = [Span(percentage(host.cpu_percent).rjust(5), STRONG)]
        used, total = host.memory_used_bytes, host.memory_total_bytes
        in_use = ABSENT if used is None else in_unit_of(used, total)
        memory = [
            Span(in_use.rjust(5), STRONG),
            Span(f" of {size(total)}", DIM),
        ]
        inventory = self._telemetry.inventory
        name = visible(inventory.cpu_name or "CPU") if inventory else "CPU"
        return [
            [Span(name, STRONG), Span(_clock(host), DIM)],
            _line("busy", share_of(host.cpu_percent, 100), busy, width),
            _line("mem", share_of(used, total), memory, width),
            _load(host, width),
        ]

    def _problem(self, width: int) -> list[Row]:
        telemetry = self._telemetry
        if telemetry.starting and telemetry.interruption is None:
            return _waiting(telemetry.waiting_seconds, width)
        inventory = telemetry.inventory
        problem = telemetry.interruption or (
            inventory.problem if inventory else None
        )
        what = "The NVIDIA driver is loaded but lists no devices"
        remedy = "`lspci | grep -i nvidia` lists what is plugged in"
        if problem is not None:
            what = f"{visible(problem.what)}: {visible(problem.why)}"
            remedy = visible(problem.remedy)
        return [
            [],
            *paragraph(f"{what}.", width, WARN),
            *paragraph(f"{remedy}.", width, TEXT),
            *paragraph(HINTS, width, DIM),
            [],
        ]


def _waiting(seconds: float, width: int) -> list[Row]:
    if seconds < NOTICED_SECONDS:
        return [
            [],
            [Span("Waiting for the NVIDIA driver to answer …", WARN)],
            [],
        ]
    waiting = (
        f"Waiting for {duration(seconds)} for the NVIDIA driver to answer …"
    )
    return [
        [],
        [Span(waiting, WARN)],
        *paragraph(SLOW_DRIVER, width, TEXT),
        [],
    ]


def _line(
    label: str,
    share: float | None,
    value: Row,
    width: int,
) -> Row:
    style = MEMORY if label == "mem" else CPU
    room = max(0, min(60, width - LABEL - VALUE))
    row = [cell(label, LABEL, DIM), *bar(share, room, style)]
    if room:
        row.append(Span(" "))
    left = width - width_of(row)
    return [*row, *fit_columns(value, left, lambda span: len(span.text))]


def _load(host: Host, width: int) -> Row:
    parts = [cell("load", LABEL - 2, DIM)]
    for value in host.load_average:
        parts.append(Span(f"  {number(value)}"))
    parts.append(Span(f"  on {len(host.cpu_core_percent)} cores", DIM))
    return fit_columns(parts, width, lambda span: len(span.text))


def _clock(host: Host) -> str:
    text = ""
    if host.cpu_clock_mhz:
        text += f"  {host.cpu_clock_mhz:.0f} MHz"
    if host.cpu_temperature_celsius:
        text += f"  {host.cpu_temperature_celsius:.0f}°C"
    return text
