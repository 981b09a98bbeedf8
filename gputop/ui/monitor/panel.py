"""Draw one device as a panel of several rows. No widget; the only state is in `DrawingCache`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from rich.style import Style

from gputop.agent.device import Absence, Device, DeviceSample, DeviceState
from gputop.agent.snapshot import Host
from gputop.health.conditions import HANGING, Fault, fault_of
from gputop.health.findings import Finding, Severity, capitalized
from gputop.health.thresholds import FULL_MARK, HOT_MARGIN
from gputop.schema.clock_events import BY_WORD, CLOCK_EVENTS, gravity
from gputop.schema.derived import label_of, model_of
from gputop.schema.values import degrees_to_slowdown, rate
from gputop.text import (
    ABSENT,
    age,
    fit_columns,
    in_unit_of,
    percentage,
    quantity,
    size,
    visible,
)
from gputop.ui.drawing import cells, palette
from gputop.ui.drawing.cells import (
    Row,
    Span,
    cell,
    clip,
    faded,
    fit,
    reading,
    share_of,
    width_of,
)
from gputop.ui.drawing.palette import ACCENT, DIM, FAULT, STRONG, TAB, TEXT, TRACK, WARN


class Density(IntEnum):
    """Density of the monitor. The value is the fewest rows of a device."""

    ROW = 1
    COMPACT = 3
    FULL = 5


NO_ANSWER = Fault("It has not answered yet", HANGING)


class DrawingCache:
    """Parts of a device's drawing that the next one has, too, so that little of it changes."""

    def __init__(self) -> None:
        self.details: DeviceSample | None = None
        """Readings that the lines of second rank show."""
        self._ends: dict[tuple[str, int], int] = {}
        """Half cells of each bar, by its name and width."""

    def bar(self, name: str, share: float | None, width: int, style: Style) -> Row:
        """Draw a bar, whose end stays unless it is wrong by half a cell."""
        if share is None:
            return cells.bar(None, width, style)
        end = cells.half_cells(share, width, self._ends.get((name, width)))
        self._ends[name, width] = end
        return cells.bar(share, width, style, end)


class PanelHistory(NamedTuple):
    """Values of a reading, oldest first, and the value at the full height of the chart."""

    label: str
    values: Sequence[float | None]
    top: float
    """The height of the chart, as a number and in words."""
    top_text: str
    style: Style


@dataclass(frozen=True, slots=True)
class Panel:
    """Data that a panel shows."""

    device: Device
    readings: DeviceSample
    histories: Sequence[PanelHistory] = ()
    count: int = 0
    """Number of samples since the start; it aligns the histories."""
    selected: bool = False
    focused: bool = True
    """True if keys are for the devices."""
    index_cells: int = 1
    """Cells of the longest device index: names are aligned."""
    host: Host | None = None
    """Host whose memory a device without its own shares."""
    finding: Finding | None = None
    """Most important reason why the device may be slow."""
    finding_row: bool = False
    """True if there is a row for a finding on every panel."""
    old_seconds: float | None = None
    """Age of the readings, if they are too old to look current."""
    host_behind: bool = False
    """True if the whole host is behind, which its title says."""
    cache: DrawingCache = field(default_factory=DrawingCache)
    interval: float = 1.0
    """Seconds between samples."""
    scroll: bool = False
    bound_by: str = ""
    """Bottleneck of the device, if known."""

    @property
    def title_styles(self) -> tuple[Style, Style]:
        """Styles of label and name: reversed if selected, without keys the label alone."""
        marked = self.selected and self.focused
        return TAB if self.selected else STRONG, TAB if marked else STRONG

    @property
    def fault(self) -> Fault | None:
        """Fault that replaces the readings."""
        return fault_of(self.device, self.readings) or (
            NO_ANSWER if self.unanswered else None
        )

    @property
    def unanswered(self) -> bool:
        """True until the device answers for the first time."""
        r = self.readings
        nothing = (
            r.age_seconds is None and r.absent.get("processes") is Absence.NO_DATA_YET
        )
        return r.state is DeviceState.OK and nothing

    @property
    def details(self) -> DeviceSample:
        """Readings of second rank, which may be older."""
        return self.cache.details or self.readings

    @property
    def memory(self) -> tuple[int | None, int | None]:
        """Used and total bytes of memory."""
        r = self.readings
        if self.device.memory_is_shared and self.host is not None:
            return self.host.memory_used_bytes, self.host.memory_total_bytes
        return r.memory_used_bytes, r.memory_total_bytes


