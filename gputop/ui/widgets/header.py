"""The two lines on top: where this is, and the whole machine in one line."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gputop.telemetry.snapshot import DeviceState
from gputop.text import duration, number, quantity, size, visible
from gputop.ui.draw import Row, Span, clip, spread, width_of
from gputop.ui.palette import ACCENT, BADGE, DIM, FAULT, STRONG, TAB, TEXT, WARN
from gputop.ui.widgets.live import LiveView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.events import Click

    from gputop.telemetry.snapshot import DeviceSample
    from gputop.ui.model import Telemetry

TABS = (("monitor", " 1 Monitor "), ("benchmark", " 2 Benchmark "))
TITLE = " gputop "


class Header(LiveView):
    """Title, tabs, host and driver; under it the sums over all devices, or what is wrong."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(id="header")
        self._telemetry = telemetry
        self.tab = TABS[0][0]

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - always two rows
        """Two rows."""
        return [self._top(width), self._summary(width)]

    def _top(self, width: int) -> Row:
        left = [Span(TITLE, ACCENT)]
        left += [Span(label, TAB if name == self.tab else DIM) for name, label in TABS]
        if self._telemetry.simulated:
            left += [Span(" "), Span(" SIMULATED ", BADGE)]
        inventory = self._telemetry.inventory
        clock = time.strftime("%H:%M:%S", time.localtime(self._shown_time()))
        parts = [clock]
        if inventory is not None:
            if inventory.driver_version:
                version = f"driver {visible(inventory.driver_version)}"
                cuda = f" · CUDA {inventory.cuda_version}" if inventory.cuda_version else ""
                parts.insert(0, version + cuda)
            parts.insert(0, clip(visible(inventory.hostname), 24))
        room = width - sum(len(span.text) for span in left) - 2
        while len(parts) > 1 and len(" · ".join(parts)) > room:
            parts.pop(-2)
        return spread(left, [Span(" · ".join(parts) + " ", DIM)], width)

    def _shown_time(self) -> float:
        sample = self._telemetry.sample
        return sample.time if sample else time.time()

    def _summary(self, width: int) -> Row:
        telemetry = self._telemetry
        silent = telemetry.silent_seconds
        if silent is not None:
            text = f" No data for {duration(silent)}"
            if telemetry.interruption is not None:
                text += f": {visible(telemetry.interruption.why)}. The sampler is started again"
            elif telemetry.restarting:
                text += ": the driver is starting again"
            return [Span(clip(text, width), FAULT)]
        if telemetry.starting:
            return [Span(" Waiting for the NVIDIA driver", WARN)]
        problem = telemetry.inventory.problem if telemetry.inventory else None
        if problem is not None:
            return [Span(clip(f" {visible(problem.what)}: this is the host alone", width), WARN)]
        if not telemetry.devices:
            return [Span(" The driver has no devices: this is the host alone", WARN)]
        devices, host = self._devices(), self._host()
        while host and width_of(devices) + sum(width_of(part) for part in host) > width:
            host.pop()
        return spread(devices, [span for part in host for span in part], width)

    def _host(self) -> list[Row]:
        """The host in parts, the most telling first."""
        host = self._telemetry.host
        if host is None:
            return []
        memory = f"{size(host.memory_used_bytes)} of {size(host.memory_total_bytes)} "
        load = host.load_average[0] if host.load_average else None
        return [
            [Span("  CPU ", DIM), Span(quantity(host.cpu_percent, " % ").rjust(6))],
            [Span(" load ", DIM), Span(f"{number(load)} ")],
            [Span(" host mem ", DIM), Span(memory)],
        ]

    def _devices(self) -> Row:
        readings = [self._telemetry.readings(d.uuid) for d in self._telemetry.devices]
        lost = sum(r.state is not DeviceState.OK for r in readings)
        count = len(readings)
        row = [Span(f" {count} GPU{'s' if count > 1 else ''}", STRONG)]
        if lost:
            row.append(Span(f"  {lost} not answering", FAULT))
        busy = _values(readings, "gpu_utilization_percent")
        if busy:
            row += [Span("  busy ", DIM), Span(f"{sum(busy) / len(busy):.0f} %".rjust(5))]
        used, total = (
            _values(readings, "memory_used_bytes"),
            _values(readings, "memory_total_bytes"),
        )
        if used and total:
            row += [Span("  mem ", DIM), Span(f"{size(sum(used))} of {size(sum(total))}")]
        watts = _values(readings, "power_watts")
        if watts:
            row += [Span("  power ", DIM), Span(f"{sum(watts):.0f} W")]
        return [Span(span.text, span.style or TEXT) for span in row]

    def on_click(self, event: Click) -> None:
        """Opens the tab under the mouse."""
        x = len(TITLE)
        for name, label in TABS:
            if event.y == 0 and x <= event.x < x + len(label):
                self.app.call_later(self.app.run_action, f"tab('{name}')")
            x += len(label)


def _values(readings: Sequence[DeviceSample], name: str) -> list[float]:
    return [value for r in readings if (value := getattr(r, name)) is not None]
