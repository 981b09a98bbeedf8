"""Draw one device as a panel of several rows. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.style import Style

from gputop.agent.device import Absence, Device, DeviceSample, DeviceState
from gputop.agent.snapshot import Host
from gputop.health.conditions import HANGING, Fault, fault_of
from gputop.health.findings import BoundBy, Finding
from gputop.schema.derived import label_of
from gputop.stream.history import History
from gputop.text import (
    ABSENT,
    age,
    fit_columns,
    in_unit_of,
    percentage,
    quantity,
    size,
    watts_of,
)
from gputop.ui.drawing import cells, charts, palette
from gputop.ui.drawing.cells import (
    Row,
    Span,
    bar,
    beside,
    cell,
    clip,
    faded,
    fit,
    reading,
    share_of,
    width_of,
)
from gputop.ui.drawing.charts import Chart
from gputop.ui.drawing.device_cells import (
    LONGEST_LIMIT,
    bound_row,
    heat_style,
    limited_by,
    memory_style,
    name_of,
    number,
)
from gputop.ui.drawing.palette import (
    ACCENT,
    DIM,
    FAULT,
    STRONG,
    TAB,
    TRACK,
    WARN,
)
from gputop.ui.monitor.details import detail_rows, lacks
from gputop.ui.monitor.layout import NARROWEST_PANEL, Density

NO_ANSWER = Fault("It has not answered yet", HANGING)
LABEL, VALUE = 7, 20
"""Width of the label before a bar or chart, and of the text after it."""
LEAST_CHART, MOST_CHART = 2, 6
"""Minimum and maximum number of rows of a chart."""
BARRED = (charts.BUSY, charts.SM_ACTIVE, charts.MEMORY, charts.POWER)
"""Charts of readings that already have a bar in the panel."""
DETAIL_ROWS = 4
"""Most rows of further readings."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Data of a panel."""

    device: Device
    readings: DeviceSample
    history: History = field(default_factory=History)
    charts: Sequence[Chart] = ()
    """Charts, the most useful first."""
    selected: bool = False
    focused: bool = True
    """True if keys go to the devices."""
    index_cells: int = 1
    """Width of the longest device index, so that names are aligned."""
    host: Host | None = None
    """Host whose memory the device shares, if it has none of its own."""
    finding: Finding | None = None
    """Gravest finding about the device."""
    bound_by: BoundBy | None = None
    """Bottleneck of the device, if it has been judged."""
    old_seconds: float | None = None
    """Age of the readings, if they are outdated."""
    host_behind: bool = False
    """True if the whole host is late. Its title then shows the delay."""
    interval: float = 1.0
    """Seconds between samples."""

    @property
    def title_styles(self) -> tuple[Style, Style]:
        """Styles of label and name. Both are reversed if selected; without focus, only the label
        is."""
        marked = self.selected and self.focused
        return TAB if self.selected else STRONG, TAB if marked else STRONG

    @property
    def fault(self) -> Fault | None:
        """Fault that replaces the readings."""
        if self.unanswered:
            return NO_ANSWER
        return fault_of(self.device, self.readings)

    @property
    def fault_style(self) -> Style:
        return WARN if self.unanswered else FAULT

    @property
    def unanswered(self) -> bool:
        """True until the device answers for the first time."""
        r = self.readings
        if r.state is not DeviceState.OK or r.age_seconds is not None:
            return False
        return r.absent.get("processes") is Absence.NO_DATA_YET

    @property
    def memory(self) -> tuple[int | None, int | None]:
        """Used and total bytes of memory."""
        r = self.readings
        if self.device.memory_is_shared and self.host is not None:
            return self.host.memory_used_bytes, self.host.memory_total_bytes
        return r.memory_used_bytes, r.memory_total_bytes

    @property
    def activity(self) -> Chart:
        """Chart of the activity: *SM active* for a MIG instance, which has no *busy*."""
        has_other = self.readings.sm_active_percent is not None
        if lacks(self.readings, charts.BUSY.name) and has_other:
            return charts.SM_ACTIVE
        return charts.BUSY

    @property
    def activity_percent(self) -> float | None:
        value: float | None = getattr(self.readings, self.activity.name)
        return value


