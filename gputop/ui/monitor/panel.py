"""Draw one device as a panel of several rows. Pure functions."""

from __future__ import annotations

from rich.style import Style

from gputop.agent.device import DeviceSample
from gputop.schema.values import rate
from gputop.text import (
    ABSENT,
    age,
    fit_columns,
    percentage,
    quantity,
    size,
    used_of,
    watts_of,
)
from gputop.ui.drawing import charts, palette
from gputop.ui.drawing.cells import (
    Row,
    Span,
    bar,
    beside,
    cell,
    clip,
    clip_advice,
    faded,
    fit,
    paragraph,
    reading,
    rule_of,
    share_of,
    width_of,
)
from gputop.ui.drawing.charts import Chart
from gputop.ui.drawing.device_cells import (
    LONGEST_LIMIT,
    Part,
    bound_row,
    heat_style,
    limited_by,
    memory_style,
    name_of,
    number,
    parts_in_line,
    sign_of,
)
from gputop.ui.drawing.palette import ACCENT, DIM, STRONG, TAB, WARN
from gputop.ui.monitor.layout import NARROWEST_PANEL, Density
from gputop.ui.monitor.shown_device import ShownDevice
from gputop.ui.trouble import Trouble

LABEL, VALUE = 7, 20
"""Width of the label before a bar or chart, and of the text after it."""
LEAST_CHART, MOST_CHART = 2, 6
"""Minimum and maximum number of rows of a chart."""
BARRED = (charts.BUSY, charts.SM_ACTIVE, charts.MEMORY, charts.POWER)
"""Charts whose newest value is beside a bar already."""
DETAIL_ROWS = 4
"""Most rows of further readings."""

BOTH_LINKS = len(
    "PCIe ↓ 1.00 GiB/s ↑ 1.00 GiB/s · NVLink ↓ 1.00 GiB/s ↑ 1.00 GiB/s"
)
"""Cells in which both links fit, whatever their traffic, so that lines do not come and go."""


def draw(
    shown: ShownDevice,
    density: Density,
    width: int,
    height: int,
    *,
    selected: bool = False,
    focused: bool = True,
) -> list[Row]:
    """Draw the panel in exactly `height` rows of `width` cells.

    Label and name are reversed if it is selected; without the focus, only the label is.
    """
    mark, label, name = Span(" "), STRONG, STRONG
    if selected:
        mark, label = Span("▌", ACCENT), TAB
        if focused:
            name = TAB
    left = [
        mark,
        Span(f"{shown.label} ", label),
        Span(name_of(shown.device), name),
        Span(" "),
    ]
    bars = density is Density.FULL
    right = _title_end(shown, width - width_of(left), bars=bars)
    rows = [rule_of(left, [*right, Span(" ")], width)]
    inner, room = width - 3, height - 1
    if shown.fault is None:
        body = _body(shown, density, inner, room)
    else:
        body = _fault_rows(shown.fault, inner, room)
    for row in body[:room]:
        rows.append([mark, Span("  "), *row])
    rows += [[mark]] * (height - len(rows))
    return [fit(row, width) for row in rows]


def _body(
    shown: ShownDevice,
    density: Density,
    width: int,
    room: int,
) -> list[Row]:
    """Draw finding, bars, details and charts as far as they fit. Outdated readings are dim."""
    rows = [_busy_bar(shown, width), _memory_bar(shown, width)]
    if density is Density.FULL:
        if not shown.lacks("power_watts"):
            rows.append(_power_bar(shown.readings, width))
        left = room - 1 - len(rows)
        most = min(DETAIL_ROWS, max(1, left - LEAST_CHART))
        rows += _detail_rows(shown, width, most)
        rows += _charts(shown, width, room - 1 - len(rows))
    first = bound_row(shown.bound_by, shown.finding, width)
    if shown.trouble is not None:
        rows = faded(rows)
        first = [Span(clip(shown.trouble.remedy, width), WARN)]
    return [first, *rows]


