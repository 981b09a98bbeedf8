"""Lines at the top of the dashboard: host, status, totals, and the bar of a replay."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from textual.events import Click

from gputop.agent.device import Device, DeviceSample, DeviceState
from gputop.health.findings import Severity
from gputop.schema.derived import gpus_text, label_of
from gputop.text import (
    age,
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
from gputop.ui.drawing.device_cells import sign_of
from gputop.ui.drawing.live import TelemetryView
from gputop.ui.drawing.palette import (
    ACCENT,
    BADGE,
    DIM,
    FAULT,
    GOOD,
    STRONG,
    TAB,
    WARN,
)
from gputop.ui.telemetry import Telemetry
from gputop.ui.trouble import stream_trouble

if TYPE_CHECKING:
    from gputop.health.why import Entry
    from gputop.recording.replay import Replay

TABS = (
    ("monitor", " 1 Monitor "),
    ("benchmark", " 2 Benchmark "),
    ("processes", " 3 Processes "),
)
TITLE = " gputop "
ROOMY = 80
"""Width from which there are gaps in the top line."""
NARROW = 60
"""Width below which only the current tab has a name."""


class Header(TelemetryView):
    """Title, tabs, host and driver; the status; totals of all devices and of the host."""

    def __init__(
        self,
        telemetry: Telemetry,
        more_tabs: Sequence[tuple[str, str]] = (),
    ) -> None:
        """List the usual tabs and `more_tabs`: names and titles."""
        super().__init__(telemetry, id="header")
        self._titles = (*TABS, *more_tabs)
        self.tab = TABS[0][0]
        self.recording = False
        """True while a recording is in progress."""

    def draw(self, width: int, height: int) -> list[Row]:
        return [self._top(width), self._status(width), self._summary(width)][
            :height
        ]

    def _status(self, width: int) -> Row:
        """Return the status: an interruption, the gravest problem, or that there is none."""
        trouble = stream_trouble(self._telemetry)
        if trouble is not None:
            style = sign_of(trouble.severity).style
            text = f" {trouble.what}"
            if cells_of(text) > width:
                text = text.partition(": ")[0]
            return [Span(clip(text, width), style)]
        report = self._telemetry.why()
        if not report.problems:
            return fit([Span(f" {report.summary}", GOOD)], width)
        return _problem_row(report.problems, width)

    def _top(self, width: int) -> Row:
        left = [Span(TITLE, ACCENT)]
        for name, label in self._tabs(width):
            style = DIM
            if name == self.tab:
                style = TAB
            left.append(Span(label, style))
        telemetry, gap = self._telemetry, " " * (width >= ROOMY)
        badges = {" SIMULATED " if gap else " DEMO ": telemetry.simulated}
        badges |= {" PAUSED ": telemetry.paused, " REC ": self.recording}
        for badge in filter(badges.get, badges):
            left += [Span(gap), Span(badge, BADGE)]
        inventory = telemetry.inventory
        ranked = [
            moment(telemetry.sample.time if telemetry.sample else time.time()),
        ]
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
                ranked.append(
                    f"driver {visible(inventory.driver_version)}{cuda or ''}",
                )
        kept = fit_columns(
            ranked,
            width - width_of(left) + 1,
            lambda part: cells_of(part) + 3,
        )
        right = " · ".join((*kept[1:], *kept[:1]))
        return spread(left, [Span(f"{right} ", DIM)], width)

    def _tabs(self, width: int) -> list[tuple[str, str]]:
        """Return names and labels of the tabs. On a narrow screen, the labels are only numbers."""
        tabs = []
        for name, title in self._titles:
            label = title
            if width < NARROW and name != self.tab:
                label = title[:3]
            tabs.append((name, label))
        return tabs

    def _summary(self, width: int) -> Row:
        """Return the totals, or the remedy for an interrupted stream."""
        trouble = stream_trouble(self._telemetry)
        # Without devices, the monitor shows the remedy.
        if trouble is not None and trouble.remedy and self._telemetry.devices:
            return [Span(clip(f" {trouble.remedy}", width))]
        devices, host = self._devices(), self._host()
        # Readings of single devices are dropped first.
        ranked = (*devices[:SUMS], *host, *devices[SUMS:])
        kept = fit_columns(ranked, width, width_of) or devices[:1]
        left = [span for part in devices if part in kept for span in part]
        right = [span for part in host if part in kept for span in part]
        return spread(left, right, width)

    def _host(self) -> list[Row]:
        telemetry = self._telemetry
        host, machines = telemetry.host, telemetry.machines
        behind: Row = []
        if machines:
            host = machines[0].host
            late = telemetry.old_seconds(machines[0])
            if late is not None:
                behind = [Span(f"  {age(late)} behind", WARN)]
        if host is None or len(machines) > 1:
            return []
        memory = used_of(host.memory_used_bytes, host.memory_total_bytes)
        load = host.load_average[0] if host.load_average else None
        return [
            behind,
            [
                Span("  CPU ", DIM),
                Span(percentage(host.cpu_percent, " % ").rjust(6)),
            ],
            [Span(" load ", DIM), Span(f"{number(load)} ")],
            [Span(" host mem ", DIM), Span(f"{memory} ")],
        ]

    def _devices(self) -> list[Row]:
        """Return parts about the devices: the totals, then the hottest and the busiest device."""
        telemetry = self._telemetry
        gpus = [each for each in telemetry.devices if each.parent_uuid is None]
        if not gpus:
            return [[Span(" ")]]
        pairs = [(gpu, telemetry.readings(gpu.uuid)) for gpu in gpus]
        lost = sum(r.state is not DeviceState.OK for _, r in pairs)
        current = [
            (g, r) for g, r in pairs if telemetry.old_seconds(r) is None
        ]
        old = len(pairs) - len(current)
        named = ""
        if telemetry.inventory is not None:
            shown = replace(telemetry.inventory, devices=telemetry.devices)
            named = gpus_text(shown)
        first = [Span(f" {named}", STRONG)]
        if lost:
            first.append(Span(f"  {lost} not answering", FAULT))
        # The totals are of this moment.
        if old:
            first.append(Span(f"  {old} slow", WARN))
        parts = [first, *_sums([r for _, r in current], lost)]
        if len(gpus) > 1:
            parts += _most(current)
        return parts

    def on_click(self, event: Click) -> None:
        if event.y > 0:
            self.app.call_later(self.screen.run_action, "act('why')")
        x = len(TITLE)
        for name, label in self._tabs(self.size.width):
            if event.y == 0 and x <= event.x < x + len(label):
                self.app.call_later(
                    self.screen.run_action,
                    f"act('tab.{name}')",
                )
            x += len(label)


SUMS = 4
"""Number of parts that are not about a single device."""


def _sums(readings: Sequence[DeviceSample], lost: int) -> list[Row]:
    """Return mean use, memory and power of all devices. Parts are empty if unknown."""
    parts: list[Row] = [[], [], []]
    busy = _values(readings, "gpu_utilization_percent")
    if busy:
        mean = percentage(sum(busy) / len(busy)).rjust(5)
        parts[0] = [Span("  busy ", DIM), Span(mean)]
    # Use and total must be of the same devices.
    known = [r for r in readings if r.memory_used_bytes is not None]
    known = [r for r in known if r.memory_total_bytes is not None]
    if known:
        used = sum(_values(known, "memory_used_bytes"))
        total = sum(_values(known, "memory_total_bytes"))
        parts[1] = [Span("  mem ", DIM), Span(used_of(used, total))]
    watts = _values(readings, "power_watts")
    if watts:
        # The devices that do not answer are already reported.
        least = ""
        if len(watts) < len(readings) - lost:
            least = "≥"
        drawn = number(sum(watts), whole=True)
        parts[2] = [Span("  power ", DIM), Span(f"{least}{drawn} W")]
    return parts


def _most(pairs: Sequence[tuple[Device, DeviceSample]]) -> list[Row]:
    """Return the hottest and the busiest device."""
    parts: list[Row] = []
    for label, name, unit in (
        ("hottest", "temperature_celsius", "°C"),
        ("busiest", "gpu_utilization_percent", " %"),
    ):
        best: tuple[float, Device] | None = None
        for gpu, readings in pairs:
            value = getattr(readings, name)
            if value is not None and (best is None or value > best[0]):
                best = value, gpu
        if best is not None:
            text = f"GPU {label_of(best[1])}: {best[0]}{unit}"
            parts.append([Span(f"  {label} ", DIM), Span(text)])
    return parts


def _problem_row(problems: Sequence[Entry], width: int) -> Row:
    """Return the gravest problem and the number of others."""
    hint = "w Why "
    if len(problems) > 1:
        hint = f"+{len(problems) - 1} more: w "
    room = width - len(hint) - 4
    first = problems[0]
    style = FAULT if first.severity is Severity.FAULT else WARN
    text = clip_words(first.line(room), room)
    return spread([Span(f" ▲ {text}", style)], [Span(hint, DIM)], width)


def _values(readings: Sequence[DeviceSample], name: str) -> list[float]:
    values = [getattr(r, name) for r in readings]
    return [value for value in values if value is not None]


SHORTEST_BAR = 8
"""Cells of the shortest bar."""


class ReplayBar(TelemetryView):
    """The line of a replay: time, speed and position."""

    def __init__(self, telemetry: Telemetry, replay: Replay) -> None:
        super().__init__(telemetry, id="replay")
        self._replay = replay

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002 - always one row
        replay = self._replay
        row = [Span(" REPLAY ", BADGE), Span(f" {self._moment()}  ", STRONG)]
        pace = f"×{replay.speed:g}"
        if replay.paused:
            pace = "paused"
        if replay.ended:
            pace = "end"
        row.append(Span(f"{pace:<7}", ACCENT))
        end = duration(replay.end)
        row.append(Span(f"{duration(replay.position):>{len(end)}} of {end} "))
        ending = ""
        if replay.recording.ending:
            ending = f" {replay.recording.ending} "
        if width_of(row) + len(ending) > width:
            # Leave out the time.
            ending = f"{ending.partition(';')[0]} "
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
