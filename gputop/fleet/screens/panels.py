"""Panels around the map: the header, the list of problems, and the details of a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gputop.fleet.findings import job_of
from gputop.fleet.model import BUSY, Gpu, median_of
from gputop.fleet.page import counted, total_watts
from gputop.fleet.screens.map import SIGNS
from gputop.fleet.screens.state import FleetState
from gputop.health.findings import Finding
from gputop.text import (
    ABSENT,
    brief,
    count,
    duration,
    percentage,
    quantity,
    short_name,
    used_of,
    visible,
    watts_of,
)
from gputop.ui.drawing.cells import (
    Row,
    Span,
    cell,
    clip,
    faded,
    fit,
    reading,
    spread,
    width_of,
)
from gputop.ui.drawing.list_state import Column
from gputop.ui.drawing.list_view import ListView, Slot
from gputop.ui.drawing.live import LiveView
from gputop.ui.drawing.palette import (
    ACCENT,
    BADGE,
    DIM,
    GOOD,
    STRONG,
    TAB,
    TEXT,
    WARN,
)

SIGN = Column[Finding](
    "",
    1,
    lambda _: "!",
    right=False,
)
NAME = Column[Finding](
    "GPU",
    20,
    lambda finding: finding.label,
    right=False,
)
TITLE = Column[Finding](
    "",
    0,
    lambda finding: visible(finding.title),
    right=False,
)
COLUMNS = (SIGN, NAME, TITLE)


class StateView(LiveView):
    """View of the state of the fleet screen."""

    def __init__(self, state: FleetState, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self.state = state


class FleetHeader(StateView):
    """Totals, and the server or its problems."""

    def draw(self, width: int, height: int) -> list[Row]:  # noqa: ARG002
        state = self.state
        problems = [*filter(None, (state.refused, *state.fleet.problems))]
        if not problems or not state.fleet.gpus:
            return [self._title(width), self._server(width)]
        more = f" (+{len(problems) - 1} more)" if len(problems) > 1 else ""
        text = visible(f" ▲ {problems[0]}{more}")
        return [self._title(width), [Span(clip(text, width), WARN)]]

    def _title(self, width: int) -> Row:
        state, found = self.state, self.state.totals
        shown = f"{found.gpus:,} of " if state.typed else ""
        row = [
            Span(" gputop fleet ", ACCENT),
            Span(" SIMULATED " if state.fleet.simulated else "", BADGE),
            Span(f" {shown}{count(len(state.fleet.gpus), 'GPU')}", STRONG),
            Span(f" on {count(found.hosts, 'host')} ", DIM),
        ]
        for severity, sign in SIGNS.items():
            if many := found.findings.get(severity, 0):
                text = f" {sign.text} {counted(many, severity)} "
                row.append(Span(text, sign.style))
        if found.gpus and not found.findings:
            row.append(Span(" no problems found", GOOD))
        if state.age_seconds is None:
            return row
        age = f"{duration(state.age_seconds)} ago "
        when = Span(f"from {age}", WARN) if state.is_old else Span(age)
        return spread(row, [when], width)

    def _server(self, width: int) -> Row:
        state, found = self.state, self.state.totals
        text = f" {visible(state.where, 60)} · every {state.interval:g} s"
        if state.fleet.took_seconds is not None:
            text += f" · answered in {brief(state.fleet.took_seconds)}"
        memory = used_of(found.memory_used_bytes, found.memory_total_bytes)
        power = total_watts(found.power_watts)
        sums = f"memory {memory}  power {power} "
        if not state.gpus:
            sums = ""
        return spread([Span(text, DIM)], [Span(sums, DIM)], width)


class ProblemsView(ListView[Finding]):
    """List of problems. It shares its cursor with the map."""

    noun = "problems"

    def __init__(self, state: FleetState) -> None:
        super().__init__(state.problems, COLUMNS, id="problems")
        self._fleet = state

    def action_move(self, step: int) -> None:
        """Move the cursor by that many rows, and on the map to the GPU of the new row."""
        super().action_move(step)
        self._fleet.move_to_problem()

    def draw_lines(self, width: int) -> list[Row]:
        self.focused_list = self._fleet.on_list
        return super().draw_lines(width)

    def cell_of(self, item: Finding, slot: Slot[Finding]) -> Row:
        """Return the cells of a finding in a column."""
        if slot.column is SIGN:
            return [SIGNS[item.severity]]
        style = STRONG if slot.column is NAME else TEXT
        return [cell(slot.column.text(item), slot.cells, style)]

    def nothing(self) -> str:
        return "No problems found" if self._fleet.gpus else ""

    def heading(self, width: int) -> Row:
        """Return the number of GPUs with problems, instead of column titles."""
        title = Span(" PROBLEMS ", TAB if self._fleet.on_list else STRONG)
        many = count(self._fleet.totals.gpus_with_findings, "GPU")
        return fit([title, Span(f" of {many}, worst first", DIM)], width)


class DetailView(StateView):
    """Lines about a GPU: its place, labels and readings."""

    def draw(self, width: int, height: int) -> list[Row]:
        state = self.state
        gpu = state.cursor
        if gpu is None:
            return []
        readings = wrapped(_readings(gpu, state), width, height // 2)
        rows = [*wrapped(_place(gpu, state), width, height // 2), *readings]
        return faded(rows) if state.is_old else rows


def wrapped(
    parts: Iterable[Row],
    width: int,
    most: int,
) -> list[Row]:
    """Wrap the parts into at most `most` rows. A part without room is left out."""
    rows: list[Row] = [[Span("▌ ", ACCENT)]]
    for part in parts:
        if width_of([*rows[-1], *part]) > width and len(rows) < most:
            rows.append([Span("▌ ", ACCENT)])
        if width_of([*rows[-1], *part]) <= width:
            rows[-1] += [*part, Span("  ")]
    rows += [[Span("▌", ACCENT)]] * (most - len(rows))
    return [fit(row, width) for row in rows]


def _place(gpu: Gpu, state: FleetState) -> Iterator[Row]:
    """Yield the name, the model, the job with its peers, and the labels.

    Labels that differ between GPUs come first.
    """
    yield [
        Span(f"{gpu.place}  ", STRONG),
        Span(visible(short_name(gpu.name))),
    ]
    job = job_of(gpu)
    name = job.partition("=")[2] or job.rpartition("/")[2]
    if job:
        peers = [peer for peer in state.fleet.gpus if job_of(peer) == job]
        busy = BUSY.text(median_of(peers, BUSY))
        hosts = count(len({peer.host for peer in peers}), "host")
        text = f" ({count(len(peers), 'GPU')}, {hosts}, median busy {busy})"
        yield [
            Span("job ", DIM),
            Span(visible(name, 40), STRONG),
            Span(text, DIM),
        ]
    for label in dict.fromkeys((*state.fleet.label_names, *gpu.labels)):
        value = gpu.labels.get(label)
        if value and value != name:
            yield [
                Span(f"{visible(label, 40)} ", DIM),
                Span(visible(value, 80)),
            ]


def _readings(gpu: Gpu, state: FleetState) -> Iterator[Row]:
    """Yield the readings. Older readings are followed by their additional age."""
    if gpu.gpu_utilization_percent is None and gpu.temperature_celsius is None:
        yield [Span("no readings", WARN)]
    age = (
        ABSENT
        if gpu.age_seconds is None
        else f"{duration(gpu.age_seconds)} ago"
    )
    memory = used_of(gpu.memory_used_bytes, gpu.memory_total_bytes)
    reasons = ", ".join(gpu.clock_event_reasons or ()) or ABSENT
    shown = (
        (
            "busy ",
            percentage(gpu.gpu_utilization_percent),
            "gpu_utilization_percent",
        ),
        ("mem ", memory, "memory_used_bytes"),
        ("", quantity(gpu.temperature_celsius, "°C"), "temperature_celsius"),
        (
            "power ",
            watts_of(gpu.power_watts, gpu.power_limit_watts),
            "power_watts",
        ),
        ("clock ", quantity(gpu.sm_clock_mhz, " MHz"), "sm_clock_mhz"),
        ("SM ", percentage(gpu.sm_active_percent), "sm_active_percent"),
        (
            "tensor ",
            percentage(gpu.tensor_active_percent),
            "tensor_active_percent",
        ),
        ("DRAM ", percentage(gpu.dram_active_percent), "dram_active_percent"),
        (
            "mem temp ",
            quantity(gpu.memory_temperature_celsius, "°C"),
            "memory_temperature_celsius",
        ),
        ("scraped ", age, ""),
        ("clocks ", visible(reasons), "clock_event_reasons"),
        ("", visible(gpu.uuid), ""),
    )
    for name, text, field in shown:
        lag = state.fleet.lag_seconds(field)
        older = f" ({duration(lag)} older)" if lag else ""
        if text != ABSENT:
            yield [Span(name, DIM), reading(text), Span(older, DIM)]
