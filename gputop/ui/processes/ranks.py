"""Page with the ranks of a parallel job on all hosts: one row per rank, the one behind marked."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

from rich.style import Style
from textual.app import ComposeResult

from gputop.agent.device import Absence, Device, DeviceSample, DeviceState
from gputop.agent.snapshot import Process
from gputop.health.bound_by import BUSY, POWER, TENSOR
from gputop.health.conditions import STATES
from gputop.health.findings import Finding, capitalized
from gputop.health.ranks import Job, JobState, find_jobs, in_order
from gputop.health.rule_view import TOO_SHORT
from gputop.health.rules.workload import CLOCK
from gputop.schema.derived import label_of
from gputop.schema.values import UNSEEN
from gputop.text import ABSENT, age, count, quantity, size, visible
from gputop.ui.drawing.cells import Row, Span, paragraph, rule_of
from gputop.ui.drawing.list_state import Column, ListState
from gputop.ui.drawing.list_view import ListView, Slot, fit_slots
from gputop.ui.drawing.live import TelemetryView
from gputop.ui.drawing.palette import ACCENT, DIM, GOOD, STRONG, TEXT, WARN
from gputop.ui.processes.screen import ListTab
from gputop.ui.telemetry import Telemetry

NOTHING = (
    "No process here belongs to a job with ranks. gputop finds ranks started by torchrun, "
    "DeepSpeed, Accelerate, mpirun and srun."
)
WAITS, AWAITED = "waits in a collective", "the others wait for it"
ENOUGH_NOTE, LEAST_NOTE = 22, 12
"""Width that the note keeps before less useful columns are shown, and its minimum width."""


class RankRow(NamedTuple):
    """A rank with its device."""

    rank: int
    process: Process
    gpu: str
    readings: DeviceSample
    note: str
    marked: str = ""
    """Reading that is out of line; empty if none is."""

    @property
    def is_behind(self) -> bool:
        return self.marked != ""


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
    lambda row: visible(row.process.machine or ABSENT, 64),
    right=False,
    most=20,
)
GPU = Column[RankRow](
    "GPU",
    4,
    lambda row: row.gpu,
)
PID = Column[RankRow](
    "PID",
    7,
    lambda row: str(row.process.pid),
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
MEMORY = Column[RankRow](
    "GPU MEM",
    9,
    lambda row: size(row.process.memory_used_bytes),
)
CPU = Column[RankRow](
    "CPU%",
    5,
    lambda row: quantity(row.process.cpu_percent, ""),
)
AGE = Column[RankRow](
    "AGE",
    6,
    lambda row: _age(row.readings.age_seconds),
)
NOTE = Column[RankRow](
    "",
    0,
    lambda row: row.note,
    right=False,
)
COLUMNS = (
    *(RANK, HOST, GPU, PID, BUSY_COLUMN, POWER_COLUMN, TENSOR_COLUMN),
    *(MEMORY, CPU, AGE, NOTE),
)
"""Columns in screen order."""
NEEDED = (RANK, HOST, GPU, BUSY_COLUMN, POWER_COLUMN)
BY_USE = (*NEEDED, PID, TENSOR_COLUMN, CPU, MEMORY, AGE)
"""Columns by usefulness. The last ones are dropped first."""
READINGS = {BUSY_COLUMN: BUSY, POWER_COLUMN: POWER, TENSOR_COLUMN: TENSOR}


def _age(seconds: float | None) -> str:
    if seconds is None:
        return ABSENT
    return age(seconds)


class Ranks(ListState[RankRow]):
    """Ranks of a job."""

    def identity(self, item: RankRow) -> Hashable:
        return item.rank

    def search_text(self, item: RankRow) -> str:
        process = item.process
        place = f"gpu{item.gpu} {process.machine or ''}"
        return f"rank{item.rank} {place} {process.pid} {item.note}".casefold()


class RanksTitle(TelemetryView):
    """The job, and its state in a sentence."""

    state: JobState | None = None
    gpu = ""
    """Name of the device of the rank that is behind."""
    place = ""
    """Number of the job, if there are several."""
    slow: Finding | None = None
    """Finding about a rank whose clock is low."""
    hidden: Mapping[Absence, set[object]] = {}
    """Processes whose environment cannot be read, by the reason."""

    def draw(
        self,
        width: int,
        height: int,
    ) -> list[Row]:
        rows: list[Row] = []
        if self.state is not None:
            left = [
                Span("Ranks of ", ACCENT),
                Span(f"{visible(self.state.job.id, 64)} ", STRONG),
            ]
            rows.append(
                rule_of(
                    left,
                    [Span(self.place, DIM)],
                    width,
                )
            )
            text, style = self._sentence(self.state)
            rows += paragraph(
                text,
                width,
                style,
                " ",
            )
        for reason, pids in self.hidden.items():
            why = UNSEEN.get(reason, "the host does not name them")
            text = f"Ranks unknown: {count(len(pids), 'pid')} ({why})"
            rows += paragraph(
                text,
                width,
                DIM,
                " ",
            )
        return rows[:height]

    def _sentence(self, state: JobState) -> tuple[str, Style]:
        if state.held_up is not None:
            return f"{state.sentence(self.gpu)} · s shows where it is", WARN
        if self.slow is not None:
            return f"{state.job.seen}. {capitalized(self.slow.line)}", WARN
        if state.lacking or state.job.missing:
            return state.sentence(), TEXT
        return state.sentence(), GOOD


class RanksView(ListView[RankRow]):
    """List of the ranks of a job."""

    noun = "ranks"
    has_hosts = False

    def __init__(self) -> None:
        super().__init__(Ranks(), COLUMNS)

    @property
    def process(self) -> Process | None:
        """Process of the selected rank."""
        row = self.selected
        if row is None:
            return None
        return row.process

    def nothing(self) -> str:
        return NOTHING

    def slots(self, width: int) -> Sequence[Slot[RankRow]]:
        def least(column: Column[RankRow]) -> float:
            if column in NEEDED:
                return LEAST_NOTE
            return ENOUGH_NOTE

        columns = [*COLUMNS]
        ranked = [*BY_USE]
        if not self.has_hosts:
            columns.remove(HOST)
            ranked.remove(HOST)
        return fit_slots(
            columns,
            ranked,
            width,
            least,
            ENOUGH_NOTE,
        )

    def style_of(
        self,
        item: RankRow,
        column: Column[RankRow],
    ) -> Style:
        is_marked = column in (RANK, NOTE)
        is_marked = is_marked or READINGS.get(column) == item.marked
        if item.is_behind and is_marked:
            return WARN
        if column is RANK:
            return STRONG
        if column is NOTE:
            return DIM
        return TEXT


class RanksPage(ListTab):
    """Ranks of one job. Other jobs are a key away."""

    processes: RanksView
    wants_gpm = True
    """True for the tensor cores, which show a rank that waits."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(
            telemetry,
            RanksView(),
            "ranks",
        )
        self._title = RanksTitle(telemetry, id="ranks-title")
        self._job_id: str | None = None

    def compose(self) -> ComposeResult:
        yield self._title
        yield self.processes

    @property
    def selected(self) -> Device | None:
        return super().selected or next(iter(self.telemetry.devices), None)

    def show(self, job_id: str | None) -> None:
        """Show that job, or else the one with a rank that is behind."""
        self._job_id = job_id
        state = self._update()
        if state is not None and state.held_up is not None:
            place = [*state.job.ranks].index(state.held_up.rank)
            self.processes.state.select(place)

    def show_telemetry(self) -> None:
        self._update()
        self._title.redraw()
        self.processes.redraw()

    def action_job(self, step: int) -> None:
        """Show the job `step` places further in the list."""
        states = self._states()
        if states:
            at = self._place(states)
            self.show(states[(at + step) % len(states)].job.id)
            self.show_telemetry()

    def _states(self) -> Sequence[JobState]:
        """Return all jobs, first those with a rank that is behind."""
        sample = self.telemetry.sample
        if sample is None:
            return ()
        judged = self.telemetry.judgement.jobs
        states = []
        for job in find_jobs(sample.processes):
            state = judged.get(job.id) or JobState(job, lacking=TOO_SHORT)
            held_up = state.held_up
            # During a pause, an older sample is shown than the judged one.
            if held_up is not None and held_up.rank not in job.ranks:
                state = JobState(job, lacking=TOO_SHORT)
            states.append(state._replace(job=job))
        return in_order(states)

    def _place(self, states: Sequence[JobState]) -> int:
        for number, state in enumerate(states):
            if state.job.id == self._job_id:
                return number
        return 0

    def _update(self) -> JobState | None:
        """List the ranks of the current sample. Return the state of the job, if there is one."""
        states = self._states()
        title = self._title
        title.hidden = self._hidden()
        title.state = None
        if not states:
            self.processes.state.fill(())
            return None
        at = self._place(states)
        state = states[at]
        self._job_id = state.job.id
        self.processes.has_hosts = self.telemetry.has_hosts
        title.state, title.place = state, ""
        title.slow = self._slow(state.job)
        rows = [self._row(rank, state) for rank in state.job.ranks]
        self.processes.state.fill(rows)
        if len(states) > 1:
            title.place = f" job {at + 1} of {len(states)} · n next "
        if state.held_up is not None:
            title.gpu = self._gpu_of(state.job, state.held_up.rank)
        return state

    def _slow(self, job: Job) -> Finding | None:
        """Return the finding about a rank whose clock is low, if there is one."""
        uuids = {process.device_uuid for process in job.ranks.values()}
        for finding in self.telemetry.findings:
            if finding.rule == "straggler" and finding.device_uuid in uuids:
                return finding
        return None

    def _hidden(self) -> dict[Absence, set[object]]:
        sample = self.telemetry.sample
        hidden: dict[Absence, set[object]] = {}
        if sample is None:
            return hidden
        for process in sample.processes:
            reason = process.absent.get("rank")
            if reason not in (None, Absence.NO_DATA_YET):
                pids = hidden.setdefault(reason, set())
                pids.add((process.machine, process.pid))
        return hidden

    def _gpu_of(
        self,
        job: Job,
        rank: int,
    ) -> str:
        device = self.telemetry.find_device(job.ranks[rank].device_uuid)
        if device is None:
            return ""
        return f"GPU {label_of(device)}, "

    def _row(
        self,
        rank: int,
        state: JobState,
    ) -> RankRow:
        process = state.job.ranks[rank]
        telemetry, uuid = self.telemetry, process.device_uuid
        device = telemetry.find_device(uuid)
        readings = telemetry.readings(uuid)
        note, marked = self._note(
            rank,
            state,
            readings,
        )
        gpu = ABSENT
        if device is not None:
            gpu = device.number
        return RankRow(
            rank,
            process,
            gpu,
            readings,
            note,
            marked,
        )

    def _note(
        self,
        rank: int,
        state: JobState,
        readings: DeviceSample,
    ) -> tuple[str, str]:
        """Return what is wrong with a rank, and the reading that is out of line; empty if none."""
        held_up, slow = state.held_up, self._title.slow
        if held_up is not None and held_up.rank == rank:
            return AWAITED, held_up.reading
        # Without a rank that they wait for, they may launch small kernels.
        if held_up is not None and rank in state.waiting:
            return WAITS, ""
        if readings.state is not DeviceState.OK:
            return STATES[readings.state], ""
        found = self.telemetry.problems.get(readings.uuid)
        if found is None:
            return "", ""
        if slow is not None and slow.device_uuid == readings.uuid:
            return found.line, CLOCK
        return found.line, ""