def name_of(device: Device) -> str:
    """Return the short name of a device; for a MIG instance, its profile."""
    name = model_of(device)
    return (
        name if device.parent_uuid is None else f"└ MIG {name.rpartition(' MIG ')[2]}"
    )


def lacks(readings: DeviceSample, name: str) -> bool:
    """True if the device never has that reading: then it is left out."""
    return readings.absent.get(name) is Absence.NOT_SUPPORTED


def activity_of(readings: DeviceSample) -> str:
    """Return the name of the activity reading: *SM active* for MIG, which has no *busy*."""
    busy = "gpu_utilization_percent"
    other = lacks(readings, busy) and readings.sm_active_percent is not None
    return "sm_active_percent" if other else busy


def draw(panel: Panel, density: Density, width: int, height: int) -> list[Row]:
    """Draw the panel in exactly `height` rows of `width` cells."""
    rows = [_title(panel, width, rule=density is Density.FULL)]
    inner, room = width - 3, height - 1
    if panel.fault is None:
        body = _readings(panel, density, inner, room)
    else:
        style = WARN if panel.unanswered else FAULT
        body = _fault_rows(panel.fault, style, inner, room)
    rows += [[selection_mark(panel), Span("  "), *row] for row in body]
    rows += [[selection_mark(panel)] for _ in range(height - len(rows))]
    return [fit(row, width) for row in rows[:height]]


def _readings(panel: Panel, density: Density, width: int, room: int) -> list[Row]:
    """Draw bars, details and histories as far as they fit; dimmed if the readings are old."""
    body, last = [_busy_bar(panel, width), _memory_bar(panel, width)], []
    old = panel.old_seconds is not None
    if density is Density.FULL:
        if not lacks(panel.readings, "power_watts"):
            body.append(_power_bar(panel, width))
        if old and not panel.host_behind:
            last = [[Span(clip(HANGING, width), WARN)]]
        elif panel.finding:
            last = [finding_line(panel.finding, width)]
        elif panel.finding_row:
            last = [[]]
        details = _details(panel, width, room - len(body) - LEAST_HISTORY - len(last))
        if room - len(body) > LEAST_HISTORY or not last:
            body += details
        elif not any(last):  # there is no room for both
            last = details
        body += _histories(panel, width, room - len(body) - len(last))
    return [*(faded(body) if old else body), *last]


LEAST_HISTORY = 2
"""Fewest rows of a history where there is another one."""


