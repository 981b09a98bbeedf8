"""Page of one process, with its environment, and the dialog that sends a signal to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.widgets import Static

from gputop.agent.masking import MASK, is_secret
from gputop.agent.problem import Problem, ProblemError
from gputop.agent.snapshot import Process
from gputop.stream.process_history import key_of
from gputop.text import count, moment, visible
from gputop.ui.drawing.filter_bar import FilterView
from gputop.ui.drawing.page import OfWidth, ScrolledPage
from gputop.ui.drawing.palette import ACCENT, DIM, STRONG, TEXT
from gputop.ui.processes import columns
from gputop.ui.processes.columns import ProcessRow
from gputop.ui.processes.process_charts import chart_rows
from gputop.ui.processes.process_details import ProcessDetails, read_details
from gputop.ui.processes.screen import ProcessTab, why_untouched
from gputop.ui.processes.signal_dialog import SIGNALS
from gputop.ui.processes.table_state import process_rows
from gputop.ui.telemetry import Telemetry

LABEL = 11
"""Width of a label, with the space after it."""
ON_DEVICE = (
    *(columns.TYPE, columns.GPU_MEMORY, columns.SM, columns.MEMORY),
    *(columns.ENCODER, columns.DECODER),
)
ON_HOST = (columns.CPU, columns.RESIDENT)
HEADING = ("Environment ", ACCENT)
KEYS = " · / filters · v shows or masks secrets"
NOT_PERMITTED = "not permitted: run gputop as its user or as root"
STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting for storage or a driver",
    "T": "suspended",
    "Z": "a zombie",
}


class ProcessDetailsView(ScrolledPage, FilterView):
    """Facts, charts and environment of a process, under its name. The filter is for the latter."""

    process: Process | None = None
    """Process that is shown."""

    def compose(self) -> ComposeResult:
        yield from super().compose()
        # It may be large, and is not drawn with each sample.
        self._listing = Static()
        yield self._listing

    def show(self, process: Process, *, environment: bool) -> None:
        """Show that process, with its facts or its environment first."""
        self.process, self._rows = process, [ProcessRow(process)]
        why = why_untouched(process, self._telemetry)
        self._problem = f"No details: {why}" if why else ""
        self._unmasked = self._telemetry.show_secrets
        self.forget()
        self.move_child(self._listing, after=self._page)
        self.scroll_home(animate=False)
        if environment:
            self.action_environment()

    def matches(self) -> str:
        return f"{self._matching} match"

    def forget(self) -> None:
        self._details: ProcessDetails | None = None
        self._matching = "0 of 0"
        self.type("")

    def update_details(self, found: ProcessDetails | Problem) -> None:
        """Show newer details, or why there are none."""
        if isinstance(found, Problem):
            self._problem = str(found)
        else:
            before, self._details, self._problem = self._details, found, ""
            if before is None:
                # The environment is that of the start and does not change.
                self.type(self.typed)
        self.redraw()

    def type(self, text: str) -> None:
        self.typed = text
        self._listing.update(Group(*self._environment(), ""))

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
        key = key_of(self.process)
        own = [each for each in sample.processes if key_of(each) == key]
        # It may have ended, and a launcher is in no sample.
        own = own or [row.process for row in self._rows]
        self._rows = process_rows(own, sample, self._telemetry.devices)
        super().redraw()

    def title(self) -> Text:
        process = self._rows[0].process
        names = filter(None, (process.user, process.machine))
        title = Text(f"{process.pid} ", ACCENT)
        title.append(visible(" on ".join(names), 64), STRONG)
        if process.start_time is not None:
            since = moment(process.start_time, "%Y-%m-%d %H:%M:%S")
            age = columns.AGE.text(self._rows[0])
            title.append(f"  started {since}, {age} ago", DIM)
        return title

    def page(self) -> RenderableType:
        table = Table.grid()
        table.add_column(style=DIM, width=LABEL)
        table.add_column(overflow="fold")
        for label, text in self._facts():
            if text:
                table.add_row(label, Text(visible(text, len(text))))
        return Group(table, "", OfWidth(self._charts), "")

    def _charts(self, width: int) -> Text:
        rows = chart_rows(self._telemetry, self._rows[0].process, width)
        return Text("\n").join([Text.assemble(*row) for row in rows])

    def _facts(self) -> Iterator[tuple[str, str]]:
        process, details = self._rows[0].process, self._details
        known = details or process
        command = known.unmasked if self._unmasked else known.command
        yield "Command", command or process.command or ""
        for row in self._rows:
            if row.process.device_uuid:
                yield f"GPU {row.label}", _values(ON_DEVICE, row)
        yield "Host", _values(ON_HOST, self._rows[0])
        places = columns.places_of(process)
        if process.rank is not None:
            places.append(f"rank {process.rank} of {process.job_id}")
        yield "Runs in", " · ".join(places)
        yield "", self._problem
        if details is None:
            parent = (process.parent_pid, process.parent_command)
            yield "Parent", " ".join(str(part) for part in parent if part)
            return
        state = STATES.get(details.state, details.state)
        yield "State", f"{state} · {count(details.threads, 'thread')}"
        yield "Directory", details.directory or NOT_PERMITTED
        parents = [f"{name} {pid}" for pid, name in details.parents]
        yield "Parents", " ← ".join(parents)
        yield "Handles", _signals(details.caught)
        yield "Ignores", _signals(details.ignored)

    def _environment(self) -> Iterator[Text]:
        """Yield the variables that match the filter, under a heading."""
        if self._details is None:
            return
        environment = self._details.environment
        if environment is None:
            yield Text.assemble(HEADING, (NOT_PERMITTED, DIM))
            return
        words = self.typed.casefold().split()
        lines = []
        for name, known in sorted(environment):
            value, style = visible(known), TEXT
            # Masked values are not searched, because a filter could reveal
            # them bit by bit.
            if is_secret(name, known) and not self._unmasked:
                value, style = MASK, DIM
            line = Text.assemble((visible(name), STRONG), (f"={value}", style))
            if all(word in line.plain.casefold() for word in words):
                lines.append(line)
        self._matching = f"{len(lines)} of {len(environment)}"
        yield Text.assemble(HEADING, (f"{self._matching}{KEYS}", DIM))
        yield from lines or [Text("No variable matches", DIM)]


def _values(shown: Sequence[columns.ProcessColumn], row: ProcessRow) -> str:
    """Return the known values of a process in these columns."""
    known = [each for each in shown if each.value(row) is not None]
    return " · ".join(f"{each.title} {each.text(row)}" for each in known)


def _signals(bits: int) -> str:
    """Return the names of the signals in a set of the kernel."""
    return " ".join(each.name for each, _ in SIGNALS if bits >> each - 1 & 1)


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
