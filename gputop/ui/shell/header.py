"""Lines at the top of the dashboard: host, status, totals, and the bar of a replay."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING

from rich.style import Style
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

TABS: tuple[tuple[str, str], ...] = (
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

    auto_links = False

    tab = TABS[0][0]
    """Name of the current tab."""
    recording = False
    """True while a recording is in progress."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(telemetry, id="header")
        self.titles = TABS
        """Names and titles of the tabs."""

    def draw(self, width: int, height: int) -> list[Row]:
        return [self._top(width), self._status(width), self._summary(width)][
            :height
        ]

    def _status(self, width: int) -> Row:
        """Return the status: an interruption, the gravest problem, or that there is none."""
        trouble = stream_trouble(self._telemetry)
        if trouble is not None:
            style = sign_of(trouble.severity).style
            return [Span(clip(f" {trouble.what}", width), style)]
        report = self._telemetry.why()
        if not report.problems:
            return fit([Span(f" {report.summary}", GOOD)], width)
        return _problem_row(report.problems, width)

    def _top(self, width: int) -> Row:
        telemetry, gap = self._telemetry, " " * (width >= ROOMY)
        left = [Span(TITLE, ACCENT)]
        for name, title in self.titles:
            here = name == self.tab
            label = title if here or width >= NARROW else title[:3]
            left.append(Span(label, _tab_style(name, here=here)))
        for badge, is_shown in (
            (" SIMULATED " if gap else " DEMO ", telemetry.simulated),
            (" PAUSED ", telemetry.paused),
            (" REC ", self.recording),
        ):
            if is_shown:
                left += [Span(gap), Span(badge, BADGE)]
        inventory, sample = telemetry.inventory, telemetry.sample
        ranked = [moment(sample.time if sample else time.time())]
        if inventory is not None:
            if inventory.interval_seconds != 1:
                ranked[0] += f" · every {inventory.interval_seconds:g} s"
            many = len(telemetry.machines)
            where = f"{many} hosts"
            if many <= 1:
                where = visible(telemetry.host_name or inventory.hostname)
            ranked.append(clip(where, 24))
            if inventory.driver_version:
                driver = f"driver {visible(inventory.driver_version)}"
                if inventory.cuda_version:
                    driver += f" · CUDA {visible(inventory.cuda_version)}"
                ranked.append(driver)
        room = width - width_of(left) + 1
        kept = fit_columns(ranked, room, lambda part: cells_of(part) + 3)
        right = " · ".join((*kept[1:], *kept[:1]))
        return spread(left, [Span(f"{right} ", DIM)], width)

    def _summary(self, width: int) -> Row:
        """Return the totals, or the remedy for an interrupted stream."""
        trouble = stream_trouble(self._telemetry)
        # Without devices, the monitor shows the remedy.
        if trouble is not None and trouble.remedy and self._telemetry.devices:
            return [Span(clip(f" {trouble.remedy}", width))]
        telemetry = self._telemetry
        lost, old = 0, 0
        now: list[tuple[Device, DeviceSample]] = []
        for device in telemetry.devices:
            readings = telemetry.readings(device.uuid)
            if device.parent_uuid is not None:
                continue
            if readings.state is not DeviceState.OK:
                lost += 1
            # The totals are of this moment.
            elif telemetry.old_seconds(readings) is not None:
                old += 1
            else:
                now.append((device, readings))
        first, host = self._first(lost, old), self._host()
        sums, most = _sums([readings for _, readings in now]), _most(now)
        # Readings of single devices are dropped first.
        ranked = [first, *sums, *host, *most]
        kept = fit_columns(ranked, width, width_of) or [first]
        devices = (first, *sums, *most)
        left = [span for part in devices if part in kept for span in part]
        right = [span for part in host if part in kept for span in part]
        return spread(left, right, width)

    def _first(self, lost: int, old: int) -> Row:
        """Return the number of GPUs, of `lost` ones and of those with `old` readings."""
        inventory, devices = self._telemetry.inventory, self._telemetry.devices
        if inventory is None or not devices:
            return [Span(" ")]
        shown = gpus_text(replace(inventory, devices=devices))
        first = [Span(f" {shown}", STRONG)]
        if lost:
            first.append(Span(f"  {lost} not answering", FAULT))
        if old:
            first.append(Span(f"  {old} slow", WARN))
        return first

    def _host(self) -> list[Row]:
        """Return parts about the host, if there is only one."""
        telemetry = self._telemetry
        host, machines, late = telemetry.host, telemetry.machines, None
        if len(machines) == 1:
            host, late = machines[0].host, telemetry.old_seconds(machines[0])
        if host is None or len(machines) > 1:
            return []
        load = host.load_average[0] if host.load_average else None
        memory = used_of(host.memory_used_bytes, host.memory_total_bytes)
        parts = [[Span(f"  {age(late)} behind", WARN)]] if late else []
        for label, text in (
            ("  CPU ", percentage(host.cpu_percent, " % ").rjust(6)),
            (" load ", f"{number(load)} "),
            (" host mem ", f"{memory} "),
        ):
            parts.append([Span(label, DIM), Span(text)])
        return parts

    def on_click(self, event: Click) -> None:
        if event.y > 0:
            self.app.call_later(self.screen.run_action, "act('why')")


# Rich gives each new style for a click another identity.
@cache
def _tab_style(name: str, *, here: bool) -> Style:
    """Return the style of a tab, which is opened by a click."""
    style = TAB if here else DIM
    return style + Style.on(click=f"screen.act('tab.{name}')")


def _sums(readings: Sequence[DeviceSample]) -> list[Row]:
    """Return mean use, memory and power of all devices, as far as they are known."""
    parts: list[Row] = []
    busy = _values(readings, "gpu_utilization_percent")
    if busy:
        mean = percentage(sum(busy) / len(busy)).rjust(5)
        parts.append([Span("  busy ", DIM), Span(mean)])
    # Use and total must be of the same devices.
    known = []
    for r in readings:
        if None not in (r.memory_used_bytes, r.memory_total_bytes):
            known.append(r)
    if known:
        used = sum(_values(known, "memory_used_bytes"))
        total = sum(_values(known, "memory_total_bytes"))
        parts.append([Span("  mem ", DIM), Span(used_of(used, total))])
    watts = _values(readings, "power_watts")
    if watts:
        least = "≥" if len(watts) < len(readings) else ""
        drawn = number(sum(watts), whole=True)
        parts.append([Span("  power ", DIM), Span(f"{least}{drawn} W")])
    return parts


def _most(pairs: Sequence[tuple[Device, DeviceSample]]) -> list[Row]:
    """Return the hottest and the busiest of several devices."""
    parts: list[Row] = []
    for label, name, unit in (
        ("hottest", "temperature_celsius", "°C"),
        ("busiest", "gpu_utilization_percent", " %"),
    ):
        known = []
        for gpu, readings in pairs:
            value = getattr(readings, name)
            if value is not None:
                known.append((value, gpu))
        if len(known) > 1:
            value, gpu = max(known, key=itemgetter(0))
            text = f"GPU {label_of(gpu)}: {value}{unit}"
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
    values = []
    for each in readings:
        value = getattr(each, name)
        if value is not None:
            values.append(value)
    return values


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
