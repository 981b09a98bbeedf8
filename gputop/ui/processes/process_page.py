"""Page of one process, with its environment, and the dialog that sends a signal to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.widgets import Static

from gputop.agent.masking import MASK, is_secret
from gputop.agent.problem import Problem, ProblemError
from gputop.agent.snapshot import Process
from gputop.text import count, moment, visible
from gputop.ui.drawing.filter_bar import FilterView
from gputop.ui.drawing.page import OfWidth, ScrolledPage
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


class ProcessDetailsView(ScrolledPage, FilterView):
    """Facts, charts and environment of a process, under its name. The filter is for the latter."""

    process: Process | None = None
    """Process that is shown."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(telemetry)
        self._listing = Static()
        """The environment. It may be large, and is not drawn with each sample."""

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield self._listing

    def show(self, process: Process, *, environment: bool) -> None:
        """Show that process, with its facts or its environment first."""
        self.process, self._held = process, [process]
        why = why_untouched(process, self._telemetry)
        self._problem = f"No details: {why}" if why else ""
        self._unmasked = self._telemetry.show_secrets
        self.forget()
        self.move_child(self._listing, after=self._page)
        self.scroll_home(animate=False)
        if environment:
            self.action_environment()

    def matches(self) -> str:
        return f"{len(self._matching)} of {len(self._variables)} match"

    def forget(self) -> None:
        self._details: ProcessDetails | None = None
        self._variables: Sequence[Variable] = ()
        self.type("")

    def update_details(self, found: ProcessDetails | Problem) -> None:
        """Show newer details, or why there are none."""
        self._problem = ""
        if isinstance(found, Problem):
            self._problem = str(found)
            self.redraw()
            return
        before, self._details = self._details, found
        self._variables = variables_of(found.environment or ())
        self.redraw()
        if before is None or before.environment != found.environment:
            self.type(self.typed)

    def type(self, text: str) -> None:
        self.typed = text
        self._matching = self._matching_lines()
        self._listing.update(Group(*self._environment()))

    def action_environment(self) -> None:
        self.move_child(self._listing, before=self._page)
        self.scroll_home(animate=False)

    def action_filter(self) -> None:
        super().action_filter()
        self.action_environment()

    def action_secrets(self) -> None:
        self._unmasked = not self._unmasked
        self.type(self.typed)
        self.redraw()

    def redraw(self) -> None:
        sample = self._telemetry.sample
        if self.process is None or sample is None:
            return
        self._held = rows_of(self.process, sample.processes) or self._held
        self._listed = process_rows(
            self._held,
            sample,
            self._telemetry.devices,
        )
        super().redraw()

    def title(self) -> Text:
        process = self._held[0]
        title = Text(f"{process.pid} ", ACCENT)
        for name in (
            process.user,
            process.machine and f"on {process.machine}",
        ):
            if name:
                title.append(f"{visible(name, 64)} ", STRONG)
        if process.start_time is not None:
            since = moment(process.start_time, "%Y-%m-%d %H:%M:%S")
            age = columns.AGE.text(self._listed[0])
            title.append(f" started {since}, {age} ago", DIM)
        return title

    def page(self) -> RenderableType:
        table = Table.grid()
        table.add_column(style=DIM, width=LABEL)
        table.add_column(overflow="fold")
        for label, text in self._facts():
            if text:
                table.add_row(label, Text(visible(text, len(text))))
        facts: list[RenderableType] = [table]
        if self._problem:
            problem = visible(self._problem, len(self._problem))
            facts.append(Text(problem, WARN))
        return Group(*facts, "", OfWidth(self._charts), "")

    def _charts(self, width: int) -> Text:
        rows = chart_rows(self._telemetry, self._held[0], width)
        return Text("\n").join([Text.assemble(*row) for row in rows])

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

    def _environment(self) -> Iterator[RenderableType]:
        details = self._details
        if details is None:
            return
        heading = Text("Environment ", ACCENT)
        if details.environment is None:
            yield heading.append(NOT_PERMITTED, DIM)
            return
        counts = f" / filter · {len(self._matching)} of {len(self._variables)}"
        secrets = sum(variable.secret for variable in self._variables)
        secrets += details.command != details.unmasked
        if secrets:
            verb = "masks" if self._unmasked else "shows"
            counts += f" · v {verb} {count(secrets, 'secret')}"
        yield heading.append(counts, DIM)
        yield from self._matching
        if not self._variables:
            yield Text("No variables", DIM)
        elif not self._matching:
            yield Text("No variable contains all of these words", DIM)
        yield ""

    def _matching_lines(self) -> list[Text]:
        words = self.typed.casefold().split()
        lines = []
        for variable in self._variables:
            # Masked values are not searched, because a filter could reveal
            # them bit by bit.
            value, style = variable.value, TEXT
            if variable.secret and not self._unmasked:
                value, style = MASK, DIM
            text = f"{variable.name}={value}".casefold()
            if all(word in text for word in words):
                name = (variable.name, STRONG)
                lines.append(Text.assemble(name, (f"={value}", style)))
        return lines


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
            self._view.update_details(found)
