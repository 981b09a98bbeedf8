"""Head of the device page: name, summary, bottleneck and advice."""

from __future__ import annotations

from gputop.agent.device import Device
from gputop.schema.advice import fill_index
from gputop.schema.derived import label_of, model_of
from gputop.text import ABSENT, percentage, quantity, used_of, watts_of
from gputop.ui.device.bound_map import ADVICE
from gputop.ui.drawing.cells import Row, Span, clip_advice, rule_of
from gputop.ui.drawing.device_cells import (
    bound_row,
    heat_style,
    memory_style,
    parts_in_line,
    sign_of,
)
from gputop.ui.drawing.live import DeviceView
from gputop.ui.drawing.palette import ACCENT, DIM, STRONG, TEXT, WARN
from gputop.ui.trouble import device_trouble


class DeviceTitle(DeviceView):
    """Four rows: name, summary, bottleneck or finding, advice. A fault replaces the last rows."""

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - always four rows
        device = self.device
        if device is None:
            return [[Span("No device", WARN)]]
        name = [
            Span(f"{label_of(device)} ", ACCENT),
            Span(f"{model_of(device)} ", STRONG),
        ]
        rows = [rule_of(name, [], width), self._sums(device, width)]
        telemetry = self._telemetry
        trouble = device_trouble(telemetry, device)
        if trouble is not None:
            style = sign_of(trouble.severity).style
            return [
                *rows,
                [Span(f"{trouble.what}.", style)],
                [Span(trouble.remedy, TEXT)],
            ]
        finding = telemetry.problems.get(device.uuid)
        bound_by = telemetry.judgement.bound_by.get(device.uuid)
        advice = ADVICE.get(bound_by.bound, "") if bound_by else ""
        if finding is not None and finding.remedy:
            advice = fill_index(finding.remedy, [device])
        rows.append(bound_row(bound_by, finding, width))
        return [*rows, [Span(clip_advice(advice, width), DIM)]]

    def _sums(self, device: Device, width: int) -> Row:
        """Return the numbers of the summary, the most useful first."""
        r = self._telemetry.readings(device.uuid)
        active, used, total = (
            r.gpu_utilization_percent,
            r.memory_used_bytes,
            r.memory_total_bytes,
        )
        held = 0
        sample = self._telemetry.sample
        if sample is not None:
            held = len(sample.processes_by_device()[device.uuid])
        parts = [
            ("busy", percentage(active), STRONG),
            (
                "memory",
                used_of(used, total, " of "),
                memory_style(used, total),
            ),
            ("power", watts_of(r.power_watts, r.power_limit_watts), STRONG),
            ("", quantity(r.temperature_celsius, "°C"), heat_style(device, r)),
            ("SM", quantity(r.sm_clock_mhz, " MHz"), STRONG),
            ("tensor", percentage(r.tensor_active_percent), STRONG),
            ("processes", str(held) if held else ABSENT, STRONG),
        ]
        known = [
            (label, Span(text, style))
            for label, text, style in parts
            if text != ABSENT
        ]
        return parts_in_line(known, width)