def draw(
    panel: Panel,
    density: Density,
    width: int,
    height: int,
) -> list[Row]:
    """Draw the panel in exactly `height` rows of `width` cells."""
    rows = [_title(panel, width, rule=density is Density.FULL)]
    inner, room = width - 3, height - 1
    if panel.fault is None:
        body = _body(panel, density, inner, room)
    else:
        body = _fault_rows(panel.fault, panel.fault_style, inner, room)
    mark = selection_mark(panel)
    for row in body[:room]:
        rows.append([mark, Span("  "), *row])
    rows += [[mark]] * (height - len(rows))
    return [fit(row, width) for row in rows]


def _body(
    panel: Panel,
    density: Density,
    width: int,
    room: int,
) -> list[Row]:
    """Draw finding, bars, details and charts as far as they fit. Outdated readings are dim."""
    rows = [_busy_bar(panel, width), _memory_bar(panel, width)]
    if density is Density.FULL:
        if not lacks(panel.readings, "power_watts"):
            rows.append(_power_bar(panel, width))
        left = room - 1 - len(rows)
        most = min(DETAIL_ROWS, max(1, left - LEAST_CHART))
        rows += detail_rows(
            panel.device,
            panel.readings,
            panel.activity,
            width,
            most,
        )
        rows += _charts(panel, width, room - 1 - len(rows))
    first = bound_row(panel.bound_by, panel.finding, width)
    if panel.old_seconds is not None:
        rows = faded(rows)
        if not panel.host_behind:
            first = [Span(clip(HANGING, width), WARN)]
    return [first, *rows]


