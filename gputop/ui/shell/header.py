"""Lines on top of the dashboard: host, sums over all devices, alerts, and the bar of a replay."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gputop.agent.device import DeviceSample, DeviceState
from gputop.health.causes import alerts_beside, cause_text
from gputop.health.findings import Severity, summarize
from gputop.schema.derived import gpus_text, label_of
from gputop.text import (
    count,
    duration,
    fit_columns,
    moment,
    number,
    percentage,
    used_of,
    visible,
)
from gputop.ui.drawing.cells import (
    Row,
    Span,
    bar,
    cells_of,
    clip,
    clip_words,
    fit,
    spread,
    width_of,
)
from gputop.ui.drawing.live import TelemetryView
from gputop.ui.drawing.palette import ACCENT, BADGE, DIM, FAULT, STRONG, TAB, WARN

if TYPE_CHECKING:
    from textual.events import Click

    from gputop.health.causes import Cause
    from gputop.health.findings import Finding
    from gputop.recording.replay import Replay
    from gputop.ui.telemetry import Telemetry

TABS = (
    ("monitor", " 1 Monitor "),
    ("benchmark", " 2 Benchmark "),
    ("processes", " 3 Processes "),
)
TITLE = " gputop "
ROOMY = 80
"""Width in cells from which on there are gaps in the top line."""
NARROW = 60
"""Width below which tabs that are not shown have no name."""
TALL = 32
"""Rows of a screen from which on there is always room for the sums over all devices."""


class Header(TelemetryView):
    """Title, tabs, host and driver; sums over all devices; and alerts, if there are any."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(telemetry, id="header")
        self.tab = TABS[0][0]
        self._short = False
        self.recording = False
        """True while there is a recording."""

    def redraw(self) -> None:
        """Draw again, with rows for what slows the work, and for alerts or a remedy."""
        self._short = self.app.size.height < TALL
        self.styles.height = len(self._lines())
        super().redraw()

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - as many as there are
        return [line(width) for line in self._lines()]

    def _lines(self) -> list[Callable[[int], Row]]:
        """Return what draws each row. On a short screen the sums give way to what is wrong."""
        telemetry = self._telemetry
        if self._remedy:
            return [
                self._top,
                self._summary,
                lambda w: [Span(clip(f" {self._remedy}", w))],
            ]
        silent = telemetry.silent_seconds is not None
        cause = telemetry.slowest if telemetry.devices and not silent else None
        lines: list[Callable[[int], Row]] = [self._top]
        if cause is not None:
            lines.append(partial(_slowness, cause, telemetry))
        alerts = alerts_beside(telemetry.alerts, cause)
        if not (cause and alerts and self._short):
            lines.append(self._summary)
        return [*lines, partial(_alerts, alerts)] if alerts else lines

    @property
    def _remedy(self) -> str:
        """Remedy for a stream that broke off, or "" if waiting is enough."""
        telemetry = self._telemetry
        problem = (
            telemetry.interruption if telemetry.silent_seconds is not None else None
        )
        return visible(problem.remedy) if problem is not None and problem.check else ""

    def _top(self, width: int) -> Row:
        left = [Span(TITLE, ACCENT)]
        left += [
            Span(label, TAB if name == self.tab else DIM)
            for name, label in self._tabs(width)
        ]
        telemetry, gap = self._telemetry, " " * (width >= ROOMY)
        badges = {" SIMULATED " if gap else " DEMO ": telemetry.simulated}
        badges |= {" PAUSED ": telemetry.paused, " REC ": self.recording}
        for badge in filter(badges.get, badges):
            left += [Span(gap), Span(badge, BADGE)]
        inventory = telemetry.inventory
        ranked = [moment(telemetry.sample.time if telemetry.sample else time.time())]
        if inventory is not None:
            if inventory.interval_seconds != 1:
                ranked[0] += f" · every {inventory.interval_seconds:g} s"
            many = len(telemetry.machines)
            where = f"{many} hosts"
            if many <= 1:
                where = visible(telemetry.host_name or inventory.hostname)
            ranked.append(clip(where, 24))
            if inventory.driver_version:
                cuda = (
                    inventory.cuda_version
                    and f" · CUDA {visible(inventory.cuda_version)}"
                )
                ranked.append(f"driver {visible(inventory.driver_version)}{cuda or ''}")
        kept = fit_columns(
            ranked, width - width_of(left) + 1, lambda part: cells_of(part) + 3
        )
        right = " · ".join((*kept[1:], *kept[:1]))
        return spread(left, [Span(f"{right} ", DIM)], width)

    def _tabs(self, width: int) -> list[tuple[str, str]]:
        """Return names and labels of the tabs, which are numbers alone on a narrow screen."""
        short = width < NARROW
        return [
            (name, text[:3] if short and name != self.tab else text)
            for name, text in TABS
        ]

    def _summary(self, width: int) -> Row:
        telemetry = self._telemetry
        if telemetry.silent_seconds is not None:
            return [Span(clip(self._silence(telemetry.silent_seconds), width), FAULT)]
        if telemetry.machines and not telemetry.devices:
            many = len(telemetry.machines)
            return [Span(f" No devices yet on {count(many, 'host')}", WARN)]
        if telemetry.starting:
            return [Span(" Waiting for the NVIDIA driver", WARN)]
        if not telemetry.devices:
            problem = telemetry.inventory.problem if telemetry.inventory else None
            what = visible(problem.what) if problem else "The driver lists no GPUs"
            parts = (f" {what}", ": showing only the host")
            return [
                Span("".join(fit_columns(parts, width, cells_of)) or parts[0], WARN)
            ]
        devices, host = self._devices(), self._host()
        # What the devices say beyond their sums gives way first.
        ranked = (*devices[:SUMS], *host, *devices[SUMS:])
        kept = fit_columns(ranked, width, width_of) or devices[:1]
        left, right = (
            [span for part in parts if part in kept for span in part]
            for parts in (devices, host)
        )
        return spread(left, right, width)

    def _silence(self, seconds: float) -> str:
        telemetry = self._telemetry
        text = (
            f" No data for {duration(seconds)}"
            if seconds >= 1
            else " The sampler stopped"
        )
        problem = telemetry.interruption
        if problem is not None and self._remedy:
            return f" {visible(problem.what)}: no data for {duration(seconds)}"
        if problem is not None and telemetry.replayed:
            return f"{text}: {visible(f'{problem.why}. {problem.remedy}')}"
        if problem is not None:
            return f"{text}: {visible(problem.why)}. Restarting the sampler"
        if telemetry.replayed:
            return f"{text}: a gap in the recording"
        return f"{text}: the driver is restarting" if telemetry.restarting else text

    def _host(self) -> list[Row]:
        host = self._telemetry.host
        if host is None or self._telemetry.machines:  # their titles say it of each
            return []
        memory = used_of(host.memory_used_bytes, host.memory_total_bytes)
        load = host.load_average[0] if host.load_average else None
        return [
            [Span("  CPU ", DIM), Span(percentage(host.cpu_percent, " % ").rjust(6))],
            [Span(" load ", DIM), Span(f"{number(load)} ")],
            [Span(" host mem ", DIM), Span(f"{memory} ")],
        ]

    def _devices(self) -> list[Row]:
        """Return the devices in parts: the sums, then the hottest and the busiest."""
        gpus = [
            device for device in self._telemetry.devices if device.parent_uuid is None
        ]
        pairs = [(gpu, self._telemetry.readings(gpu.uuid)) for gpu in gpus]
        old = sum(self._telemetry.old_seconds(r) is not None for _, r in pairs)
        lost = sum(r.state is not DeviceState.OK for _, r in pairs)
        inventory = self._telemetry.inventory
        named = ""
        if inventory is not None:
            named = gpus_text(replace(inventory, devices=self._telemetry.devices))
        first = [Span(f" {named}", STRONG)]
        if lost:
            first.append(Span(f"  {lost} not answering", FAULT))
        if old:  # the sums are of this moment
            first.append(Span(f"  {old} slow", WARN))
            pairs = [
                (gpu, r) for gpu, r in pairs if self._telemetry.old_seconds(r) is None
            ]
        parts, readings = [first], [r for _, r in pairs]
        busy = _values(readings, "gpu_utilization_percent")
        if busy:
            mean = percentage(sum(busy) / len(busy)).rjust(5)
            parts.append([Span("  busy ", DIM), Span(mean)])
        # Of the same devices: else it would be what some use of what all have.
        told = [
            r
            for r in readings
            if None not in (r.memory_used_bytes, r.memory_total_bytes)
        ]
        if told:
            used, total = (
                _values(told, "memory_used_bytes"),
                _values(told, "memory_total_bytes"),
            )
            parts.append([Span("  mem ", DIM), Span(used_of(sum(used), sum(total)))])
        watts = _values(readings, "power_watts")
        if watts:
            # Of those that do not answer it has been said.
            least = "≥" if len(watts) < len(readings) - lost else ""
            drawn = number(sum(watts), whole=True)
            parts.append([Span("  power ", DIM), Span(f"{least}{drawn} W")])
        parts += [[]] * (SUMS - len(parts))
        for label, name, unit in (
            ("hottest", "temperature_celsius", "°C"),
            ("busiest", "gpu_utilization_percent", " %"),
        ):
            known = [
                (value, gpu)
                for gpu, r in pairs
                if (value := getattr(r, name)) is not None
            ]
            if len(gpus) > 1 and known:
                value, gpu = max(known, key=lambda each: each[0])
                parts.append(
                    [
                        Span(f"  {label} ", DIM),
                        Span(f"GPU {label_of(gpu)}: {value}{unit}"),
                    ]
                )
        return parts

    def on_click(self, event: Click) -> None:
        if event.y > 0:
            self.app.call_later(self.screen.run_action, "act('why')")
        x = len(TITLE)
        for name, label in self._tabs(self.size.width):
            if event.y == 0 and x <= event.x < x + len(label):
                self.app.call_later(self.screen.run_action, f"act('tab.{name}')")
            x += len(label)