def _charts(
    shown: ShownDevice,
    width: int,
    rows: int,
) -> list[Row]:
    """Draw as many charts as fit, in two columns if there is room."""
    columns = 2 if width >= 2 * NARROWEST_PANEL + 2 else 1
    wanted = shown.charts[: columns * max(0, rows // LEAST_CHART)]
    if not wanted:
        return []
    lines = -(-len(wanted) // columns)
    height = min(MOST_CHART, rows // lines)
    each = (width - 2 * (columns - 1)) // columns
    blocks: list[list[Row]] = [[] for _ in range(columns)]
    for place, chart in enumerate(wanted):
        blocks[place // lines] += _chart(shown, chart, each, height)
    return beside(blocks, each, 2)


def _chart(
    shown: ShownDevice,
    chart: Chart,
    width: int,
    height: int,
) -> list[Row]:
    """Draw a chart with its name, newest value, scale and time span."""
    telemetry, across = shown.telemetry, max(1, width - charts.GUTTER)
    now = telemetry.history.elapsed
    axis = charts.axis_of(now, across, telemetry.interval)
    drawn = charts.device_chart(telemetry, shown.device, chart, axis)
    value = "" if chart in BARRED else drawn.value
    scale = f"{drawn.scale} {axis.text}"
    return drawn._replace(value=value, scale=scale).rows(height)


def _title_end(shown: ShownDevice, room: int, *, bars: bool) -> Row:
    """Return the end of a title: the reason of low clocks or the age, and figures that fit."""
    limit, style = limited_by(shown.readings)
    figures: Row = []
    if shown.fault is None:
        # Room for a limit is always reserved, so that nothing moves when one
        # appears. The name is more useful than the last figures.
        room -= LONGEST_LIMIT + 3
        ranked = _figures(shown, bars=bars)
        for figure in fit_columns(ranked, room, width_of) or ranked[:1]:
            figures += figure
    if shown.old_seconds is not None:
        (figures,) = faded([figures])
        limit, style = f"{age(shown.old_seconds)} old", WARN
    if limit:
        figures.insert(0, Span(f"  {limit}", style))
    return figures


def _figures(shown: ShownDevice, *, bars: bool) -> list[Row]:
    """Return the figures of a title, the most useful first; with `bars`, no power or clock."""
    r = shown.readings
    heat = quantity(r.temperature_celsius, "°C")
    figures = [
        ("temperature_celsius", reading(heat, heat_style(shown.device, r))),
    ]
    if not bars:
        watts = watts_of(r.power_watts, r.power_limit_watts)
        figures.append(("power_watts", reading(watts)))
        clock = quantity(r.sm_clock_mhz, " MHz")
        figures.append(("sm_clock_mhz", reading(clock)))
    if r.performance_state is not None:
        figures.append(("", Span(f"P{r.performance_state}")))
    rows: list[Row] = []
    for name, span in figures:
        if not shown.lacks(name):
            rows.append([Span("  "), span])
    return rows


def _fault_rows(fault: Trouble, width: int, room: int) -> list[Row]:
    what = sign_of(fault.severity).style
    rows = paragraph(fault.what, width, what)
    rows += paragraph(fault.remedy, width)
    if len(rows) > room:
        return [
            [Span(clip(fault.what, width), what)],
            [Span(clip_advice(fault.remedy, width))],
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


def _busy_bar(shown: ShownDevice, width: int) -> Row:
    active, chart = shown.activity_percent, shown.activity
    value = [number(percentage(active))]
    tensor = shown.readings.tensor_active_percent
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


def _memory_bar(shown: ShownDevice, width: int) -> Row:
    used, total = shown.memory
    value = _of_limit(used_of(used, total), memory_style(used, total))
    label = "host" if shown.device.memory_is_shared else "mem"
    return _labelled_bar(
        label,
        share_of(used, total),
        palette.MEMORY,
        value,
        width,
    )


def _power_bar(r: DeviceSample, width: int) -> Row:
    share = share_of(r.power_watts, r.power_limit_watts)
    value = _of_limit(watts_of(r.power_watts, r.power_limit_watts), STRONG)
    return _labelled_bar("power", share, palette.POWER, value, width)


def _of_limit(text: str, style: Style) -> Row:
    """Return `71.2/79.6 GiB` as a number in that style, and ` of 79.6 GiB`."""
    value, slash, limit = text.partition("/")
    row = [number(value, max(5, len(value)), style)]
    if slash:
        row.append(Span(f" of {limit}", DIM))
    return row


def _detail_rows(shown: ShownDevice, width: int, most: int) -> list[Row]:
    """Draw the readings in up to `most` rows, the most useful first.

    A supported reading is shown even without a value. The device page says why it is missing.
    """
    device, r = shown.device, shown.readings
    clock = _of(r.sm_clock_mhz, device.sm_clock_max_mhz)
    memory = _of(r.memory_clock_mhz, device.memory_clock_max_mhz)
    units = [
        ("SM", "sm_clock_mhz", clock),
        ("SM active", "sm_active_percent", percentage(r.sm_active_percent)),
        ("DRAM", "dram_active_percent", percentage(r.dram_active_percent)),
        (
            "occupancy",
            "sm_occupancy_percent",
            percentage(r.sm_occupancy_percent),
        ),
    ]
    # SM active has a bar already.
    if shown.activity is charts.SM_ACTIVE:
        del units[1]
    others = [
        ("mem", "memory_clock_mhz", memory),
        (
            "bus",
            "memory_utilization_percent",
            percentage(r.memory_utilization_percent),
        ),
        ("fan", "fan_percent", percentage(r.fan_percent)),
    ]
    if r.memory_reserved_bytes:
        reserved = size(r.memory_reserved_bytes)
        others.append(("reserved", "memory_reserved_bytes", reserved))
    lines: list[list[Part]] = []
    for named in (units, others):
        parts: list[Part] = []
        for label, name, text in named:
            if not shown.lacks(name):
                parts.append((label, reading(text)))
        lines.append(parts)
    links: list[Part] = []
    for label, received, sent in (
        ("PCIe", r.pcie_rx_bytes_per_second, r.pcie_tx_bytes_per_second),
        ("NVLink", r.nvlink_rx_bytes_per_second, r.nvlink_tx_bytes_per_second),
    ):
        # Show both directions of a link, or neither.
        if (received, sent) != (None, None):
            traffic = Span(f"↓ {rate(received)} ↑ {rate(sent)}")
            links.append((label, traffic))
    if width >= BOTH_LINKS:
        lines.append(links)
    else:
        lines += [[link] for link in links]
    return [parts_in_line(parts, width) for parts in lines if parts][:most]


def _of(value: int | None, maximum: int | None) -> str:
    if value is None:
        return ABSENT
    return f"{value} MHz" if maximum is None else f"{value}/{maximum} MHz"
