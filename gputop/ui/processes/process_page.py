"""Page of one process, with its environment, and the dialog that sends a signal to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.cells import chop_cells
from textual import work

from gputop.agent.masking import MASK, is_secret
from gputop.agent.problem import Problem, ProblemError
from gputop.agent.snapshot import Process
from gputop.text import count, moment, visible
from gputop.ui.drawing.cells import Row, Span, is_narrow, rule_of, spread, wrap
from gputop.ui.drawing.filter_bar import FilterView
from gputop.ui.drawing.live import ScrolledView
from gputop.ui.drawing.palette import ACCENT, DIM, STRONG, TEXT, WARN
from gputop.ui.processes import columns
from gputop.ui.processes.columns import ProcessRow
from gputop.ui.processes.process_charts import chart_rows
from gputop.ui.processes.process_details import ProcessDetails, read_details
from gputop.ui.processes.screen import ProcessTab, why_untouched
from gputop.ui.processes.signal_dialog import SIGNALS
from gputop.ui.processes.table_state import process_rows, rows_of
from gputop.ui.telemetry import Telemetry

LABEL = 11
"""Width of a label, with the space after it."""
ON_DEVICE = (
    *(columns.TYPE, columns.GPU_MEMORY, columns.SM, columns.MEMORY),
    *(columns.ENCODER, columns.DECODER),
)
ON_HOST = (columns.CPU, columns.RESIDENT)
NOT_PERMITTED = "not permitted: run gputop as its user or as root"
INDENT = "    "
_WORDS = (
    "running",
    "sleeping",
    "waiting for storage or a driver",
    "suspended",
    "a zombie",
)
STATES = dict(zip("RSDTZ", _WORDS, strict=True))


class Variable(NamedTuple):
    """Environment variable in visible characters."""

    name: str
    value: str
    secret: bool


def variables_of(environment: Iterable[tuple[str, str]]) -> list[Variable]:
    """Return the variables sorted by name."""
    return sorted(
        Variable(visible(n), visible(v), is_secret(n, v))
        for n, v in environment
    )


class ProcessDetailsView(ScrolledView, FilterView):
    """Rows about one process, under its name. The filter applies to its environment."""

    process: Process | None = None
    """Process that is shown."""

    def show(self, process: Process, *, environment: bool) -> None:
        """Show that process, from the top or from its environment."""
        self.process, self._held = process, [process]
        self.forget()
        why = why_untouched(process, self._telemetry)
        self._problem = ""
        if why:
            self._problem = f"No details: {why}"
        self._unmasked = self._telemetry.show_secrets
        self.scroll_home(animate=False)
        self._at_environment = environment
        """True while the heading of the environment is the first row."""
        self.type("")

    def matches(self) -> str:
        return f"{self._matching} of {len(self._variables)} match"

    def forget(self) -> None:
        self._matching = 0
        """Number of variables that match the filter."""
        self._details: ProcessDetails | None = None
        self._variables: Sequence[Variable] = ()

    def update(self, found: ProcessDetails | Problem) -> None:
        """Show newer details, or why there are none."""
        self._problem = ""
        if isinstance(found, Problem):
            self._problem = str(found)
        else:
            self._variables = variables_of(found.environment or ())
            self._details = found
        self.redraw()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        self._at_environment = False
        self.pinned = 0
        super().watch_scroll_y(old_value, new_value)

    def action_environment(self) -> None:
        self._at_environment = True
        self.redraw()

    def action_filter(self) -> None:
        super().action_filter()
        self.action_environment()

    def action_secrets(self) -> None:
        self._unmasked = not self._unmasked
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        sample = self._telemetry.sample
        if self.process is None or sample is None:
            return []
        self._held = rows_of(self.process, sample.processes) or self._held
        self._listed = process_rows(
            self._held,
            sample,
            self._telemetry.devices,
        )
        return [self._title(width), *super().draw(width, max(1, height - 1))]

    def _title(self, width: int) -> Row:
        process = self._held[0]
        names = (process.user, process.machine and f"on {process.machine}")
        left = [
            Span(f"{visible(each, 64)} ", STRONG) for each in names if each
        ]
        started = ""
        if process.start_time is not None:
            since = moment(process.start_time, "%Y-%m-%d %H:%M:%S")
            started = (
                f" started {since}, {columns.AGE.text(self._listed[0])} ago "
            )
        return rule_of(
            [Span(f"{process.pid} ", ACCENT), *left],
            [Span(started, DIM)],
            width,
        )

    def all_rows(self, width: int) -> list[Row]:
        rows: list[Row] = []
        for label, text in self._facts():
            for n, line in enumerate(
                _folded(visible(text, len(text)), width - LABEL),
            ):
                rows.append(
                    [Span(f"{'' if n else label:<{LABEL}}", DIM), Span(line)],
                )
        rows += [[Span(line, WARN)] for line in _folded(self._problem, width)]
        telemetry = self._telemetry
        drawn = chart_rows(
            telemetry.process_history,
            self._held[0],
            width,
            telemetry.interval,
        )
        if drawn:
            rows += [[], *drawn]
        self.pinned = 0
        if self._details is not None:
            if self._at_environment:
                self.pinned = len(rows) + 1
            rows += [[], *self._environment(self._details, width)]
        return rows

    def _facts(self) -> Iterator[tuple[str, str]]:
        process, details = self._held[0], self._details
        yield "Command", self._command()
        for row in self._listed:
            if row.process.device_uuid:
                yield f"GPU {row.label}", _values(ON_DEVICE, row)
        yield "Host", _values(ON_HOST, self._listed[0])
        yield "Runs in", " · ".join(places_of(process))
        if details is None:
            parent = (process.parent_pid, process.parent_command)
            yield "Parent", " ".join(str(part) for part in parent if part)
            return
        state = STATES.get(details.state, details.state)
        yield "State", f"{state} · {count(details.threads, 'thread')}"
        yield "Directory", details.directory or NOT_PERMITTED
        yield (
            "Parents",
            " ← ".join(f"{name} {pid}" for pid, name in details.parents),
        )
        for label, bits in (
            ("Handles", details.caught),
            ("Ignores", details.ignored),
        ):
            names = [each.name for each, _ in SIGNALS if bits >> each - 1 & 1]
            yield label, " ".join(names)

    def _command(self) -> str:
        """Return the longest known command, with its secrets if they are shown."""
        process, details = self._held[0], self._details
        known = [process.command]
        if details is not None:
            known.insert(0, details.command)
        if self._unmasked:
            known.insert(0, process.unmasked)
            if details is not None:
                known.insert(0, details.unmasked)
        return next(filter(None, known), "")

    def _environment(self, details: ProcessDetails, width: int) -> list[Row]:
        if details.environment is None:
            return [[Span("Environment ", ACCENT), Span(NOT_PERMITTED, DIM)]]
        words = self.typed.casefold().split()
        self._matching, rows = 0, []
        for variable in self._variables:
            # Masked values are not searched, because a filter could reveal
            # them bit by bit.
            value = variable.value
            if variable.secret and not self._unmasked:
                value = MASK
            text = f"{variable.name}={value}"
            if all(word in text.casefold() for word in words):
                self._matching += 1
                rows += _variable_rows(variable, text, width)
        counts = f"{self._matching} of {len(self._variables)}"
        secrets = sum(variable.secret for variable in self._variables)
        secrets += details.command != details.unmasked
        if secrets:
            verb = "masks" if self._unmasked else "shows"
            counts += f" · v {verb} {count(secrets, 'secret')}"
        left = [Span("Environment ", ACCENT), Span(" / filter", DIM)]
        heading = spread(left, [Span(counts, DIM)], width)
        if not self._variables:
            rows = [[Span("No variables", DIM)]]
        elif not rows:
            rows = [[Span("No variable contains all of these words", DIM)]]
        return [heading, *rows]


def places_of(process: Process) -> list[str]:
    """Return the job, pod and container of a process, and its rank."""
    names = (process.slurm_job, process.pod, process.container)
    kinds = ("job", "pod", "container")
    places = [
        f"{kind} {name}"
        for kind, name in zip(kinds, names, strict=True)
        if name
    ]
    if process.rank is not None:
        places.append(f"rank {process.rank} of {process.job_id}")
    return places


def _values(shown: Sequence[columns.ProcessColumn], row: ProcessRow) -> str:
    """Return the known values of a process in these columns."""
    known = []
    for column in shown:
        if column.value(row) is not None:
            known.append(f"{column.title} {column.text(row)}")
    return " · ".join(known)


def _folded(text: str, width: int) -> list[str]:
    """Return the lines of a text. It is wrapped at words if its characters take one cell each."""
    if is_narrow(text):
        return wrap(text, width)
    return chop_cells(text, max(20, width))


def _variable_rows(
    variable: Variable,
    text: str,
    width: int,
) -> list[Row]:
    room = max(2, width - len(INDENT))
    # This is faster: a megabyte may be cut at each drawing.
    if text.isascii():
        chunks = [text[n : n + room] for n in range(0, len(text), room)]
    else:
        chunks = chop_cells(text, room)
    name, value = (
        chunks[0][: len(variable.name)],
        chunks[0][len(variable.name) :],
    )
    style = TEXT if text.endswith(variable.value) else DIM
    row = [Span(name, STRONG), Span(value, style)]
    return [row, *([Span(INDENT), Span(chunk, style)] for chunk in chunks[1:])]


class ProcessPage(ProcessTab):
    """Page of one process, opened from a list."""

    _view: ProcessDetailsView

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(telemetry, ProcessDetailsView(telemetry), "process")
        self._read_for: Process | None = None

    def show(self, process: Process, environment: bool) -> None:
        self._view.show(process, environment=environment)

    def on_hide(self) -> None:
        """Drop the environment. It is read again when the page is shown."""
        self._view.forget()

    def show_telemetry(self) -> None:
        self._view.redraw()
        process = self.process
        if process is not None and process is not self._read_for:
            self._read(process)

    @work(group="details", exit_on_error=False)
    async def _read(self, process: Process) -> None:
        if process.start_time is None or why_untouched(
            process,
            self.telemetry,
        ):
            return
        self._read_for = process
        found: ProcessDetails | Problem
        try:
            # Reading blocks if the process hangs in the kernel.
            found = await asyncio.to_thread(
                read_details,
                process.pid,
                process.start_time,
            )
        except ProblemError as error:
            found = error.problem
        if self._read_for is process:
            self._read_for = None
        if process is self.process:
            self._view.update(found)