SUMS = 4
"""Number of parts of the summary that are not about one device."""


def _slowness(cause: Cause, telemetry: Telemetry, width: int) -> Row:
    hint = "w Why " if width >= ROOMY else ""
    labels = {device.uuid: label_of(device) for device in telemetry.devices}
    room = width - len(hint) - 5
    text = clip_words(cause_text(cause, labels, room), room)
    return spread([Span(f" ▲ {text}", WARN)], [Span(hint, DIM)], width)


def _alerts(alerts: Sequence[Finding], width: int) -> Row:
    row, said = [Span(" ")], summarize(alerts)
    for n, (severity, words) in enumerate(said):
        style = FAULT if severity is Severity.FAULT else WARN
        more = f" +{len(said) - n - 1} more (!)" if n + 1 < len(said) else ""
        text = Span(f"{'  ' if n else ''}▲ {words}", style)
        over = width_of([*row, text]) + len(more) > width
        if n and over:
            return fit([*row, Span(f" +{len(said) - n} more (!)", DIM)], width)
        if over:
            room = width - len(more) - 3
            _, shorter = summarize(alerts, room)[n]
            text = Span(f"▲ {clip_words(shorter, room)}", style)
        row.append(text)
    return fit(row, width)


def _values(readings: Sequence[DeviceSample], name: str) -> list[float]:
    return [value for r in readings if (value := getattr(r, name)) is not None]