def _histories(panel: Panel, width: int, rows: int) -> list[Row]:
    many = min(len(panel.histories), max(1, rows // LEAST_HISTORY))
    across = max(1, width - LABEL - VALUE - 1)
    window = cells.live_window(panel.count, across, scroll=panel.scroll)
    past = f", {window.span_text(panel.interval)}" if window.end else ""
    drawn: list[Row] = []
    for n, each in enumerate(panel.histories[:many]):
        height = (rows - len(drawn)) // (many - n)
        start = panel.count - len(each.values)
        rows_of_it = cells.chart(
            each.values, start, window, height, each.top, each.style
        )
        for y, row in enumerate(rows_of_it):
            label, words = ("", "") if y else (each.label, f" 0–{each.top_text}{past}")
            drawn.append(
                [cell(label, LABEL, DIM), *row, Span(clip(words, VALUE + 1), DIM)]
            )
    return drawn


def selection_mark(panel: Panel) -> Span:
    """Return the mark of the selected device, or a blank."""
    return Span("▌" if panel.selected else " ", ACCENT)


def _title(panel: Panel, width: int, *, rule: bool) -> Row:
    r = panel.readings
    label = label_of(panel.device)
    label = label.rjust(len(label) - len(str(panel.device.index)) + panel.index_cells)
    title = (f"{label} ", name_of(panel.device))
    left = [selection_mark(panel), *map(Span, title, panel.title_styles)]
    figures: list[Row] = []
    if r.state is DeviceState.OK and not panel.unanswered:
        figures = [[Span("  "), *part] for part in _figures(panel.device, r, bars=rule)]
        # The name is worth more than the last figures. Room for a limit is always reserved:
        # limits come and go, and nothing may move with them. A label of one digit gets two cells.
        second = max(0, 2 - len(label))
        room = width - width_of(left) - second - LONGEST_LIMIT - 3
        figures = fit_columns(figures, room, width_of) or figures[:1]
    limit, style = limited_by(r)
    if panel.old_seconds is not None:
        figures = faded(figures)
        limit, style = f"{age(panel.old_seconds)} old", WARN
    if limit:
        figures.insert(0, [Span(f"  {limit}", style)])
    left.append(Span(" "))
    right = [span for part in figures for span in part]
    if not rule:
        return cells.spread(left, [*right, Span(" ")], width)
    right.append(Span(" ", TRACK))
    return cells.rule_of(left, right, width)


def _figures(device: Device, r: DeviceSample, *, bars: bool) -> list[Row]:
    """Return the figures of a title, the most useful first; with `bars`, no power or clock."""
    right: list[Row] = []
    if not lacks(r, "temperature_celsius"):
        right.append(
            [reading(quantity(r.temperature_celsius, "°C"), heat_style(device, r))]
        )
    if not (bars or lacks(r, "power_watts")):
        right.append(_power(r, "/"))
    if not (bars or lacks(r, "sm_clock_mhz")):
        right.append([reading(quantity(r.sm_clock_mhz, " MHz"))])
    if r.performance_state is not None:
        right.append([Span(f"P{r.performance_state}")])
    return right


def finding_line(finding: Finding, width: int, label: str = "") -> Row:
    """Draw a finding in one line; `label` names its device if that is not clear."""
    row = [sign_of(finding.severity)]
    if label:
        row.append(Span(f"GPU {label}: ", STRONG))
    text = cells.clip_words(capitalized(finding.line), width - width_of(row))
    return fit([*row, Span(text, TEXT if row[0].style is DIM else row[0].style)], width)


def sign_of(severity: Severity) -> Span:
    """Return the sign of a finding, in its colour."""
    if severity is Severity.INFORMATION:
        return Span("· ", DIM)
    return Span("▲ ", FAULT if severity is Severity.FAULT else WARN)


def heat_style(device: Device, readings: DeviceSample) -> Style:
    """Return the style of a temperature: a warning near the slowdown."""
    margin = degrees_to_slowdown(device, readings)
    return WARN if margin is not None and margin <= HOT_MARGIN else TEXT


def memory_style(used: int | None, total: int | None) -> Style:
    """Return the style of memory in use: a warning where little is left."""
    return WARN if (share_of(used, total) or 0) >= FULL_MARK else STRONG


LONGEST_LIMIT = max(len(event.short) for event in CLOCK_EVENTS)


def limit_text(reason: str) -> tuple[str, Style]:
    """Return a clock event reason in a word or two, and its style; empty for idle."""
    event = BY_WORD.get(reason)
    if event is None:
        return clip(visible(reason, LONGEST_LIMIT), LONGEST_LIMIT), DIM
    return event.short, WARN if event.fault else DIM


def limited_by(readings: DeviceSample) -> tuple[str, Style]:
    """Return the most severe clock event reason and its style; empty if there is none."""
    return limit_text(min(readings.clock_event_reasons or ("idle",), key=gravity))


def _fault_rows(fault: Fault, what: Style, width: int, room: int) -> list[Row]:
    rows = cells.paragraph(fault.what, width, what) + cells.paragraph(
        fault.remedy, width
    )
    if len(rows) > room:
        return [
            [Span(clip(fault.what, width), what)],
            [Span(cells.clip_advice(fault.remedy, width))],
        ]
    return rows


LABEL, VALUE = 6, 18


def _labelled_bar(
    panel: Panel, label: str, share: float | None, style: Style, value: Row, width: int
) -> Row:
    drawn = panel.cache.bar(label, share, width - LABEL - VALUE - 1, style)
    return [cell(label, LABEL, DIM), *drawn, Span(" "), *value]


def _busy_bar(panel: Panel, width: int) -> Row:
    name = activity_of(panel.readings)
    active = getattr(panel.readings, name)
    label, style = (
        ("SM", palette.SM) if name == "sm_active_percent" else ("busy", palette.BUSY)
    )
    value = [
        cell(percentage(active), 5, STRONG if active is not None else DIM, right=True)
    ]
    tensor = panel.readings.tensor_active_percent
    if tensor is not None:  # busy does not say how much of the GPU is used
        value += [
            Span(" tensor ", DIM),
            cell(percentage(tensor), 5, STRONG, right=True),
        ]
    return _labelled_bar(panel, label, share_of(active, 100), style, value, width)


def _memory_bar(panel: Panel, width: int) -> Row:
    used, total = panel.memory
    if used is None:
        value = [Span(ABSENT.rjust(5), DIM)]
    else:
        number = Span(in_unit_of(used, total).rjust(5), memory_style(used, total))
        value = [number, Span(f" of {size(total)}", DIM)]
    label = "host" if panel.device.memory_is_shared else "mem"
    return _labelled_bar(
        panel, label, share_of(used, total), palette.MEMORY, value, width
    )


def _power_bar(panel: Panel, width: int) -> Row:
    r = panel.readings
    share = share_of(r.power_watts, r.power_limit_watts)
    return _labelled_bar(
        panel, "power", share, palette.POWER, _power(r, " of ", pad=5), width
    )


def _power(r: DeviceSample, of: str, pad: int = 0) -> Row:
    if r.power_watts is None:
        return [Span(ABSENT.rjust(pad), DIM)]
    watts = Span(quantity(r.power_watts, "").rjust(pad), STRONG if pad else TEXT)
    limit = (
        ""
        if r.power_limit_watts is None
        else f"{of}{quantity(r.power_limit_watts, '')}"
    )
    return [watts, Span(f"{limit} W", DIM)]


def _details(panel: Panel, width: int, most: int) -> list[Row]:
    """Draw the readings of second rank in up to `most` lines, the most useful first."""
    r, device = panel.details, panel.device
    on_the_bar = activity_of(r) == "sm_active_percent"
    # A reading that the device supports is shown even without a value; of the others only those
    # with one. The page of the device says why a value is missing.
    activity = _known(
        ("SM active", percentage(None if on_the_bar else r.sm_active_percent)),
        ("DRAM", percentage(r.dram_active_percent)),
        ("occupancy", percentage(r.sm_occupancy_percent)),
    )
    clock = (
        "SM",
        "sm_clock_mhz",
        _with_maximum(r.sm_clock_mhz, device.sm_clock_max_mhz),
    )
    memory_clock = _with_maximum(r.memory_clock_mhz, device.memory_clock_max_mhz)
    others = (
        ("mem", "memory_clock_mhz", memory_clock),
        ("bus", "memory_utilization_percent", percentage(r.memory_utilization_percent)),
        ("fan", "fan_percent", percentage(r.fan_percent)),
    )
    first = _supported(r, clock) + activity
    second = _supported(r, *others) + _known(
        ("reserved", size(r.memory_reserved_bytes or None)),
        ("enc", percentage(r.encoder_utilization_percent or None)),
        ("dec", percentage(r.decoder_utilization_percent or None)),
    )
    lines = [first, second] if activity else [first + second]
    if panel.bound_by:
        lines[0].append(("bound by", panel.bound_by))
    lines += _links(r, width)
    return [_in_line(parts, width) for parts in lines if parts][: max(1, most)]


def _supported(r: DeviceSample, *parts: tuple[str, str, str]) -> list[tuple[str, str]]:
    return [(label, text) for label, name, text in parts if not lacks(r, name)]


def _known(*parts: tuple[str, str]) -> list[tuple[str, str]]:
    return [part for part in parts if part[1] != ABSENT]


LONGEST_RATE = len("0.98 GiB/s")


def _links(r: DeviceSample, width: int) -> list[list[tuple[str, str]]]:
    """Return the traffic of PCIe and NVLink, in one line or in one each.

    Show both directions of a link, or neither. The choice depends on the longest possible
    rates, not on the current ones: else lines would come and go with the traffic.
    """
    pairs = (
        ("PCIe", r.pcie_rx_bytes_per_second, r.pcie_tx_bytes_per_second),
        ("NVLink", r.nvlink_rx_bytes_per_second, r.nvlink_tx_bytes_per_second),
    )
    most = {label: len(f"{label} ↓  ↑ ") + 2 * LONGEST_RATE for label, *_ in pairs}
    links = [
        (label, f"↓ {rate(rx)} ↑ {rate(tx)}")
        for label, rx, tx in pairs
        if (rx, tx) != (None, None) and most[label] <= width
    ]
    one_line = sum(most[label] + 3 for label, _ in links) - 3 <= width
    return [links] if one_line else [[link] for link in links]


def _in_line(parts: Sequence[tuple[str, str]], width: int) -> Row:
    gap = 3
    shown = fit_columns(
        parts, width + gap, lambda part: len(part[0]) + 1 + len(part[1]) + gap
    )
    row: Row = []
    for label, value in shown:
        row += [Span(" · ", TRACK)] * bool(row)
        row += [Span(f"{label} ", DIM), reading(value)]
    return row


def _with_maximum(value: int | None, maximum: int | None) -> str:
    if value is None:
        return ABSENT
    return f"{value} MHz" if maximum is None else f"{value}/{maximum} MHz"
