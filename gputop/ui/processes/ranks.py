"""Page with the ranks of a parallel job on all hosts: one row per rank, the one behind marked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.console import Group
from rich.rule import Rule
from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.widgets import Static

from gputop.agent.device import Absence, DeviceSample
from gputop.agent.snapshot import Process
from gputop.health.bound_by import BUSY, POWER, TENSOR
from gputop.health.findings import capitalized
from gputop.health.ranks import JobState, find_jobs, in_order
from gputop.health.rule_view import TOO_SHORT
from gputop.schema.values import UNSEEN
from gputop.stream.process_history import key_of
from gputop.text import ABSENT, count, quantity, size, visible
from gputop.ui.drawing.list_state import Column, ListState
from gputop.ui.drawing.list_view import ListView, Slot, fit_slots
from gputop.ui.drawing.palette import (
    ACCENT,
    DIM,
    GOOD,
    STRONG,
    TEXT,
    TRACK,
    WARN,
)
from gputop.ui.processes.screen import ListTab
from gputop.ui.telemetry import Telemetry

NOTHING = (
    "No process here belongs to a job with ranks. gputop finds ranks started by torchrun, "
    "DeepSpeed, Accelerate, mpirun and srun."
)
WAITS, AWAITED = "waits in a collective", "the others wait for it"
NOTE_CELLS = 22
"""Width that the note keeps before less useful columns are shown."""


class RankRow(NamedTuple):
    """A rank with its device."""

    rank: int
    process: Process
    gpu: str
    readings: DeviceSample
    note: str
    """What is wrong with it, or that it waits; empty if it works."""
    marked: str = ""
    """Reading that is out of line, if the others wait for it."""


def _percent(name: str) -> Callable[[RankRow], str]:
    """Return the text of a percentage of the device."""
    return lambda row: quantity(getattr(row.readings, name), "")


RANK = Column[RankRow](
    "RANK",
    5,
    lambda row: str(row.rank),
)
HOST = Column[RankRow](
    "HOST",
    10,
    lambda row: visible(row.process.machine or ABSENT),
    right=False,
    most=20,
)
BUSY_COLUMN = Column[RankRow](
    "BUSY%",
    5,
    _percent(BUSY),
)
POWER_COLUMN = Column[RankRow](
    "POWER",
    6,
    lambda row: quantity(row.readings.power_watts, " W"),
)
TENSOR_COLUMN = Column[RankRow](
    "TENSOR%",
    7,
    _percent(TENSOR),
)
NOTE = Column[RankRow](
    "",
    0,
    lambda row: row.note,
    right=False,
)
COLUMNS = (
    RANK,
    HOST,
    Column[RankRow](
        "GPU",
        4,
        lambda row: row.gpu,
    ),
    Column[RankRow](
        "PID",
        7,
        lambda row: str(row.process.pid),
    ),
    BUSY_COLUMN,
    POWER_COLUMN,
    TENSOR_COLUMN,
    Column[RankRow](
        "CPU%",
        5,
        lambda row: quantity(row.process.cpu_percent, ""),
    ),
    Column[RankRow](
        "GPU MEM",
        9,
        lambda row: size(row.process.memory_used_bytes),
    ),
    NOTE,
)
"""Columns in screen order. The last ones before the note are dropped first."""
READINGS = {BUSY_COLUMN: BUSY, POWER_COLUMN: POWER, TENSOR_COLUMN: TENSOR}
STYLES = {RANK: STRONG, NOTE: DIM}


class Ranks(ListState[RankRow]):
    """Ranks of a job."""

    def identity(self, item: RankRow) -> Hashable:
        return item.rank

    def search_text(self, item: RankRow) -> str:
        process = item.process
        place = f"gpu{item.gpu} {process.machine or ''}"
        return f"rank{item.rank} {place} {process.pid} {item.note}".casefold()


class RanksView(ListView[RankRow]):
    """List of the ranks of a job."""

    noun = "ranks"

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(Ranks(), COLUMNS)
        self._telemetry = telemetry

    @property
    def process(self) -> Process | None:
        """Process of the selected rank."""
        row = self.selected
        return None if row is None else row.process

    def nothing(self) -> str:
        return NOTHING

    def slots(self, width: int) -> Sequence[Slot[RankRow]]:
        ranked = [*COLUMNS]
        ranked.remove(NOTE)
        if not self._telemetry.has_hosts:
            ranked.remove(HOST)
        least = NOTE_CELLS
        return fit_slots(COLUMNS, ranked, width, lambda _: least, least)

    def style_of(
        self,
        item: RankRow,
        column: Column[RankRow],
    ) -> Style:
        if item.note not in ("", WAITS) and column in STYLES:
            return WARN
        if item.marked and READINGS.get(column) == item.marked:
            return WARN
        return STYLES.get(column, TEXT)


class RanksPage(ListTab):
    """Ranks of one job. Other jobs are a key away."""

    processes: RanksView
    wants_gpm = True
    """True for the tensor cores, which show a rank that waits."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(
            telemetry,
            RanksView(telemetry),
            "ranks",
        )
        self._title = Static(id="ranks-title")
        self._job_id = ""

    def compose(self) -> ComposeResult:
        yield self._title
        yield self.processes

    def show(self, job_id: str | None) -> None:
        """Show that job, or else the one with a rank that is behind. Select that rank."""
        self._job_id = job_id or ""
        self.show_telemetry()
        state = self.processes.state
        for number, row in enumerate(state.lines):
            if row.marked:
                state.select(number)

    def show_telemetry(self) -> None:
        """List the ranks of the current sample, under the state of their job."""
        rows: list[RankRow] = []
        lines: list[Rule | Text] = []
        states = self._states()
        if states:
            at = self._place(states)
            state = states[at]
            self._job_id = state.job.id
            name = visible(state.job.id, 64)
            title = Text.assemble(("Ranks of ", ACCENT), (name, STRONG))
            if len(states) > 1:
                title.append(f" job {at + 1} of {len(states)} · n next", DIM)
            lines.append(Rule(title, style=TRACK, align="left"))
            lines.append(self._sentence(state))
            rows = [self._row(rank, state) for rank in state.job.ranks]
        self._title.update(Group(*lines, *self._unknown()), layout=False)
        self.processes.state.fill(rows)
        self.processes.redraw()

    def action_job(self, step: int) -> None:
        """Show the job `step` places further in the list."""
        states = self._states()
        if states:
            at = self._place(states) + step
            self.show(states[at % len(states)].job.id)

    def _states(self) -> Sequence[JobState]:
        """Return all jobs, first those with a rank that is behind."""
        sample = self.telemetry.sample
        if sample is None:
            return ()
        judged = self.telemetry.judgement.jobs
        states = []
        for job in find_jobs(sample.processes):
            state = judged.get(job.id)
            # Another sample was judged, during a pause a much newer one.
            if state is None or state.job.ranks.keys() != job.ranks.keys():
                state = JobState(job, lacking=TOO_SHORT)
            states.append(state._replace(job=job))
        return in_order(states)

    def _place(self, states: Sequence[JobState]) -> int:
        places = {state.job.id: n for n, state in enumerate(states)}
        return places.get(self._job_id, 0)

    def _sentence(self, state: JobState) -> Text:
        """Return the state of the job, or that the clock of a rank is low."""
        said = state.sentence()
        if state.held_up is not None:
            return Text(f"{said} · s shows where it is", WARN)
        uuids = {each.device_uuid for each in state.job.ranks.values()}
        for finding in self.telemetry.findings:
            if finding.rule == "straggler" and finding.device_uuid in uuids:
                said = f"{state.job.seen}. {capitalized(finding.line)}"
                return Text(visible(said), WARN)
        if state.lacking or state.job.missing:
            return Text(said)
        return Text(said, GOOD)

    def _unknown(self) -> Iterator[Text]:
        """Yield why environments cannot be read, and of how many processes."""
        sample = self.telemetry.sample
        reasons: Mapping[object, Absence | None] = {}
        if sample is not None:
            reasons = {
                key_of(p): p.absent.get("rank") for p in sample.processes
            }
        for reason, many in Counter(reasons.values()).items():
            if reason is not None and reason is not Absence.NO_DATA_YET:
                why = UNSEEN.get(reason, "the host does not name them")
                pids = count(many, "pid")
                yield Text(f"Ranks unknown: {pids} ({why})", DIM)

    def _row(self, rank: int, state: JobState) -> RankRow:
        process = state.job.ranks[rank]
        uuid = process.device_uuid
        device = self.telemetry.find_device(uuid)
        gpu = ABSENT if device is None else device.number
        note = marked = ""
        problem = self.telemetry.problems.get(uuid)
        if state.held_up is not None and state.held_up.rank == rank:
            note, marked = AWAITED, state.held_up.reading
        # Without a rank that they wait for, they may launch small kernels.
        elif state.held_up is not None and rank in state.waiting:
            note = WAITS
        elif problem is not None:
            note = problem.line
        readings = self.telemetry.readings(uuid)
        return RankRow(rank, process, gpu, readings, note, marked)