def _charts(
    panel: Panel,
    width: int,
    rows: int,
) -> list[Row]:
    """Draw as many charts as fit, in two columns if there is room."""
    columns = 2 if width >= 2 * NARROWEST_PANEL + 2 else 1
    many = min(len(panel.charts), columns * (rows // LEAST_CHART))
    if many < 1:
        return []
    columns = min(columns, many)
    lines = -(-many // columns)
    height = min(MOST_CHART, rows // lines)
    each = (width - 2 * (columns - 1)) // columns
    blocks: list[list[Row]] = [[] for _ in range(columns)]
    for place, chart in enumerate(panel.charts[:many]):
        blocks[place // lines] += _chart(panel, chart, each, height)
    return beside(blocks, each, 2)


def _chart(
    panel: Panel,
    chart: Chart,
    width: int,
    height: int,
) -> list[Row]:
    """Draw a chart with its name, newest value, scale and time span."""
    history, uuid = panel.history, panel.device.uuid
    across = max(1, width - LABEL - VALUE)
    samples = charts.samples_a_dot(across, panel.interval)
    dots = charts.newest_dots(history.count, across, samples)
    values = dots.means(history, uuid, chart.name)
    newest = history.newest(uuid, chart.name)
    top = chart.top(
        panel.device,
        panel.readings,
        panel.host,
        [*values, newest],
    )
    value = ABSENT if newest is None else chart.text(newest)
    if chart in BARRED:
        value = ""
    scale = f" of {chart.text(top)} {dots.span_text(panel.interval)}"
    right = [reading(f" {value}", STRONG), Span(clip(scale, VALUE), DIM)]
    right += [Span("")] * (height - 2)
    left = [cell(chart.short, LABEL, DIM)] + [Span(" " * LABEL)] * (height - 1)
    drawn = charts.draw_chart(values, height, top, chart.style)
    rows = []
    for label, row, text in zip(
        left,
        drawn,
        right,
        strict=True,
    ):
        rows.append(fit([label, *row, text], width))
    return rows


def selection_mark(panel: Panel) -> Span:
    """Return the mark of the selected device, or a blank."""
    return Span("▌" if panel.selected else " ", ACCENT)


def _title(
    panel: Panel,
    width: int,
    *,
    rule: bool,
) -> Row:
    r = panel.readings
    label = label_of(panel.device)
    label = label.rjust(
        len(label) - len(str(panel.device.index)) + panel.index_cells,
    )
    title = (f"{label} ", name_of(panel.device))
    left = [
        selection_mark(panel),
        *map(Span, title, panel.title_styles),
        Span(" "),
    ]
    right: Row = []
    if r.state is DeviceState.OK and not panel.unanswered:
        # The name is more useful than the last figures. Room for a limit is
        # always reserved, so that nothing moves when a limit appears or
        # disappears.
        room = (
            width - width_of(left) - max(0, 2 - len(label)) - LONGEST_LIMIT - 2
        )
        figures = _figures(panel.device, r, bars=rule)
        shown = fit_columns(figures, room, width_of) or figures[:1]
        right = [span for figure in shown for span in figure]
    limit, style = limited_by(r)
    if panel.old_seconds is not None:
        (right,) = faded([right])
        limit, style = f"{age(panel.old_seconds)} old", WARN
    if limit:
        right = [Span(f"  {limit}", style), *right]
    if not rule:
        return cells.spread(left, [*right, Span(" ")], width)
    return cells.rule_of(left, [*right, Span(" ", TRACK)], width)


def _figures(
    device: Device,
    r: DeviceSample,
    *,
    bars: bool,
) -> list[Row]:
    """Return the figures of a title, the most useful first; with `bars`, no power or clock."""
    figures: list[Row] = []
    if not lacks(r, "temperature_celsius"):
        text = quantity(r.temperature_celsius, "°C")
        figures.append([reading(text, heat_style(device, r))])
    if not (bars or lacks(r, "power_watts")):
        figures.append([reading(watts_of(r.power_watts, r.power_limit_watts))])
    if not (bars or lacks(r, "sm_clock_mhz")):
        figures.append([reading(quantity(r.sm_clock_mhz, " MHz"))])
    if r.performance_state is not None:
        figures.append([Span(f"P{r.performance_state}")])
    return [[Span("  "), *figure] for figure in figures]


def _fault_rows(
    fault: Fault,
    what: Style,
    width: int,
    room: int,
) -> list[Row]:
    rows = cells.paragraph(fault.what, width, what)
    rows += cells.paragraph(fault.remedy, width)
    if len(rows) > room:
        return [
            [Span(clip(fault.what, width), what)],
            [Span(cells.clip_advice(fault.remedy, width))],
        ]
    return rows


def _labelled_bar(
    label: str,
    share: float | None,
    style: Style,
    value: Row,
    width: int,
) -> Row:
    drawn = bar(share, width - LABEL - VALUE, style)
    return [cell(label, LABEL, DIM), *drawn, Span(" "), *value]


def _busy_bar(panel: Panel, width: int) -> Row:
    active, chart = panel.activity_percent, panel.activity
    value = [number(percentage(active))]
    tensor = panel.readings.tensor_active_percent
    # *busy* does not show how much of the GPU is used.
    if tensor is not None:
        value += [Span(" tensor ", DIM), number(percentage(tensor))]
    return _labelled_bar(
        chart.short,
        share_of(active, 100),
        chart.style,
        value,
        width,
    )


def _memory_bar(panel: Panel, width: int) -> Row:
    used, total = panel.memory
    value = [number(ABSENT)]
    if used is not None:
        text = in_unit_of(used, total)
        value = [number(text, 5, memory_style(used, total))]
        value.append(Span(f" of {size(total)}", DIM))
    label = "host" if panel.device.memory_is_shared else "mem"
    return _labelled_bar(
        label,
        share_of(used, total),
        palette.MEMORY,
        value,
        width,
    )


def _power_bar(panel: Panel, width: int) -> Row:
    r = panel.readings
    share = share_of(r.power_watts, r.power_limit_watts)
    value = [number(quantity(r.power_watts, ""))]
    if r.power_watts is not None:
        limit = ""
        if r.power_limit_watts is not None:
            limit = f" of {quantity(r.power_limit_watts, '')}"
        value.append(Span(f"{limit} W", DIM))
    return _labelled_bar("power", share, palette.POWER, value, width)