SHORTEST_BAR = 8
"""Cells of the shortest bar that is drawn."""


class ReplayBar(TelemetryView):
    """The line of a replay: time, speed and position."""

    def __init__(self, telemetry: Telemetry, replay: Replay) -> None:
        super().__init__(telemetry, id="replay")
        self._replay = replay

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - always one row
        replay = self._replay
        row = [Span(" REPLAY ", BADGE), Span(f" {self._moment()}  ", STRONG)]
        pace = (
            "end"
            if replay.ended
            else "paused"
            if replay.paused
            else f"×{replay.speed:g}"
        )
        row.append(Span(f"{pace:<7}", ACCENT))
        end = duration(replay.end)
        row.append(Span(f"{duration(replay.position):>{len(end)}} of {end} "))
        ending = ""
        if replay.recording.ending:
            ending = f" {replay.recording.ending} "
        if width_of(row) + len(ending) > width:
            ending = f"{ending.partition(';')[0]} "  # without the time
        room = width - width_of(row) - len(ending) - 1
        if room >= SHORTEST_BAR:
            share = replay.position / replay.end if replay.end else 1.0
            row += [*bar(share, room, DIM), Span(" ")]
        row.append(Span(ending, WARN))
        return [fit(row, width)]

    def _moment(self) -> str:
        telemetry = self._telemetry
        if telemetry.latest is None:
            return "…"
        since = max(0.0, self._replay.position - telemetry.received_at)
        return moment(telemetry.latest.time + since, "%Y-%m-%d %H:%M:%S")

    def action_play(self) -> None:
        self._replay.pause()
        self.redraw()

    def action_seek(self, seconds: float) -> None:
        self._replay.seek(seconds)
        self.redraw()

    def action_speed(self, step: int) -> None:
        self._replay.change_speed(step)
        self.redraw()
